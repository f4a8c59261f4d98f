"""Which contract a module's own forward follows, found by comparing the two on small inputs.

A name says too little: of classes called RMSNorm some add 1 to the weight, some round before they
multiply by it, some gate before they normalise. So the module computes a probe, the server computes
it by each of its conventions, and the one that agrees in every dtype is the module's. Agreement is
up to the last bits of FP32, in which sums and functions of torch differ from the contract's; other
conventions differ in a good part of all elements of 16 bits, or by whole factors.
"""

from __future__ import annotations

import contextlib
import inspect
import warnings
from typing import Any, Dict, FrozenSet, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch

from rlk import _torch_norm, _torch_operator
from rlk.client import Client
from rlk.errors import InvalidArgumentError

_F64, _F32, _F16, _BF16 = torch.float64, torch.float32, torch.float16, torch.bfloat16
# (dtype of x, dtype of weight): a convention is that of the first three; it may have the others.
_SAME_DTYPES = ((_BF16, _BF16), (_F32, _F32), (_F16, _F16))
_MIXED_DTYPES = ((_BF16, _F32), (_F16, _F32))
# Leading dimensions of a probe: rows; sequences of one row; and heads.
_SHAPES: Dict[torch.dtype, Tuple[int, ...]] = {_BF16: (-1,), _F32: (-1, 1), _F16: (2, 3, -1)}
_EPS_NAMES = ("eps", "variance_epsilon", "epsilon", "layer_norm_eps", "norm_eps")
# At most this share of a probe's elements may differ. Measured: at most 0.0002 for every RMSNorm of
# transformers 5.17 beside its own convention; at least 0.07 (from a width of 2, 0.2) beside others.
_SHARE_MAX = 0.02
_RELATIVE_F32 = 2e-5
_RELATIVE_GRADIENT = 2e-4
_ELEMENTS_MIN = 8192
# What every module has, and how transformers remembers that it has initialised one.
_OF_EVERY_MODULE = frozenset(vars(torch.nn.Module())) | {"_is_hf_initialized"}
_PLAIN = (type(None), bool, int, float, str, torch.dtype)


class Convention(NamedTuple):
    """What contracts of one operator have in common but for the order of the weight gradient."""

    operator: str
    contracts: Tuple[str, ...]
    weight_offset: float
    activation: str
    words: str

    @property
    def gated(self) -> bool:
        """Whether there is a gate."""
        return bool(self.activation)


def _conventions() -> Tuple[Convention, ...]:
    def of(operator: str, offset: float, activation: str, casts_early: bool) -> Convention:
        names = ("hf-v1",) if casts_early else ("leftfold-v1", "chunk128-v1")
        weight = f"({offset:g} + weight)" if offset else "weight"
        words = ("cast, then " if casts_early else "FP32, ") + f"times {weight}"
        words += f", times {activation}(gate)" if activation else ""
        ids = tuple(f"{operator}/{name}" for name in names)
        return Convention(operator, ids, offset, activation, words)

    return (
        of("rms_norm", 0.0, "", False),
        of("rms_norm", 0.0, "", True),
        of("qwen3_next_rms_norm", 1.0, "", False),
        of("rms_norm_gated", 0.0, "silu", False),
        of("rms_norm_gated", 0.0, "silu", True),
        of("rms_norm_gated", 0.0, "sigmoid", False),
        of("rms_norm_gated", 1.0, "silu", False),
        of("rms_norm_gated", 1.0, "sigmoid", False),
    )


CONVENTIONS = _conventions()


class Mismatch(Exception):
    """The module is of no convention; the text says why."""


class Found(NamedTuple):
    """How the server computes what a module computes."""

    convention: Convention
    contract: str
    eps: float
    # The pairs of (dtype of x, dtype of weight) in which it does.
    dtypes: FrozenSet[Tuple[torch.dtype, torch.dtype]]
    # Names of the tensors that its forward takes.
    parameters: Tuple[str, ...]
    # The largest share of differing elements of a probe of 16 bits.
    differing: float


class _Probe(NamedTuple):
    x: torch.Tensor
    weight: torch.Tensor
    gate: Optional[torch.Tensor]

    def tensors(self) -> List[torch.Tensor]:
        """What the module's forward takes."""
        return [self.x] if self.gate is None else [self.x, self.gate]


def _own_attributes(module: torch.nn.Module) -> Dict[str, Any]:
    """The attributes that a module's class gave it, private ones too: any of them may decide what
    its forward computes."""
    return {name: value for name, value in vars(module).items() if name not in _OF_EVERY_MODULE}


def _identities(module: torch.nn.Module) -> Dict[str, int]:
    return {name: id(value) for name, value in vars(module).items()}


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Probes are computed on the CPU and have gradients, whatever device or mode stands around."""
    with contextlib.ExitStack() as stack:
        if hasattr(torch.device, "__enter__"):  # as a context, it came with torch 2.0
            stack.enter_context(torch.device("cpu"))
        stack.enter_context(torch.inference_mode(False))
        yield


def watched(module: torch.nn.Module) -> Dict[str, Any]:
    """The plain ones of the attributes that a module's forward may depend on."""
    own = _own_attributes(module)
    return {name: value for name, value in own.items() if isinstance(value, _PLAIN)}


def kind(module: torch.nn.Module) -> Tuple[Any, ...]:
    """Equal for two modules with one weight only if they compute the same function: of one class
    and width, with equal plain attributes, and the very same functions and objects. For as long as
    both modules live."""
    return (
        type(module),
        module.weight.shape[0],
        *(
            (name, type(value), value if isinstance(value, _PLAIN) else id(value))
            for name, value in sorted(_own_attributes(module).items())
        ),
    )


def find(
    module: torch.nn.Module, client: Client, contracts: Sequence[str], backend: Optional[str]
) -> Found:
    """The convention of a module with one weight, and the contract to take.

    Args:
        contracts: those that were asked for; a convention takes the first that it has, else its
            first.

    Raises:
        Mismatch: there is none, or a contract was asked for that has another convention.
        RlkError: the server cannot be reached, or has not this contract or backend.
    """
    eps = _eps(module)
    parameters = _parameters(module)
    if not module.weight.shape[0]:
        raise Mismatch("its weight has no elements")
    caller = _Caller(module, eps, len(parameters) == 2, client, backend)
    candidates = [one for one in CONVENTIONS if one.gated == caller.gated]
    try:
        shares = [caller.largest_share(one, _SAME_DTYPES) for one in candidates]
    except InvalidArgumentError as error:
        if error.reason != "SHAPE_MISMATCH":
            raise
        raise Mismatch(f"no contract is for its width: {error.message}") from None
    fitting = [at for at, share in enumerate(shares) if share <= _SHARE_MAX]
    if len(fitting) != 1:
        raise Mismatch(_no_convention(candidates, shares, fitting))
    found, share = candidates[fitting[0]], shares[fitting[0]]
    contract = _contract(found, contracts)
    # The very contract and backend that calls will name.
    caller = caller._replace(contract=contract)
    dtypes = [d for d in (*_SAME_DTYPES, *_MIXED_DTYPES) if caller.share(found, d) <= _SHARE_MAX]
    caller.check_gradients(found)
    return Found(found, contract, eps, frozenset(dtypes), parameters, share)


def _no_convention(
    candidates: Sequence[Convention], shares: Sequence[float], fitting: Sequence[int]
) -> str:
    if fitting:
        which = " and ".join(
            f"{candidates[at].contracts[0]} ({candidates[at].words})" for at in fitting
        )
        return f"its forward cannot be told apart from more than one: {which}"
    distances = "; ".join(
        f"{one.contracts[0]} ({one.words}) differs in {share:.1%} of elements"
        for share, one in sorted(zip(shares, candidates), key=lambda pair: pair[0])[:2]
    )
    return f"its forward follows no contract: {distances}"


def _contract(found: Convention, asked: Sequence[str]) -> str:
    for contract in asked:
        if contract in found.contracts:
            return contract
    others = [contract for contract in asked if contract.split("/")[0] == found.operator]
    if others:
        raise Mismatch(
            f"its forward is that of {' or '.join(found.contracts)} ({found.words}), "
            f"not of {' or '.join(others)}"
        )
    return found.contracts[0]


def _eps(module: torch.nn.Module) -> float:
    present = {name: vars(module)[name] for name in _EPS_NAMES if name in vars(module)}
    if len(present) != 1:
        named = ", ".join(present) or "none"
        raise Mismatch(f"one attribute must be its eps ({', '.join(_EPS_NAMES)}); it has {named}")
    ((name, eps),) = present.items()
    if eps is None:
        raise Mismatch(
            f"{name} is None: torch then takes the epsilon of the dtype (0.0078 in BF16); set it"
        )
    if not isinstance(eps, (int, float)) or isinstance(eps, bool) or not _in_fp32(eps):
        raise Mismatch(f"{name} is {eps!r}; it must be a number above 0, in FP32 too")
    return float(eps)


def _in_fp32(eps: float) -> bool:
    rounded = float(torch.tensor(float(eps), dtype=_F64).to(_F32))
    return 0 < rounded < float("inf")


def _parameters(module: torch.nn.Module) -> Tuple[str, ...]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    taken = inspect.signature(type(module).forward).parameters.values()
    names = tuple(one.name for one in taken if one.kind in kinds)[1:]
    if len(names) not in (1, 2):
        raise Mismatch(f"its forward takes {len(names)} tensors; a norm takes x, or x and a gate")
    return names


class _Caller(NamedTuple):
    """A module and the server, side by side."""

    module: Any
    eps: float
    gated: bool
    client: Client
    backend: Optional[str]
    contract: Optional[str] = None

    def largest_share(
        self, convention: Convention, dtypes: Sequence[Tuple[torch.dtype, torch.dtype]]
    ) -> float:
        """The largest share of elements that differ, found up to the first that is too large."""
        largest = 0.0
        for pair in dtypes:
            largest = max(largest, self.share(convention, pair))
            if largest > _SHARE_MAX:
                break
        return largest

    def share(self, convention: Convention, dtypes: Tuple[torch.dtype, torch.dtype]) -> float:
        """The share of a probe's elements that differ; 1 where the dtype of the result does, or
        the contract is not for these dtypes."""
        probe = self._probe(*dtypes)
        own = self._own(probe)
        try:
            served = self._served(convention, probe)
        except InvalidArgumentError as error:
            if error.reason == "DTYPE_NOT_ALLOWED":
                return 1.0
            raise
        if not isinstance(own, torch.Tensor) or own.dtype != served.dtype:
            return 1.0
        if own.shape != served.shape:
            return 1.0
        if own.dtype == _F32:
            differing = (own - served).abs() > _RELATIVE_F32 * served.abs()
        else:
            differing = own != served
        return float(differing.double().mean())

    def check_gradients(self, convention: Convention) -> None:
        """That the module's own gradients are those of the contract, in FP32."""
        probe = self._probe(_F32, _F32)
        leaves = [tensor.requires_grad_() for tensor in probe if tensor is not None]
        with torch.enable_grad():
            results = [self._own(probe), self._served(convention, probe)]
        grad = torch.randn(probe.x.shape, generator=torch.Generator().manual_seed(3))
        own, served = (torch.autograd.grad(y, leaves, grad) for y in results)
        # What the gradient of x is a difference of: in a row of few elements little of it is left.
        # That of the gate may have a row near its zero, and all its rows are of one size.
        terms = (grad * results[1].detach() / probe.x.detach()).abs()
        for name, one, other in zip(("x", "weight", "gate"), own, served):
            scale = other.abs().amax() if name == "gate" else other.abs().amax(-1, keepdim=True)
            if name == "x":
                scale = torch.maximum(scale, terms.amax(-1, keepdim=True))
            if bool(((one - other).abs() > _RELATIVE_GRADIENT * scale).any()):
                raise Mismatch(f"its gradient of {name} is not that of {self.contract}")

    def _probe(self, x_dtype: torch.dtype, weight_dtype: torch.dtype) -> _Probe:
        width = self.module.weight.shape[0]
        rows = 12 * max(1, -(-_ELEMENTS_MIN // (12 * width)))
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(rows, width, generator=generator)
        # Rows in which eps is nothing, and rows in which it is half of everything.
        x[1::3] *= 30
        x[2::3] *= self.eps**0.5
        shape = _SHAPES[x_dtype]
        weight = torch.randn(width, generator=generator) / 2
        weight[::5] = 15.8125  # 16.8125 is no BF16 number
        gate = torch.randn(rows, width, generator=generator) * 3 if self.gated else None
        x = x.to(x_dtype).reshape(*shape, width)
        return _Probe(
            x, weight.to(weight_dtype), None if gate is None else gate.to(x_dtype).reshape(x.shape)
        )

    def _own(self, probe: _Probe) -> Any:
        """The module's forward with the probe's weight; the module and its hooks see nothing."""
        shadow = object.__new__(type(self.module))
        shadow.__dict__.update(vars(self.module))
        shadow.__dict__["_parameters"] = {**self.module._parameters, "weight": probe.weight}
        shadow.__dict__["training"] = probe.x.dtype == _BF16  # either must give the same
        held = _identities(shadow)
        try:
            with torch.autocast("cpu", enabled=False), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of dtypes that the model may never have
                result = type(self.module).forward(shadow, *probe.tensors())
        except Exception as error:  # whatever somebody else's code raises
            dtypes = f"{probe.x.dtype} and {probe.weight.dtype}".replace("torch.", "")
            raise Mismatch(f"its forward fails on {dtypes} tensors on the CPU: {error}") from error
        changed = [name for name, one in _identities(shadow).items() if held.get(name) != one]
        if changed or len(_identities(shadow)) != len(held):
            raise Mismatch(f"its forward changes the module: {', '.join(changed) or 'it deletes'}")
        return result

    def _served(self, convention: Convention, probe: _Probe) -> torch.Tensor:
        contract = self.contract or convention.contracts[0]
        return _torch_norm.call(
            probe.x,
            probe.weight,
            probe.gate,
            (convention.operator, self.eps, convention.weight_offset, convention.activation),
            _torch_operator.ending(contract, self.backend, self.client),
        )
