"""GPU memory of another process, mapped into this one, by the NVIDIA driver alone.

The driver library is loaded when it is first needed. The mapping is of the GPU's primary context,
which is that of torch and of every library that uses CUDA's runtime.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from rlk.errors import FailedPreconditionError

_POSIX_DESCRIPTOR = 1


class _Uuid(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 16)]

    def text(self) -> str:
        digits = bytes(self.bytes).hex()
        parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
        return "GPU-" + "-".join(parts)


class _AccessDesc(ctypes.Structure):
    # CUmemLocation{device} and CU_MEM_ACCESS_FLAGS_PROT_READWRITE.
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int), ("flags", ctypes.c_int)]


def _unavailable(message: str) -> FailedPreconditionError:
    return FailedPreconditionError(
        f"device arenas: {message}",
        reason="PLACEMENT_UNAVAILABLE",
        field="arena",
        value="device",
        allowed="a process with the GPU",
    )


@functools.lru_cache(maxsize=None)
def _driver() -> Any:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise _unavailable(f"there is no NVIDIA driver: {error}") from None
    _check(driver.cuInit(0), "cuInit")
    return driver


def _check(result: int, name: str) -> None:
    if result != 0:
        raise _unavailable(f"{name}: error {result}")


def _find(uuid: str) -> int:
    driver = _driver()
    count = ctypes.c_int()
    _check(driver.cuDeviceGetCount(ctypes.byref(count)), "cuDeviceGetCount")
    for ordinal in range(count.value):
        device, found = ctypes.c_int(), _Uuid()
        _check(driver.cuDeviceGet(ctypes.byref(device), ordinal), "cuDeviceGet")
        _check(driver.cuDeviceGetUuid_v2(ctypes.byref(found), device), "cuDeviceGetUuid")
        if found.text() == uuid:
            return device.value
    raise _unavailable(f"this process does not see the GPU {uuid}")


class DeviceMapping:
    """The allocation of ``nbytes`` that ``descriptor`` names, on the GPU with that uuid.

    Attributes:
        address: on the GPU.
        device: its ordinal in this process.
    """

    def __init__(self, descriptor: int, uuid: str, nbytes: int) -> None:
        driver = _driver()
        self.device = _find(uuid)
        self._size = ctypes.c_size_t(nbytes)
        self._handle = ctypes.c_ulonglong()
        self._address = ctypes.c_ulonglong()
        self._mapped = False
        context = ctypes.c_void_p()
        _check(
            driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), self.device),
            "cuDevicePrimaryCtxRetain",
        )
        try:
            self._map(driver, descriptor)
        except Exception:
            self.close()
            raise

    def _map(self, driver: Any, descriptor: int) -> None:
        _check(
            driver.cuMemImportFromShareableHandle(
                ctypes.byref(self._handle), ctypes.c_void_p(descriptor), _POSIX_DESCRIPTOR
            ),
            "cuMemImportFromShareableHandle",
        )
        zero = ctypes.c_ulonglong(0)
        _check(
            driver.cuMemAddressReserve(
                ctypes.byref(self._address), self._size, ctypes.c_size_t(0), zero, zero
            ),
            "cuMemAddressReserve",
        )
        _check(
            driver.cuMemMap(self._address, self._size, ctypes.c_size_t(0), self._handle, zero),
            "cuMemMap",
        )
        self._mapped = True
        access = _AccessDesc(1, self.device, 3)
        _check(
            driver.cuMemSetAccess(
                self._address, self._size, ctypes.byref(access), ctypes.c_size_t(1)
            ),
            "cuMemSetAccess",
        )

    @property
    def address(self) -> int:
        return self._address.value

    def close(self) -> None:
        """Unmaps it. Nothing may use the address after that. Idempotent."""
        driver = _driver()
        if self._mapped:
            driver.cuMemUnmap(self._address, self._size)
            self._mapped = False
        if self._address.value:
            driver.cuMemAddressFree(self._address, self._size)
            self._address.value = 0
        if self._handle.value:
            driver.cuMemRelease(self._handle)
            self._handle.value = 0
            driver.cuDevicePrimaryCtxRelease_v2(self.device)
