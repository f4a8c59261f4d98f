"""The RMSNorm family for torch: one pair of operators behind three functions of rlk.torch."""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

import torch

from rlk.client import Client, client_by_key

_SECOND_ORDER = (
    "rlk.torch: gradients of gradients are not available; rlk computes first-order gradients only"
)
HAS_CUSTOM_OP = hasattr(torch.library, "custom_op")
# What stays the same in both directions: operator, eps, weight_offset, activation, contract,
# backend, client key.
_CONSTANTS = "str op, float eps, float offset, str activation, str contract, str backend, int key"


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float = 1e-6,
    weight_offset: float = 0.0,
    *,
    contract: Optional[str] = None,
    backend: Optional[str] = None,
    client: Optional[Client] = None,
) -> torch.Tensor:
    """``x / sqrt(mean(x^2) + eps) * (weight_offset + weight)`` over the last dimension.

    Differentiable once with respect to x and weight.

    Args:
        x: float32, float16 or bfloat16, [..., H].
        weight: [H], float32 or the dtype of x.
        eps: finite and greater than 0 once rounded to FP32.
        weight_offset: added to the weight in FP32; 0 leaves it as it is.
        contract: a contract id, for both directions; by default the methods' first. It decides the
            order of the weight gradient's sum, and for ``rms_norm/hf-v1`` the casts.
        backend: a backend's name, for both directions; by default the server selects.
        client: the client to call with; by default that of :func:`rlk.set_default_client`. It must
            live until the backward pass is done.

    Returns:
        A contiguous tensor of the shape and dtype of x. Gradients have the dtypes of x and weight.

    Raises:
        RlkError: as :meth:`rlk.Client.call`, in the forward or the backward pass.
    """
    constants = ("rms_norm", float(eps), float(weight_offset), "")
    return _apply(x, weight, None, constants, contract, backend, client)


def qwen3_next_rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float = 1e-6,
    *,
    contract: Optional[str] = None,
    backend: Optional[str] = None,
    client: Optional[Client] = None,
) -> torch.Tensor:
    """:func:`rms_norm` with the zero-centred weights of Qwen3-Next: the offset is 1."""
    constants = ("qwen3_next_rms_norm", float(eps), 1.0, "")
    return _apply(x, weight, None, constants, contract, backend, client)


def rms_norm_gated(
    x: torch.Tensor,
    weight: torch.Tensor,
    gate: torch.Tensor,
    eps: float = 1e-6,
    weight_offset: float = 0.0,
    *,
    activation: str = "silu",
    contract: Optional[str] = None,
    backend: Optional[str] = None,
    client: Optional[Client] = None,
) -> torch.Tensor:
    """``rms_norm(x) * activation(gate)``, differentiable once with respect to x, weight and gate.

    Args:
        gate: of the shape and dtype of x.
        activation: "silu", "swish" (the same) or "sigmoid".

    The other arguments, the result and the errors are those of :func:`rms_norm`; the contract
    ``rms_norm_gated/hf-v1`` is that of transformers' Qwen3NextRMSNormGated.
    """
    constants = ("rms_norm_gated", float(eps), float(weight_offset), activation)
    return _apply(x, weight, gate, constants, contract, backend, client)


def _apply(
    x: torch.Tensor,
    weight: torch.Tensor,
    gate: Optional[torch.Tensor],
    constants: Tuple[str, float, float, str],
    contract: Optional[str],
    backend: Optional[str],
    client: Optional[Client],
) -> torch.Tensor:
    key = 0 if client is None else client.key
    return _norm(x, weight, gate, *constants, contract or "", backend or "", key)[0]


def _arguments(gate: Any, constants: Any) -> Dict[str, Any]:
    op, eps, offset, activation, contract, backend, _ = constants
    arguments: Dict[str, Any] = {"eps": eps}
    arguments["options"] = {"contract": contract or None, "backend": backend or None}
    if op != "qwen3_next_rms_norm":
        arguments["weight_offset"] = offset
    if gate is not None:
        arguments.update(gate=gate, activation=activation)
    return arguments


def _call_forward(
    x: torch.Tensor, weight: torch.Tensor, gate: Optional[torch.Tensor], *constants: Any
) -> Tuple[torch.Tensor, torch.Tensor]:
    result = client_by_key(constants[-1]).call(
        constants[0] + ".forward",
        x=x,
        weight=weight,
        wanted=("y", "rstd"),
        **_arguments(gate, constants),
    )
    return result.y, result.rstd


def _call_backward(
    x: torch.Tensor,
    weight: torch.Tensor,
    gate: Optional[torch.Tensor],
    grad_y: torch.Tensor,
    rstd: torch.Tensor,
    wants_x: bool,
    wants_weight: bool,
    wants_gate: bool,
    *constants: Any,
) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    wanted = {"grad_x": wants_x, "grad_weight": wants_weight, "grad_gate": wants_gate}
    result = client_by_key(constants[-1]).call(
        constants[0] + ".backward",
        x=x,
        weight=weight,
        grad_y=grad_y,
        rstd=rstd,
        wanted=[name for name, is_wanted in wanted.items() if is_wanted],
        **_arguments(gate, constants),
    )
    return (
        result.grad_x if wants_x else x.new_empty(0),
        result.grad_weight if wants_weight else weight.new_empty(0),
        result.grad_gate if wants_gate else x.new_empty(0),
    )


def _gradients(ctx: Any, backward: Any, grad_y: torch.Tensor) -> Any:
    x, weight, gate, rstd = ctx.saved_tensors
    needs = tuple(ctx.needs_input_grad[:3])
    rest = (None,) * len(ctx.constants)
    if not any(needs):
        return (None, None, None, *rest)
    made = backward(x, weight, gate, grad_y, rstd, *needs, *ctx.constants)
    return (*(grad if need else None for grad, need in zip(made, needs)), *rest)


def _make_custom_ops() -> Any:
    """Registers rlk::rms_norm_family and its backward; returns the forward operator."""
    forward = torch.library.custom_op(
        "rlk::rms_norm_family",
        _call_forward,
        mutates_args=(),
        schema=f"(Tensor x, Tensor weight, Tensor? gate, {_CONSTANTS}) -> (Tensor, Tensor)",
    )
    backward = torch.library.custom_op(
        "rlk::rms_norm_family_backward",
        _call_backward,
        mutates_args=(),
        schema="(Tensor x, Tensor weight, Tensor? gate, Tensor grad_y, Tensor rstd, bool wants_x, "
        f"bool wants_weight, bool wants_gate, {_CONSTANTS}) -> (Tensor, Tensor, Tensor)",
    )

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        x, weight, gate, *ctx.constants = inputs
        ctx.save_for_backward(x, weight, gate, output[1])

    def gradient(ctx: Any, grad_y: torch.Tensor, grad_rstd: torch.Tensor) -> Any:
        return _gradients(ctx, backward, grad_y)

    def fake_backward(
        x: Any, weight: Any, gate: Any, grad_y: Any, rstd: Any, *rest: Any
    ) -> Tuple[Any, Any, Any]:
        shapes = [
            shape if wants else (0,)
            for shape, wants in zip((x.shape, weight.shape, x.shape), rest[:3])
        ]
        return x.new_empty(shapes[0]), weight.new_empty(shapes[1]), x.new_empty(shapes[2])

    def second_order(ctx: Any, *grads: torch.Tensor) -> Any:
        raise RuntimeError(_SECOND_ORDER)

    forward.register_fake(
        lambda x, weight, gate, *rest: (
            x.new_empty(x.shape),
            x.new_empty(x.shape[:-1], dtype=torch.float32),
        )
    )
    forward.register_autograd(gradient, setup_context=setup)
    backward.register_fake(fake_backward)
    backward.register_autograd(second_order)
    return forward


class _Norm(torch.autograd.Function):
    """The same without custom operators, for torch before 2.4."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, gate: Any, *constants: Any) -> Any:
        y, rstd = _call_forward(x, weight, gate, *constants)
        ctx.save_for_backward(x, weight, gate, rstd)
        ctx.constants = constants
        ctx.mark_non_differentiable(rstd)
        return y, rstd

    @staticmethod
    def backward(ctx: Any, grad_y: torch.Tensor, grad_rstd: torch.Tensor) -> Any:
        return _gradients(ctx, _NormBackward.apply, grad_y)


class _NormBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Any:
        return _call_backward(*arguments)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        raise RuntimeError(_SECOND_ORDER)


_norm = _make_custom_ops() if HAS_CUSTOM_OP else _Norm.apply
