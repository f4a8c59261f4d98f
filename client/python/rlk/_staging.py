"""Large inputs of calls, copied once into memory that the server shares."""

from __future__ import annotations

import os
import threading
import warnings
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import numpy as np

from rlk import _tensors, resident
from rlk.arena import Arena, Place
from rlk.errors import (
    FailedPreconditionError,
    ResourceExhaustedError,
    RlkError,
    UnavailableError,
)

# Inputs below this stay in the message of a call whose other inputs travel in another way.
LARGE_BYTES = 64 << 10
_ARENA_BYTES_MIN = 16 << 20
_IDLE_MAX = 4
# What a slot's size is rounded up to.
_UNIT = 256


class SlowerTransportWarning(UserWarning):
    """A call's tensors travelled in a slower way than the server's capabilities promise."""


class Staged(NamedTuple):
    """The arguments of a call with the places of its large inputs."""

    arguments: Dict[str, Any]
    arena: Arena
    # What keeps the slots.
    arrays: List[np.ndarray]


def _tell(problem: Any) -> None:
    # The caller's line: below it are call, _call_uploaded and stage.
    warnings.warn(f"streams are used: {problem}", SlowerTransportWarning, stacklevel=5)


def is_large(value: Any) -> bool:
    """Whether an argument is a tensor of the caller's that takes another way than the message."""
    if isinstance(value, (resident.Resident, Place)):
        return False
    return getattr(value, "nbytes", 0) >= LARGE_BYTES


class Staging:
    """Arenas that are used by one call at a time. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: List[Arena] = []
        self._offered: Optional[bool] = None
        self._process = os.getpid()

    def stage(self, client: Any, arguments: Dict[str, Any]) -> Optional[Staged]:
        """Copies the large inputs; None where the server offers no host arenas to this client.

        Where it offers them and they are not to be had now, that is said in a warning, and the next
        call tries again.
        """
        sources: List[Tuple[str, _tensors.Source]] = []

        def look(name: str, value: Any) -> None:
            for item in value if isinstance(value, (list, tuple)) else (value,):
                if is_large(item) and client._arenas.find(item) is None:
                    sources.append((name, _tensors.as_source(name, item)))

        if self._process != os.getpid():
            _tell("this process is a fork of the one that shares memory with the server")
            return None
        try:
            if not self._offers(client):
                return None
        except (UnavailableError, ResourceExhaustedError) as error:
            _tell(error)
            return None
        for name, value in arguments.items():
            look(name, value)
        total = sum(-(-s.array.nbytes // _UNIT) * _UNIT for _, s in sources)
        try:
            arena = self._take(client, total)
        except RlkError as error:
            _tell(error)
            return None
        arrays: List[np.ndarray] = []
        remaining = iter(sources)

        def moved(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return [moved(item) for item in value]
            if not is_large(value) or client._arenas.find(value) is not None:
                return value
            source = next(remaining)[1]
            array = arena.empty(source.shape, source.array.dtype)
            np.copyto(array, source.array)
            arrays.append(array)
            place = client._arenas.find(array)
            return place._replace(torch_device=source.torch_device)

        try:
            return Staged({name: moved(value) for name, value in arguments.items()}, arena, arrays)
        except ResourceExhaustedError as error:
            # A call that was given up still reads what was staged for it.
            self.give_back(Staged({}, arena, arrays))
            _tell(error)
            return None
        except BaseException:
            self.give_back(Staged({}, arena, arrays))
            raise

    def give_back(self, staged: Staged) -> None:
        """The call is done."""
        staged.arrays.clear()
        with self._lock:
            if len(self._idle) < _IDLE_MAX:
                self._idle.append(staged.arena)
                return
        staged.arena.close()

    def _offers(self, client: Any) -> bool:
        if self._offered is None:
            missed: Optional[RlkError] = None
            try:
                client._session.require_side(client._message_call)
            except FailedPreconditionError:
                self._offered = False
                return False
            except (UnavailableError, ResourceExhaustedError) as error:
                missed = error
            offered = {c.name: c.available for c in client.info().capabilities}
            if missed is not None and offered.get("host_arena", False):
                raise missed  # not remembered: it may be had later
            self._offered = offered.get("host_arena", False)
        return self._offered

    def _take(self, client: Any, nbytes: int) -> Arena:
        smaller: List[Arena] = []
        with self._lock:
            for arena in self._idle:
                if arena.nbytes >= nbytes:
                    self._idle.remove(arena)
                    return arena
            smaller, self._idle = self._idle, []
        for arena in smaller:
            arena.close()
        size = max(_ARENA_BYTES_MIN, 1 << max(nbytes - 1, 0).bit_length())
        made: Arena = client.arena(size, "input")
        return made
