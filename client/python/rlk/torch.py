"""Differentiable functions for torch; forward and backward run on the server.

Gradients are first order only; asking for a second order raises RuntimeError. Inputs are never
modified, and results are new tensors on the inputs' device. Where torch has ``torch.library
.custom_op`` (2.4 and later), each function is a custom operator with a fake implementation, so
that it passes through ``torch.compile`` without a graph break; before that it is an
``autograd.Function``. A tensor on a GPU is copied to the host for the call.
"""

from __future__ import annotations

from typing import Any, Optional

import torch

from rlk._torch_conditioning import (
    adaln_projection_3mod,
    det_linear,
    timestep_mlp_fp32,
    timestep_sinusoid_h3,
)
from rlk._torch_norm import qwen3_next_rms_norm, rms_norm, rms_norm_gated
from rlk.client import Client, client_by_key

__all__ = [
    "adaln_projection_3mod",
    "det_linear",
    "final_logit_softcap",
    "qwen3_next_rms_norm",
    "rms_norm",
    "rms_norm_gated",
    "timestep_mlp_fp32",
    "timestep_sinusoid_h3",
]

_FORWARD = "final_logit_softcap.forward"
_BACKWARD = "final_logit_softcap.backward"
_SECOND_ORDER = (
    "rlk.torch.final_logit_softcap: gradients of gradients are not available; "
    "rlk computes first-order gradients only"
)


def final_logit_softcap(
    x: torch.Tensor,
    softcap: float = 30.0,
    *,
    output_dtype: Optional[torch.dtype] = None,
    contract: Optional[str] = None,
    backend: Optional[str] = None,
    client: Optional[Client] = None,
) -> torch.Tensor:
    """``softcap * tanh(x / softcap)``, differentiable once with respect to x.

    Args:
        x: float32, float16 or bfloat16, of any shape and strides.
        softcap: finite and greater than 0 once rounded to FP32.
        output_dtype: torch.float32 (the default) or the dtype of x.
        contract: a contract id, for both directions; by default the methods' first.
        backend: a backend's name, for both directions; by default the server selects.
        client: the client to call with; by default that of :func:`rlk.set_default_client`. It must
            live until the backward pass is done.

    Returns:
        A contiguous tensor of the shape of x, on its device. The gradient has the dtype of x.

    Raises:
        RlkError: as :meth:`rlk.Client.call`, in the forward or the backward pass.
    """
    dtype = torch.float32 if output_dtype is None else output_dtype
    key = 0 if client is None else client.key
    return _softcap(x, float(softcap), dtype, contract or "", backend or "", key)


def _options(contract: str, backend: str) -> Any:
    return {"contract": contract or None, "backend": backend or None}


def _call_forward(
    x: torch.Tensor, softcap: float, dtype: torch.dtype, contract: str, backend: str, key: int
) -> torch.Tensor:
    result = client_by_key(key).call(
        _FORWARD,
        options=_options(contract, backend),
        x=x,
        softcap=softcap,
        output_dtype=dtype,
    )
    return result.y


def _call_backward(
    x: torch.Tensor, grad_y: torch.Tensor, softcap: float, contract: str, backend: str, key: int
) -> torch.Tensor:
    result = client_by_key(key).call(
        _BACKWARD, options=_options(contract, backend), x=x, grad_y=grad_y, softcap=softcap
    )
    return result.grad_x


def _make_custom_ops() -> Any:
    """Registers rlk::final_logit_softcap and its backward; returns the forward operator."""
    forward = torch.library.custom_op(
        "rlk::final_logit_softcap",
        _call_forward,
        mutates_args=(),
        schema="(Tensor x, float softcap, ScalarType dtype, str contract, str backend, int key) "
        "-> Tensor",
    )
    backward = torch.library.custom_op(
        "rlk::final_logit_softcap_backward",
        _call_backward,
        mutates_args=(),
        schema="(Tensor x, Tensor grad_y, float softcap, str contract, str backend, int key) "
        "-> Tensor",
    )

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        x, ctx.softcap, _, ctx.contract, ctx.backend, ctx.key = inputs
        ctx.save_for_backward(x)

    def gradient(ctx: Any, grad_y: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        grad_x = backward(x, grad_y, ctx.softcap, ctx.contract, ctx.backend, ctx.key)
        return grad_x, None, None, None, None, None

    def second_order(ctx: Any, grad: torch.Tensor) -> Any:
        raise RuntimeError(_SECOND_ORDER)

    forward.register_fake(lambda x, softcap, dtype, *rest: x.new_empty(x.shape, dtype=dtype))
    forward.register_autograd(gradient, setup_context=setup)
    backward.register_fake(lambda x, *rest: x.new_empty(x.shape))
    backward.register_autograd(second_order)
    return forward


class _Softcap(torch.autograd.Function):
    """The same without custom operators, for torch before 2.4."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, *arguments: Any) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.arguments = arguments
        return _call_forward(x, *arguments)

    @staticmethod
    def backward(ctx: Any, grad_y: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        softcap, _, contract, backend, key = ctx.arguments
        grad_x = _SoftcapBackward.apply(x, grad_y, softcap, contract, backend, key)
        return grad_x, None, None, None, None, None


class _SoftcapBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> torch.Tensor:
        return _call_backward(*arguments)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        raise RuntimeError(_SECOND_ORDER)


HAS_CUSTOM_OP = hasattr(torch.library, "custom_op")
_softcap = _make_custom_ops() if HAS_CUSTOM_OP else _Softcap.apply
