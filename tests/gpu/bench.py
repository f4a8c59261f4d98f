"""Times the CUDA kernels beside their peers, on one GPU in one process.

Every row is checked first: rlk's bits against the cpu backend's digest, the peers against rlk by a
tolerance. Then rlk, the peers and a copy with the same bytes are timed in turns, in blocks, with
CUDA events; each call has its own inputs out of L2. Reported are medians over all calls and the
median over the blocks of each ratio.

    python3 bench.py --library librlk_gpu_bench.so --out bench.json [--blocks 5]
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import time

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

DTYPES = {torch.float32: 1, torch.float16: 2, torch.bfloat16: 3}  # rlk.v1.DataType
NAMES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
CAP = 30.0
COLUMNS = 262144


class Library:
    """The C interface of librlk_gpu_bench.so. Calls raise with the library's words."""

    def __init__(self, path: str):
        self.lib = ctypes.CDLL(os.path.abspath(path))
        p, i, n, f = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_float
        signatures = {
            "forward": [i, i, p, p, n, f, p],
            "backward": [i, i, p, p, p, n, f, p],
            "copy": [i, i, i, p, p, n, p],
            "empty": [p],
            "digest": [p, n, p, n, ctypes.POINTER(p), p],
            "digest_text": [i, n, p, ctypes.c_char_p, i],
            "digest_cpu": [i, n, p, ctypes.c_char_p, i],
        }
        self.raw = {}
        for name, arguments in signatures.items():
            function = getattr(self.lib, "rlk_bench_" + name)
            function.argtypes = arguments
            function.restype = i
            self.raw[name] = function
        self.lib.rlk_bench_error.restype = ctypes.c_char_p
        self.lib.rlk_bench_digest_scratch.argtypes = [n]
        self.lib.rlk_bench_digest_scratch.restype = n

    def call(self, name: str, *arguments) -> None:
        if self.raw[name](*arguments) != 0:
            raise RuntimeError(f"{name}: {self.lib.rlk_bench_error().decode()}")

    def prepared(self, name: str, *arguments):
        """A call without checks and conversions, for the timed loop."""
        function = self.raw[name]
        converted = [t(a) if a is not None else None for t, a in zip(function.argtypes, arguments)]

        def run():
            if function(*converted) != 0:
                raise RuntimeError(f"{name}: {self.lib.rlk_bench_error().decode()}")

        return run

    def device_digest(self, tensor: torch.Tensor, stream: int) -> str:
        size = tensor.numel() * tensor.element_size()
        scratch_bytes = self.lib.rlk_bench_digest_scratch(size)
        scratch = torch.empty(scratch_bytes, dtype=torch.uint8, device="cuda")
        node = ctypes.c_void_p()
        self.call("digest", tensor.data_ptr(), size, scratch.data_ptr(), scratch_bytes,
                  ctypes.byref(node), stream)
        torch.cuda.synchronize()
        offset = node.value - scratch.data_ptr()
        last = bytes(scratch[offset : offset + 16].cpu().tolist())
        text = ctypes.create_string_buffer(64)
        self.call("digest_text", DTYPES[tensor.dtype], tensor.numel(), last, text, 64)
        return text.value.decode()

    def cpu_digest(self, tensor: torch.Tensor) -> str:
        text = ctypes.create_string_buffer(64)
        self.call("digest_cpu", DTYPES[tensor.dtype], tensor.numel(), tensor.data_ptr(), text, 64)
        return text.value.decode()


# Peers.


@triton.jit
def triton_forward_kernel(x, y, cap, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x + offsets, mask=mask).to(tl.float32)
    tl.store(y + offsets, cap * libdevice.tanh(tl.div_rn(value, cap)), mask=mask)


@triton.jit
def triton_backward_kernel(x, g, gx, cap, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x + offsets, mask=mask).to(tl.float32)
    t = libdevice.tanh(tl.div_rn(value, cap))
    grad = tl.load(g + offsets, mask=mask)
    tl.store(gx + offsets, grad * (1 - t * t), mask=mask)


def triton_forward(x, y):
    n = x.numel()
    triton_forward_kernel[(triton.cdiv(n, 1024),)](x, y, CAP, n, 1024)


def triton_backward(x, g, gx):
    n = x.numel()
    triton_backward_kernel[(triton.cdiv(n, 1024),)](x, g, gx, CAP, n, 1024)


def eager_forward(x):
    return CAP * torch.tanh(x.float() / CAP)


def eager_backward(x, g):
    t = torch.tanh(x.float() / CAP)
    return (g * (1 - t * t)).to(x.dtype)


compiled_forward = torch.compile(eager_forward, dynamic=False)
compiled_backward = torch.compile(eager_backward, dynamic=False)


class Timer:
    """Alternating blocks of calls, each between two events, L2 overwritten before each."""

    def __init__(self, blocks: int, seconds: float):
        self.blocks, self.seconds = blocks, seconds
        self.flush_buffer = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")

    def _time(self, run, calls: int) -> list[float]:
        events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
                  for _ in range(calls)]
        for begin, end in events:
            self.flush_buffer.zero_()
            begin.record()
            run()
            end.record()
        torch.cuda.synchronize()
        return [begin.elapsed_time(end) * 1e3 for begin, end in events]

    def measure(self, runs: dict) -> dict:
        calls = {}
        for name, run in runs.items():
            for _ in range(3):
                run()
            torch.cuda.synchronize()
            once = statistics.median(self._time(run, 3))
            flush_us = 70
            calls[name] = max(5, min(100, int(self.seconds * 1e6 / (once + flush_us))))
        samples = {name: [] for name in runs}
        medians = {name: [] for name in runs}
        order = list(runs)
        for block in range(self.blocks):
            for name in order[block % len(order):] + order[: block % len(order)]:
                times = self._time(runs[name], calls[name])
                samples[name] += times
                medians[name].append(statistics.median(times))
        return {
            name: {"us": statistics.median(samples[name]), "blocks_us": medians[name]}
            for name in runs
        }


def ratio_of_blocks(result: dict, name: str, other: str) -> float:
    """How much faster `name` is than `other`: above 1 is faster."""
    pairs = zip(result[other]["blocks_us"], result[name]["blocks_us"])
    return statistics.median(o / n for o, n in pairs)


def require(condition: bool, what: str) -> None:
    if not condition:
        raise SystemExit(f"wrong result: {what}")


def close(actual: torch.Tensor, expected: torch.Tensor) -> bool:
    difference = (actual.float() - expected.float()).norm() / expected.float().norm()
    return bool(difference < 5e-3)


def current_stream() -> int:
    return torch.cuda.current_stream().cuda_stream


def forward_row(lib: Library, timer: Timer, rows: int, dtype) -> dict:
    n = rows * COLUMNS
    x = (torch.randn(n, device="cuda") * 30).to(dtype)
    y = torch.full((n,), float("nan"), device="cuda")
    y2 = torch.full_like(y, float("nan"))
    stream = current_stream()
    shipped = lib.prepared("forward", DTYPES[dtype], 1, x.data_ptr(), y.data_ptr(), n, CAP, stream)
    shipped()
    triton_forward(x, y2)
    require(not bool(torch.isnan(y).any()), "elements were not written")
    require(close(y, eager_forward(x)), f"forward {rows} {dtype} against eager")
    require(close(y2, y) and close(compiled_forward(x), y), "a peer computes something else")
    reference = y.clone()
    words = {torch.bfloat16: (1, 2), torch.float16: (1, 2), torch.float32: (1, 1)}[dtype]
    groups = n * x.element_size() // 16
    runs = {
        "rlk": shipped,
        "triton": lambda: triton_forward(x, y2),
        "compile": lambda: compiled_forward(x),
        "copy": lib.prepared("copy", *words, 0, x.data_ptr(), y2.data_ptr(), groups, stream),
        "copy-stream": lib.prepared("copy", *words, 1, x.data_ptr(), y2.data_ptr(), groups, stream),
    }
    if rows <= 64:
        runs["eager"] = lambda: eager_forward(x)
    if rows == 1:
        runs["empty"] = lib.prepared("empty", stream)
    result = timer.measure(runs)
    return row(f"forward {rows}x{COLUMNS} {NAMES[dtype]}->f32", result,
               n * (x.element_size() + 4))


def backward_row(lib: Library, timer: Timer, rows: int, dtype) -> dict:
    n = rows * COLUMNS
    x = (torch.randn(n, device="cuda") * 30).to(dtype)
    g = torch.randn(n, device="cuda")
    gx = torch.full_like(x, float("nan"))
    gx2 = torch.full_like(x, float("nan"))
    stream = current_stream()
    shipped = lib.prepared("backward", DTYPES[dtype], 1, x.data_ptr(), g.data_ptr(),
                           gx.data_ptr(), n, CAP, stream)
    shipped()
    triton_backward(x, g, gx2)
    require(not bool(torch.isnan(gx).any()), "elements were not written")
    require(close(gx, eager_backward(x, g)), f"backward {rows} {dtype} against eager")
    require(close(gx2, gx) and close(compiled_backward(x, g), gx), "a peer computes something else")
    reference = gx.clone()
    # The copy reads the three words of x and g from one buffer of their size.
    source = torch.empty(n * (x.element_size() + 4), dtype=torch.uint8, device="cuda")
    source.random_(0, 255)
    groups = n * x.element_size() // 16
    runs = {
        "rlk": shipped,
        "triton": lambda: triton_backward(x, g, gx2),
        "compile": lambda: compiled_backward(x, g),
        "copy": lib.prepared("copy", 3, 1, 0, source.data_ptr(), gx2.data_ptr(), groups, stream),
        "copy-stream": lib.prepared("copy", 3, 1, 1, source.data_ptr(), gx2.data_ptr(), groups,
                                    stream),
    }
    if rows <= 64:
        runs["eager"] = lambda: eager_backward(x, g)
    result = timer.measure(runs)
    return row(f"backward {rows}x{COLUMNS} {NAMES[dtype]}", result, n * (2 * x.element_size() + 4))


def digest_row(lib: Library, timer: Timer, size: int) -> dict:
    data = torch.randn(size // 4, device="cuda")
    require(lib.device_digest(data, current_stream()) == lib.cpu_digest(data.cpu()),
            "the digest of the device is not the cpu's")
    scratch_bytes = lib.lib.rlk_bench_digest_scratch(size)
    scratch = torch.empty(scratch_bytes, dtype=torch.uint8, device="cuda")
    runs = {
        "rlk": lib.prepared("digest", data.data_ptr(), size, scratch.data_ptr(), scratch_bytes,
                            None, current_stream()),
        "read": lambda: data.sum(),
    }
    result = timer.measure(runs)
    return row(f"digest {size >> 20} MiB", result, size)


def row(name: str, result: dict, size: int) -> dict:
    peers = [k for k in result if k in ("triton", "compile", "eager")]
    best = min(peers, key=lambda k: result[k]["us"]) if peers else None
    # The faster of the two copies is the floor.
    floors = [k for k in result if k in ("copy", "copy-stream", "read")]
    floor = min(floors, key=lambda k: result[k]["us"])
    entry = {
        "row": name,
        "bytes": size,
        "us": {k: v["us"] for k, v in result.items()},
        "blocks_us": {k: v["blocks_us"] for k, v in result.items()},
        "gb_per_s": {k: size / v["us"] / 1e3 for k, v in result.items() if k != "empty"},
        "floor": floor,
        "of_floor": ratio_of_blocks(result, "rlk", floor),
    }
    if best:
        entry["best_peer"] = best
        entry["of_best_peer"] = ratio_of_blocks(result, "rlk", best)
    times = "  ".join(f"{k} {v['us']:.1f}" for k, v in result.items())
    print(f"{name:34s} {times} us | {size / result['rlk']['us'] / 1e3:.0f} GB/s"
          f" | of {floor} {entry['of_floor']:.3f}"
          + (f" | of {best} {entry['of_best_peer']:.3f}" if best else ""), flush=True)
    return entry


def provenance() -> dict:
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version,uuid,clocks.sm,clocks.mem", "--format=csv,noheader"],
        capture_output=True, text=True, check=False).stdout.strip()
    properties = torch.cuda.get_device_properties(0)
    return {
        "gpu": properties.name,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "nvidia_smi": driver,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "triton": triton.__version__,
        "commit": os.environ.get("RLK_COMMIT", "unknown"),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.05, help="of one block of one runner")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("bench.py needs a GPU that torch can use")
    if options.blocks < 5:
        raise SystemExit("ratios need five blocks or more")
    torch.manual_seed(0)
    lib = Library(options.library)
    timer = Timer(options.blocks, options.seconds)
    half, brain, single = torch.float16, torch.bfloat16, torch.float32
    plan = [
        ("forward", 1, brain), ("forward", 64, brain), ("forward", 512, brain),
        ("forward", 64, half), ("forward", 512, single),
        ("backward", 64, brain), ("backward", 512, brain), ("digest", 1 << 30, None),
    ]
    results = []
    with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
        for kind, size, dtype in plan:
            if options.only not in kind:
                continue
            if kind == "forward":
                results.append(forward_row(lib, timer, size, dtype))
            elif kind == "backward":
                results.append(backward_row(lib, timer, size, dtype))
            else:
                results.append(digest_row(lib, timer, size))
            torch.cuda.empty_cache()
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump({"provenance": provenance(), "rows": results}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
