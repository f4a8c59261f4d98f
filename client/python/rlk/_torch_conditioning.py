"""det_linear, the timestep MLP, the sinusoid and AdaLN for torch, behind functions of rlk.torch."""

from __future__ import annotations

import operator
from typing import Any, List, Optional, Tuple

import torch

from rlk import _torch_operator
from rlk._torch_operator import CALL, Operator, ending, options, pick, wanted
from rlk.client import Client, client_by_key

_ADALN_CHUNKS = ("shift_msa", "scale_msa", "gate_msa", "shift_mlp", "scale_mlp", "gate_mlp")


def det_linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: Optional[torch.Tensor] = None,
    *,
    activation: str = "none",
    contract: Optional[str] = None,
    backend: Optional[str] = None,
    client: Optional[Client] = None,
) -> torch.Tensor:
    """``activation(x weight^T + bias)``, differentiable once with respect to all three.

    The sums have one order, whatever the batch; gradients of weight and bias are folds over the
    rows in order.

    Args:
        x: float32, [..., K], with at least one row; K a multiple of 4.
        weight: [N, K], of the dtype of x.
        bias: [N], of the dtype of x.
        activation: "none", "silu" or, on CUDA backends only, "silu_cuda".
        contract: a contract id, for both directions; by default the methods' first.
        backend: a backend's name, for both directions; by default the server selects.
        client: the client to call with; by default that of :func:`rlk.set_default_client`. It must
            live until the backward pass is done.

    Returns:
        A contiguous tensor [..., N] of the dtype of x.

    Raises:
        RlkError: as :meth:`rlk.Client.call`, in the forward or the backward pass.
    """
    # Shapes that are no linear's input go as they are: the server names what is wrong.
    rows = x.flatten(0, -2) if x.dim() > 1 else x.reshape(1, *x.shape) if x.dim() == 1 else x
    y = _linear(rows, weight, bias, activation, *ending(contract, backend, client))[0]
    return y.reshape(*x.shape[:-1], weight.shape[0])


def timestep_sinusoid_h3(
    timestep: torch.Tensor,
    num_channels: int = 256,
    max_period: float = 10000.0,
    *,
    contract: Optional[str] = None,
    backend: Optional[str] = None,
    client: Optional[Client] = None,
) -> torch.Tensor:
    """``[cos(t f_k), sin(t f_k)]`` for fractions t, differentiable once with respect to them.

    Args:
        timestep: float32, float16 or bfloat16, [T], each in [0, 1].
        num_channels: even.
        max_period: at least 1e-5 once rounded to FP32.
        contract, backend, client: as in :func:`det_linear`. ``timestep_sinusoid_h3/h3-v1`` has
            the bits of diffusers' embedding on a GPU.

    Returns:
        A float32 tensor [T, num_channels]. The gradient has the dtype of timestep.

    Raises:
        RlkError: as :meth:`rlk.Client.call`, in the forward or the backward pass.
    """
    call = ending(contract, backend, client)
    return _sinusoid(timestep, operator.index(num_channels), float(max_period), *call)


def timestep_mlp_fp32(
    x: torch.Tensor,
    w1: torch.Tensor,
    b1: torch.Tensor,
    w2: torch.Tensor,
    b2: torch.Tensor,
    *,
    contract: Optional[str] = None,
    backend: Optional[str] = None,
    client: Optional[Client] = None,
) -> torch.Tensor:
    """``silu(x w1^T + b1) w2^T + b2`` in float32, differentiable once with respect to all five.

    Args:
        x: float32, [T, K], with at least one row; K a multiple of 4.
        w1, b1: float32, [M, K] and [M]; M a multiple of 4.
        w2, b2: float32, [N, M] and [N].
        contract, backend, client: as in :func:`det_linear`.

    Returns:
        A float32 tensor [T, N].

    Raises:
        RlkError: as :meth:`rlk.Client.call`, in the forward or the backward pass.
    """
    return _mlp(x, w1, b1, w2, b2, *ending(contract, backend, client))[0]


def adaln_projection_3mod(
    temb: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    *,
    contract: Optional[str] = None,
    backend: Optional[str] = None,
    client: Optional[Client] = None,
) -> Tuple[torch.Tensor, ...]:
    """``silu(temb) weight^T + bias`` as six views, differentiable once with respect to all three.

    Args:
        temb: float32, [T, D], with at least one row. Its gradient is float32 and not rounded to the
            dtype of weight, as torch's autograd would.
        weight: float32 or bfloat16, [18 H, D].
        bias: [18 H], of the dtype of weight.
        contract, backend, client: as in :func:`det_linear`.

    Returns:
        shift_msa, scale_msa, gate_msa, shift_mlp, scale_mlp and gate_mlp, each [3 T, H] with rows
        t0 m0, t0 m1, t0 m2, t1 m0 and so on.

    Raises:
        RlkError: as :meth:`rlk.Client.call`, in the forward or the backward pass.
    """
    table = _adaln(temb, weight, bias, *ending(contract, backend, client))
    width = weight.shape[0] // 18
    return tuple(table.reshape(3 * temb.shape[0], 6 * width).split(width, dim=1))


def _linear_forward(x: Any, weight: Any, bias: Any, activation: str, *call: Any) -> Any:
    contract, backend, key = call
    result = client_by_key(key).call(
        "det_linear.forward",
        options=options(contract, backend),
        x=x.contiguous(),
        weight=weight.contiguous(),
        bias=None if bias is None else bias.contiguous(),
        activation=activation,
        wanted=("y", "pre"),
    )
    return result.y, result.pre


def _linear_backward(saved: Any, grad_y: Any, needs: Any, activation: str, *call: Any) -> Any:
    contract, backend, key = call
    x, weight, pre = (tensor.contiguous() for tensor in saved[:3])
    common = {
        "options": options(contract, backend),
        "grad_y": grad_y.contiguous(),
        "pre": None if activation == "none" else pre,
        "activation": activation,
    }
    client = client_by_key(key)
    grad_x: Optional[torch.Tensor] = None
    if needs[0]:
        result = client.call(
            "det_linear.backward_input", weight=weight, output_dtype=x.dtype, **common
        )
        grad_x = result.grad_x
    names, others = ("grad_weight", "grad_bias"), needs[1:]
    if not any(others):
        return [grad_x, None, None]
    result = client.call("det_linear.backward_weight", x=x, wanted=wanted(names, others), **common)
    return [grad_x, *pick(result, names, others)]


def _linear_saved(inputs: Any, outputs: Any) -> List[Any]:
    x, weight, bias = inputs[:3]
    # The bias gives its gradient's shape alone.
    return [x, weight, outputs[1], bias]


def _sinusoid_forward(timestep: Any, num_channels: int, max_period: float, *call: Any) -> Any:
    contract, backend, key = call
    return (
        client_by_key(key)
        .call(
            "timestep_sinusoid_h3.forward",
            options=options(contract, backend),
            timestep=timestep,
            num_channels=num_channels,
            max_period=max_period,
        )
        .embedding
    )


def _sinusoid_backward(
    saved: Any, grad_y: Any, needs: Any, num_channels: int, max_period: float, *call: Any
) -> Any:
    contract, backend, key = call
    timestep, embedding = saved
    result = client_by_key(key).call(
        "timestep_sinusoid_h3.backward",
        options=options(contract, backend),
        grad_embedding=grad_y.contiguous(),
        embedding=embedding,
        max_period=max_period,
        timestep_dtype=timestep.dtype,
    )
    return [result.grad_timestep]


def _mlp_forward(x: Any, w1: Any, b1: Any, w2: Any, b2: Any, *call: Any) -> Any:
    contract, backend, key = call
    result = client_by_key(key).call(
        "timestep_mlp_fp32.forward",
        options=options(contract, backend),
        x=x.contiguous(),
        w1=w1.contiguous(),
        b1=b1.contiguous(),
        w2=w2.contiguous(),
        b2=b2.contiguous(),
        wanted=("y", "pre"),
    )
    return result.y, result.pre


def _mlp_backward(saved: Any, grad_y: Any, needs: Any, *call: Any) -> Any:
    contract, backend, key = call
    x, w1, b1, w2, pre = (tensor.contiguous() for tensor in saved[:5])
    names = ("grad_x", "grad_w1", "grad_b1", "grad_w2", "grad_b2")
    result = client_by_key(key).call(
        "timestep_mlp_fp32.backward",
        options=options(contract, backend),
        x=x,
        w1=w1,
        b1=b1,
        w2=w2,
        grad_y=grad_y.contiguous(),
        pre=pre,
        wanted=wanted(names, needs),
    )
    return pick(result, names, needs)


def _adaln_forward(temb: Any, weight: Any, bias: Any, *call: Any) -> Any:
    contract, backend, key = call
    result = client_by_key(key).call(
        "adaln_projection_3mod.forward_table",
        options=options(contract, backend),
        temb=temb.contiguous(),
        weight=weight.contiguous(),
        bias=bias.contiguous(),
    )
    return result.table


def _adaln_backward(saved: Any, grad_y: Any, needs: Any, *call: Any) -> Any:
    contract, backend, key = call
    temb, weight = (tensor.contiguous() for tensor in saved[:2])
    width = weight.shape[0] // 18
    views = grad_y.reshape(3 * temb.shape[0], 6, width)
    names = ("grad_temb", "grad_weight", "grad_bias")
    result = client_by_key(key).call(
        "adaln_projection_3mod.backward",
        options=options(contract, backend),
        temb=temb,
        weight=weight,
        wanted=wanted(names, needs),
        **{"grad_" + chunk: views[:, at].contiguous() for at, chunk in enumerate(_ADALN_CHUNKS)},
    )
    return pick(result, names, needs)


_LINEAR = Operator(
    name="det_linear",
    schema=f"Tensor x, Tensor weight, Tensor? bias, str activation, {CALL}",
    tensors=3,
    outputs=2,
    forward=_linear_forward,
    backward=_linear_backward,
    saved=_linear_saved,
    saved_count=4,
    fake=lambda x, weight, *rest: (
        x.new_empty((x.shape[0], weight.shape[0])),
        x.new_empty((x.shape[0], weight.shape[0]), dtype=torch.float32),
    ),
    like=(0, 1, 3),
)
_SINUSOID = Operator(
    name="timestep_sinusoid_h3",
    schema=f"Tensor timestep, int num_channels, float max_period, {CALL}",
    tensors=1,
    outputs=1,
    forward=_sinusoid_forward,
    backward=_sinusoid_backward,
    saved=lambda inputs, outputs: [inputs[0], outputs[0]],
    saved_count=2,
    fake=lambda timestep, num_channels, *rest: timestep.new_empty(
        (timestep.shape[0], num_channels), dtype=torch.float32
    ),
    like=(0,),
)
_MLP = Operator(
    name="timestep_mlp_fp32",
    schema=f"Tensor x, Tensor w1, Tensor b1, Tensor w2, Tensor b2, {CALL}",
    tensors=5,
    outputs=2,
    forward=_mlp_forward,
    backward=_mlp_backward,
    # b2 gives its gradient's shape alone.
    saved=lambda inputs, outputs: [*inputs[:4], outputs[1], inputs[4]],
    saved_count=6,
    fake=lambda x, w1, b1, w2, *rest: (
        x.new_empty((x.shape[0], w2.shape[0])),
        x.new_empty((x.shape[0], w1.shape[0])),
    ),
    like=(0, 1, 2, 3, 5),
)

_ADALN = Operator(
    name="adaln_projection_3mod",
    schema=f"Tensor temb, Tensor weight, Tensor bias, {CALL}",
    tensors=3,
    outputs=1,
    forward=_adaln_forward,
    backward=_adaln_backward,
    # The bias gives its gradient's shape alone.
    saved=lambda inputs, outputs: list(inputs[:3]),
    saved_count=3,
    fake=lambda temb, weight, *rest: weight.new_empty((temb.shape[0], weight.shape[0])),
    like=(0, 1, 2),
)

_linear, _sinusoid, _mlp, _adaln = (
    _torch_operator.make(op) for op in (_LINEAR, _SINUSOID, _MLP, _ADALN)
)
