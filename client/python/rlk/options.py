"""Options of a call, beside its tensors and attributes."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Dict, Iterable, Mapping, Optional, Tuple, Union, cast

import numpy as np

from rlk import _methods
from rlk._proto import call_pb2
from rlk.errors import DeadlineExceededError, InvalidArgumentError

# gRPC's own bound on deadlines is lower than infinity: a year will do for "for ever".
_TIMEOUT_MAX = 365.0 * 24 * 3600


@dataclasses.dataclass(frozen=True)
class CallOptions:
    """Options of a call; None takes the server's default.

    Enumerators are text in either case, with or without the proto's prefix.

    Attributes:
        contract: a contract id; by default the method's first.
        backend: a backend's name; by default the server selects.
        mode: "strict" (default: a fallback is an error) or "auto" (allowed, and reported).
        minimum_claim: "L0" .. "L3"; by default L1. L3 does not include L2.
        verify: "repeat" (run twice; a differing bit is a DataLossError) or "reference" (compare
            with the FP64 reference under the tolerance contract; the report has the result).
        digests: "tensor", "rows", or several of them; True means "tensor".
        wanted: names of the outputs to compute; by default all that are not made on request only.
        device_uuid: the device to run on, by uuid as ``client.info()`` reports it.
        input_capture: "snapshot" or "live".
        keep: names of outputs that stay on the server: the result has a :class:`rlk.Resident` for
            each.
        into: outputs that are written into resident tensors, by name: ``{"y": state}``. The tensor's
            generation must be the present one; the result has the Resident of the next.
        out: outputs that are written where an array of an arena lies, by name: ``{"y": array}``, from
            :meth:`rlk.Arena.empty`. The result has that array.
        timeout: seconds until the call fails with DeadlineExceededError; by default the client's.
    """

    contract: Optional[str] = None
    backend: Optional[str] = None
    mode: Optional[str] = None
    minimum_claim: Optional[str] = None
    verify: Optional[str] = None
    digests: Union[None, bool, str, Iterable[str]] = None
    wanted: Union[None, str, Iterable[str]] = None
    device_uuid: Optional[str] = None
    input_capture: Optional[str] = None
    keep: Union[None, str, Iterable[str]] = None
    into: Optional[Mapping[str, Any]] = None
    out: Optional[Mapping[str, Any]] = None
    timeout: Optional[float] = None


NAMES: Tuple[str, ...] = tuple(field.name for field in dataclasses.fields(CallOptions))


def merge(
    options: Union[None, CallOptions, Mapping[str, Any]], given: Dict[str, Any]
) -> CallOptions:
    """``options`` with the options among ``given`` over them; takes those out of ``given``."""
    if options is None:
        options = CallOptions()
    elif isinstance(options, Mapping):
        for name in options:
            if name not in NAMES:
                raise _unknown_option(str(name), ", ".join(NAMES), f"{name!r} is no option")
        options = CallOptions(**options)
    elif not isinstance(options, CallOptions):
        kind = type(options).__name__
        raise _unknown_option(kind, "rlk.CallOptions, a mapping", f"a {kind} holds no options")
    over = {name: given.pop(name) for name in NAMES if given.get(name) is not None}
    for name in NAMES:
        given.pop(name, None)
    return dataclasses.replace(options, **over) if over else options


def check_timeout(timeout: Any) -> Optional[float]:
    """The time-out of a call in seconds, None for none.

    Raises InvalidArgumentError for what is no number, and DeadlineExceededError for one that has
    passed already.
    """
    if timeout is None:
        return None
    number = isinstance(timeout, (int, float, np.integer, np.floating))
    if not number or isinstance(timeout, bool) or math.isnan(timeout):
        raise _unknown_option(
            repr(timeout), "seconds, None", f"timeout is {timeout!r}, not a number", "timeout"
        )
    if timeout <= 0:
        raise DeadlineExceededError(
            f"the time-out of {timeout} s has passed before the call",
            reason="DEADLINE_EXCEEDED",
            field="options.timeout",
        )
    return min(float(timeout), _TIMEOUT_MAX)


def encode(options: CallOptions, message: call_pb2.CallOptions) -> None:
    """Fills the proto message. Raises InvalidArgumentError for an unknown enumerator."""
    for name, target in (("contract", "contract"), ("backend", "backend"), ("device_uuid",) * 2):
        value = getattr(options, name)
        if value is not None:
            setattr(message, target, _text(value, name))
    for name, target, enum in (
        ("mode", "mode", call_pb2.Mode),
        ("minimum_claim", "minimum_claim", call_pb2.ClaimLevel),
        ("verify", "verification", call_pb2.Verification),
        ("input_capture", "input_capture", call_pb2.InputCapture),
    ):
        value = getattr(options, name)
        if value is not None:
            setattr(message, target, parse_enum(f"options.{name}", value, enum.DESCRIPTOR))
    digests = "tensor" if options.digests is True else options.digests or ()
    for scope in _items(digests, "digests"):
        number: Any = parse_enum("options.digests", scope, call_pb2.DigestScope.DESCRIPTOR)
        message.digests.append(number)
    for name in _items(options.keep or (), "keep"):
        message.outputs[_text(name, "keep")].resident.SetInParent()
    if options.into is not None:
        _encode_into(options.into, message)
    wanted = _items(options.wanted or (), "wanted")
    message.wanted_outputs.extend(_text(name, "wanted") for name in wanted)


def _encode_into(into: Any, message: call_pb2.CallOptions) -> None:
    handles = into.items() if isinstance(into, Mapping) else [(into, None)]
    for name, resident in handles:
        handle = getattr(resident, "_handle", None)
        if handle is None:
            raise _unknown_option(
                repr(into), "{output: rlk.Resident}", "into is a mapping of residents", "into"
            )
        message.outputs[_text(name, "into")].resident.into.CopyFrom(handle)


def is_text(value: Any) -> bool:
    """Whether value is text that a message can carry: lone surrogates have no UTF-8."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text(value: Any, name: str) -> str:
    if not is_text(value):
        raise _unknown_option(repr(value), "text", f"{name} is text", name)
    return cast(str, value)


def _items(value: Any, name: str) -> Iterable[Any]:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, Iterable):
        return value
    raise _unknown_option(repr(value), "text, several of them", f"{name} is text", name)


def parse_enum(field: str, value: Any, enum: Any) -> int:
    """The number of an enumerator given as text: "silu", "SILU", "ACTIVATION_SILU"; claim levels
    also as "L1". Raises InvalidArgumentError naming ``field`` with the allowed names."""
    names = dict(_methods.enumerators(enum))
    if isinstance(value, str):
        text = value.lower()
        if enum.name == "ClaimLevel":
            names.update({name.split("_")[0]: number for name, number in list(names.items())})
        if text in names:
            return names[text]
        by_full_name = enum.values_by_name.get(value.upper())
        if by_full_name is not None and by_full_name.number in names.values():
            return by_full_name.number
    allowed = ", ".join(name for name, _ in _methods.enumerators(enum))
    raise InvalidArgumentError(
        f"{field}: {value!r} is not known; allowed: {allowed}",
        reason="UNKNOWN_ENUM_VALUE",
        field=field,
        value=str(value),
        allowed=allowed,
    )


def _unknown_option(
    value: str, allowed: str, message: str, name: Optional[str] = None
) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"options: {message}; allowed: {allowed}",
        reason="UNKNOWN_OPTION",
        field="options" if name is None else f"options.{name}",
        value=value,
        allowed=allowed,
    )
