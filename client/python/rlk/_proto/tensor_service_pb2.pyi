from rlk._proto import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DescribeTensorRequest(_message.Message):
    __slots__ = ["handle"]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    handle: _tensor_pb2.TensorHandle
    def __init__(self, handle: _Optional[_Union[_tensor_pb2.TensorHandle, _Mapping]] = ...) -> None: ...

class DescribeTensorResponse(_message.Message):
    __slots__ = ["tensor"]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    tensor: TensorDescription
    def __init__(self, tensor: _Optional[_Union[TensorDescription, _Mapping]] = ...) -> None: ...

class DownloadRequest(_message.Message):
    __slots__ = ["bytes", "handle"]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    handle: _tensor_pb2.TensorHandle
    def __init__(self, handle: _Optional[_Union[_tensor_pb2.TensorHandle, _Mapping]] = ..., bytes: _Optional[int] = ...) -> None: ...

class DownloadResponse(_message.Message):
    __slots__ = ["data", "tensor"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    tensor: TensorDescription
    def __init__(self, tensor: _Optional[_Union[TensorDescription, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class ExpectedTensor(_message.Message):
    __slots__ = ["dtype", "key", "path", "sha256", "shape"]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    dtype: _tensor_pb2.DataType
    key: str
    path: str
    sha256: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, key: _Optional[str] = ..., dtype: _Optional[_Union[_tensor_pb2.DataType, str]] = ..., shape: _Optional[_Iterable[int]] = ..., sha256: _Optional[str] = ..., path: _Optional[str] = ...) -> None: ...

class FindTensorRequest(_message.Message):
    __slots__ = ["device_uuid", "digest"]
    DEVICE_UUID_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    device_uuid: str
    digest: str
    def __init__(self, digest: _Optional[str] = ..., device_uuid: _Optional[str] = ...) -> None: ...

class FindTensorResponse(_message.Message):
    __slots__ = ["tensor"]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    tensor: TensorDescription
    def __init__(self, tensor: _Optional[_Union[TensorDescription, _Mapping]] = ...) -> None: ...

class ListTensorsRequest(_message.Message):
    __slots__ = ["page_size", "page_token"]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: bytes
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[bytes] = ...) -> None: ...

class ListTensorsResponse(_message.Message):
    __slots__ = ["next_page_token", "tensors"]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    next_page_token: bytes
    tensors: _containers.RepeatedCompositeFieldContainer[TensorDescription]
    def __init__(self, tensors: _Optional[_Iterable[_Union[TensorDescription, _Mapping]]] = ..., next_page_token: _Optional[bytes] = ...) -> None: ...

class LoadTensorsRequest(_message.Message):
    __slots__ = ["device_uuid", "lease_ms", "manifest", "path", "synthetic"]
    DEVICE_UUID_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    SYNTHETIC_FIELD_NUMBER: _ClassVar[int]
    device_uuid: str
    lease_ms: int
    manifest: _containers.RepeatedCompositeFieldContainer[ExpectedTensor]
    path: str
    synthetic: str
    def __init__(self, path: _Optional[str] = ..., manifest: _Optional[_Iterable[_Union[ExpectedTensor, _Mapping]]] = ..., device_uuid: _Optional[str] = ..., lease_ms: _Optional[int] = ..., synthetic: _Optional[str] = ...) -> None: ...

class LoadTensorsResponse(_message.Message):
    __slots__ = ["tensors"]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    tensors: _containers.RepeatedCompositeFieldContainer[TensorDescription]
    def __init__(self, tensors: _Optional[_Iterable[_Union[TensorDescription, _Mapping]]] = ...) -> None: ...

class ReleaseTensorsRequest(_message.Message):
    __slots__ = ["handles"]
    HANDLES_FIELD_NUMBER: _ClassVar[int]
    handles: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.TensorHandle]
    def __init__(self, handles: _Optional[_Iterable[_Union[_tensor_pb2.TensorHandle, _Mapping]]] = ...) -> None: ...

class ReleaseTensorsResponse(_message.Message):
    __slots__ = []
    def __init__(self) -> None: ...

class RenewTensorRequest(_message.Message):
    __slots__ = ["handle", "lease_ms"]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    handle: _tensor_pb2.TensorHandle
    lease_ms: int
    def __init__(self, handle: _Optional[_Union[_tensor_pb2.TensorHandle, _Mapping]] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class RenewTensorResponse(_message.Message):
    __slots__ = ["tensor"]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    tensor: TensorDescription
    def __init__(self, tensor: _Optional[_Union[TensorDescription, _Mapping]] = ...) -> None: ...

class TensorDescription(_message.Message):
    __slots__ = ["bytes", "device_uuid", "digest", "dtype", "handle", "label", "lease_ms", "poisoned", "references", "shape", "synthetic"]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    DEVICE_UUID_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    POISONED_FIELD_NUMBER: _ClassVar[int]
    REFERENCES_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    SYNTHETIC_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    device_uuid: str
    digest: str
    dtype: _tensor_pb2.DataType
    handle: _tensor_pb2.TensorHandle
    label: str
    lease_ms: int
    poisoned: bool
    references: int
    shape: _containers.RepeatedScalarFieldContainer[int]
    synthetic: str
    def __init__(self, handle: _Optional[_Union[_tensor_pb2.TensorHandle, _Mapping]] = ..., dtype: _Optional[_Union[_tensor_pb2.DataType, str]] = ..., shape: _Optional[_Iterable[int]] = ..., bytes: _Optional[int] = ..., digest: _Optional[str] = ..., device_uuid: _Optional[str] = ..., label: _Optional[str] = ..., lease_ms: _Optional[int] = ..., poisoned: bool = ..., references: _Optional[int] = ..., synthetic: _Optional[str] = ...) -> None: ...

class UploadHeader(_message.Message):
    __slots__ = ["device_uuid", "dtype", "label", "lease_ms", "shape"]
    DEVICE_UUID_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    device_uuid: str
    dtype: _tensor_pb2.DataType
    label: str
    lease_ms: int
    shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, dtype: _Optional[_Union[_tensor_pb2.DataType, str]] = ..., shape: _Optional[_Iterable[int]] = ..., device_uuid: _Optional[str] = ..., label: _Optional[str] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class UploadRequest(_message.Message):
    __slots__ = ["data", "digest", "header"]
    DATA_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    digest: str
    header: UploadHeader
    def __init__(self, header: _Optional[_Union[UploadHeader, _Mapping]] = ..., data: _Optional[bytes] = ..., digest: _Optional[str] = ...) -> None: ...

class UploadResponse(_message.Message):
    __slots__ = ["tensor"]
    TENSOR_FIELD_NUMBER: _ClassVar[int]
    tensor: TensorDescription
    def __init__(self, tensor: _Optional[_Union[TensorDescription, _Mapping]] = ...) -> None: ...
