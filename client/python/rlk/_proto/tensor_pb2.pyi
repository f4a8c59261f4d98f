from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DATA_TYPE_BF16: DataType
DATA_TYPE_BOOL: DataType
DATA_TYPE_F16: DataType
DATA_TYPE_F32: DataType
DATA_TYPE_F64: DataType
DATA_TYPE_I32: DataType
DATA_TYPE_I64: DataType
DATA_TYPE_U8: DataType
DATA_TYPE_UNSPECIFIED: DataType
DESCRIPTOR: _descriptor.FileDescriptor

class ArenaRef(_message.Message):
    __slots__ = ["arena", "generation", "offset"]
    ARENA_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    arena: bytes
    generation: int
    offset: int
    def __init__(self, arena: _Optional[bytes] = ..., generation: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class Tensor(_message.Message):
    __slots__ = ["arena", "data", "dtype", "resident", "shape", "strides"]
    ARENA_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    STRIDES_FIELD_NUMBER: _ClassVar[int]
    arena: ArenaRef
    data: bytes
    dtype: DataType
    resident: TensorHandle
    shape: _containers.RepeatedScalarFieldContainer[int]
    strides: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, dtype: _Optional[_Union[DataType, str]] = ..., shape: _Optional[_Iterable[int]] = ..., strides: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ..., resident: _Optional[_Union[TensorHandle, _Mapping]] = ..., arena: _Optional[_Union[ArenaRef, _Mapping]] = ...) -> None: ...

class TensorHandle(_message.Message):
    __slots__ = ["generation", "id", "offset", "server_id"]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    generation: int
    id: bytes
    offset: int
    server_id: str
    def __init__(self, id: _Optional[bytes] = ..., server_id: _Optional[str] = ..., generation: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class DataType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
