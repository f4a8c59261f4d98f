"""The softcap that a transformers model applies to its logits, computed on the server instead.

Such a model divides the logits by the cap, takes tanh and multiplies, in the middle of its forward.
Between the output head and the end of the forward these three calls are watched for and become one
call of the server; where they do not come, come twice, or in another order, the forward fails. So
the config keeps its cap, and a cap that is applied never or twice does not go unseen.
"""

from __future__ import annotations

import inspect
import sys
import threading
from typing import Any, List, Optional

import torch
from torch.overrides import TorchFunctionMode

from rlk._torch_modules import FinalLogitSoftcap
from rlk.errors import FailedPreconditionError, InvalidArgumentError

# Hooks that run also after a failure came after torch 2.0.
HAS_HOOKS = "always_call" in inspect.signature(torch.nn.Module.register_forward_hook).parameters
_TENSOR = torch.Tensor
_STEPS = (
    ("a division by the cap", {torch.div, torch.true_divide, _TENSOR.div, _TENSOR.true_divide}),
    ("tanh", {torch.tanh, _TENSOR.tanh}),
    ("a multiplication by the cap", {torch.mul, torch.multiply, _TENSOR.mul, _TENSOR.multiply}),
)


def _is_compiling() -> bool:
    compiler = getattr(torch, "compiler", None)
    asked = getattr(compiler, "is_compiling", None) or torch._dynamo.is_compiling
    return bool(asked())


class _Watch(TorchFunctionMode):
    """From the output head to the end of one forward.

    torch calls no hook at the end of a forward that an interrupt ends (KeyboardInterrupt is no
    Exception). Its watch stays, and must do nothing: `frame` says whether its forward still runs.
    """

    def __init__(self, cap: float, softcap: FinalLogitSoftcap, frame: Any) -> None:
        super().__init__()
        self._cap = cap
        self._softcap = softcap
        self._frame = frame  # of the call of the forward; None where it is compiled
        self._held: Optional[torch.Tensor] = None  # the logits, once they were divided
        self._capped: Optional[torch.Tensor] = None
        self.entered = False
        self.step = 0

    def is_abandoned(self) -> bool:
        """Whether its forward was interrupted."""
        if self._frame is None:
            return False
        frame: Any = sys._getframe()
        while frame is not None and frame is not self._frame:
            frame = frame.f_back
        return frame is None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._frame is not None and self.is_abandoned():
            return func(*args, **kwargs)
        if self._is_step(func, args, kwargs):
            return self._advance(args[0])
        if self._held is not None and any(value is self._held for value in args):
            name = getattr(func, "__name__", str(func))
            raise FailedPreconditionError(
                f"the forward calls {name} where {_STEPS[self.step][0]} was to come: its softcap "
                "cannot be replaced"
            )
        return func(*args, **kwargs)

    def _is_step(self, func: Any, args: Any, kwargs: Any) -> bool:
        if kwargs or not args or not isinstance(args[0], torch.Tensor):
            return False
        again = self.step == 3 and func in _STEPS[0][1] and args[0] is self._capped
        if self.step == 3 and not again:
            return False
        step = 0 if again else self.step
        if func not in _STEPS[step][1] or (step > 0 and args[0] is not self._held):
            return False
        if step == 1:
            return len(args) == 1
        is_cap = len(args) == 2 and isinstance(args[1], (int, float)) and args[1] == self._cap
        if is_cap and again:
            raise FailedPreconditionError("the forward applies its softcap twice")
        return is_cap and args[0].is_floating_point()

    def _advance(self, tensor: torch.Tensor) -> torch.Tensor:
        self.step += 1
        if self.step < 3:
            self._held = tensor
            return tensor
        self._held = None
        with torch._C.DisableTorchFunction():
            self._capped = self._softcap(_check_dtype(tensor, self._softcap))
        return self._capped


def _check_dtype(logits: torch.Tensor, softcap: FinalLogitSoftcap) -> torch.Tensor:
    if logits.dtype != torch.float32 and softcap.output_dtype is None:
        raise dtype_error(logits.dtype)
    return logits


def dtype_error(dtype: torch.dtype) -> InvalidArgumentError:
    """Of logits of 16 bits, whose roundings are those of no contract."""
    given = str(dtype).replace("torch.", "")
    return InvalidArgumentError(
        f"the softcap of {given} logits: transformers rounds to {given} after each of three steps, "
        "the contract once at the end. softcap_dtype=torch.float32 takes the capped logits in "
        f"float32, softcap_dtype=torch.{given} rounds them once",
        reason="DTYPE_NOT_ALLOWED",
        field="softcap_dtype",
        value="None",
        allowed=f"torch.float32, torch.{given}",
    )


def check(cap: float, softcap: FinalLogitSoftcap) -> Optional[str]:
    """Why the server's softcap is not that of torch, found by a call; None where it is.

    Raises RlkError where the server cannot be reached, or has not this contract or backend.
    """
    # A cap that FP32 has not is the server's to refuse.
    x = torch.linspace(-4 * cap, 4 * cap, 257, dtype=torch.float64).float()
    dtype = None if softcap.output_dtype == torch.float32 else softcap.output_dtype
    served = softcap(x if dtype is None else x.to(dtype)).float()
    limit = 1e-5 if dtype is None else 1e-2
    if bool(((served - torch.tanh(x / cap) * cap).abs() > limit * cap).any()):
        return f"{softcap.extra_repr()} is not cap * tanh(x / cap)"
    return None


def _innermost_mode() -> Any:
    modes = torch.overrides._get_current_function_mode_stack()
    return modes[-1] if modes else None


class LogitSoftcap:
    """The hooks of one model. Copies of the model share them."""

    def __init__(self, cap: float, softcap: FinalLogitSoftcap) -> None:
        self.cap = cap
        self.softcap = softcap
        self._local = threading.local()

    def __deepcopy__(self, memo: Any) -> LogitSoftcap:
        return self

    def __reduce__(self) -> Any:
        return self.softcap._server.__reduce__()

    def attach(self, model: torch.nn.Module, head: torch.nn.Module) -> None:
        """Watches every forward of the model from now on."""
        model.register_forward_pre_hook(self.begin, prepend=True)
        head.register_forward_hook(self.see_head)
        model.register_forward_hook(self.end, always_call=True)

    def _forwards(self) -> List[_Watch]:
        if not hasattr(self._local, "forwards"):
            self._local.forwards = []
        forwards: List[_Watch] = self._local.forwards
        return forwards

    def begin(self, model: Any, args: Any) -> None:
        """Before the forward of the model."""
        if _is_compiling():  # no frame to look at, and none that is interrupted
            self._forwards().append(_Watch(self.cap, self.softcap, None))
            return
        self._forget_abandoned()
        self._forwards().append(_Watch(self.cap, self.softcap, sys._getframe(1)))

    def _forget_abandoned(self) -> None:
        forwards = self._forwards()
        while forwards and forwards[-1].is_abandoned():
            watch = forwards.pop()
            # Under the mode of somebody else it stays, and lets everything pass.
            if watch.entered and _innermost_mode() is watch:
                watch.__exit__(None, None, None)

    def see_head(self, head: Any, args: Any, output: Any) -> None:
        """After the output head; outside a forward of the model it is nobody's."""
        if not _is_compiling():
            self._forget_abandoned()
        forwards = self._forwards()
        if forwards and not forwards[-1].entered:
            forwards[-1].entered = True
            forwards[-1].__enter__()

    def end(self, model: Any, args: Any, output: Any) -> None:
        """After the forward of the model, also where it failed."""
        watch = self._forwards().pop()
        if watch.entered:
            watch.__exit__(None, None, None)
        if output is not None and watch.step != 3:  # None: it failed already
            raise FailedPreconditionError(
                f"the forward of {type(model).__name__} did not apply its softcap of {self.cap:g}"
            )


def detach(module: torch.nn.Module) -> bool:
    """Takes the hooks of a :class:`LogitSoftcap` off; whether there were any."""
    found = False
    for hooks in (module._forward_pre_hooks, module._forward_hooks):
        for key, hook in list(hooks.items()):
            if isinstance(getattr(hook, "__self__", None), LogitSoftcap):
                del hooks[key]
                module._forward_hooks_always_called.pop(key, None)
                found = True
    return found
