from rlk._proto import call_pb2 as _call_pb2
from rlk._proto import contract_pb2 as _contract_pb2
from rlk._proto import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
LINEAR_ACTIVATION_NONE: LinearActivation
LINEAR_ACTIVATION_SILU: LinearActivation
LINEAR_ACTIVATION_SILU_CUDA: LinearActivation
LINEAR_ACTIVATION_UNSPECIFIED: LinearActivation

class DetLinearBackwardInputRequest(_message.Message):
    __slots__ = ["activation", "fold_parts", "grad_y", "options", "output_dtype", "pre", "weight"]
    ACTIVATION_FIELD_NUMBER: _ClassVar[int]
    FOLD_PARTS_FIELD_NUMBER: _ClassVar[int]
    GRAD_Y_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_DTYPE_FIELD_NUMBER: _ClassVar[int]
    PRE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    activation: LinearActivation
    fold_parts: int
    grad_y: _tensor_pb2.Tensor
    options: _call_pb2.CallOptions
    output_dtype: _tensor_pb2.DataType
    pre: _tensor_pb2.Tensor
    weight: _tensor_pb2.Tensor
    def __init__(self, grad_y: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., weight: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., pre: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., activation: _Optional[_Union[LinearActivation, str]] = ..., output_dtype: _Optional[_Union[_tensor_pb2.DataType, str]] = ..., fold_parts: _Optional[int] = ..., options: _Optional[_Union[_call_pb2.CallOptions, _Mapping]] = ...) -> None: ...

class DetLinearBackwardInputResponse(_message.Message):
    __slots__ = ["grad_x", "report"]
    GRAD_X_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    grad_x: _tensor_pb2.Tensor
    report: _call_pb2.CallReport
    def __init__(self, grad_x: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., report: _Optional[_Union[_call_pb2.CallReport, _Mapping]] = ...) -> None: ...

class DetLinearBackwardWeightRequest(_message.Message):
    __slots__ = ["activation", "dbias_acc_in", "dweight_acc_in", "grad_y", "options", "pre", "rows_before", "x"]
    ACTIVATION_FIELD_NUMBER: _ClassVar[int]
    DBIAS_ACC_IN_FIELD_NUMBER: _ClassVar[int]
    DWEIGHT_ACC_IN_FIELD_NUMBER: _ClassVar[int]
    GRAD_Y_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    PRE_FIELD_NUMBER: _ClassVar[int]
    ROWS_BEFORE_FIELD_NUMBER: _ClassVar[int]
    X_FIELD_NUMBER: _ClassVar[int]
    activation: LinearActivation
    dbias_acc_in: _tensor_pb2.Tensor
    dweight_acc_in: _tensor_pb2.Tensor
    grad_y: _tensor_pb2.Tensor
    options: _call_pb2.CallOptions
    pre: _tensor_pb2.Tensor
    rows_before: int
    x: _tensor_pb2.Tensor
    def __init__(self, grad_y: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., x: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., pre: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., dweight_acc_in: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., dbias_acc_in: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., activation: _Optional[_Union[LinearActivation, str]] = ..., rows_before: _Optional[int] = ..., options: _Optional[_Union[_call_pb2.CallOptions, _Mapping]] = ...) -> None: ...

class DetLinearBackwardWeightResponse(_message.Message):
    __slots__ = ["dbias_acc", "dweight_acc", "grad_bias", "grad_weight", "report"]
    DBIAS_ACC_FIELD_NUMBER: _ClassVar[int]
    DWEIGHT_ACC_FIELD_NUMBER: _ClassVar[int]
    GRAD_BIAS_FIELD_NUMBER: _ClassVar[int]
    GRAD_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    dbias_acc: _tensor_pb2.Tensor
    dweight_acc: _tensor_pb2.Tensor
    grad_bias: _tensor_pb2.Tensor
    grad_weight: _tensor_pb2.Tensor
    report: _call_pb2.CallReport
    def __init__(self, grad_weight: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., grad_bias: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., dweight_acc: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., dbias_acc: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., report: _Optional[_Union[_call_pb2.CallReport, _Mapping]] = ...) -> None: ...

class DetLinearForwardRequest(_message.Message):
    __slots__ = ["activation", "bias", "fold_parts", "options", "output_dtype", "weight", "x"]
    ACTIVATION_FIELD_NUMBER: _ClassVar[int]
    BIAS_FIELD_NUMBER: _ClassVar[int]
    FOLD_PARTS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_DTYPE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    X_FIELD_NUMBER: _ClassVar[int]
    activation: LinearActivation
    bias: _tensor_pb2.Tensor
    fold_parts: int
    options: _call_pb2.CallOptions
    output_dtype: _tensor_pb2.DataType
    weight: _tensor_pb2.Tensor
    x: _tensor_pb2.Tensor
    def __init__(self, x: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., weight: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., bias: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., activation: _Optional[_Union[LinearActivation, str]] = ..., output_dtype: _Optional[_Union[_tensor_pb2.DataType, str]] = ..., fold_parts: _Optional[int] = ..., options: _Optional[_Union[_call_pb2.CallOptions, _Mapping]] = ...) -> None: ...

class DetLinearForwardResponse(_message.Message):
    __slots__ = ["pre", "report", "y"]
    PRE_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    Y_FIELD_NUMBER: _ClassVar[int]
    pre: _tensor_pb2.Tensor
    report: _call_pb2.CallReport
    y: _tensor_pb2.Tensor
    def __init__(self, y: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., pre: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., report: _Optional[_Union[_call_pb2.CallReport, _Mapping]] = ...) -> None: ...

class LinearActivation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
