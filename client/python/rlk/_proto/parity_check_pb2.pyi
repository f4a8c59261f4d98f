from rlk._proto import call_pb2 as _call_pb2
from rlk._proto import comparison_pb2 as _comparison_pb2
from rlk._proto import server_pb2 as _server_pb2
from rlk._proto import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
GRADIENT_MODE_ONES: GradientMode
GRADIENT_MODE_RANDOM: GradientMode
GRADIENT_MODE_UNSPECIFIED: GradientMode
INVARIANCE_AXIS_CHUNK: InvarianceAxis
INVARIANCE_AXIS_CONCURRENCY: InvarianceAxis
INVARIANCE_AXIS_NEIGHBOURS: InvarianceAxis
INVARIANCE_AXIS_PAD: InvarianceAxis
INVARIANCE_AXIS_PERMUTE: InvarianceAxis
INVARIANCE_AXIS_REPEAT: InvarianceAxis
INVARIANCE_AXIS_SLICE: InvarianceAxis
INVARIANCE_AXIS_UNSPECIFIED: InvarianceAxis

class AxisVerdict(_message.Message):
    __slots__ = ["applicable", "axis", "compared_elements", "difference", "layouts", "method", "note", "passed"]
    APPLICABLE_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    COMPARED_ELEMENTS_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCE_FIELD_NUMBER: _ClassVar[int]
    LAYOUTS_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    applicable: bool
    axis: InvarianceAxis
    compared_elements: int
    difference: LayoutDifference
    layouts: int
    method: str
    note: str
    passed: bool
    def __init__(self, method: _Optional[str] = ..., axis: _Optional[_Union[InvarianceAxis, str]] = ..., applicable: bool = ..., passed: bool = ..., note: _Optional[str] = ..., layouts: _Optional[int] = ..., compared_elements: _Optional[int] = ..., difference: _Optional[_Union[LayoutDifference, _Mapping]] = ...) -> None: ...

class CheckInvarianceRequest(_message.Message):
    __slots__ = ["axes", "concurrency", "contracts", "gradients", "invocation", "repeats", "seed"]
    AXES_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    CONTRACTS_FIELD_NUMBER: _ClassVar[int]
    GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    INVOCATION_FIELD_NUMBER: _ClassVar[int]
    REPEATS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    axes: _containers.RepeatedScalarFieldContainer[InvarianceAxis]
    concurrency: int
    contracts: _containers.RepeatedScalarFieldContainer[str]
    gradients: GradientOptions
    invocation: _call_pb2.Invocation
    repeats: int
    seed: int
    def __init__(self, invocation: _Optional[_Union[_call_pb2.Invocation, _Mapping]] = ..., axes: _Optional[_Iterable[_Union[InvarianceAxis, str]]] = ..., seed: _Optional[int] = ..., repeats: _Optional[int] = ..., concurrency: _Optional[int] = ..., gradients: _Optional[_Union[GradientOptions, _Mapping]] = ..., contracts: _Optional[_Iterable[str]] = ...) -> None: ...

class CheckInvarianceResponse(_message.Message):
    __slots__ = ["axes", "calls", "passed", "side", "work_bytes"]
    AXES_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    SIDE_FIELD_NUMBER: _ClassVar[int]
    WORK_BYTES_FIELD_NUMBER: _ClassVar[int]
    axes: _containers.RepeatedCompositeFieldContainer[AxisVerdict]
    calls: int
    passed: bool
    side: SideReport
    work_bytes: int
    def __init__(self, passed: bool = ..., axes: _Optional[_Iterable[_Union[AxisVerdict, _Mapping]]] = ..., side: _Optional[_Union[SideReport, _Mapping]] = ..., calls: _Optional[int] = ..., work_bytes: _Optional[int] = ...) -> None: ...

class CheckParityRequest(_message.Message):
    __slots__ = ["gradients", "invocation", "judgment", "left", "right"]
    GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    INVOCATION_FIELD_NUMBER: _ClassVar[int]
    JUDGMENT_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    RIGHT_FIELD_NUMBER: _ClassVar[int]
    gradients: GradientOptions
    invocation: _call_pb2.Invocation
    judgment: _comparison_pb2.Judgment
    left: ParitySide
    right: ParitySide
    def __init__(self, invocation: _Optional[_Union[_call_pb2.Invocation, _Mapping]] = ..., left: _Optional[_Union[ParitySide, _Mapping]] = ..., right: _Optional[_Union[ParitySide, _Mapping]] = ..., judgment: _Optional[_Union[_comparison_pb2.Judgment, str]] = ..., gradients: _Optional[_Union[GradientOptions, _Mapping]] = ...) -> None: ...

class CheckParityResponse(_message.Message):
    __slots__ = ["calls", "compared_elements", "different_versions", "first_difference", "left", "not_compared", "outputs", "passed", "right", "work_bytes"]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    COMPARED_ELEMENTS_FIELD_NUMBER: _ClassVar[int]
    DIFFERENT_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    FIRST_DIFFERENCE_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    NOT_COMPARED_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    RIGHT_FIELD_NUMBER: _ClassVar[int]
    WORK_BYTES_FIELD_NUMBER: _ClassVar[int]
    calls: int
    compared_elements: int
    different_versions: _containers.RepeatedScalarFieldContainer[str]
    first_difference: str
    left: SideReport
    not_compared: _containers.RepeatedCompositeFieldContainer[NotCompared]
    outputs: _containers.RepeatedCompositeFieldContainer[OutputVerdict]
    passed: bool
    right: SideReport
    work_bytes: int
    def __init__(self, passed: bool = ..., outputs: _Optional[_Iterable[_Union[OutputVerdict, _Mapping]]] = ..., first_difference: _Optional[str] = ..., left: _Optional[_Union[SideReport, _Mapping]] = ..., right: _Optional[_Union[SideReport, _Mapping]] = ..., different_versions: _Optional[_Iterable[str]] = ..., not_compared: _Optional[_Iterable[_Union[NotCompared, _Mapping]]] = ..., compared_elements: _Optional[int] = ..., calls: _Optional[int] = ..., work_bytes: _Optional[int] = ...) -> None: ...

class GradientOptions(_message.Message):
    __slots__ = ["given", "mode", "seed"]
    GIVEN_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    given: _containers.RepeatedCompositeFieldContainer[NamedTensor]
    mode: GradientMode
    seed: int
    def __init__(self, mode: _Optional[_Union[GradientMode, str]] = ..., seed: _Optional[int] = ..., given: _Optional[_Iterable[_Union[NamedTensor, _Mapping]]] = ...) -> None: ...

class LayoutDifference(_message.Message):
    __slots__ = ["comparison", "layout", "output", "row"]
    COMPARISON_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    comparison: _comparison_pb2.Comparison
    layout: str
    output: str
    row: int
    def __init__(self, layout: _Optional[str] = ..., output: _Optional[str] = ..., row: _Optional[int] = ..., comparison: _Optional[_Union[_comparison_pb2.Comparison, _Mapping]] = ...) -> None: ...

class MethodReport(_message.Message):
    __slots__ = ["method", "report"]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    method: str
    report: _call_pb2.CallReport
    def __init__(self, method: _Optional[str] = ..., report: _Optional[_Union[_call_pb2.CallReport, _Mapping]] = ...) -> None: ...

class NamedTensor(_message.Message):
    __slots__ = ["name", "tensor"]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    name: str
    tensor: _tensor_pb2.Tensor
    def __init__(self, name: _Optional[str] = ..., tensor: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ...) -> None: ...

class NotCompared(_message.Message):
    __slots__ = ["method", "output", "reason"]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    method: str
    output: str
    reason: str
    def __init__(self, method: _Optional[str] = ..., output: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class OutputVerdict(_message.Message):
    __slots__ = ["comparison", "method", "nan_created_left", "nan_created_right", "output", "passed", "unwritten_left", "unwritten_right"]
    COMPARISON_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    NAN_CREATED_LEFT_FIELD_NUMBER: _ClassVar[int]
    NAN_CREATED_RIGHT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    UNWRITTEN_LEFT_FIELD_NUMBER: _ClassVar[int]
    UNWRITTEN_RIGHT_FIELD_NUMBER: _ClassVar[int]
    comparison: _comparison_pb2.Comparison
    method: str
    nan_created_left: int
    nan_created_right: int
    output: str
    passed: bool
    unwritten_left: int
    unwritten_right: int
    def __init__(self, method: _Optional[str] = ..., output: _Optional[str] = ..., passed: bool = ..., comparison: _Optional[_Union[_comparison_pb2.Comparison, _Mapping]] = ..., unwritten_left: _Optional[int] = ..., unwritten_right: _Optional[int] = ..., nan_created_left: _Optional[int] = ..., nan_created_right: _Optional[int] = ...) -> None: ...

class ParitySide(_message.Message):
    __slots__ = ["backend", "contracts", "device_uuid", "mode", "provided", "server"]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    CONTRACTS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_UUID_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    PROVIDED_FIELD_NUMBER: _ClassVar[int]
    SERVER_FIELD_NUMBER: _ClassVar[int]
    backend: str
    contracts: _containers.RepeatedScalarFieldContainer[str]
    device_uuid: str
    mode: _call_pb2.Mode
    provided: _containers.RepeatedCompositeFieldContainer[NamedTensor]
    server: str
    def __init__(self, backend: _Optional[str] = ..., contracts: _Optional[_Iterable[str]] = ..., device_uuid: _Optional[str] = ..., mode: _Optional[_Union[_call_pb2.Mode, str]] = ..., server: _Optional[str] = ..., provided: _Optional[_Iterable[_Union[NamedTensor, _Mapping]]] = ...) -> None: ...

class SideReport(_message.Message):
    __slots__ = ["methods", "provenance", "server_id", "where"]
    METHODS_FIELD_NUMBER: _ClassVar[int]
    PROVENANCE_FIELD_NUMBER: _ClassVar[int]
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    methods: _containers.RepeatedCompositeFieldContainer[MethodReport]
    provenance: _server_pb2.Provenance
    server_id: str
    where: str
    def __init__(self, where: _Optional[str] = ..., server_id: _Optional[str] = ..., methods: _Optional[_Iterable[_Union[MethodReport, _Mapping]]] = ..., provenance: _Optional[_Union[_server_pb2.Provenance, _Mapping]] = ...) -> None: ...

class GradientMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class InvarianceAxis(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
