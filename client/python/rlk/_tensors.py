"""Tensors between the caller (numpy, torch) and the wire. Bits never pass through a conversion."""

from __future__ import annotations

import sys
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple, cast

import numpy as np

from rlk import _dtypes
from rlk._proto import tensor_pb2
from rlk.errors import InternalError, InvalidArgumentError

if sys.byteorder != "little":
    raise ImportError("rlk needs a little-endian host")

# 16-bit integers carry the elements of types that the other library does not know.
_TORCH_CARRIER = "int16"


class Source(NamedTuple):
    """A tensor of the caller: a numpy view of its elements, and where results belong."""

    dtype: int  # rlk.v1.DataType
    array: np.ndarray
    torch_device: Optional[Any]  # None for numpy

    @property
    def shape(self) -> Tuple[int, ...]:
        return self.array.shape

    def contiguous_bytes(self) -> memoryview:
        """The elements in C order, little-endian, without a copy where they lie so already."""
        return _raw(np.ascontiguousarray(self.array).reshape(-1))


def _raw(flat: np.ndarray) -> memoryview:
    """The bytes of a one-dimensional array without gaps."""
    return memoryview(flat.view(np.uint8).data) if flat.size else memoryview(b"")


def is_torch_tensor(value: Any) -> bool:
    """Whether value is a torch.Tensor, told without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _not_allowed(field: str, value: str, allowed: str, message: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{field}: {message}; allowed: {allowed}",
        reason="DTYPE_NOT_ALLOWED",
        field=field,
        value=value,
        allowed=allowed,
    )


def as_source(field: str, value: Any) -> Source:
    """Looks at a caller's tensor; the result shares its memory where that is on the host.

    Raises InvalidArgumentError naming ``field`` for a value that is neither numpy nor torch, and
    for an element type that rlk does not have.
    """
    if is_torch_tensor(value):
        return _torch_source(field, value)
    if isinstance(value, np.ma.MaskedArray):
        # The values under the mask would be sent, and the mask lost.
        allowed = "numpy.ndarray, torch.Tensor"
        raise _not_allowed(field, "MaskedArray", allowed, "a mask cannot be sent; fill it first")
    if isinstance(value, (np.ndarray, np.generic)):
        return _numpy_source(field, np.asarray(value))
    kind = type(value).__name__
    allowed = "numpy.ndarray, torch.Tensor"
    raise _not_allowed(field, kind, allowed, f"a {kind} is no tensor with a dtype")


def _numpy_source(field: str, array: np.ndarray) -> Source:
    dtype = _dtypes.from_numpy(array.dtype)
    if dtype is None:
        allowed = ", ".join(_dtypes.names())
        raise _not_allowed(
            field, str(array.dtype), allowed, f"dtype {array.dtype} is none of rlk's"
        )
    if array.dtype.byteorder == ">":
        array = array.byteswap().view(array.dtype.newbyteorder("="))
    return Source(dtype, array, None)


def _torch_source(field: str, tensor: Any) -> Source:
    import torch

    dtype = _dtypes.parse(tensor.dtype)
    if dtype is None:
        allowed = ", ".join(_dtypes.names())
        raise _not_allowed(
            field, str(tensor.dtype), allowed, f"dtype {tensor.dtype} is none of rlk's"
        )
    if tensor.is_meta or tensor.is_nested:
        kind = "meta" if tensor.is_meta else "nested"
        raise _not_allowed(
            field, kind, "a dense tensor", f"a {kind} tensor has no elements in rows"
        )
    if tensor.layout != torch.strided:
        raise _not_allowed(
            field, str(tensor.layout), "torch.strided", f"layout {tensor.layout} is not dense"
        )
    host = tensor.detach().cpu().resolve_neg()
    # As integers, for types that numpy lacks; and not by numpy(), which would leave the caller's
    # storage unable to be resized (FSDP does that to weights).
    bits = np.from_dlpack(host.view(getattr(torch, f"int{8 * host.element_size()}")))
    return Source(dtype, bits.view(cast(np.dtype, _dtypes.to_numpy(dtype))), tensor.device)


def _element_strides(array: np.ndarray) -> Optional[List[int]]:
    """Strides in elements where the wire can carry them, or None."""
    if any(stride < 0 or stride % array.itemsize for stride in array.strides):
        return None
    # A dimension of one element has no neighbours: its stride says nothing.
    return [s // array.itemsize if n > 1 else 0 for s, n in zip(array.strides, array.shape)]


def _wire_layout(array: np.ndarray) -> Tuple[Optional[List[int]], int]:
    """(strides or None for C order, elements) as a tensor travels.

    A view goes as it lies in memory, with strides, where that takes no more bytes than C order
    (transposed and expanded tensors).
    """
    if array.size and not array.flags.c_contiguous:
        strides = _element_strides(array)
        if strides is not None:
            span = 1 + sum((n - 1) * s for n, s in zip(array.shape, strides))
            if span <= array.size:
                return strides, span
    return None, array.size


def payload_bytes(source: Source) -> int:
    """The bytes that a tensor's elements take in a message."""
    return _wire_layout(source.array)[1] * source.array.itemsize


def encode(source: Source, tensor: tensor_pb2.Tensor) -> None:
    """Fills a Tensor message. Bits are unchanged."""
    array = source.array
    tensor.dtype = cast(tensor_pb2.DataType, source.dtype)
    tensor.shape.extend(array.shape)
    strides, span = _wire_layout(array)
    if strides is None:
        tensor.data = bytes(source.contiguous_bytes())
    else:
        tensor.strides.extend(strides)
        flat = np.lib.stride_tricks.as_strided(array, (span,), (array.itemsize,))
        tensor.data = flat.tobytes()


def decode(field: str, tensor: tensor_pb2.Tensor, torch_device: Optional[Any]) -> Any:
    """A reply's tensor as a new writable numpy array, or a torch tensor on ``torch_device``."""
    dtype = _dtypes.to_numpy(tensor.dtype)
    shape: Sequence[int] = tuple(tensor.shape)
    count = 1
    for size in shape:
        count *= size
    if dtype is None or tensor.strides or tensor.WhichOneof("source") not in (None, "data"):
        raise InternalError(f"{field}: the reply holds a tensor that this client cannot read")
    if len(tensor.data) != count * dtype.itemsize:
        raise InternalError(
            f"{field}: the reply holds {len(tensor.data)} bytes for shape {list(shape)} of {dtype}"
        )
    # The bytes are the message's own; a bytearray makes the result writable.
    array = np.frombuffer(bytearray(tensor.data), dtype=dtype).reshape(shape)
    return array if torch_device is None else _to_torch(array, tensor.dtype, torch_device)


def _to_torch(array: np.ndarray, dtype: int, device: Any) -> Any:
    import torch

    if _dtypes.NAMES[dtype] == "BF16":
        carrier = torch.from_numpy(array.view(np.dtype(_TORCH_CARRIER)))
        return carrier.view(torch.bfloat16).to(device)
    return torch.from_numpy(array).to(device)
