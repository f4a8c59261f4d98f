from rlk._proto import call_pb2 as _call_pb2
from rlk._proto import contract_pb2 as _contract_pb2
from rlk._proto import tensor_pb2 as _tensor_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FinalLogitSoftcapBackwardRequest(_message.Message):
    __slots__ = ["grad_y", "options", "softcap", "x"]
    GRAD_Y_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    SOFTCAP_FIELD_NUMBER: _ClassVar[int]
    X_FIELD_NUMBER: _ClassVar[int]
    grad_y: _tensor_pb2.Tensor
    options: _call_pb2.CallOptions
    softcap: float
    x: _tensor_pb2.Tensor
    def __init__(self, x: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., grad_y: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., softcap: _Optional[float] = ..., options: _Optional[_Union[_call_pb2.CallOptions, _Mapping]] = ...) -> None: ...

class FinalLogitSoftcapBackwardResponse(_message.Message):
    __slots__ = ["grad_x", "report"]
    GRAD_X_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    grad_x: _tensor_pb2.Tensor
    report: _call_pb2.CallReport
    def __init__(self, grad_x: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., report: _Optional[_Union[_call_pb2.CallReport, _Mapping]] = ...) -> None: ...

class FinalLogitSoftcapForwardRequest(_message.Message):
    __slots__ = ["options", "output_dtype", "softcap", "x"]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_DTYPE_FIELD_NUMBER: _ClassVar[int]
    SOFTCAP_FIELD_NUMBER: _ClassVar[int]
    X_FIELD_NUMBER: _ClassVar[int]
    options: _call_pb2.CallOptions
    output_dtype: _tensor_pb2.DataType
    softcap: float
    x: _tensor_pb2.Tensor
    def __init__(self, x: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., softcap: _Optional[float] = ..., output_dtype: _Optional[_Union[_tensor_pb2.DataType, str]] = ..., options: _Optional[_Union[_call_pb2.CallOptions, _Mapping]] = ...) -> None: ...

class FinalLogitSoftcapForwardResponse(_message.Message):
    __slots__ = ["report", "y"]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    Y_FIELD_NUMBER: _ClassVar[int]
    report: _call_pb2.CallReport
    y: _tensor_pb2.Tensor
    def __init__(self, y: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., report: _Optional[_Union[_call_pb2.CallReport, _Mapping]] = ...) -> None: ...
