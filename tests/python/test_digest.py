"""The local digest: structure by structure, and against the vectors that all clients share."""

import json
import struct

import ml_dtypes
import numpy as np
import pytest
import xxhash
from conftest import ROOT

import rlk

VECTORS = ROOT / "tests" / "golden" / "digests_xxh3_tree4k.json"

DTYPES = {
    "F32": "f4",
    "F16": "f2",
    "BF16": ml_dtypes.bfloat16,
    "F64": "f8",
    "I32": "i4",
    "I64": "i8",
    "U8": "u1",
    "BOOL": "?",
}


def h(data):
    return xxhash.xxh3_128(data).digest()


def root(dtype, shape, last):
    preamble = b"xxh3-tree4k-v1\0\0" + struct.pack("<II", dtype, len(shape))
    preamble += b"".join(struct.pack("<Q", size) for size in shape)
    return "xxh3-tree4k-v1:" + h(preamble + last).hex()


def test_empty_has_no_node():
    assert rlk.digest(np.zeros((0, 3), np.float32)) == root(1, (0, 3), b"")


def test_one_leaf():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert rlk.digest(x) == root(1, (2, 3), h(x.tobytes()))


@pytest.mark.parametrize("size", [4095, 4096, 4097, 8192, 4096 * 256, 4096 * 256 + 1])
def test_leaves_and_fanout(size):
    x = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    data = x.tobytes()
    level = [h(data[i : i + 4096]) for i in range(0, size, 4096)]
    while len(level) > 1:
        level = [h(b"".join(level[i : i + 256])) for i in range(0, len(level), 256)]
    assert rlk.digest(x) == root(7, (size,), level[0])


def test_dtype_and_shape_matter_and_layout_does_not():
    x = np.arange(12, dtype=np.int32).reshape(3, 4)
    distinct = {
        rlk.digest(v) for v in (x, x.view(np.float32), x.reshape(4, 3), x.reshape(12), x + 1)
    }
    assert len(distinct) == 5
    assert rlk.digest(np.asfortranarray(x)) == rlk.digest(x)
    assert rlk.digest(x.T) == rlk.digest(np.ascontiguousarray(x.T))
    assert rlk.digest(x[:, ::-1]) == rlk.digest(np.ascontiguousarray(x[:, ::-1]))
    assert rlk.digest(x.astype(">i4")) == rlk.digest(x)


def test_bits_matter():
    assert rlk.digest(np.float32([0.0])) != rlk.digest(np.float32([-0.0]))
    nans = np.array([0x7FC0, 0x7FC1], np.uint16).view(ml_dtypes.bfloat16)
    assert rlk.digest(nans[:1]) != rlk.digest(nans[1:])


def test_rows():
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert rlk.row_digests(x) == tuple(rlk.digest(row) for row in x.reshape(6, 4))
    assert rlk.row_digests(np.float32(3)) == (rlk.digest(np.float32([3])),)
    assert (
        rlk.row_digests(np.zeros((2, 0), np.float32)) == (rlk.digest(np.zeros(0, np.float32)),) * 2
    )


@pytest.mark.parametrize("value", [[1.0], "x", 3, None, np.zeros(2, np.complex64)])
def test_refuses_what_is_no_tensor(value):
    with pytest.raises(rlk.InvalidArgumentError) as caught:
        rlk.digest(value)
    assert caught.value.reason == "DTYPE_NOT_ALLOWED"


def congruential_bytes(seed, size):
    """Byte i is the top byte of the (i + 1)th state of a 64-bit linear congruential generator."""
    state, out = seed, bytearray()
    for _ in range(size):
        state = (state * 6364136223846793005 + 1442695040888963407) & ((1 << 64) - 1)
        out.append(state >> 56)
    return bytes(out)


def test_shared_vectors():
    if not VECTORS.exists():
        pytest.skip("tests/golden/digests_xxh3_tree4k.json is not there")
    vectors = json.loads(VECTORS.read_text())["vectors"]
    assert vectors
    for vector in vectors:
        dtype, shape = np.dtype(DTYPES[vector["dtype"]]), vector["shape"]
        data = congruential_bytes(vector["seed"], int(np.prod(shape, dtype=int)) * dtype.itemsize)
        x = np.frombuffer(data, dtype).reshape(shape)
        assert rlk.digest(x) == vector["digest"], vector
        if "rows" in vector:
            assert list(rlk.row_digests(x)) == vector["rows"], vector
