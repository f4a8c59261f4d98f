"""What a result does not hold, from the tensors themselves: the error of every row and column, and
the difference of log-probabilities at every position. Long axes are divided into bins."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from rlk import _digest, _tensors
from rlk.errors import InvalidArgumentError
from rlk.resident import Resident

BINS = 128


def _array(field: str, value: Any) -> np.ndarray:
    """The elements on this host, with the dtype that they are compared in."""
    if isinstance(value, Resident):
        value = value.get()
    return _tensors.as_source(field, value).array


def _other(field: str, value: str, allowed: str, message: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{field}: {message}: {value}; the result has {allowed}",
        reason="SHAPE_MISMATCH",
        field=field,
        value=value,
        allowed=allowed,
    )


def _check(field: str, array: np.ndarray, said: Dict[str, Any]) -> None:
    """The tensor is the one that was compared, as far as the result tells."""
    if said["shape"] is not None and list(array.shape) != said["shape"]:
        raise _other(field, str(list(array.shape)), str(said["shape"]), "another shape")
    if said["digest"] is not None:
        digest = _digest.digest(np.ascontiguousarray(array).reshape(array.shape))
        if digest != said["digest"]:
            raise _other(field, digest, said["digest"], "another tensor")


def _edges(size: int) -> np.ndarray:
    """Where bins begin, and the end of the last."""
    return np.unique(np.linspace(0, size, min(size, BINS) + 1).astype(np.int64))


def _max_and_rms(sizes: np.ndarray) -> Tuple[Optional[float], Optional[float]]:
    """None where there are no elements, or FP64 has no number for an error."""
    largest = float(sizes.max()) if sizes.size else float("inf")
    if largest == float("inf"):
        return None, None
    if largest == 0:
        return 0.0, 0.0
    scaled = sizes / largest  # squares of large errors have no number either
    return largest, largest * float(np.sqrt(np.mean(scaled * scaled)))


def _bins(errors: np.ndarray, different: Optional[np.ndarray]) -> List[Dict[str, Any]]:
    """Along the first axis. Elements that are not finite on both sides are NaN and left out."""
    found = []
    edges = _edges(errors.shape[0])
    for first, end in zip(edges[:-1], edges[1:]):
        part = np.abs(errors[first:end])
        part = part[~np.isnan(part)]
        largest, rms = _max_and_rms(part)
        found.append(
            {
                "first": int(first),
                "last": int(end - 1),
                "elements": int(part.size),
                "max_abs": largest,
                "root_mean_square": rms,
                "mismatched": None if different is None else int(different[first:end].sum()),
            }
        )
    return found


def tensors(comparison: Dict[str, Any], left: Any, right: Any) -> Optional[Dict[str, Any]]:
    """Errors by row and by column of two tensors that were compared; None where they have other
    shapes, which is what the comparison found."""
    arrays = _array("left", left), _array("right", right)
    for name, array in zip(("left", "right"), arrays):
        _check(name, array, comparison[name])
    if arrays[0].shape != arrays[1].shape:
        if None not in (comparison["left"]["shape"], comparison["right"]["shape"]):
            return None
        raise _other(
            "right", str(list(arrays[1].shape)), str(list(arrays[0].shape)), "another shape"
        )
    columns = arrays[0].shape[-1] if arrays[0].ndim else 1
    flat = [array.reshape(-1, columns) if columns else array.reshape(0, 0) for array in arrays]
    different = None
    if flat[0].dtype == flat[1].dtype:
        size = flat[0].dtype.itemsize
        bits = [np.ascontiguousarray(a).view(np.uint8).reshape(*a.shape, size) for a in flat]
        different = (bits[0] != bits[1]).any(axis=-1)
    wide = [np.asarray(array).astype(np.float64) for array in flat]
    finite = np.isfinite(wide[0]) & np.isfinite(wide[1])
    errors = np.full(finite.shape, np.nan)
    with np.errstate(over="ignore"):  # such errors are unknown
        np.subtract(wide[0], wide[1], out=errors, where=finite)
    return {
        "rows": _bins(errors, different),
        "columns": _bins(errors.T, None if different is None else different.T),
    }


def _places(shape: Tuple[int, ...], cu_seqlens: Any) -> np.ndarray:
    """The position of each token in its sequence."""
    count = int(np.prod(shape, dtype=np.int64))
    if cu_seqlens is None:
        length = shape[-1] if shape else 1
        return np.arange(count) % max(length, 1)
    starts = _array("cu_seqlens", cu_seqlens).reshape(-1).astype(np.int64)
    if not len(starts) or starts[0] != 0 or starts[-1] != count or (np.diff(starts) < 0).any():
        raise _other("cu_seqlens", str(starts.tolist()[:8]), f"0 to {count}, not falling", "wrong")
    return np.arange(count) - np.repeat(starts[:-1], np.diff(starts))


def positions(
    policy: Dict[str, Any], rollout: Any, trainer: Any, mask: Any = None, cu_seqlens: Any = None
) -> List[Dict[str, Any]]:
    """|d log-probability| by position, over active tokens that are finite on both sides."""
    pair = [_array("rollout", rollout), _array("trainer", trainer)]
    if pair[0].shape != pair[1].shape:
        shapes = [str(list(array.shape)) for array in pair]
        raise _other("trainer", shapes[1], shapes[0], "another shape")
    place = _places(pair[0].shape, cu_seqlens)
    active = np.ones(place.shape, bool)
    if mask is not None:
        active = _array("mask", mask).reshape(-1) != 0
        if active.shape != place.shape:
            raise _other("mask", str(active.size), f"{place.size} tokens", "another shape")
    if policy["tokens"] is not None and int(active.sum()) != policy["tokens"]:
        raise _other("rollout", str(int(active.sum())), str(policy["tokens"]), "active tokens")
    wide = [array.reshape(-1).astype(np.float64) for array in pair]
    active &= np.isfinite(wide[0]) & np.isfinite(wide[1])
    size = np.abs(wide[1][active] - wide[0][active])
    largest = (policy["difference"] or {}).get("max_abs")
    if largest is not None and size.size and float(size.max()) != largest:
        raise _other("trainer", repr(float(size.max())), repr(largest), "another largest |d|")
    where = place[active]
    edges = _edges(int(place.max()) + 1 if place.size else 0)
    found = []
    for first, end in zip(edges[:-1], edges[1:]):
        part = size[(where >= first) & (where < end)]
        found.append(
            {
                "first": int(first),
                "last": int(end - 1),
                "tokens": int(part.size),
                "mean_abs": float(part.mean()) if part.size else None,
                "max_abs": float(part.max()) if part.size else None,
            }
        )
    return found
