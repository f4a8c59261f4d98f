"""final_logit_softcap for torch, behind a function of rlk.torch."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

import torch

from rlk import _torch_operator
from rlk._torch_operator import CALL, Operator, ending, options
from rlk.client import Client, client_by_key


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
    return _softcap(x, float(softcap), dtype, *ending(contract, backend, client))


def _forward(x: torch.Tensor, softcap: float, dtype: torch.dtype, *call: Any) -> torch.Tensor:
    contract, backend, key = call
    result = client_by_key(key).call(
        "final_logit_softcap.forward",
        options=options(contract, backend),
        x=x,
        softcap=softcap,
        output_dtype=dtype,
    )
    return result.y


def _backward(
    saved: Sequence[torch.Tensor],
    grad_y: torch.Tensor,
    needs: Sequence[bool],
    softcap: float,
    dtype: torch.dtype,
    *call: Any,
) -> List[Optional[torch.Tensor]]:
    contract, backend, key = call
    result = client_by_key(key).call(
        "final_logit_softcap.backward",
        options=options(contract, backend),
        x=saved[0],
        grad_y=grad_y,
        softcap=softcap,
    )
    return [result.grad_x]


_SOFTCAP = Operator(
    name="final_logit_softcap",
    schema=f"Tensor x, float softcap, ScalarType dtype, {CALL}",
    tensors=1,
    outputs=1,
    forward=_forward,
    backward=_backward,
    saved=lambda inputs, outputs: [inputs[0]],
    saved_count=1,
    fake=lambda x, softcap, dtype, *rest: x.new_empty(x.shape, dtype=dtype),
    like=(0,),
)
_softcap = _torch_operator.make(_SOFTCAP)
