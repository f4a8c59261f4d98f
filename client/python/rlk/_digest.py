"""The tensor digest ``xxh3-tree4k-v1``, computed locally."""

from __future__ import annotations

import struct
from typing import Any, List, Sequence, Tuple

import xxhash

from rlk import _tensors

DIGEST_ID = "xxh3-tree4k-v1"
_LEAF_BYTES = 4096
_FANOUT = 256
_NODE_BYTES = 16


def _hash(data: Any) -> bytes:
    return xxhash.xxh3_128(data).digest()  # canonical, big-endian


def _last_node(data: memoryview) -> bytes:
    nodes = b"".join(
        _hash(data[start : start + _LEAF_BYTES]) for start in range(0, len(data), _LEAF_BYTES)
    )
    span = _FANOUT * _NODE_BYTES
    while len(nodes) > _NODE_BYTES:
        nodes = b"".join(_hash(nodes[i : i + span]) for i in range(0, len(nodes), span))
    return nodes


def _digest_bytes(dtype: int, shape: Sequence[int], data: memoryview) -> str:
    preamble = DIGEST_ID.encode("ascii").ljust(16, b"\0") + struct.pack(
        f"<II{len(shape)}Q", dtype, len(shape), *shape
    )
    return format_digest(_hash(preamble + _last_node(data)))


def format_digest(root: bytes) -> str:
    """The text form of the 16 canonical bytes of a root."""
    return f"{DIGEST_ID}:{root.hex()}"


def digest(tensor: Any) -> str:
    """The digest that the server reports for this tensor: ``"xxh3-tree4k-v1:"`` and 32 hex digits.

    It covers dtype, shape and the logical elements in C order; strides and memory layout never
    matter, NaN payloads and the sign of zero do.

    Args:
        tensor: a numpy array or scalar, or a torch tensor, of a dtype that rlk has.

    Raises:
        InvalidArgumentError: the value is no tensor, or its dtype is none of rlk's.
    """
    source = _tensors.as_source("tensor", tensor)
    return _digest_bytes(source.dtype, source.shape, source.contiguous_bytes())


def row_digests(tensor: Any) -> Tuple[str, ...]:
    """The digest of each row along the last dimension, in logical row order.

    Each row counts as a tensor of shape ``[last dimension]``; a scalar is one row of shape ``[1]``.
    Arguments and errors are those of :func:`digest`.
    """
    source = _tensors.as_source("tensor", tensor)
    data = source.contiguous_bytes()
    width = source.shape[-1] if source.shape else 1
    rows = 1
    for size in source.shape[:-1]:
        rows *= size
    row_bytes = width * source.array.itemsize
    result: List[str] = []
    for row in range(rows):
        begin = row * row_bytes
        result.append(_digest_bytes(source.dtype, (width,), data[begin : begin + row_bytes]))
    return tuple(result)
