"""Functions of det_linear, timestep_sinusoid_h3 and timestep_mlp_fp32; see rlk.operators."""

from __future__ import annotations

from typing import Any

from rlk._codec import CallResult


def det_linear(
    client: Any,
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    activation: str = "none",
    output_dtype: Any = None,
    fold_parts: int = 0,
    **options: Any,
) -> CallResult:
    """``y = activation(x weight^T + bias)``, with sums of one order whatever the batch.

    Args:
        client: the client to call with.
        x: F32, or where a contract takes it BF16, [T, K]; T at least 1, K a multiple of 4.
        weight: [N, K], in the dtype of x.
        bias: [N], in the dtype of x.
        activation: "none", "silu" or, on CUDA backends only, "silu_cuda".
        output_dtype: F32 or the dtype of x, which is the default.
        fold_parts: parts of the reduction; 0 is the contract's rule.

    Returns:
        A result with ``y`` [T, N], ``pre``, F32 [T, N], what the activation was given, where
        ``wanted`` names it, and ``report``.
    """
    return client.call(
        "det_linear.forward",
        x=x,
        weight=weight,
        bias=bias,
        activation=activation,
        output_dtype=output_dtype,
        fold_parts=fold_parts,
        **options,
    )


def det_linear_backward_input(
    client: Any,
    grad_y: Any,
    weight: Any,
    *,
    pre: Any = None,
    activation: str = "none",
    output_dtype: Any = None,
    fold_parts: int = 0,
    **options: Any,
) -> CallResult:
    """The gradient of x of :func:`det_linear`.

    Args:
        client: the client to call with.
        grad_y: F32 or the dtype of weight, [T, N].
        weight, activation, fold_parts: as in the forward.
        pre: as the forward returned it; with an activation, and only then.
        output_dtype: F32, which is the default, or the dtype of weight.

    Returns:
        A result with ``grad_x`` [T, K] and ``report``.
    """
    return client.call(
        "det_linear.backward_input",
        grad_y=grad_y,
        weight=weight,
        pre=pre,
        activation=activation,
        output_dtype=output_dtype,
        fold_parts=fold_parts,
        **options,
    )


def det_linear_backward_weight(
    client: Any,
    grad_y: Any,
    x: Any,
    *,
    pre: Any = None,
    dweight_acc_in: Any = None,
    dbias_acc_in: Any = None,
    rows_before: int = 0,
    activation: str = "none",
    **options: Any,
) -> CallResult:
    """The gradients of weight and bias of :func:`det_linear`, folded over the rows in order.

    Args:
        client: the client to call with.
        grad_y: F32 or the dtype of x, [T, N].
        x, activation: as in the forward.
        pre: as the forward returned it; with an activation, and only then.
        dweight_acc_in, dbias_acc_in: F32, the accumulators of the rows before these.
        rows_before: how many rows those hold.

    Returns:
        A result with ``grad_weight`` [N, K]; where ``wanted`` names them ``grad_bias`` [N] and the
        F32 accumulators ``dweight_acc`` and ``dbias_acc``; and ``report``.
    """
    return client.call(
        "det_linear.backward_weight",
        grad_y=grad_y,
        x=x,
        pre=pre,
        dweight_acc_in=dweight_acc_in,
        dbias_acc_in=dbias_acc_in,
        rows_before=rows_before,
        activation=activation,
        **options,
    )


def timestep_sinusoid_h3(
    client: Any,
    timestep: Any,
    num_channels: int = 256,
    max_period: float = 10000.0,
    **options: Any,
) -> CallResult:
    """``embedding[t] = [cos(t f_k), sin(t f_k)]``, ``f_k = max_period^(-2k / num_channels)``.

    Args:
        client: the client to call with.
        timestep: F32, F16 or BF16, [T], each finite and in [0, 1].
        num_channels: even.
        max_period: at least 1e-5 once rounded to FP32.

    Returns:
        A result with ``embedding``, F32 [T, num_channels], and ``report``.
    """
    return client.call(
        "timestep_sinusoid_h3.forward",
        timestep=timestep,
        num_channels=num_channels,
        max_period=max_period,
        **options,
    )


def timestep_sinusoid_h3_backward(
    client: Any,
    grad_embedding: Any,
    embedding: Any,
    max_period: float = 10000.0,
    *,
    timestep_dtype: Any = None,
    **options: Any,
) -> CallResult:
    """The gradient of the timesteps of :func:`timestep_sinusoid_h3`.

    Args:
        client: the client to call with.
        grad_embedding: F32 [T, C].
        embedding: as the forward returned it.
        max_period: as in the forward.
        timestep_dtype: F32, which is the default, F16 or BF16.

    Returns:
        A result with ``grad_timestep`` [T] and ``report``.
    """
    return client.call(
        "timestep_sinusoid_h3.backward",
        grad_embedding=grad_embedding,
        embedding=embedding,
        max_period=max_period,
        timestep_dtype=timestep_dtype,
        **options,
    )


def timestep_mlp_fp32(
    client: Any, x: Any, w1: Any, b1: Any, w2: Any, b2: Any, **options: Any
) -> CallResult:
    """``y = silu(x w1^T + b1) w2^T + b2``, all of it F32.

    Args:
        client: the client to call with.
        x: [T, K]; T at least 1, K a multiple of 4.
        w1, b1: [M, K] and [M], M a multiple of 4.
        w2, b2: [N, M] and [N].

    Returns:
        A result with ``y`` [T, N], ``pre`` [T, M], what the activation was given, where ``wanted``
        names it, and ``report``.
    """
    return client.call("timestep_mlp_fp32.forward", x=x, w1=w1, b1=b1, w2=w2, b2=b2, **options)


def timestep_mlp_fp32_backward(
    client: Any,
    x: Any,
    w1: Any,
    b1: Any,
    w2: Any,
    grad_y: Any,
    *,
    pre: Any = None,
    **options: Any,
) -> CallResult:
    """Gradients of :func:`timestep_mlp_fp32`.

    Args:
        client: the client to call with.
        x, w1, b1, w2: as in the forward.
        grad_y: [T, N].
        pre: as the forward returned it; recomputed, with the same bits, by default.

    Returns:
        A result with ``grad_x``, ``grad_w1``, ``grad_b1``, ``grad_w2``, ``grad_b2`` and ``report``.
    """
    return client.call(
        "timestep_mlp_fp32.backward", x=x, w1=w1, b1=b1, w2=w2, grad_y=grad_y, pre=pre, **options
    )


def adaln_projection_3mod(
    client: Any, temb: Any, weight: Any, bias: Any, *, fold_parts: int = 0, **options: Any
) -> CallResult:
    """``silu(temb) weight^T + bias`` as the six views of an AdaLN block with three modalities.

    Args:
        client: the client to call with.
        temb: F32 [T, D]; T at least 1. BF16 is refused: a cast before the SiLU would change about
            half of the outputs.
        weight: [18 H, D], F32 with D a multiple of 4, or BF16 with D a multiple of 8.
        bias: [18 H], in the dtype of weight.
        fold_parts: parts of the reduction; 0 is the contract's rule.

    Returns:
        A result with ``shift_msa``, ``scale_msa``, ``gate_msa``, ``shift_mlp``, ``scale_mlp`` and
        ``gate_mlp``, each [3 T, H] in the dtype of weight with rows t0 m0, t0 m1, t0 m2, t1 m0 and
        so on, and ``report``.
    """
    return client.call(
        "adaln_projection_3mod.forward",
        temb=temb,
        weight=weight,
        bias=bias,
        fold_parts=fold_parts,
        **options,
    )


def adaln_projection_3mod_table(
    client: Any, temb: Any, weight: Any, bias: Any, *, fold_parts: int = 0, **options: Any
) -> CallResult:
    """The same as one ``table`` [T, 18 H]: channel m 6H + c H + h of modality m and chunk c."""
    return client.call(
        "adaln_projection_3mod.forward_table",
        temb=temb,
        weight=weight,
        bias=bias,
        fold_parts=fold_parts,
        **options,
    )


def adaln_projection_3mod_backward(
    client: Any,
    temb: Any,
    weight: Any,
    *,
    grad_shift_msa: Any = None,
    grad_scale_msa: Any = None,
    grad_gate_msa: Any = None,
    grad_shift_mlp: Any = None,
    grad_scale_mlp: Any = None,
    grad_gate_mlp: Any = None,
    fold_parts: int = 0,
    **options: Any,
) -> CallResult:
    """Gradients of :func:`adaln_projection_3mod`.

    Args:
        client: the client to call with.
        temb, weight: as in the forward.
        grad_shift_msa, grad_scale_msa, grad_gate_msa, grad_shift_mlp, grad_scale_mlp,
            grad_gate_mlp: [3 T, H], F32 or the dtype of weight, all of one; an absent one is zero,
            and at least one is given.
        fold_parts: as in the forward.

    Returns:
        A result with ``grad_temb``, F32 [T, D], ``grad_weight`` and ``grad_bias``, in the dtype of
        weight, and ``report``.
    """
    return client.call(
        "adaln_projection_3mod.backward",
        temb=temb,
        weight=weight,
        grad_shift_msa=grad_shift_msa,
        grad_scale_msa=grad_scale_msa,
        grad_gate_msa=grad_gate_msa,
        grad_shift_mlp=grad_shift_mlp,
        grad_scale_mlp=grad_scale_mlp,
        grad_gate_mlp=grad_gate_mlp,
        fold_parts=fold_parts,
        **options,
    )
