from rlk._proto import call_pb2 as _call_pb2
from rlk._proto import contract_pb2 as _contract_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AttributeInfo(_message.Message):
    __slots__ = ["name", "options", "type"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    options: _contract_pb2.AttributeOptions
    type: str
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., options: _Optional[_Union[_contract_pb2.AttributeOptions, _Mapping]] = ...) -> None: ...

class BackendInfo(_message.Message):
    __slots__ = ["available", "known_answers_passed", "name", "reason"]
    AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    KNOWN_ANSWERS_PASSED_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    available: bool
    known_answers_passed: int
    name: str
    reason: str
    def __init__(self, name: _Optional[str] = ..., available: bool = ..., reason: _Optional[str] = ..., known_answers_passed: _Optional[int] = ...) -> None: ...

class Capability(_message.Message):
    __slots__ = ["available", "name", "reason"]
    AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    available: bool
    name: str
    reason: str
    def __init__(self, name: _Optional[str] = ..., available: bool = ..., reason: _Optional[str] = ...) -> None: ...

class ContractInfo(_message.Message):
    __slots__ = ["arithmetic", "id", "variants"]
    ARITHMETIC_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    VARIANTS_FIELD_NUMBER: _ClassVar[int]
    arithmetic: str
    id: str
    variants: _containers.RepeatedCompositeFieldContainer[VariantInfo]
    def __init__(self, id: _Optional[str] = ..., arithmetic: _Optional[str] = ..., variants: _Optional[_Iterable[_Union[VariantInfo, _Mapping]]] = ...) -> None: ...

class DeviceInfo(_message.Message):
    __slots__ = ["compute_capability", "device", "healthy", "memory_bytes", "multiprocessor_count"]
    COMPUTE_CAPABILITY_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    HEALTHY_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    MULTIPROCESSOR_COUNT_FIELD_NUMBER: _ClassVar[int]
    compute_capability: str
    device: _call_pb2.DeviceRef
    healthy: bool
    memory_bytes: int
    multiprocessor_count: int
    def __init__(self, device: _Optional[_Union[_call_pb2.DeviceRef, _Mapping]] = ..., compute_capability: _Optional[str] = ..., multiprocessor_count: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., healthy: bool = ...) -> None: ...

class GetInfoRequest(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class GetInfoResponse(_message.Message):
    __slots__ = ["backends", "capabilities", "devices", "limits", "provenance", "server_id", "uptime_seconds"]
    BACKENDS_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    PROVENANCE_FIELD_NUMBER: _ClassVar[int]
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    UPTIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    backends: _containers.RepeatedCompositeFieldContainer[BackendInfo]
    capabilities: _containers.RepeatedCompositeFieldContainer[Capability]
    devices: _containers.RepeatedCompositeFieldContainer[DeviceInfo]
    limits: _containers.RepeatedCompositeFieldContainer[Limit]
    provenance: Provenance
    server_id: str
    uptime_seconds: float
    def __init__(self, server_id: _Optional[str] = ..., provenance: _Optional[_Union[Provenance, _Mapping]] = ..., devices: _Optional[_Iterable[_Union[DeviceInfo, _Mapping]]] = ..., backends: _Optional[_Iterable[_Union[BackendInfo, _Mapping]]] = ..., limits: _Optional[_Iterable[_Union[Limit, _Mapping]]] = ..., capabilities: _Optional[_Iterable[_Union[Capability, _Mapping]]] = ..., uptime_seconds: _Optional[float] = ...) -> None: ...

class Limit(_message.Message):
    __slots__ = ["meaning", "name", "value"]
    MEANING_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    meaning: str
    name: str
    value: int
    def __init__(self, name: _Optional[str] = ..., value: _Optional[int] = ..., meaning: _Optional[str] = ...) -> None: ...

class ListOperatorsRequest(_message.Message):
    __slots__ = ["operator"]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    operator: str
    def __init__(self, operator: _Optional[str] = ...) -> None: ...

class ListOperatorsResponse(_message.Message):
    __slots__ = ["methods"]
    METHODS_FIELD_NUMBER: _ClassVar[int]
    methods: _containers.RepeatedCompositeFieldContainer[MethodInfo]
    def __init__(self, methods: _Optional[_Iterable[_Union[MethodInfo, _Mapping]]] = ...) -> None: ...

class MethodInfo(_message.Message):
    __slots__ = ["attributes", "contracts", "direction", "inputs", "method", "op_class", "outputs", "rpc"]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    CONTRACTS_FIELD_NUMBER: _ClassVar[int]
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    OP_CLASS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    RPC_FIELD_NUMBER: _ClassVar[int]
    attributes: _containers.RepeatedCompositeFieldContainer[AttributeInfo]
    contracts: _containers.RepeatedCompositeFieldContainer[ContractInfo]
    direction: _contract_pb2.Direction
    inputs: _containers.RepeatedCompositeFieldContainer[TensorInfo]
    method: str
    op_class: _contract_pb2.OpClass
    outputs: _containers.RepeatedCompositeFieldContainer[TensorInfo]
    rpc: str
    def __init__(self, method: _Optional[str] = ..., rpc: _Optional[str] = ..., direction: _Optional[_Union[_contract_pb2.Direction, str]] = ..., op_class: _Optional[_Union[_contract_pb2.OpClass, str]] = ..., contracts: _Optional[_Iterable[_Union[ContractInfo, _Mapping]]] = ..., inputs: _Optional[_Iterable[_Union[TensorInfo, _Mapping]]] = ..., attributes: _Optional[_Iterable[_Union[AttributeInfo, _Mapping]]] = ..., outputs: _Optional[_Iterable[_Union[TensorInfo, _Mapping]]] = ...) -> None: ...

class Provenance(_message.Message):
    __slots__ = ["compile_flags", "compiler", "cpu_isa", "cuda_architectures", "cuda_driver", "cuda_runtime", "git_commit", "git_dirty", "id", "tolerance_contract_sha256", "tolerance_contract_version", "version"]
    COMPILER_FIELD_NUMBER: _ClassVar[int]
    COMPILE_FLAGS_FIELD_NUMBER: _ClassVar[int]
    CPU_ISA_FIELD_NUMBER: _ClassVar[int]
    CUDA_ARCHITECTURES_FIELD_NUMBER: _ClassVar[int]
    CUDA_DRIVER_FIELD_NUMBER: _ClassVar[int]
    CUDA_RUNTIME_FIELD_NUMBER: _ClassVar[int]
    GIT_COMMIT_FIELD_NUMBER: _ClassVar[int]
    GIT_DIRTY_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    TOLERANCE_CONTRACT_SHA256_FIELD_NUMBER: _ClassVar[int]
    TOLERANCE_CONTRACT_VERSION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    compile_flags: str
    compiler: str
    cpu_isa: str
    cuda_architectures: _containers.RepeatedScalarFieldContainer[str]
    cuda_driver: str
    cuda_runtime: str
    git_commit: str
    git_dirty: bool
    id: str
    tolerance_contract_sha256: str
    tolerance_contract_version: str
    version: str
    def __init__(self, id: _Optional[str] = ..., version: _Optional[str] = ..., git_commit: _Optional[str] = ..., git_dirty: bool = ..., compiler: _Optional[str] = ..., compile_flags: _Optional[str] = ..., cuda_architectures: _Optional[_Iterable[str]] = ..., cuda_runtime: _Optional[str] = ..., cuda_driver: _Optional[str] = ..., tolerance_contract_version: _Optional[str] = ..., tolerance_contract_sha256: _Optional[str] = ..., cpu_isa: _Optional[str] = ...) -> None: ...

class TensorInfo(_message.Message):
    __slots__ = ["name", "options"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    options: _contract_pb2.TensorOptions
    def __init__(self, name: _Optional[str] = ..., options: _Optional[_Union[_contract_pb2.TensorOptions, _Mapping]] = ...) -> None: ...

class VariantInfo(_message.Message):
    __slots__ = ["available", "backend", "claim", "kernel", "reason"]
    AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    available: bool
    backend: str
    claim: _call_pb2.ClaimLevel
    kernel: str
    reason: str
    def __init__(self, backend: _Optional[str] = ..., kernel: _Optional[str] = ..., available: bool = ..., reason: _Optional[str] = ..., claim: _Optional[_Union[_call_pb2.ClaimLevel, str]] = ...) -> None: ...
