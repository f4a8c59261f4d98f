"""Modules whose forward and backward run on the server."""

from __future__ import annotations

import copy
import functools
from typing import Any, Optional, Tuple

import torch

from rlk import _torch_norm, _torch_operator
from rlk._torch_convention import Found
from rlk._torch_softcap import final_logit_softcap
from rlk.client import Client
from rlk.errors import FailedPreconditionError, InvalidArgumentError

_NO_PICKLE = (
    "a module that calls a server is not pickled: save its state_dict, or pickle the model after "
    "rlk.torch.restore(model)"
)


class Server:
    """Where a module's calls go. Copies of the module share it."""

    def __init__(
        self, contract: Optional[str], backend: Optional[str], client: Optional[Client]
    ) -> None:
        self.contract = contract
        self.backend = backend
        self.client = client  # kept alive as long as the module
        self.call: Tuple[str, str, int] = _torch_operator.ending(contract, backend, client)

    def __deepcopy__(self, memo: Any) -> Server:
        return self

    def __reduce__(self) -> Any:
        raise TypeError(_NO_PICKLE)

    def words(self) -> str:
        """What `repr` of a module says of it."""
        return f"contract={self.contract or 'default'}, backend={self.backend or 'any'}"


class RMSNorm(torch.nn.Module):
    """:func:`rlk.torch.rms_norm` as a module: ``x / rms(x) * (weight_offset + weight)``.

    Args:
        hidden_size: of the last dimension.
        eps: finite and greater than 0.
        weight_offset: 1 for the zero-centred weights of Qwen3-Next and Gemma.
        contract, backend, client: as of :func:`rlk.torch.rms_norm`.
        device, dtype: of the weight.

    Attributes:
        weight: [hidden_size]; at first that of no scale, ``1 - weight_offset``.
    """

    def __init__(
        self,
        hidden_size: int,
        eps: float = 1e-6,
        *,
        weight_offset: float = 0.0,
        contract: Optional[str] = None,
        backend: Optional[str] = None,
        client: Optional[Client] = None,
        device: Any = None,
        dtype: Optional[torch.dtype] = None,
    ) -> None:
        super().__init__()
        self.eps = eps
        self.weight_offset = weight_offset
        start = torch.full((hidden_size,), 1.0 - weight_offset, device=device, dtype=dtype)
        self.weight = torch.nn.Parameter(start)
        self._server = Server(contract, backend, client)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        norm = ("rms_norm", float(self.eps), float(self.weight_offset), "")
        return _torch_norm.call(x, self.weight, None, norm, self._server.call)

    def extra_repr(self) -> str:
        return (
            f"{tuple(self.weight.shape)}, eps={self.eps}, weight_offset={self.weight_offset}, "
            f"{self._server.words()}"
        )


class RMSNormGated(RMSNorm):
    """:func:`rlk.torch.rms_norm_gated` as a module; ``forward(x, gate)``.

    Args:
        activation: "silu", "swish" (the same) or "sigmoid".

    The others are those of :class:`RMSNorm`. The contract of transformers' Qwen3NextRMSNormGated is
    ``rms_norm_gated/hf-v1``; the default is vLLM's convention.
    """

    def __init__(
        self, hidden_size: int, eps: float = 1e-6, *, activation: str = "silu", **options: Any
    ) -> None:
        super().__init__(hidden_size, eps, **options)
        self.activation = activation

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        norm = ("rms_norm_gated", float(self.eps), float(self.weight_offset), self.activation)
        return _torch_norm.call(x, self.weight, gate, norm, self._server.call)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, activation={self.activation}"


class FinalLogitSoftcap(torch.nn.Module):
    """:func:`rlk.torch.final_logit_softcap` as a module; its arguments."""

    def __init__(
        self,
        softcap: float = 30.0,
        *,
        output_dtype: Optional[torch.dtype] = None,
        contract: Optional[str] = None,
        backend: Optional[str] = None,
        client: Optional[Client] = None,
    ) -> None:
        super().__init__()
        self.softcap = softcap
        self.output_dtype = output_dtype
        self._server = Server(contract, backend, client)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        server = self._server
        return final_logit_softcap(
            x,
            self.softcap,
            output_dtype=self.output_dtype,
            contract=server.contract,
            backend=server.backend,
            client=server.client,
        )

    def extra_repr(self) -> str:
        return f"softcap={self.softcap}, {self._server.words()}"


class Binding(Server):
    """How a module of somebody else's class is computed instead."""

    def __init__(self, found: Found, watched: Any, backend: Optional[str], client: Client) -> None:
        super().__init__(found.contract, backend, client)
        one = found.convention
        self.norm = (one.operator, found.eps, one.weight_offset, one.activation)
        self.dtypes = found.dtypes
        self.parameters = found.parameters
        self.watched = tuple(watched.items())


class Served:
    """Stands before a norm's own class in a class made of both: see :func:`serve`."""

    _rlk: Binding
    weight: torch.Tensor

    def forward(self, *args: torch.Tensor, **kwargs: torch.Tensor) -> torch.Tensor:
        """On the server, what the module's own forward computes."""
        binding = self._rlk
        for name, value in binding.watched:
            if getattr(self, name) != value:
                raise FailedPreconditionError(
                    f"{type(self).__name__}.{name} was {value!r} when rlk.torch.replace looked at "
                    f"the module and is {getattr(self, name)!r}: restore and replace again",
                    field=name,
                )
        tensors = {**dict(zip(binding.parameters, args)), **kwargs}
        count = len(args) + len(kwargs)
        if count != len(binding.parameters) or set(tensors) != set(binding.parameters):
            raise TypeError(
                f"{type(self).__name__} takes {', '.join(binding.parameters)}; given are "
                f"{len(args)} by position and {', '.join(kwargs) or 'none'} by name"
            )
        x, *gate = (tensors[name] for name in binding.parameters)
        if (x.dtype, self.weight.dtype) not in binding.dtypes:
            raise self._dtype_error(x)
        return _torch_norm.call(
            x, self.weight, gate[0] if gate else None, binding.norm, binding.call
        )

    def _dtype_error(self, x: torch.Tensor) -> InvalidArgumentError:
        pairs = sorted(f"{a} with {b}" for a, b in self._rlk.dtypes)
        allowed = ", ".join(pairs).replace("torch.", "")
        given = f"{x.dtype} with {self.weight.dtype}".replace("torch.", "")
        return InvalidArgumentError(
            f"{type(self).__name__}: no contract gives what its own forward gives for x and weight "
            f"of {given}; allowed: {allowed}",
            reason="DTYPE_NOT_ALLOWED",
            field="weight",
            value=given,
            allowed=allowed,
        )

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, {self._rlk.words()}".lstrip(", ")  # type: ignore[misc]

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "forward":  # kernelize() and hooks of accelerate would pass by the server
            raise FailedPreconditionError(
                f"the forward of {type(self).__name__} runs on a server: call "
                "rlk.torch.restore(model) before you replace it",
                field=name,
            )
        super().__setattr__(name, value)

    def __deepcopy__(self, memo: Any) -> Any:
        copied = object.__new__(type(self))
        memo[id(self)] = copied
        copied.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(_NO_PICKLE)


@functools.lru_cache(maxsize=None)
def served_class(original: Any) -> Any:
    """The class that modules of this class get; raises what the class does against classes that
    derive from it."""
    body = {"__module__": original.__module__, "__doc__": original.__doc__}
    return type("Served" + original.__name__, (Served, original), body)


def serve(module: torch.nn.Module, binding: Binding) -> None:
    """Makes the module's forward run on the server. Its class becomes one that derives from its
    own: parameters, hooks, names and isinstance stay."""
    own: Any = type(module)
    module._rlk = binding  # type: ignore[assignment]
    try:
        module.__class__ = served_class(own)
    except BaseException:
        del module._rlk
        raise


def unserve(module: torch.nn.Module) -> None:
    """Undoes :func:`serve`."""
    front, *bases = type(module).__bases__
    if front is not Served:
        raise FailedPreconditionError(
            f"{type(module).__name__}: since rlk.torch.replace, another class was put before this "
            "one (fully_shard and parametrizations do so); undo that first"
        )
    module.__class__ = bases[0]
    del module._rlk
