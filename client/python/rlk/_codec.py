"""Calls as bytes: arguments into a request, a reply into named outputs and a report.

The blocking and the asyncio client share all of it.
"""

from __future__ import annotations

import operator
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple, Union

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError

from rlk import _dtypes, _methods, _tensors, arena, resident
from rlk import options as call_options
from rlk._proto import tensor_pb2
from rlk.errors import InternalError, InvalidArgumentError
from rlk.report import CallReport, report_from_proto

# Bytes of one message, tensors and the little around them, that a server takes unless it is
# configured otherwise.
INLINE_BYTES_MAX = 2 << 20
_DATA_TYPE = tensor_pb2.DataType.DESCRIPTOR.full_name
_INT64 = (-(1 << 63), (1 << 63) - 1)


class CallResult(Mapping[str, Any]):
    """The outputs of a call by name, as attributes (``result.y``) and items (``result["y"]``).

    Outputs are new arrays or tensors of the same kind as the inputs (numpy, or torch on the
    inputs' device); nobody else refers to their memory. An output that was not computed is None.
    An output whose name is a method of mappings is reached as an item.

    Attributes:
        report: the :class:`rlk.CallReport`.
    """

    __slots__ = ("_outputs", "report")

    report: CallReport

    def __init__(self, outputs: Mapping[str, Any], report: CallReport) -> None:
        self._outputs = dict(outputs)
        self.report = report

    def __getitem__(self, name: str) -> Any:
        return self._outputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_outputs":
            raise AttributeError(name)
        try:
            return self._outputs[name]
        except KeyError:
            known = ", ".join(self._outputs)
            raise AttributeError(f"no output {name!r}; outputs: {known}") from None

    def __repr__(self) -> str:
        body = ", ".join(f"{name}={value!r}" for name, value in self._outputs.items())
        return f"CallResult({body}, report={self.report!r})"


class Request(NamedTuple):
    """A call ready to send, and what its reply needs."""

    method: _methods.Method
    data: bytes
    torch_device: Optional[Any]
    timeout: Optional[float]
    client: Any
    # By output: the array that the caller gave for it.
    out: Mapping[str, Any] = {}


def build_request(
    name: str,
    options: Union[None, call_options.CallOptions, Mapping[str, Any]],
    arguments: Dict[str, Any],
    inline_bytes_max: int = INLINE_BYTES_MAX,
    client: Any = None,
) -> Request:
    """Builds the request of a call. ``arguments`` may hold options beside tensors and attributes.

    What the signature allows is checked by the server. Here fail only calls that cannot be put
    into a message: unknown names, values that are no tensor or no attribute, tensors of two
    libraries or devices, and messages above ``inline_bytes_max``.
    """
    method = _methods.find(name)
    given = dict(arguments)
    merged = call_options.merge(options, given)
    _check_names(method, given)
    message = method.request()
    call_options.encode(merged, message.options)
    if merged.out is not None:
        _encode_out(merged.out, message.options, client)
    device = _encode_tensors(method, given, message, inline_bytes_max, client)
    for field in method.attributes.values():
        value = given.get(field.name)
        if value is not None:
            _encode_attribute(field, value, message)
    data = message.SerializeToString()
    _check_size(method, len(data), inline_bytes_max)
    return Request(method, data, device, merged.timeout, client, dict(merged.out or {}))


def _place_of(value: Any, client: Any) -> Optional[arena.Place]:
    if isinstance(value, arena.Place):
        return value
    arenas = getattr(client, "_arenas", None)
    return arenas.find(value) if arenas else None


def _encode_out(out: Any, options: Any, client: Any) -> None:
    for name, value in out.items() if isinstance(out, Mapping) else [("out", None)]:
        place = _place_of(value, client)
        if place is None or not arena.is_contiguous(place):
            allowed = "{output: an array of rlk.Arena.empty, in C order}"
            raise InvalidArgumentError(
                f"options.out: what is given for {name!r} does not lie in an arena of this client; "
                f"allowed: {allowed}",
                reason="PLACEMENT_UNAVAILABLE",
                field="options.out",
                value=str(name),
                allowed=allowed,
            )
        if name in options.outputs:
            raise InvalidArgumentError(
                f"options.out: {name!r} is given to keep or into as well; allowed: one place",
                reason="UNKNOWN_OPTION",
                field="options.out",
                value=str(name),
                allowed="one place for an output",
            )
        place.fill(options.outputs[name].arena)


def _check_size(method: _methods.Method, size: int, inline_bytes_max: int) -> None:
    if size <= inline_bytes_max:
        return
    allowed = f"at most {inline_bytes_max} bytes (inline_bytes_max)"
    raise InvalidArgumentError(
        f"{method.name}: {size} bytes are too many for one message; allowed: {allowed}",
        reason="MESSAGE_TOO_LARGE",
        field="request",
        value=f"{size} bytes",
        allowed=allowed,
    )


def _check_names(method: _methods.Method, given: Mapping[str, Any]) -> None:
    names = method.argument_names()
    for name in given:
        if name not in names:
            allowed = ", ".join(names)
            raise InvalidArgumentError(
                f"{name}: {method.name} has no argument of this name; allowed: {allowed}, "
                f"and the options {', '.join(call_options.NAMES)}",
                reason="UNKNOWN_FIELD",
                field=name,
                allowed=allowed,
            )


def _named_items(field: _methods.Field, value: Any) -> List[Tuple[str, Any]]:
    if not field.repeated:
        return [(field.name, value)]
    if not isinstance(value, (list, tuple)):
        value = [value]
    return [(f"{field.name}[{i}]", item) for i, item in enumerate(value)]


def _encode_tensors(
    method: _methods.Method,
    given: Mapping[str, Any],
    message: Any,
    inline_bytes_max: int,
    client: Any,
) -> Optional[Any]:
    """Encodes the tensors and returns the torch device of the results, None for numpy.

    Tensors of the call decide where results belong; without any, those that stay on the server do,
    by where they came from.
    """
    found: Dict[str, Optional[Any]] = {}
    residents: List[Optional[Any]] = []
    total = 0
    for field in method.tensors.values():
        value = given.get(field.name)
        if value is None:
            continue
        for name, item in _named_items(field, value):
            target = getattr(message, field.name)
            if isinstance(item, resident.Resident):
                resident.check_owner(item, client)
                residents.append(item._torch_device)
                resident.encode(item, target.add() if field.repeated else target)
                continue
            place = _place_of(item, client)
            if place is not None:
                found.setdefault(field.name, place.torch_device)
                _check_same_place(found, field.name, place.torch_device)
                arena.encode(place, target.add() if field.repeated else target)
                continue
            source = _tensors.as_source(name, item)
            found.setdefault(field.name, source.torch_device)
            _check_same_place(found, field.name, source.torch_device)
            total += _tensors.payload_bytes(source)
            _check_size(method, total, inline_bytes_max)  # before anything large is copied
            _tensors.encode(source, target.add() if field.repeated else target)
    return next(iter([*found.values(), *residents]), None)


def _check_same_place(
    found: Mapping[str, Optional[Any]], name: str, torch_device: Optional[Any]
) -> None:
    first, device = next(iter(found.items()))
    if device == torch_device:
        return
    place = "numpy" if torch_device is None else f"torch on {torch_device}"
    allowed = "numpy" if device is None else f"torch on {device}"
    raise InvalidArgumentError(
        f"{name}: {place} beside {first} in {allowed}; tensors of one call are of one library "
        "and device",
        reason="SOURCE_NOT_SUPPORTED",
        field=name,
        value=place,
        allowed=allowed,
    )


def _encode_attribute(field: _methods.Field, value: Any, message: Any) -> None:
    if field.repeated:
        items = value if isinstance(value, (list, tuple)) else [value]
        getattr(message, field.name).extend(
            _attribute(f"{field.name}[{i}]", field.descriptor, item) for i, item in enumerate(items)
        )
    else:
        setattr(message, field.name, _attribute(field.name, field.descriptor, value))


def dtype_number(name: str, value: Any) -> int:
    """The number of a dtype; InvalidArgumentError naming ``name``."""
    number = _dtypes.parse(value)
    if number is not None:
        return number
    raise _bad_attribute(name, value, ", ".join(_dtypes.names()), "DTYPE_NOT_ALLOWED")


def _attribute(name: str, descriptor: Any, value: Any) -> Any:
    """One attribute as protobuf takes it."""
    kind = descriptor.cpp_type
    if descriptor.enum_type is not None:
        if descriptor.enum_type.full_name != _DATA_TYPE:
            return call_options.parse_enum(name, value, descriptor.enum_type)
        return dtype_number(name, value)
    scalar = value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value
    is_bool = isinstance(scalar, (bool, np.bool_))
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        if is_bool:
            return bool(scalar)
        raise _bad_attribute(name, value, "True, False")
    if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        if not is_bool and not isinstance(scalar, (str, bytes)) and hasattr(scalar, "__float__"):
            try:
                return float(scalar)
            except (TypeError, ValueError, OverflowError, RuntimeError):  # RuntimeError: torch
                pass
        raise _bad_attribute(name, value, "a number")
    if kind == FieldDescriptor.CPPTYPE_STRING:
        if call_options.is_text(value):
            return value
        raise _bad_attribute(name, value, "text")
    return _integer(name, scalar, is_bool)


def _integer(name: str, value: Any, is_bool: bool) -> int:
    if not is_bool and hasattr(value, "__index__"):
        number = operator.index(value)
        if _INT64[0] <= number <= _INT64[1]:
            return number
    raise _bad_attribute(name, value, "an integer of 64 bits")


def _bad_attribute(
    name: str, value: Any, allowed: str, reason: str = "ATTRIBUTE_OUT_OF_RANGE"
) -> InvalidArgumentError:
    text = repr(value) if len(repr(value)) <= 128 else type(value).__name__
    return InvalidArgumentError(
        f"{name}: {text} is not allowed; allowed: {allowed}",
        reason=reason,
        field=name,
        value=text,
        allowed=allowed,
    )


def _take_out(given: Any, name: str, tensor: tensor_pb2.Tensor) -> Any:
    """The caller's array, which the call has filled."""
    dtype = _dtypes.parse(given.dtype)
    if dtype == tensor.dtype and tuple(given.shape) == tuple(tensor.shape):
        return given
    said = f"{_dtypes.NAMES.get(tensor.dtype)} {list(tensor.shape)}"
    raise InvalidArgumentError(
        f"options.out: {name} is {said}, another dtype or shape than the array that was given; the "
        "array's memory was written all the same",
        reason="SHAPE_MISMATCH",
        field="options.out",
        value=f"{given.dtype} {list(given.shape)}",
        allowed=said,
    )


def parse_result(request: Request, data: bytes) -> CallResult:
    """The reply of a call. Raises InternalError for a reply that makes no sense."""
    method, device = request.method, request.torch_device
    try:
        message = method.response.FromString(data)
    except DecodeError as error:
        raise InternalError(f"{method.name}: the reply is malformed: {error}") from None
    outputs: Dict[str, Any] = {}

    def decode(name: str, tensor: tensor_pb2.Tensor) -> Any:
        source = tensor.WhichOneof("source")
        if source == "resident":
            return resident.from_reply(request.client, tensor, device)
        if source == "arena" and name in request.out:
            return _take_out(request.out[name], name, tensor)
        return _tensors.decode(name, tensor, device)

    for field in method.outputs.values():
        value = getattr(message, field.name)
        if field.repeated:
            outputs[field.name] = [decode(field.name, item) for item in value]
        elif message.HasField(field.name):
            outputs[field.name] = decode(field.name, value)
        else:
            outputs[field.name] = None
    return CallResult(outputs, report_from_proto(message.report))
