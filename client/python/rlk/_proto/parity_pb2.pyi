from rlk._proto import comparison_pb2 as _comparison_pb2
from rlk._proto import tensor_pb2 as _tensor_pb2
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CompareRequest(_message.Message):
    __slots__ = ["left", "options", "right", "right_digest"]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    RIGHT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    RIGHT_FIELD_NUMBER: _ClassVar[int]
    left: _tensor_pb2.Tensor
    options: _comparison_pb2.ComparisonOptions
    right: _tensor_pb2.Tensor
    right_digest: str
    def __init__(self, left: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., right: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., right_digest: _Optional[str] = ..., options: _Optional[_Union[_comparison_pb2.ComparisonOptions, _Mapping]] = ...) -> None: ...

class CompareResponse(_message.Message):
    __slots__ = ["comparison"]
    COMPARISON_FIELD_NUMBER: _ClassVar[int]
    comparison: _comparison_pb2.Comparison
    def __init__(self, comparison: _Optional[_Union[_comparison_pb2.Comparison, _Mapping]] = ...) -> None: ...
