"""Tensors that stay on the server."""

from __future__ import annotations

from typing import Any, Callable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from rlk import _digest, _dtypes, _session, _tensors
from rlk._proto import tensor_pb2, tensor_service_pb2
from rlk.errors import DataLossError, FailedPreconditionError, InternalError, InvalidArgumentError

SERVICE = "/rlk.v1.TensorService/"
CHUNK_BYTES = 1 << 20

# Called with the bytes that have moved, and all.
Progress = Callable[[int, int], None]


class Resident:
    """A tensor that stays on the server, for use in calls in place of an array.

    Made by ``client.put`` and by calls with ``keep=``. As a context manager it is released at the
    end; otherwise it lives until :meth:`release`, or as long as the client's session.

    Attributes:
        id: its name, 32 hex digits; only the session that owns it can use it.
        generation: raised whenever a call writes into it.
        dtype: such as "BF16".
        shape, nbytes: as those of an array.
        digest: "xxh3-tree4k-v1:..." or "" where the server has none.
        device_uuid, label: where it lies, and the caller's words.
        synthetic: how its values were made up, as the file says that it was loaded from; "" for
            all others.
    """

    def __init__(
        self,
        client: Any,
        handle: tensor_pb2.TensorHandle,
        dtype: int,
        shape: Sequence[int],
        *,
        digest: str = "",
        device_uuid: str = "",
        label: str = "",
        synthetic: str = "",
        torch_device: Optional[Any] = None,
    ) -> None:
        self._client = client
        self._handle = tensor_pb2.TensorHandle()
        self._handle.CopyFrom(handle)
        self._dtype = dtype
        self.shape: Tuple[int, ...] = tuple(shape)
        self.digest = digest
        self.device_uuid = device_uuid
        self.label = label
        self.synthetic = synthetic
        self._torch_device = torch_device

    @property
    def id(self) -> str:
        return self._handle.id.hex()

    @property
    def generation(self) -> int:
        return self._handle.generation

    @property
    def dtype(self) -> str:
        return _dtypes.NAMES.get(self._dtype, str(self._dtype))

    @property
    def nbytes(self) -> int:
        dtype = _dtypes.to_numpy(self._dtype)
        count = 1
        for size in self.shape:
            count *= size
        return count * (dtype.itemsize if dtype is not None else 0)

    def get(self, **options: Any) -> Any:
        """Its elements, as ``client.get`` gives them."""
        return self._client.get(self, **options)

    def release(self) -> Any:
        """Frees it; as ``client.release``."""
        return self._client.release(self)

    def __enter__(self) -> Resident:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.release()

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.shape)) or "scalar"
        return f"Resident({self.dtype} {shape}, id={self.id}, generation={self.generation})"


def from_description(
    client: Any, message: tensor_service_pb2.TensorDescription, torch_device: Optional[Any] = None
) -> Resident:
    """A Resident from what the server says of it."""
    return Resident(
        client,
        message.handle,
        message.dtype,
        message.shape,
        digest=message.digest,
        device_uuid=message.device_uuid,
        label=message.label,
        synthetic=message.synthetic,
        torch_device=torch_device,
    )


def from_reply(client: Any, tensor: tensor_pb2.Tensor, torch_device: Optional[Any]) -> Resident:
    """A Resident from an output that stays."""
    return Resident(client, tensor.resident, tensor.dtype, tensor.shape, torch_device=torch_device)


def encode(resident: Resident, tensor: tensor_pb2.Tensor) -> None:
    """Fills a Tensor message with all of a resident tensor."""
    tensor.dtype = resident._dtype  # type: ignore[assignment]
    tensor.shape.extend(resident.shape)
    tensor.resident.CopyFrom(resident._handle)


class Upload(NamedTuple):
    """An upload ready to send."""

    header: tensor_service_pb2.UploadHeader
    data: memoryview
    source: _tensors.Source
    progress: Optional[Progress]
    # What the progress function raised: gRPC runs it elsewhere, and says only that something did.
    raised: List[BaseException]

    def digest(self) -> str:
        return _digest._digest_bytes(self.source.dtype, self.source.shape, self.data)

    def parts(self) -> Iterator[bytes]:
        """The messages of the stream."""
        request = tensor_service_pb2.UploadRequest
        yield request(header=self.header).SerializeToString()
        total = len(self.data)
        for at in range(0, total, CHUNK_BYTES):
            chunk = self.data[at : at + CHUNK_BYTES]
            yield b"".join((_chunk_prefix(len(chunk)), chunk))
            if self.progress is not None:
                try:
                    self.progress(min(at + CHUNK_BYTES, total), total)
                except BaseException as error:
                    self.raised.append(error)
                    raise


def _chunk_prefix(size: int) -> bytes:
    """Tag and length of UploadRequest.data, so that the chunk is copied once."""
    prefix = bytearray([tensor_service_pb2.UploadRequest.DATA_FIELD_NUMBER << 3 | 2])
    while size >= 0x80:
        prefix.append(size & 0x7F | 0x80)
        size >>= 7
    prefix.append(size)
    return bytes(prefix)


def upload(
    tensor: Any,
    device_uuid: Optional[str],
    label: str,
    lease: Optional[float],
    progress: Optional[Progress],
) -> Upload:
    """Prepares an upload. InvalidArgumentError for what is no tensor."""
    source = _tensors.as_source("tensor", tensor)
    header = tensor_service_pb2.UploadHeader(
        shape=source.shape,
        device_uuid=device_uuid or "",
        label=label,
        lease_ms=_session.lease_ms(lease),
    )
    header.dtype = source.dtype  # type: ignore[assignment]
    return Upload(header, source.contiguous_bytes(), source, progress, [])


class Download:
    """Collects the messages of a download."""

    def __init__(self, progress: Optional[Progress], verify: bool) -> None:
        self._progress = progress
        self._verify = verify
        self._tensor: Optional[tensor_service_pb2.TensorDescription] = None
        self._data = bytearray()
        self._filled = 0

    def take(self, data: bytes) -> None:
        part = tensor_service_pb2.DownloadResponse.FromString(data)
        if part.WhichOneof("part") == "tensor":
            self._tensor = part.tensor
            self._data = bytearray(part.tensor.bytes)
            return
        end = self._filled + len(part.data)
        if self._tensor is None or end > len(self._data):
            raise InternalError("the download holds more data than the tensor has")
        self._data[self._filled : end] = part.data
        self._filled = end
        if self._progress is not None:
            self._progress(end, len(self._data))

    def finish(self, torch_device: Optional[Any]) -> Any:
        """The tensor. DataLossError where its digest is not the server's."""
        tensor = self._tensor
        if tensor is None or self._filled != len(self._data):
            raise InternalError("the download ended early")
        if self._verify and tensor.digest:
            found = _digest._digest_bytes(tensor.dtype, tensor.shape, memoryview(self._data))
            if found != tensor.digest:
                raise DataLossError(
                    "the bytes that arrived have another digest",
                    reason="VERIFICATION_FAILED",
                    field="digest",
                    value=found,
                    allowed=tensor.digest,
                )
        dtype = _dtypes.to_numpy(tensor.dtype)
        if dtype is None:
            raise InternalError(f"the download has dtype {tensor.dtype}, which is not known here")
        array = np.frombuffer(self._data, dtype=dtype).reshape(tuple(tensor.shape))
        if torch_device is None:
            return array
        return _tensors._to_torch(array, tensor.dtype, torch_device)


def handles(value: Any) -> List[tensor_pb2.TensorHandle]:
    """The handles of one Resident or of several."""
    items = [value] if isinstance(value, Resident) else list(value)
    for item in items:
        if not isinstance(item, Resident):
            kind = type(item).__name__
            raise InvalidArgumentError(
                f"a {kind} is no resident tensor; allowed: rlk.Resident",
                reason="SOURCE_NOT_SUPPORTED",
                field="tensor",
                value=kind,
                allowed="rlk.Resident",
            )
    return [item._handle for item in items]


def check_owner(resident: Resident, client: Any) -> None:
    """A handle is of use to its own client only."""
    if resident._client is not client:
        raise FailedPreconditionError(
            f"{resident!r} belongs to another client",
            reason="TENSOR_NOT_FOUND",
        )
