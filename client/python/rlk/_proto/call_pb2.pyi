from google.protobuf import any_pb2 as _any_pb2
from rlk._proto import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

CLAIM_LEVEL_L0_REPEATABLE: ClaimLevel
CLAIM_LEVEL_L1_BATCH_INVARIANT: ClaimLevel
CLAIM_LEVEL_L2_PROVIDER: ClaimLevel
CLAIM_LEVEL_L3_PORTABLE: ClaimLevel
CLAIM_LEVEL_UNSPECIFIED: ClaimLevel
DESCRIPTOR: _descriptor.FileDescriptor
DIGEST_SCOPE_ROWS: DigestScope
DIGEST_SCOPE_TENSOR: DigestScope
DIGEST_SCOPE_UNSPECIFIED: DigestScope
INPUT_CAPTURE_LIVE: InputCapture
INPUT_CAPTURE_SNAPSHOT: InputCapture
INPUT_CAPTURE_UNSPECIFIED: InputCapture
MODE_AUTO: Mode
MODE_STRICT: Mode
MODE_UNSPECIFIED: Mode
VERIFICATION_REFERENCE: Verification
VERIFICATION_REPEAT: Verification
VERIFICATION_UNSPECIFIED: Verification

class AttributeValue(_message.Message):
    __slots__ = ["boolean", "dtype", "enumerator", "integer", "number"]
    BOOLEAN_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    ENUMERATOR_FIELD_NUMBER: _ClassVar[int]
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    boolean: bool
    dtype: _tensor_pb2.DataType
    enumerator: str
    integer: int
    number: float
    def __init__(self, number: _Optional[float] = ..., integer: _Optional[int] = ..., boolean: bool = ..., dtype: _Optional[_Union[_tensor_pb2.DataType, str]] = ..., enumerator: _Optional[str] = ...) -> None: ...

class CallOptions(_message.Message):
    __slots__ = ["backend", "contract", "device_uuid", "digests", "input_capture", "minimum_claim", "mode", "outputs", "verification", "wanted_outputs"]
    class OutputsEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Placement
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Placement, _Mapping]] = ...) -> None: ...
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    CONTRACT_FIELD_NUMBER: _ClassVar[int]
    DEVICE_UUID_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    INPUT_CAPTURE_FIELD_NUMBER: _ClassVar[int]
    MINIMUM_CLAIM_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    VERIFICATION_FIELD_NUMBER: _ClassVar[int]
    WANTED_OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    backend: str
    contract: str
    device_uuid: str
    digests: _containers.RepeatedScalarFieldContainer[DigestScope]
    input_capture: InputCapture
    minimum_claim: ClaimLevel
    mode: Mode
    outputs: _containers.MessageMap[str, Placement]
    verification: Verification
    wanted_outputs: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, contract: _Optional[str] = ..., backend: _Optional[str] = ..., mode: _Optional[_Union[Mode, str]] = ..., minimum_claim: _Optional[_Union[ClaimLevel, str]] = ..., device_uuid: _Optional[str] = ..., outputs: _Optional[_Mapping[str, Placement]] = ..., digests: _Optional[_Iterable[_Union[DigestScope, str]]] = ..., input_capture: _Optional[_Union[InputCapture, str]] = ..., verification: _Optional[_Union[Verification, str]] = ..., wanted_outputs: _Optional[_Iterable[str]] = ...) -> None: ...

class CallReport(_message.Message):
    __slots__ = ["attributes", "backend", "claim", "contract", "device", "fallback", "input_capture", "input_digests", "kernel", "moved_to_resident", "output_digests", "phases", "provenance_id", "rejected", "synthetic_inputs", "transports", "verification"]
    class AttributesEntry(_message.Message):
        __slots__ = ["key", "value"]
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: AttributeValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[AttributeValue, _Mapping]] = ...) -> None: ...
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    CONTRACT_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_FIELD_NUMBER: _ClassVar[int]
    INPUT_CAPTURE_FIELD_NUMBER: _ClassVar[int]
    INPUT_DIGESTS_FIELD_NUMBER: _ClassVar[int]
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    MOVED_TO_RESIDENT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_DIGESTS_FIELD_NUMBER: _ClassVar[int]
    PHASES_FIELD_NUMBER: _ClassVar[int]
    PROVENANCE_ID_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    SYNTHETIC_INPUTS_FIELD_NUMBER: _ClassVar[int]
    TRANSPORTS_FIELD_NUMBER: _ClassVar[int]
    VERIFICATION_FIELD_NUMBER: _ClassVar[int]
    attributes: _containers.MessageMap[str, AttributeValue]
    backend: str
    claim: ClaimLevel
    contract: str
    device: DeviceRef
    fallback: Fallback
    input_capture: InputCapture
    input_digests: _containers.RepeatedCompositeFieldContainer[TensorDigest]
    kernel: str
    moved_to_resident: _containers.RepeatedScalarFieldContainer[str]
    output_digests: _containers.RepeatedCompositeFieldContainer[TensorDigest]
    phases: PhaseDurations
    provenance_id: str
    rejected: _containers.RepeatedCompositeFieldContainer[RejectedVariant]
    synthetic_inputs: _containers.RepeatedScalarFieldContainer[str]
    transports: _containers.RepeatedScalarFieldContainer[str]
    verification: VerificationResult
    def __init__(self, contract: _Optional[str] = ..., backend: _Optional[str] = ..., kernel: _Optional[str] = ..., device: _Optional[_Union[DeviceRef, _Mapping]] = ..., claim: _Optional[_Union[ClaimLevel, str]] = ..., rejected: _Optional[_Iterable[_Union[RejectedVariant, _Mapping]]] = ..., fallback: _Optional[_Union[Fallback, _Mapping]] = ..., attributes: _Optional[_Mapping[str, AttributeValue]] = ..., input_digests: _Optional[_Iterable[_Union[TensorDigest, _Mapping]]] = ..., output_digests: _Optional[_Iterable[_Union[TensorDigest, _Mapping]]] = ..., verification: _Optional[_Union[VerificationResult, _Mapping]] = ..., phases: _Optional[_Union[PhaseDurations, _Mapping]] = ..., input_capture: _Optional[_Union[InputCapture, str]] = ..., provenance_id: _Optional[str] = ..., transports: _Optional[_Iterable[str]] = ..., moved_to_resident: _Optional[_Iterable[str]] = ..., synthetic_inputs: _Optional[_Iterable[str]] = ...) -> None: ...

class DeviceRef(_message.Message):
    __slots__ = ["kind", "name", "ordinal", "uuid"]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ORDINAL_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    ordinal: int
    uuid: str
    def __init__(self, kind: _Optional[str] = ..., ordinal: _Optional[int] = ..., name: _Optional[str] = ..., uuid: _Optional[str] = ...) -> None: ...

class Fallback(_message.Message):
    __slots__ = ["from_backend", "reason"]
    FROM_BACKEND_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    from_backend: str
    reason: str
    def __init__(self, from_backend: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Invocation(_message.Message):
    __slots__ = ["method", "request"]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    method: str
    request: _any_pb2.Any
    def __init__(self, method: _Optional[str] = ..., request: _Optional[_Union[_any_pb2.Any, _Mapping]] = ...) -> None: ...

class OutputVerification(_message.Message):
    __slots__ = ["atol", "compared_elements", "max_abs_error", "max_rel_error", "mismatched_elements", "name", "passed", "rtol"]
    ATOL_FIELD_NUMBER: _ClassVar[int]
    COMPARED_ELEMENTS_FIELD_NUMBER: _ClassVar[int]
    MAX_ABS_ERROR_FIELD_NUMBER: _ClassVar[int]
    MAX_REL_ERROR_FIELD_NUMBER: _ClassVar[int]
    MISMATCHED_ELEMENTS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    RTOL_FIELD_NUMBER: _ClassVar[int]
    atol: float
    compared_elements: int
    max_abs_error: float
    max_rel_error: float
    mismatched_elements: int
    name: str
    passed: bool
    rtol: float
    def __init__(self, name: _Optional[str] = ..., passed: bool = ..., compared_elements: _Optional[int] = ..., mismatched_elements: _Optional[int] = ..., max_abs_error: _Optional[float] = ..., max_rel_error: _Optional[float] = ..., atol: _Optional[float] = ..., rtol: _Optional[float] = ...) -> None: ...

class PhaseDurations(_message.Message):
    __slots__ = ["kernel_ns", "queue_ns", "receive_ns", "stage_in_ns", "stage_out_ns"]
    KERNEL_NS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_NS_FIELD_NUMBER: _ClassVar[int]
    RECEIVE_NS_FIELD_NUMBER: _ClassVar[int]
    STAGE_IN_NS_FIELD_NUMBER: _ClassVar[int]
    STAGE_OUT_NS_FIELD_NUMBER: _ClassVar[int]
    kernel_ns: int
    queue_ns: int
    receive_ns: int
    stage_in_ns: int
    stage_out_ns: int
    def __init__(self, receive_ns: _Optional[int] = ..., queue_ns: _Optional[int] = ..., stage_in_ns: _Optional[int] = ..., kernel_ns: _Optional[int] = ..., stage_out_ns: _Optional[int] = ...) -> None: ...

class Placement(_message.Message):
    __slots__ = ["arena", "inline", "resident"]
    class Inline(_message.Message):
        __slots__ = []
        def __init__(self) -> None: ...
    class Resident(_message.Message):
        __slots__ = ["into"]
        INTO_FIELD_NUMBER: _ClassVar[int]
        into: _tensor_pb2.TensorHandle
        def __init__(self, into: _Optional[_Union[_tensor_pb2.TensorHandle, _Mapping]] = ...) -> None: ...
    ARENA_FIELD_NUMBER: _ClassVar[int]
    INLINE_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_FIELD_NUMBER: _ClassVar[int]
    arena: _tensor_pb2.ArenaRef
    inline: Placement.Inline
    resident: Placement.Resident
    def __init__(self, inline: _Optional[_Union[Placement.Inline, _Mapping]] = ..., resident: _Optional[_Union[Placement.Resident, _Mapping]] = ..., arena: _Optional[_Union[_tensor_pb2.ArenaRef, _Mapping]] = ...) -> None: ...

class RejectedVariant(_message.Message):
    __slots__ = ["backend", "kernel", "reason"]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    backend: str
    kernel: str
    reason: str
    def __init__(self, backend: _Optional[str] = ..., kernel: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class TensorDigest(_message.Message):
    __slots__ = ["digest", "name", "rows"]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    digest: str
    name: str
    rows: bytes
    def __init__(self, name: _Optional[str] = ..., digest: _Optional[str] = ..., rows: _Optional[bytes] = ...) -> None: ...

class VerificationResult(_message.Message):
    __slots__ = ["outputs", "passed", "tolerance_contract_sha256", "tolerance_contract_version", "verification"]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    TOLERANCE_CONTRACT_SHA256_FIELD_NUMBER: _ClassVar[int]
    TOLERANCE_CONTRACT_VERSION_FIELD_NUMBER: _ClassVar[int]
    VERIFICATION_FIELD_NUMBER: _ClassVar[int]
    outputs: _containers.RepeatedCompositeFieldContainer[OutputVerification]
    passed: bool
    tolerance_contract_sha256: str
    tolerance_contract_version: str
    verification: Verification
    def __init__(self, verification: _Optional[_Union[Verification, str]] = ..., passed: bool = ..., outputs: _Optional[_Iterable[_Union[OutputVerification, _Mapping]]] = ..., tolerance_contract_version: _Optional[str] = ..., tolerance_contract_sha256: _Optional[str] = ...) -> None: ...

class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class ClaimLevel(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class DigestScope(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class InputCapture(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class Verification(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
