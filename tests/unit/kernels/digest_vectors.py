#!/usr/bin/env python3
"""Writes tests/golden/digests_xxh3_tree4k.json to stdout; needs the package xxhash.

A straight-line implementation of the digest xxh3-tree4k-v1 from its definition in
kernels/digest/README.md. It shares no code with the service.
"""
import json
import struct

import xxhash

DTYPES = {"F32": (1, 4), "F16": (2, 2), "BF16": (3, 2), "F64": (4, 8), "I32": (5, 4), "I64": (6, 8),
          "U8": (7, 1), "BOOL": (8, 1)}


def test_bytes(seed, size):
    """Byte i is the top byte of the (i + 1)th state of a 64-bit linear congruential generator."""
    state, out = seed, bytearray()
    for _ in range(size):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        out.append(state >> 56)
    return bytes(out)


def digest(dtype, shape, data):
    preamble = b"xxh3-tree4k-v1".ljust(16, b"\0")
    preamble += struct.pack("<II", DTYPES[dtype][0], len(shape))
    preamble += b"".join(struct.pack("<Q", size) for size in shape)
    nodes = [xxhash.xxh3_128_digest(data[i:i + 4096]) for i in range(0, len(data), 4096)]
    while len(nodes) > 1:
        nodes = [xxhash.xxh3_128_digest(b"".join(nodes[i:i + 256])) for i in range(0, len(nodes), 256)]
    return "xxh3-tree4k-v1:" + xxhash.xxh3_128_hexdigest(preamble + b"".join(nodes))


CASES = [("U8", [size]) for size in
         (0, 1, 7, 4095, 4096, 4097, 8192, 4096 * 256, 4096 * 256 + 1, 4096 * 256 * 2 + 7)]
CASES += [("BF16", []), ("F32", []), ("F64", []), ("F32", [0]), ("F32", [3, 0, 5]), ("BF16", [2, 3, 257]),
          ("F16", [2, 3, 257]), ("BF16", [1542]), ("F32", [1, 1024]), ("F32", [1024]), ("F32", [1024, 1]),
          ("I64", [33, 17]), ("I32", [5, 5, 5]), ("F64", [3, 700]), ("BOOL", [10]),
          ("F32", [1, 2, 1, 3, 1, 2, 2, 5]), ("BF16", [64, 4096])]


def main():
    vectors = []
    for seed, (dtype, shape) in enumerate(CASES, start=1):
        count = 1
        for size in shape:
            count *= size
        width = DTYPES[dtype][1]
        data = test_bytes(seed, count * width)
        row = (shape[-1] if shape else 1) * width
        rows = 1
        for size in shape[:-1]:
            rows *= size
        vector = {"dtype": dtype, "shape": shape, "seed": seed, "digest": digest(dtype, shape, data)}
        if rows <= 8:
            last = [shape[-1] if shape else 1]
            vector["rows"] = [digest(dtype, last, data[i * row:(i + 1) * row]) for i in range(rows)]
        vectors.append(vector)
    print(json.dumps({"id": "xxh3-tree4k-v1", "generator": "tests/unit/kernels/digest_vectors.py",
                      "vectors": vectors}, indent=1))


if __name__ == "__main__":
    main()
