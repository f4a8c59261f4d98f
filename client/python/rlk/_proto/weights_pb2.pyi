from rlk._proto import tensor_service_pb2 as _tensor_service_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ManifestTensor(_message.Message):
    __slots__ = ["role", "tensor"]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    role: str
    tensor: _tensor_service_pb2.ExpectedTensor
    def __init__(self, role: _Optional[str] = ..., tensor: _Optional[_Union[_tensor_service_pb2.ExpectedTensor, _Mapping]] = ...) -> None: ...

class WeightsManifest(_message.Message):
    __slots__ = ["format", "model", "synthetic", "tensors"]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    SYNTHETIC_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    format: str
    model: str
    synthetic: str
    tensors: _containers.RepeatedCompositeFieldContainer[ManifestTensor]
    def __init__(self, format: _Optional[str] = ..., model: _Optional[str] = ..., synthetic: _Optional[str] = ..., tensors: _Optional[_Iterable[_Union[ManifestTensor, _Mapping]]] = ...) -> None: ...
