from rlk._proto import comparison_pb2 as _comparison_pb2
from rlk._proto import parity_check_pb2 as _parity_check_pb2
from rlk._proto import policy_pb2 as _policy_pb2
from rlk._proto import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

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

class DigestTensorRequest(_message.Message):
    __slots__ = ["first_row", "rows_max", "tensor", "without_tensor_digest"]
    FIRST_ROW_FIELD_NUMBER: _ClassVar[int]
    ROWS_MAX_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_TENSOR_DIGEST_FIELD_NUMBER: _ClassVar[int]
    first_row: int
    rows_max: int
    tensor: _tensor_pb2.Tensor
    without_tensor_digest: bool
    def __init__(self, tensor: _Optional[_Union[_tensor_pb2.Tensor, _Mapping]] = ..., first_row: _Optional[int] = ..., rows_max: _Optional[int] = ..., without_tensor_digest: bool = ...) -> None: ...

class DigestTensorResponse(_message.Message):
    __slots__ = ["digest", "dtype", "first_row", "row_digests", "rows", "shape"]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    FIRST_ROW_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ROW_DIGESTS_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    digest: str
    dtype: _tensor_pb2.DataType
    first_row: int
    row_digests: bytes
    rows: int
    shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, digest: _Optional[str] = ..., dtype: _Optional[_Union[_tensor_pb2.DataType, str]] = ..., shape: _Optional[_Iterable[int]] = ..., rows: _Optional[int] = ..., first_row: _Optional[int] = ..., row_digests: _Optional[bytes] = ...) -> None: ...
