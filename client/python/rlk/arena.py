"""Memory that a server on this host shares with the client: tensors in it are not sent."""

from __future__ import annotations

import math
import mmap
import operator
import os
import threading
import weakref
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from rlk import _cuda, _dtypes, _tensors
from rlk._proto import session_pb2, tensor_pb2
from rlk._side import SideConnection
from rlk.errors import InternalError, InvalidArgumentError, ResourceExhaustedError, RlkError

KINDS = {
    "input": session_pb2.ARENA_KIND_HOST_INPUT,
    "output": session_pb2.ARENA_KIND_HOST_OUTPUT,
    "device": session_pb2.ARENA_KIND_DEVICE,
}


class Place(NamedTuple):
    """Where a caller's tensor lies in an arena."""

    arena: Arena
    dtype: int
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]  # in elements
    generation: int
    offset: int  # from the arena's start
    torch_device: Optional[Any]

    def fill(self, ref: tensor_pb2.ArenaRef) -> None:
        ref.arena = self.arena._id
        ref.generation = self.generation
        ref.offset = self.offset


class _Slot(NamedTuple):
    generation: int
    offset: int
    nbytes: int


class _DeviceSlot:
    """What torch takes a slot of GPU memory from: bytes by the CUDA array interface."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
            "strides": None,
            # The caller's streams are synchronised before a call, and the server's by its end.
            "stream": None,
        }


def _no_shape(shape: Any, allowed: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"shape: {shape!r} cannot lie in the arena; allowed: {allowed}",
        reason="SHAPE_MISMATCH",
        field="shape",
        value=repr(shape),
        allowed=allowed,
    )


def _sizes(shape: Any) -> Tuple[int, ...]:
    try:
        items = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
        sizes = tuple(operator.index(size) for size in items)
    except TypeError:
        sizes = (-1,)
    if any(size < 0 for size in sizes):
        raise _no_shape(shape, "integers of at least 0")
    return sizes


def _check_size(nbytes: Any) -> int:
    try:
        size = operator.index(nbytes)
    except TypeError:
        size = 0
    if not 0 < size < 1 << 63:
        allowed = "an integer from 1 on that fits in 63 bits"
        raise InvalidArgumentError(
            f"bytes: {nbytes!r} is no size of an arena; allowed: {allowed}",
            reason="LIMIT_EXCEEDED",
            field="bytes",
            value=repr(nbytes),
            allowed=allowed,
        )
    return size


class Arena:
    """Shared memory. Made by :meth:`rlk.Client.arena`; it ends with the client, or ``close``.

    A tensor made here is an ordinary numpy array (or, of kind "device", torch tensor). Passed to a
    call, it or any view of it with strides of at least 0 travels by its place: nothing is sent or
    copied. Its part of the arena is free again when the last array that looks at it is gone.

    It is of the process that made it. A fork may look at the memory, but calls there refuse it and
    its arrays, and what a fork drops frees nothing.

    Attributes:
        kind: "input" (the caller writes, calls read), "output" (calls write, the caller reads) or
            "device" (GPU memory, which both read and write).
        nbytes: its size.
        device_uuid: the GPU of kind "device"; "" for the others.
    """

    def __init__(self, side: SideConnection, kind: str, nbytes: int, device_uuid: str) -> None:
        if kind not in KINDS:
            allowed = ", ".join(KINDS)
            raise InvalidArgumentError(
                f"kind: {kind!r} is no kind of arena; allowed: {allowed}",
                reason="UNKNOWN_ENUM_VALUE",
                field="kind",
                value=repr(kind),
                allowed=allowed,
            )
        request = session_pb2.SideRequest()
        request.open_arena.kind = KINDS[kind]  # type: ignore[assignment]
        request.open_arena.bytes = _check_size(nbytes)
        request.open_arena.device_uuid = device_uuid
        reply, descriptor = side.ask(request)
        if descriptor is None or reply.WhichOneof("reply") != "open_arena":
            raise InternalError("the side socket answered something else")
        self.kind = kind
        self.nbytes = reply.open_arena.bytes
        self.device_uuid = reply.open_arena.device_uuid
        self._id = reply.open_arena.arena
        self._side = side
        # By generation. Single operations on it are atomic; finalizers may take no lock.
        self._slots: Dict[int, _Slot] = {}
        self._closed = False
        self._closing = threading.Lock()  # taken once, never waited for
        self._device: Optional[_cuda.DeviceMapping] = None
        self._pages: Optional[np.ndarray] = None
        try:
            self._map(descriptor)
        except BaseException as error:
            self._give_back()
            if isinstance(error, (OSError, ValueError, OverflowError)):
                raise ResourceExhaustedError(
                    f"this process cannot map {self.nbytes} bytes: {error}",
                    reason="BYTES_EXHAUSTED",
                    field="arena",
                    value=str(self.nbytes),
                    allowed="address space and descriptors of this process",
                ) from None
            raise
        finally:
            os.close(descriptor)

    def _map(self, descriptor: int) -> None:
        if self.kind == "device":
            self._device = _cuda.DeviceMapping(descriptor, self.device_uuid, self.nbytes)
            self._base = self._device.address
            return
        access = mmap.PROT_READ | (mmap.PROT_WRITE if self.kind == "input" else 0)
        flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        pages = mmap.mmap(descriptor, self.nbytes, flags=flags, prot=access)
        self._pages = np.frombuffer(pages, dtype=np.uint8)
        self._base = self._pages.__array_interface__["data"][0]

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def close(self) -> None:
        """Gives it back to the server. Idempotent.

        Arrays of host memory stay valid until they are gone, but are of no use in calls. Tensors of
        GPU memory must not be used any more.
        """
        if not self._closing.acquire(blocking=False):
            return
        self._closed = True
        self._slots.clear()
        if self._side.forked:
            return
        if self._device is not None:
            self._device.close()
        self._give_back()

    def _give_back(self) -> None:
        request = session_pb2.SideRequest()
        request.close_arena.arena = self._id
        try:
            self._side.ask(request)
        except RlkError:
            pass  # The session has ended, and so has the arena.

    def empty(self, shape: Union[int, Sequence[int]], dtype: Any = "f32") -> Any:
        """A tensor in the arena, with what was there before.

        Args:
            shape: its sizes.
            dtype: text, numpy or torch dtype.

        Returns:
            A numpy array, writable for kind "input"; for kind "device" a torch tensor.

        Raises:
            InvalidArgumentError: the sizes or the dtype are none, or never fit.
            ResourceExhaustedError: no free place is large enough.
        """
        sizes = _sizes(shape)
        number = _dtypes.parse(dtype)
        element = None if number is None else _dtypes.to_numpy(number)
        if number is None or element is None:
            allowed = ", ".join(_dtypes.names())
            raise InvalidArgumentError(
                f"dtype: {dtype!r} is none of rlk's; allowed: {allowed}",
                reason="DTYPE_NOT_ALLOWED",
                field="dtype",
                value=repr(dtype),
                allowed=allowed,
            )
        nbytes = math.prod(sizes) * element.itemsize
        # Of empty arrays numpy bounds the other sizes, too.
        if math.prod(max(size, 1) for size in sizes) * element.itemsize >= 1 << 63:
            raise _no_shape(shape, "sizes whose bytes fit in 63 bits")
        slot = self._take(nbytes)
        if self._device is not None:
            return self._torch_tensor(slot, number, sizes, nbytes)
        assert self._pages is not None
        # Not a plain slice: its base, to which views refer, would be that of all slots.
        root = np.frombuffer(
            self._pages.data[slot.offset : slot.offset + slot.nbytes], dtype=np.uint8
        )
        weakref.finalize(root, self._free, slot.generation).atexit = False
        return root[:nbytes].view(element).reshape(sizes)

    def _torch_tensor(self, slot: _Slot, number: int, sizes: Tuple[int, ...], nbytes: int) -> Any:
        import torch

        assert self._device is not None
        root = _DeviceSlot(self._base + slot.offset, slot.nbytes)
        weakref.finalize(root, self._free, slot.generation).atexit = False
        place = torch.device("cuda", self._device.device)
        flat = torch.as_tensor(root, device=place)
        name = str(_dtypes.to_numpy(number))
        return flat[:nbytes].view(getattr(torch, name)).reshape(sizes)

    def _take(self, nbytes: int) -> _Slot:
        request = session_pb2.SideRequest()
        request.take_slot.arena = self._id
        request.take_slot.bytes = nbytes
        reply, _ = self._side.ask(request)
        if reply.WhichOneof("reply") != "take_slot":
            raise InternalError("the side socket answered something else")
        taken = reply.take_slot
        slot = _Slot(taken.generation, taken.offset, taken.bytes)
        if slot.nbytes < nbytes or slot.offset + slot.nbytes > self.nbytes:
            raise InternalError("the side socket answered with a slot outside the arena")
        self._slots[slot.generation] = slot
        return slot

    def _free(self, generation: int) -> None:
        """A finalizer: it may run within any other method, in the same thread."""
        if self._slots.pop(generation, None) is not None and not self._closed:
            self._side.free(self._id, generation)

    def _slot_at(self, address: int, span: int) -> Optional[_Slot]:
        """The slot that holds ``span`` bytes at ``address``; None for memory elsewhere."""
        offset = address - self._base
        if self._closed or not 0 <= offset < self.nbytes:
            return None
        self._side.check_process()
        for slot in self._slots.copy().values():
            if slot.offset <= offset and offset + span <= slot.offset + slot.nbytes:
                return slot
        return None

    def _at(self, place: tensor_pb2.ArenaRef, dtype: int, shape: Tuple[int, ...]) -> Any:
        """What a call wrote there."""
        element = _dtypes.to_numpy(dtype)
        count = 1
        for size in shape:
            count *= size
        if element is None or place.offset + count * element.itemsize > self.nbytes:
            raise InternalError("the reply names a place outside the arena")
        assert self._pages is not None
        flat = self._pages[place.offset : place.offset + count * element.itemsize]
        return flat.view(element).reshape(shape)


class Arenas:
    """Those of one client."""

    def __init__(self) -> None:
        self._open: List[Arena] = []

    def __bool__(self) -> bool:
        return bool(self._open)

    def add(self, arena: Arena) -> None:
        # A new list: readers take no lock.
        self._open = [known for known in self._open if not known._closed] + [arena]

    def find(self, value: Any) -> Optional[Place]:
        """The place of a caller's tensor, or None where it lies elsewhere or cannot be named."""
        torch_device = None
        if isinstance(value, np.ndarray):
            dtype = _dtypes.from_numpy(value.dtype)
            if dtype is None or value.dtype.byteorder == ">":
                return None
            address = value.__array_interface__["data"][0]
            strides = _tensors._element_strides(value)
            shape, itemsize = value.shape, value.itemsize
        elif _tensors.is_torch_tensor(value):
            dtype = _dtypes.parse(value.dtype)
            if dtype is None or value.is_neg() or value.layout != _strided():
                return None
            address, shape, itemsize = value.data_ptr(), tuple(value.shape), value.element_size()
            strides = [s if n > 1 else 0 for s, n in zip(value.stride(), shape)]
            torch_device = value.device
        else:
            return None
        if strides is None or not all(shape):
            return None
        span = (1 + sum((n - 1) * s for n, s in zip(shape, strides))) * itemsize
        for arena in self._open:
            slot = arena._slot_at(address, span)
            if slot is None:
                continue
            offset = address - arena._base
            if torch_device is not None and torch_device.type == "cuda":
                _synchronize(torch_device)
            return Place(
                arena, dtype, shape, tuple(strides), slot.generation, offset, torch_device
            )
        return None

    def by_id(self, arena: bytes) -> Optional[Arena]:
        for known in self._open:
            if known._id == arena:
                return known
        return None

    def close(self) -> None:
        open_arenas, self._open = self._open, []
        for arena in open_arenas:
            arena.close()


def _strided() -> Any:
    import torch

    return torch.strided


def _synchronize(device: Any) -> None:
    """What was asked of the GPU before a call is done when the server reads."""
    import torch

    torch.cuda.current_stream(device).synchronize()


def is_contiguous(place: Place) -> bool:
    """Whether the elements lie in C order."""
    step = 1
    for size, stride in zip(reversed(place.shape), reversed(place.strides)):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def encode(place: Place, tensor: tensor_pb2.Tensor) -> None:
    """Fills a Tensor message with a tensor's place."""
    tensor.dtype = place.dtype  # type: ignore[assignment]
    tensor.shape.extend(place.shape)
    if not is_contiguous(place):
        tensor.strides.extend(place.strides)
    place.fill(tensor.arena)
