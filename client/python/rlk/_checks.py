"""Checks: one call on two sides, or in other layouts."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Union

from rlk import _codec, _methods, _tensors, resident
from rlk import options as call_options
from rlk._proto import call_pb2, comparison_pb2, parity_check_pb2
from rlk.errors import InvalidArgumentError

SERVICE = "/rlk.v1.ParityService/"
# Larger tensors of a call as data are uploaded for the check.
_INLINE_MAX = 64 << 10


class Side(NamedTuple):
    """Where one side of :meth:`rlk.Client.check_parity` computes, or what it has computed.

    Attributes:
        backend: for example "cuda", "cpu", "golden"; None lets the server select.
        contracts: each method of the check takes the one that it has, or else its default.
        server: another server, which the ``--parity-peer`` of the one that is asked must list.
        device_uuid: the device, as ``client.info()`` reports them.
        mode: "strict" (the default) or "auto".
        provided: tensors by the names of outputs, in place of all that stands above, which is
            refused beside it.
    """

    backend: Optional[str] = None
    contracts: Sequence[str] = ()
    server: Optional[str] = None
    device_uuid: Optional[str] = None
    mode: Optional[str] = None
    provided: Mapping[str, Any] = {}


class Gradients(NamedTuple):
    """The gradients of a check's forward call.

    Attributes:
        mode: "random" (nearly normal, as of ``rlk.random_tensor``) or "ones".
        seed: output i of the forward has seed + i.
        given: tensors by name ("grad_y") that are taken and not made.
    """

    mode: str = "random"
    seed: int = 123
    given: Mapping[str, Any] = {}


class Uploads:
    """Puts what is too large for a message on the server, for one check."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._tensors: List[resident.Resident] = []

    def small(self, value: Any) -> Any:
        """The value, or the resident tensor that it has become."""
        if isinstance(value, (list, tuple)):
            return [self.small(item) for item in value]
        if isinstance(value, resident.Resident) or getattr(value, "nbytes", 0) <= _INLINE_MAX:
            return value
        self._tensors.append(self._client.put(value, label="input of a check", verify=False))
        return self._tensors[-1]

    def release(self) -> None:
        """Frees them."""
        if self._tensors:
            self._client.release(self._tensors)


def _named(client: Any, uploads: Uploads, tensors: Mapping[str, Any], out: Any) -> None:
    for name, value in tensors.items():
        entry = out.add(name=name)
        small = uploads.small(value)
        if isinstance(small, resident.Resident):
            resident.check_owner(small, client)
            resident.encode(small, entry.tensor)
        else:
            _tensors.encode(_tensors.as_source(name, small), entry.tensor)


def take_timeout(arguments: Dict[str, Any], default: Optional[float]) -> Optional[float]:
    """The option ``timeout`` out of the arguments: that of the whole check."""
    timeout = arguments.pop("timeout", None)
    return call_options.check_timeout(default if timeout is None else timeout)


def _invocation(
    client: Any, uploads: Uploads, method: str, arguments: Dict[str, Any]
) -> call_pb2.Invocation:
    small = {name: uploads.small(value) for name, value in arguments.items()}
    request = _codec.build_request(method, None, small, client=client)
    found = _methods.find(method)
    invocation = call_pb2.Invocation(method=method)
    invocation.request.type_url = "type.googleapis.com/" + found.request.DESCRIPTOR.full_name
    invocation.request.value = request.data
    return invocation


def as_side(value: Union[None, str, Mapping[str, Any], Side]) -> Side:
    """A side from what callers give: a :class:`Side`, its fields, or a backend's name."""
    if value is None:
        return Side()
    if isinstance(value, str):
        return Side(backend=value)
    if isinstance(value, Side):
        return value
    unknown = [name for name in value if name not in Side._fields]
    if unknown:
        raise InvalidArgumentError(
            f"{unknown[0]}: a side has no such field; allowed: {', '.join(Side._fields)}",
            reason="UNKNOWN_OPTION",
            field=unknown[0],
            allowed=", ".join(Side._fields),
        )
    return Side(**value)


def _encode_side(client: Any, uploads: Uploads, side: Side, out: Any) -> None:
    out.backend = side.backend or ""
    out.contracts.extend([side.contracts] if isinstance(side.contracts, str) else side.contracts)
    out.server = side.server or ""
    out.device_uuid = side.device_uuid or ""
    if side.mode is not None:
        out.mode = call_options.parse_enum("mode", side.mode, call_pb2.Mode.DESCRIPTOR)
    _named(client, uploads, side.provided, out.provided)


def _encode_gradients(
    client: Any, uploads: Uploads, gradients: Union[bool, Gradients], request: Any
) -> None:
    if gradients is False or gradients is None:
        return
    chosen = Gradients() if gradients is True else gradients
    if not isinstance(chosen, Gradients):
        raise InvalidArgumentError(
            f"a {type(chosen).__name__} says nothing of gradients; allowed: True, False, "
            "rlk.Gradients",
            reason="UNKNOWN_OPTION",
            field="gradients",
            value=repr(chosen),
            allowed="True, False, rlk.Gradients",
        )
    request.gradients.seed = chosen.seed
    request.gradients.mode = call_options.parse_enum(
        "gradients.mode", chosen.mode, parity_check_pb2.GradientMode.DESCRIPTOR
    )
    _named(client, uploads, chosen.given, request.gradients.given)


def parity_request(
    client: Any,
    uploads: Uploads,
    method: str,
    left: Side,
    right: Side,
    judgment: str,
    gradients: Union[bool, Gradients],
    arguments: Dict[str, Any],
) -> parity_check_pb2.CheckParityRequest:
    """The request of CheckParity."""
    request = parity_check_pb2.CheckParityRequest(
        invocation=_invocation(client, uploads, method, arguments)
    )
    _encode_side(client, uploads, left, request.left)
    _encode_side(client, uploads, right, request.right)
    number: Any = call_options.parse_enum("judgment", judgment, comparison_pb2.Judgment.DESCRIPTOR)
    request.judgment = number
    _encode_gradients(client, uploads, gradients, request)
    return request


def invariance_request(
    client: Any,
    uploads: Uploads,
    method: str,
    axes: Sequence[str],
    seed: int,
    repeats: int,
    concurrency: int,
    gradients: Union[bool, Gradients],
    contracts: Sequence[str],
    arguments: Dict[str, Any],
) -> parity_check_pb2.CheckInvarianceRequest:
    """The request of CheckInvariance."""
    request = parity_check_pb2.CheckInvarianceRequest(
        invocation=_invocation(client, uploads, method, arguments),
        seed=seed,
        repeats=repeats,
        concurrency=concurrency,
        contracts=[contracts] if isinstance(contracts, str) else contracts,
    )
    for axis in axes:
        number: Any = call_options.parse_enum(
            "axes", axis, parity_check_pb2.InvarianceAxis.DESCRIPTOR
        )
        request.axes.append(number)
    _encode_gradients(client, uploads, gradients, request)
    return request
