"""How an operator becomes differentiable for torch: one implementation for all of rlk.torch.

An operator says how it calls the server forward and backward; this makes of it a custom operator
with a fake implementation, an autograd formula of first order, and a rule for ``torch.vmap`` that
makes one call for each element of the batch. Before torch 2.4 it is an ``autograd.Function``.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch.autograd import forward_ad

from rlk.client import Client

HAS_CUSTOM_OP = hasattr(torch.library, "custom_op")
# torch.compile keeps backward graphs on disk and finds them by the names in forward graphs alone:
# when an operator's arguments change, or those of its backward, all names must.
_SCHEMAS = "v2"
# The constants that end every operator's arguments.
CALL = "str contract, str backend, int key"
_SECOND_ORDER = (
    "rlk.torch: gradients of gradients are not available; rlk computes first-order gradients only"
)
_FORWARD_MODE = (
    "rlk.torch: forward-mode derivatives (torch.func.jvp, jacfwd, dual tensors) are not available; "
    "rlk computes gradients in reverse mode only"
)
# That torch.compile takes the question for a tangent into its graph was seen with this torch.
_COMPILES_TANGENTS = torch.__version__ >= "2.11"  # compared as versions, not as text


class Operator(NamedTuple):
    """A forward and its backward. Tensors stand first in the arguments, then constants."""

    name: str
    # Arguments of the forward; the first `tensors` are tensors, some of which are optional.
    schema: str
    tensors: int
    outputs: int
    forward: Callable[..., Any]
    # (saved tensors, grad of the first output, needs, constants) -> a gradient for each input
    # tensor, None for those that are not needed.
    backward: Callable[..., List[Optional[torch.Tensor]]]
    # Which tensors the backward is given, from the inputs and the outputs of the forward: always
    # `saved_count`, the first a tensor, others may be None.
    saved: Callable[[Sequence[Any], Sequence[Any]], List[Any]]
    saved_count: int
    # Shapes and dtypes of the forward's outputs, from its arguments.
    fake: Callable[..., Any]
    # The tensors, of the saved ones, whose shapes and dtypes the gradients have.
    like: Tuple[int, ...]


def ending(
    contract: Optional[str], backend: Optional[str], client: Optional[Client]
) -> Tuple[str, str, int]:
    """The values of :data:`CALL`."""
    return contract or "", backend or "", 0 if client is None else client.key


def options(contract: str, backend: str) -> Dict[str, Optional[str]]:
    """The options of a call, of the first two values of :func:`ending`."""
    return {"contract": contract or None, "backend": backend or None}


def pick(result: Any, names: Sequence[str], needs: Sequence[bool]) -> List[Optional[torch.Tensor]]:
    """The outputs of these names where they are needed, else None."""
    return [getattr(result, name) if need else None for name, need in zip(names, needs)]


def wanted(names: Sequence[str], needs: Sequence[bool]) -> List[str]:
    """Those of the names that are needed."""
    return [name for name, need in zip(names, needs) if need]


def make(op: Operator) -> Any:
    """The forward as torch knows it: a function of the operator's arguments."""
    return _make_custom_op(op) if HAS_CUSTOM_OP else _make_function(op)


def _as_tuple(outputs: Any) -> Tuple[Any, ...]:
    return tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)


def _outputs_schema(count: int) -> str:
    return "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"


def _filled(made: Sequence[Optional[torch.Tensor]], saved: Sequence[Any]) -> Any:
    """Custom operators do not return None: what was not computed is empty."""
    filled = [saved[0].new_empty(0) if grad is None else grad for grad in made]
    return filled[0] if len(filled) == 1 else tuple(filled)


def _gradients(ctx: Any, op: Operator, backward: Any, grad_y: torch.Tensor) -> Any:
    needs = [bool(need) for need in ctx.needs_input_grad[: op.tensors]]
    rest = (None,) * len(ctx.constants)
    if not any(needs):
        return ((None,) * op.tensors) + rest
    made = _as_tuple(backward(*ctx.saved_tensors, grad_y, needs, *ctx.constants))
    return (*(grad if need else None for grad, need in zip(made, needs)), *rest)


def _make_custom_op(op: Operator) -> Any:
    """Registers the forward and the backward; returns the forward operator."""
    constants = ", ".join(op.schema.split(", ")[op.tensors :])
    forward = torch.library.custom_op(
        f"rlk::{op.name}_{_SCHEMAS}",
        op.forward,
        mutates_args=(),
        schema=f"({op.schema}) -> {_outputs_schema(op.outputs)}",
    )
    count = op.saved_count
    saved_schema = "".join(f"Tensor? saved{at}, " for at in range(count))

    def call_backward(*arguments: Any) -> Any:
        saved = arguments[:count]
        return _filled(op.backward(saved, *arguments[count:]), saved)

    backward = torch.library.custom_op(
        f"rlk::{op.name}_backward_{_SCHEMAS}",
        call_backward,
        mutates_args=(),
        schema=f"({saved_schema}Tensor grad_y, bool[] needs, {constants}) -> "
        f"{_outputs_schema(op.tensors)}",
    )

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.constants = inputs[op.tensors :]
        ctx.save_for_backward(*op.saved(inputs, _as_tuple(output)))

    def gradient(ctx: Any, *grads: torch.Tensor) -> Any:
        return _gradients(ctx, op, backward, grads[0])

    def fake_backward(*arguments: Any) -> Any:
        saved, needs = arguments[:count], arguments[count + 1]
        made = [
            saved[at].new_empty(saved[at].shape) if need else None
            for at, need in zip(op.like, needs)
        ]
        return _filled(made, saved)

    def second_order(ctx: Any, *grads: Any) -> Any:
        raise RuntimeError(_SECOND_ORDER)

    forward.register_fake(op.fake)
    forward.register_autograd(gradient, setup_context=setup)
    backward.register_fake(fake_backward)
    backward.register_autograd(second_order)
    for made in (forward, backward):
        if hasattr(made, "register_vmap"):  # torch 2.5
            made.register_vmap(_one_call_each(made))

    def call(*arguments: Any) -> Any:
        _refuse_tangents(arguments[: op.tensors])
        return forward(*arguments)

    return call


def _refuse_tangents(tensors: Sequence[Optional[torch.Tensor]]) -> None:
    """Refuses dual tensors: torch would drop the tangents of a custom operator without a word."""
    if torch.compiler.is_compiling() and not _COMPILES_TANGENTS:
        return
    for tensor in tensors:
        if tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None:
            raise RuntimeError(_FORWARD_MODE)


def _one_call_each(function: Any) -> Any:
    """The rule of ``torch.vmap``: the operator on every element of the batch, one after another."""

    def element(value: Any, dim: Any, index: int) -> Any:
        return value.select(dim, index) if isinstance(dim, int) else value

    def rule(info: Any, in_dims: Any, *arguments: Any) -> Any:
        made = [
            function(*(element(value, dim, index) for value, dim in zip(arguments, in_dims)))
            for index in range(info.batch_size)
        ]
        if isinstance(made[0], torch.Tensor):
            return torch.stack(made), 0
        return tuple(torch.stack(outputs) for outputs in zip(*made)), (0,) * len(made[0])

    return rule


def _make_function(op: Operator) -> Any:
    """The same without custom operators, for torch before 2.4."""

    class Backward(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> Any:
            saved, rest = arguments[: op.saved_count], arguments[op.saved_count :]
            return _filled(op.backward(saved, *rest), saved)

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> Any:
            raise RuntimeError(_SECOND_ORDER)

    class Forward(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> Any:
            outputs = _as_tuple(op.forward(*arguments))
            ctx.save_for_backward(*op.saved(arguments, outputs))
            ctx.constants = arguments[op.tensors :]
            if op.outputs > 1:
                ctx.mark_non_differentiable(*outputs[1:])
            return outputs if op.outputs > 1 else outputs[0]

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> Any:
            return _gradients(ctx, op, Backward.apply, grads[0])

    return Forward.apply
