from rlk._proto import call_pb2 as _call_pb2
from rlk._proto import contract_pb2 as _contract_pb2
from rlk._proto import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
GATE_ACTIVATION_SIGMOID: GateActivation
GATE_ACTIVATION_SILU: GateActivation
GATE_ACTIVATION_SWISH: GateActivation
GATE_ACTIVATION_UNSPECIFIED: GateActivation

class Qwen3NextRmsNormBackwardRequest(_message.Message):
    __slots__ = ["dweight_acc_in", "eps", "grad_y", "options", "rows_before", "rstd", "weight", "x"]
    DWEIGHT_ACC_IN_FIELD_NUMBER: _ClassVar[int]
    EPS_FIELD_NUMBER: _ClassVar[int]
    GRAD_Y_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    ROWS_BEFORE_FIELD_NUMBER: _ClassVar[int]
    RSTD_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    X_FIELD_NUMBER: _ClassVar[int]
    dweight_acc_in: _tensor_pb2.Tensor
    eps: float
    grad_y: _tensor_pb2.Tensor
    options: _call_pb2.CallOptions
    rows_before: int
    rstd: _tensor_pb2.Tensor
    weight: _tensor_pb2.Tensor
    x: _tensor_pb2.Tensor
    def __init__(self, x: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., weight: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., grad_y: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., rstd: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., dweight_acc_in: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., eps: _Optional[float] = ..., rows_before: _Optional[int] = ..., options: _Optional[_Union[_call_pb2.CallOptions, _Mapping]] = ...) -> None: ...

class Qwen3NextRmsNormBackwardResponse(_message.Message):
    __slots__ = ["dweight_acc", "grad_weight", "grad_x", "report"]
    DWEIGHT_ACC_FIELD_NUMBER: _ClassVar[int]
    GRAD_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    GRAD_X_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    dweight_acc: _tensor_pb2.Tensor
    grad_weight: _tensor_pb2.Tensor
    grad_x: _tensor_pb2.Tensor
    report: _call_pb2.CallReport
    def __init__(self, grad_x: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., grad_weight: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., dweight_acc: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., report: _Optional[_Union[_call_pb2.CallReport, _Mapping]] = ...) -> None: ...

class Qwen3NextRmsNormForwardRequest(_message.Message):
    __slots__ = ["eps", "options", "weight", "x"]
    EPS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    X_FIELD_NUMBER: _ClassVar[int]
    eps: float
    options: _call_pb2.CallOptions
    weight: _tensor_pb2.Tensor
    x: _tensor_pb2.Tensor
    def __init__(self, x: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., weight: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., eps: _Optional[float] = ..., options: _Optional[_Union[_call_pb2.CallOptions, _Mapping]] = ...) -> None: ...

class Qwen3NextRmsNormForwardResponse(_message.Message):
    __slots__ = ["report", "rstd", "y"]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    RSTD_FIELD_NUMBER: _ClassVar[int]
    Y_FIELD_NUMBER: _ClassVar[int]
    report: _call_pb2.CallReport
    rstd: _tensor_pb2.Tensor
    y: _tensor_pb2.Tensor
    def __init__(self, y: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., rstd: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., report: _Optional[_Union[_call_pb2.CallReport, _Mapping]] = ...) -> None: ...

class RmsNormBackwardRequest(_message.Message):
    __slots__ = ["dweight_acc_in", "eps", "grad_y", "options", "rows_before", "rstd", "weight", "weight_offset", "x"]
    DWEIGHT_ACC_IN_FIELD_NUMBER: _ClassVar[int]
    EPS_FIELD_NUMBER: _ClassVar[int]
    GRAD_Y_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    ROWS_BEFORE_FIELD_NUMBER: _ClassVar[int]
    RSTD_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    X_FIELD_NUMBER: _ClassVar[int]
    dweight_acc_in: _tensor_pb2.Tensor
    eps: float
    grad_y: _tensor_pb2.Tensor
    options: _call_pb2.CallOptions
    rows_before: int
    rstd: _tensor_pb2.Tensor
    weight: _tensor_pb2.Tensor
    weight_offset: float
    x: _tensor_pb2.Tensor
    def __init__(self, x: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., weight: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., grad_y: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., rstd: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., dweight_acc_in: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., eps: _Optional[float] = ..., weight_offset: _Optional[float] = ..., rows_before: _Optional[int] = ..., options: _Optional[_Union[_call_pb2.CallOptions, _Mapping]] = ...) -> None: ...

class RmsNormBackwardResponse(_message.Message):
    __slots__ = ["dweight_acc", "grad_weight", "grad_x", "report"]
    DWEIGHT_ACC_FIELD_NUMBER: _ClassVar[int]
    GRAD_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    GRAD_X_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    dweight_acc: _tensor_pb2.Tensor
    grad_weight: _tensor_pb2.Tensor
    grad_x: _tensor_pb2.Tensor
    report: _call_pb2.CallReport
    def __init__(self, grad_x: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., grad_weight: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., dweight_acc: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., report: _Optional[_Union[_call_pb2.CallReport, _Mapping]] = ...) -> None: ...

class RmsNormForwardRequest(_message.Message):
    __slots__ = ["eps", "options", "weight", "weight_offset", "x"]
    EPS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    X_FIELD_NUMBER: _ClassVar[int]
    eps: float
    options: _call_pb2.CallOptions
    weight: _tensor_pb2.Tensor
    weight_offset: float
    x: _tensor_pb2.Tensor
    def __init__(self, x: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., weight: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., eps: _Optional[float] = ..., weight_offset: _Optional[float] = ..., options: _Optional[_Union[_call_pb2.CallOptions, _Mapping]] = ...) -> None: ...

class RmsNormForwardResponse(_message.Message):
    __slots__ = ["report", "rstd", "y"]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    RSTD_FIELD_NUMBER: _ClassVar[int]
    Y_FIELD_NUMBER: _ClassVar[int]
    report: _call_pb2.CallReport
    rstd: _tensor_pb2.Tensor
    y: _tensor_pb2.Tensor
    def __init__(self, y: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., rstd: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., report: _Optional[_Union[_call_pb2.CallReport, _Mapping]] = ...) -> None: ...

class RmsNormGatedBackwardRequest(_message.Message):
    __slots__ = ["activation", "dweight_acc_in", "eps", "gate", "grad_y", "options", "rows_before", "rstd", "weight", "weight_offset", "x"]
    ACTIVATION_FIELD_NUMBER: _ClassVar[int]
    DWEIGHT_ACC_IN_FIELD_NUMBER: _ClassVar[int]
    EPS_FIELD_NUMBER: _ClassVar[int]
    GATE_FIELD_NUMBER: _ClassVar[int]
    GRAD_Y_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    ROWS_BEFORE_FIELD_NUMBER: _ClassVar[int]
    RSTD_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    X_FIELD_NUMBER: _ClassVar[int]
    activation: GateActivation
    dweight_acc_in: _tensor_pb2.Tensor
    eps: float
    gate: _tensor_pb2.Tensor
    grad_y: _tensor_pb2.Tensor
    options: _call_pb2.CallOptions
    rows_before: int
    rstd: _tensor_pb2.Tensor
    weight: _tensor_pb2.Tensor
    weight_offset: float
    x: _tensor_pb2.Tensor
    def __init__(self, x: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., weight: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., gate: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., grad_y: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., rstd: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., dweight_acc_in: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., eps: _Optional[float] = ..., weight_offset: _Optional[float] = ..., rows_before: _Optional[int] = ..., activation: _Optional[_Union[GateActivation, str]] = ..., options: _Optional[_Union[_call_pb2.CallOptions, _Mapping]] = ...) -> None: ...

class RmsNormGatedBackwardResponse(_message.Message):
    __slots__ = ["dweight_acc", "grad_gate", "grad_weight", "grad_x", "report"]
    DWEIGHT_ACC_FIELD_NUMBER: _ClassVar[int]
    GRAD_GATE_FIELD_NUMBER: _ClassVar[int]
    GRAD_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    GRAD_X_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    dweight_acc: _tensor_pb2.Tensor
    grad_gate: _tensor_pb2.Tensor
    grad_weight: _tensor_pb2.Tensor
    grad_x: _tensor_pb2.Tensor
    report: _call_pb2.CallReport
    def __init__(self, grad_x: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., grad_weight: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., grad_gate: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., dweight_acc: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., report: _Optional[_Union[_call_pb2.CallReport, _Mapping]] = ...) -> None: ...

class RmsNormGatedForwardRequest(_message.Message):
    __slots__ = ["activation", "eps", "gate", "options", "weight", "weight_offset", "x"]
    ACTIVATION_FIELD_NUMBER: _ClassVar[int]
    EPS_FIELD_NUMBER: _ClassVar[int]
    GATE_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    X_FIELD_NUMBER: _ClassVar[int]
    activation: GateActivation
    eps: float
    gate: _tensor_pb2.Tensor
    options: _call_pb2.CallOptions
    weight: _tensor_pb2.Tensor
    weight_offset: float
    x: _tensor_pb2.Tensor
    def __init__(self, x: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., weight: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., gate: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., eps: _Optional[float] = ..., weight_offset: _Optional[float] = ..., activation: _Optional[_Union[GateActivation, str]] = ..., options: _Optional[_Union[_call_pb2.CallOptions, _Mapping]] = ...) -> None: ...

class RmsNormGatedForwardResponse(_message.Message):
    __slots__ = ["report", "rstd", "y"]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    RSTD_FIELD_NUMBER: _ClassVar[int]
    Y_FIELD_NUMBER: _ClassVar[int]
    report: _call_pb2.CallReport
    rstd: _tensor_pb2.Tensor
    y: _tensor_pb2.Tensor
    def __init__(self, y: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., rstd: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., report: _Optional[_Union[_call_pb2.CallReport, _Mapping]] = ...) -> None: ...

class GateActivation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
