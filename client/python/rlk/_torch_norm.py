"""The RMSNorm family for torch: one pair of operators behind three functions of rlk.torch."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from rlk import _torch_operator
from rlk._torch_operator import CALL, Operator, ending, options, pick, wanted
from rlk.client import Client, client_by_key


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
    return call(x, weight, None, constants, ending(contract, backend, client))


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
    return call(x, weight, None, constants, ending(contract, backend, client))


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
    return call(x, weight, gate, constants, ending(contract, backend, client))


def call(
    x: torch.Tensor,
    weight: torch.Tensor,
    gate: Optional[torch.Tensor],
    norm: Tuple[str, float, float, str],
    server: Tuple[str, str, int],
) -> torch.Tensor:
    """Any of the functions above: ``norm`` is operator, eps, weight_offset and activation ("" where
    there is no gate), ``server`` what :func:`rlk._torch_operator.ending` gives."""
    return _norm(x, weight, gate, *norm, *server)[0]


def _arguments(gate: Any, constants: Any) -> Dict[str, Any]:
    op, eps, offset, activation, contract, backend, _ = constants
    arguments: Dict[str, Any] = {"eps": eps, "options": options(contract, backend)}
    if op != "qwen3_next_rms_norm":
        arguments["weight_offset"] = offset
    if gate is not None:
        arguments.update(gate=gate, activation=activation)
    return arguments


def _forward(
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


def _backward(
    saved: Sequence[Any], grad_y: torch.Tensor, needs: Sequence[bool], *constants: Any
) -> List[Optional[torch.Tensor]]:
    x, weight, rstd, gate = saved
    names = ("grad_x", "grad_weight", "grad_gate")
    result = client_by_key(constants[-1]).call(
        constants[0] + ".backward",
        x=x,
        weight=weight,
        grad_y=grad_y,
        rstd=rstd,
        wanted=wanted(names, needs),
        **_arguments(gate, constants),
    )
    return pick(result, names, needs)


def _saved(inputs: Sequence[Any], outputs: Sequence[Any]) -> List[Any]:
    x, weight, gate = inputs[:3]
    return [x, weight, outputs[1], gate]


_NORM = Operator(
    name="rms_norm_family",
    # The constants are those of both directions.
    schema="Tensor x, Tensor weight, Tensor? gate, str op, float eps, float offset, "
    f"str activation, {CALL}",
    tensors=3,
    outputs=2,
    forward=_forward,
    backward=_backward,
    saved=_saved,
    saved_count=4,
    fake=lambda x, *rest: (
        x.new_empty(x.shape),
        x.new_empty(x.shape[:-1], dtype=torch.float32),
    ),
    like=(0, 1, 3),
)
_norm = _torch_operator.make(_NORM)
