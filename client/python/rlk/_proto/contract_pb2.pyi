from google.protobuf import descriptor_pb2 as _descriptor_pb2
from rlk._proto import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Optional as _Optional, Union as _Union

ATTRIBUTE_FIELD_NUMBER: _ClassVar[int]
DESCRIPTOR: _descriptor.FileDescriptor
DIRECTION_BACKWARD: Direction
DIRECTION_FORWARD: Direction
DIRECTION_UNSPECIFIED: Direction
DIRECTION_UPDATE: Direction
METHOD_FIELD_NUMBER: _ClassVar[int]
OP_CLASS_ATTENTION: OpClass
OP_CLASS_ELEMENTWISE: OpClass
OP_CLASS_LOGPROB: OpClass
OP_CLASS_REDUCTION: OpClass
OP_CLASS_UNSPECIFIED: OpClass
TENSOR_FIELD_NUMBER: _ClassVar[int]
attribute: _descriptor.FieldDescriptor
method: _descriptor.FieldDescriptor
tensor: _descriptor.FieldDescriptor

class AttributeOptions(_message.Message):
    __slots__ = ["arithmetic", "at_least", "at_most", "default_bool", "default_enum", "default_integer", "default_same_dtype", "default_value", "dtypes", "finite", "greater_than", "less_than", "multiple_of", "same_dtype_as"]
    ARITHMETIC_FIELD_NUMBER: _ClassVar[int]
    AT_LEAST_FIELD_NUMBER: _ClassVar[int]
    AT_MOST_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_BOOL_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_ENUM_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_INTEGER_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_SAME_DTYPE_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_VALUE_FIELD_NUMBER: _ClassVar[int]
    DTYPES_FIELD_NUMBER: _ClassVar[int]
    FINITE_FIELD_NUMBER: _ClassVar[int]
    GREATER_THAN_FIELD_NUMBER: _ClassVar[int]
    LESS_THAN_FIELD_NUMBER: _ClassVar[int]
    MULTIPLE_OF_FIELD_NUMBER: _ClassVar[int]
    SAME_DTYPE_AS_FIELD_NUMBER: _ClassVar[int]
    arithmetic: _tensor_pb2.DataType
    at_least: float
    at_most: float
    default_bool: bool
    default_enum: str
    default_integer: int
    default_same_dtype: bool
    default_value: float
    dtypes: _containers.RepeatedScalarFieldContainer[_tensor_pb2.DataType]
    finite: bool
    greater_than: float
    less_than: float
    multiple_of: int
    same_dtype_as: str
    def __init__(self, arithmetic: _Optional[_Union[_tensor_pb2.DataType, str]] = ..., default_value: _Optional[float] = ..., finite: bool = ..., greater_than: _Optional[float] = ..., at_least: _Optional[float] = ..., less_than: _Optional[float] = ..., at_most: _Optional[float] = ..., default_integer: _Optional[int] = ..., multiple_of: _Optional[int] = ..., default_enum: _Optional[str] = ..., dtypes: _Optional[_Iterable[_Union[_tensor_pb2.DataType, str]]] = ..., same_dtype_as: _Optional[str] = ..., default_bool: bool = ..., default_same_dtype: bool = ...) -> None: ...

class MethodOptions(_message.Message):
    __slots__ = ["direction", "op_class", "operator"]
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    OPERATOR_FIELD_NUMBER: _ClassVar[int]
    OP_CLASS_FIELD_NUMBER: _ClassVar[int]
    direction: Direction
    op_class: OpClass
    operator: str
    def __init__(self, operator: _Optional[str] = ..., direction: _Optional[_Union[Direction, str]] = ..., op_class: _Optional[_Union[OpClass, str]] = ...) -> None: ...

class TensorOptions(_message.Message):
    __slots__ = ["alignment", "contiguous", "dims", "dtype_attribute", "dtypes", "max_count", "on_request", "optional", "same_dtype_as"]
    ALIGNMENT_FIELD_NUMBER: _ClassVar[int]
    CONTIGUOUS_FIELD_NUMBER: _ClassVar[int]
    DIMS_FIELD_NUMBER: _ClassVar[int]
    DTYPES_FIELD_NUMBER: _ClassVar[int]
    DTYPE_ATTRIBUTE_FIELD_NUMBER: _ClassVar[int]
    MAX_COUNT_FIELD_NUMBER: _ClassVar[int]
    ON_REQUEST_FIELD_NUMBER: _ClassVar[int]
    OPTIONAL_FIELD_NUMBER: _ClassVar[int]
    SAME_DTYPE_AS_FIELD_NUMBER: _ClassVar[int]
    alignment: int
    contiguous: bool
    dims: str
    dtype_attribute: str
    dtypes: _containers.RepeatedScalarFieldContainer[_tensor_pb2.DataType]
    max_count: int
    on_request: bool
    optional: bool
    same_dtype_as: str
    def __init__(self, dtypes: _Optional[_Iterable[_Union[_tensor_pb2.DataType, str]]] = ..., dims: _Optional[str] = ..., same_dtype_as: _Optional[str] = ..., dtype_attribute: _Optional[str] = ..., optional: bool = ..., on_request: bool = ..., contiguous: bool = ..., alignment: _Optional[int] = ..., max_count: _Optional[int] = ...) -> None: ...

class Direction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []

class OpClass(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = []
