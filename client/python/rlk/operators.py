"""A function for each operator method, with the names and defaults of its signature.

``client`` is a :class:`rlk.Client`, or an asyncio client; then the functions return awaitables.
``options`` are the fields of :class:`rlk.CallOptions`. Errors are those of
:meth:`rlk.Client.call`.
"""

from __future__ import annotations

from typing import Any

from rlk._codec import CallResult
from rlk._conditioning_operators import (
    adaln_projection_3mod,
    adaln_projection_3mod_backward,
    adaln_projection_3mod_table,
    det_linear,
    det_linear_backward_input,
    det_linear_backward_weight,
    timestep_mlp_fp32,
    timestep_mlp_fp32_backward,
    timestep_sinusoid_h3,
    timestep_sinusoid_h3_backward,
)

__all__ = [
    "adaln_projection_3mod",
    "adaln_projection_3mod_backward",
    "adaln_projection_3mod_table",
    "det_linear",
    "det_linear_backward_input",
    "det_linear_backward_weight",
    "final_logit_softcap",
    "final_logit_softcap_backward",
    "qwen3_next_rms_norm",
    "qwen3_next_rms_norm_backward",
    "rms_norm",
    "rms_norm_backward",
    "rms_norm_gated",
    "rms_norm_gated_backward",
    "timestep_mlp_fp32",
    "timestep_mlp_fp32_backward",
    "timestep_sinusoid_h3",
    "timestep_sinusoid_h3_backward",
]


def final_logit_softcap(
    client: Any, x: Any, softcap: float = 30.0, *, output_dtype: Any = None, **options: Any
) -> CallResult:
    """``y = softcap * tanh(x / softcap)``, element by element.

    Args:
        client: the client to call with.
        x: F32, F16 or BF16, of any shape.
        softcap: finite and greater than 0 once rounded to FP32.
        output_dtype: F32 (the default) or the dtype of x.

    Returns:
        A result with ``y``, of the shape of x, and ``report``.
    """
    return client.call(
        "final_logit_softcap.forward",
        x=x,
        softcap=softcap,
        output_dtype=output_dtype,
        **options,
    )


def final_logit_softcap_backward(
    client: Any, x: Any, grad_y: Any, softcap: float = 30.0, **options: Any
) -> CallResult:
    """``grad_x = grad_y * (1 - tanh(x / softcap)^2)``, recomputed from x.

    Args:
        client: the client to call with.
        x: F32, F16 or BF16, of any shape.
        grad_y: F32 or the dtype of x, of the shape of x.
        softcap: finite and greater than 0 once rounded to FP32.

    Returns:
        A result with ``grad_x``, of the shape and dtype of x, and ``report``.
    """
    return client.call(
        "final_logit_softcap.backward", x=x, grad_y=grad_y, softcap=softcap, **options
    )


def rms_norm(
    client: Any,
    x: Any,
    weight: Any,
    eps: float = 1e-6,
    weight_offset: float = 0.0,
    **options: Any,
) -> CallResult:
    """``y = x / sqrt(mean(x^2) + eps) * (weight_offset + weight)`` over the last dimension.

    Args:
        client: the client to call with.
        x: F32, F16 or BF16, [..., H], H from 1 to 65,536.
        weight: [H], F32 or the dtype of x.
        eps: finite and greater than 0 once rounded to FP32.
        weight_offset: finite; added to the weight in FP32, and 0 leaves it as it is.

    Returns:
        A result with ``y``, of the shape and dtype of x, ``rstd``, F32 [...], where ``wanted``
        names it, and ``report``.
    """
    return client.call(
        "rms_norm.forward", x=x, weight=weight, eps=eps, weight_offset=weight_offset, **options
    )


def rms_norm_backward(
    client: Any,
    x: Any,
    weight: Any,
    grad_y: Any,
    eps: float = 1e-6,
    weight_offset: float = 0.0,
    *,
    rstd: Any = None,
    dweight_acc_in: Any = None,
    rows_before: int = 0,
    **options: Any,
) -> CallResult:
    """Gradients of :func:`rms_norm`.

    Args:
        client: the client to call with.
        x, weight, eps, weight_offset: as in the forward.
        grad_y: F32 or the dtype of x, of the shape of x.
        rstd: as the forward returned it; recomputed, with the same bits, by default.
        dweight_acc_in: F32 [H], ``dweight_acc`` of the rows before these.
        rows_before: how many rows that accumulator holds.

    Returns:
        A result with ``grad_x``, ``grad_weight``, of the dtypes of x and weight, ``dweight_acc``
        (the FP32 accumulator) where ``wanted`` names it, and ``report``.
    """
    return client.call(
        "rms_norm.backward",
        x=x,
        weight=weight,
        grad_y=grad_y,
        eps=eps,
        weight_offset=weight_offset,
        rstd=rstd,
        dweight_acc_in=dweight_acc_in,
        rows_before=rows_before,
        **options,
    )


def qwen3_next_rms_norm(
    client: Any, x: Any, weight: Any, eps: float = 1e-6, **options: Any
) -> CallResult:
    """:func:`rms_norm` with the zero-centred weights of Qwen3-Next: the offset is 1."""
    return client.call("qwen3_next_rms_norm.forward", x=x, weight=weight, eps=eps, **options)


def qwen3_next_rms_norm_backward(
    client: Any,
    x: Any,
    weight: Any,
    grad_y: Any,
    eps: float = 1e-6,
    *,
    rstd: Any = None,
    dweight_acc_in: Any = None,
    rows_before: int = 0,
    **options: Any,
) -> CallResult:
    """Gradients of :func:`qwen3_next_rms_norm`, with those of :func:`rms_norm_backward`."""
    return client.call(
        "qwen3_next_rms_norm.backward",
        x=x,
        weight=weight,
        grad_y=grad_y,
        eps=eps,
        rstd=rstd,
        dweight_acc_in=dweight_acc_in,
        rows_before=rows_before,
        **options,
    )


def rms_norm_gated(
    client: Any,
    x: Any,
    weight: Any,
    gate: Any,
    eps: float = 1e-6,
    weight_offset: float = 0.0,
    *,
    activation: str = "silu",
    **options: Any,
) -> CallResult:
    """``y = rms_norm(x) * activation(gate)``.

    Args:
        client: the client to call with.
        x, weight, eps, weight_offset: as in :func:`rms_norm`.
        gate: of the shape and dtype of x.
        activation: "silu", "swish" (the same) or "sigmoid".

    Returns:
        A result with ``y``, ``rstd`` where ``wanted`` names it, and ``report``.
    """
    return client.call(
        "rms_norm_gated.forward",
        x=x,
        weight=weight,
        gate=gate,
        eps=eps,
        weight_offset=weight_offset,
        activation=activation,
        **options,
    )


def rms_norm_gated_backward(
    client: Any,
    x: Any,
    weight: Any,
    gate: Any,
    grad_y: Any,
    eps: float = 1e-6,
    weight_offset: float = 0.0,
    *,
    activation: str = "silu",
    rstd: Any = None,
    dweight_acc_in: Any = None,
    rows_before: int = 0,
    **options: Any,
) -> CallResult:
    """Gradients of :func:`rms_norm_gated`: as :func:`rms_norm_backward`, and ``grad_gate``."""
    return client.call(
        "rms_norm_gated.backward",
        x=x,
        weight=weight,
        gate=gate,
        grad_y=grad_y,
        eps=eps,
        weight_offset=weight_offset,
        activation=activation,
        rstd=rstd,
        dweight_acc_in=dweight_acc_in,
        rows_before=rows_before,
        **options,
    )
