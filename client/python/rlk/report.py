"""What ran, as plain immutable values: the report of a call, and records of the server."""

from __future__ import annotations

import dataclasses
from types import MappingProxyType
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple

from rlk import _digest, _dtypes, _methods
from rlk._proto import call_pb2


@dataclasses.dataclass(frozen=True)
class Device:
    """The device that ran a call. ``kind`` is "cpu" or "cuda"."""

    kind: str
    ordinal: int
    name: str
    uuid: str


@dataclasses.dataclass(frozen=True)
class RejectedVariant:
    """A variant that selection passed over, and why."""

    backend: str
    kernel: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Fallback:
    """An applicable backend of higher priority that did not load, and why."""

    from_backend: str
    reason: str


@dataclasses.dataclass(frozen=True)
class OutputVerification:
    """One compared output of a verification. Errors and tolerances are 0 for REPEAT."""

    name: str
    passed: bool
    compared_elements: int
    mismatched_elements: int
    max_abs_error: float
    max_rel_error: float
    atol: float
    rtol: float


@dataclasses.dataclass(frozen=True)
class Verification:
    """``kind`` is "REPEAT" or "REFERENCE"; the tolerance contract is named for REFERENCE."""

    kind: str
    passed: bool
    outputs: Tuple[OutputVerification, ...]
    tolerance_contract_version: str
    tolerance_contract_sha256: str


@dataclasses.dataclass(frozen=True)
class Phases:
    """Nanoseconds on the server; a phase that did not happen is 0."""

    receive_ns: int
    queue_ns: int
    stage_in_ns: int
    kernel_ns: int
    stage_out_ns: int


@dataclasses.dataclass(frozen=True)
class CallReport:
    """What ran, under which contract.

    Attributes:
        contract: the contract id, for example "final_logit_softcap/portable-v1".
        backend: "cpu", "cuda", "cuda_sm90", "golden", or a provider's name.
        kernel: the kernel's name within the backend.
        device: the device that ran it.
        claim: "L0" .. "L3", or None when the variant claims nothing.
        rejected: variants that were passed over, with reasons.
        fallback: None when no fallback happened.
        attributes: attributes as the arithmetic used them, defaults included; dtypes as "F32".
        input_digests, output_digests: digest by tensor name, when digests were asked for.
        input_row_digests, output_row_digests: the digests of the rows by tensor name, likewise.
        verification: None when none was asked for.
        phases: where the time went on the server.
        input_capture: "SNAPSHOT" or "LIVE".
        provenance_id: names the record that ``client.info().provenance`` holds whole.
        transports: how tensors travelled, for example ("inline",).
        moved_to_resident: outputs that did not fit into the reply.
        synthetic_inputs: inputs whose values were made up, as their files say.
    """

    contract: str
    backend: str
    kernel: str
    device: Device
    claim: Optional[str]
    rejected: Tuple[RejectedVariant, ...]
    fallback: Optional[Fallback]
    attributes: Mapping[str, Any]
    input_digests: Mapping[str, str]
    output_digests: Mapping[str, str]
    input_row_digests: Mapping[str, Tuple[str, ...]]
    output_row_digests: Mapping[str, Tuple[str, ...]]
    verification: Optional[Verification]
    phases: Phases
    input_capture: Optional[str]
    provenance_id: str
    transports: Tuple[str, ...]
    moved_to_resident: Tuple[str, ...]
    synthetic_inputs: Tuple[str, ...]

    def to_dict(self) -> Dict[str, Any]:
        """Plain dicts, lists and scalars, ready for JSON."""
        return _plain(self)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value


def enum_text(enum: Any, number: int) -> Optional[str]:
    """An enumerator's short name: "SNAPSHOT", "F32"; a claim level as "L3"; None for 0."""
    if number == 0:
        return None
    value = enum.values_by_number.get(number)
    if value is None:
        return str(number)
    text = {n: t for t, n in _methods.enumerators(enum)}.get(number, value.name).upper()
    return text.split("_")[0] if enum.name == "ClaimLevel" else text


def _copy(cls: Any, message: Any) -> Any:
    """A dataclass of scalars from the message fields of the same names."""
    return cls(**{f.name: getattr(message, f.name) for f in dataclasses.fields(cls)})


def _attribute(value: call_pb2.AttributeValue) -> Any:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    return _dtypes.NAMES.get(value.dtype) if kind == "dtype" else getattr(value, kind)


def _digests(items: Any) -> Mapping[str, str]:
    return MappingProxyType({item.name: item.digest for item in items if item.digest})


def _rows(items: Any) -> Mapping[str, Tuple[str, ...]]:
    return MappingProxyType(
        {
            item.name: tuple(
                _digest.format_digest(item.rows[i : i + 16]) for i in range(0, len(item.rows), 16)
            )
            for item in items
            if item.rows
        }
    )


def _verification(message: call_pb2.CallReport) -> Optional[Verification]:
    result = message.verification
    kind = enum_text(call_pb2.Verification.DESCRIPTOR, result.verification)
    if not message.HasField("verification") or kind is None:
        return None
    return Verification(
        kind=kind,
        passed=result.passed,
        outputs=tuple(_copy(OutputVerification, output) for output in result.outputs),
        tolerance_contract_version=result.tolerance_contract_version,
        tolerance_contract_sha256=result.tolerance_contract_sha256,
    )


def report_from_proto(message: call_pb2.CallReport) -> CallReport:
    """The report of a reply as plain values."""
    return CallReport(
        contract=message.contract,
        backend=message.backend,
        kernel=message.kernel,
        device=_copy(Device, message.device),
        claim=enum_text(call_pb2.ClaimLevel.DESCRIPTOR, message.claim),
        rejected=tuple(_copy(RejectedVariant, item) for item in message.rejected),
        fallback=_copy(Fallback, message.fallback) if message.HasField("fallback") else None,
        attributes=MappingProxyType(
            {name: _attribute(message.attributes[name]) for name in sorted(message.attributes)}
        ),
        input_digests=_digests(message.input_digests),
        output_digests=_digests(message.output_digests),
        input_row_digests=_rows(message.input_digests),
        output_row_digests=_rows(message.output_digests),
        verification=_verification(message),
        phases=_copy(Phases, message.phases),
        input_capture=enum_text(call_pb2.InputCapture.DESCRIPTOR, message.input_capture),
        provenance_id=message.provenance_id,
        transports=tuple(message.transports),
        moved_to_resident=tuple(message.moved_to_resident),
        synthetic_inputs=tuple(message.synthetic_inputs),
    )


class Record(Mapping[str, Any]):
    """An immutable record of the server: a mapping whose keys are attributes too.

    Field names are those of the proto message. A field that the server does not know is None;
    repeated fields are tuples, enumerators short names ("FORWARD", "L3"), dtypes "F32".
    """

    __slots__ = ("_fields",)

    def __init__(self, fields: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_fields", dict(fields))

    def __getitem__(self, key: str) -> Any:
        return self._fields[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_fields":
            raise AttributeError(name)
        try:
            return self._fields[name]
        except KeyError:
            known = ", ".join(self._fields)
            raise AttributeError(f"no field {name!r}; fields: {known}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("records are immutable")

    def __repr__(self) -> str:
        body = ", ".join(f"{key}={value!r}" for key, value in self._fields.items())
        return f"Record({body})"

    def __reduce__(self) -> Any:
        return Record, (self._fields,)

    def to_dict(self) -> Dict[str, Any]:
        """Plain dicts, lists and scalars, ready for JSON."""
        return _plain(self)


def record_from_proto(message: Any) -> Record:
    """Any message as a Record."""
    return Record({field.name: _field(message, field) for field in message.DESCRIPTOR.fields})


def _field(message: Any, field: Any) -> Any:
    if field.message_type and field.message_type.GetOptions().map_entry:
        entries = getattr(message, field.name)
        value = field.message_type.fields_by_name["value"]
        return MappingProxyType({key: _scalar(value, entries[key]) for key in sorted(entries)})
    if _methods.is_repeated(field):
        return tuple(_scalar(field, item) for item in getattr(message, field.name))
    # Messages and optional scalars know whether they were set; plain scalars do not.
    presence = field.message_type or field.containing_oneof
    if presence and not message.HasField(field.name):
        return None
    return _scalar(field, getattr(message, field.name))


def _scalar(field: Any, value: Any) -> Any:
    if field.message_type:
        return record_from_proto(value)
    return enum_text(field.enum_type, value) if field.enum_type else value
