"""Times the CUDA kernels of the RMSNorm family beside torch.compile, F.rms_norm and a copy.

As bench.py: results are checked first, then all runners are timed in turns, in blocks, with L2
overwritten before each call. The copy reads and writes the bytes that the operator must. BF16.

    python3 norm_bench.py --library librlk_gpu_bench.so --out norm_bench.json [--blocks 5]
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys

import torch
import torch._dynamo
import torch._functorch.config

from bench import DTYPES, Library, Timer, current_stream, provenance, ratio_of_blocks, require

EPS = 1e-6
SHAPES = [(8192, 2048, False), (8192, 5120, False), (131072, 128, True), (1, 2048, False),
          (512, 128, True)]


class NormCall(ctypes.Structure):
    """NormBenchCall of bench/norm.cc."""

    _fields_ = [
        ("method", ctypes.c_char_p), ("contract", ctypes.c_char_p),
        *((name, ctypes.c_int64) for name in ("x_dtype", "weight_dtype", "rows", "length")),
        ("weight_offset", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in (
            "x", "weight", "gate", "grad_y", "rstd", "y", "grad_weight", "grad_gate", "workspace")),
        ("workspace_bytes", ctypes.c_int64),
    ]


def prepared(lib: Library, method: str, contract: str, tensors: dict):
    """A launch, ready for the timed loop; the tensors stay alive with it."""
    function, workspace = lib.lib.rlk_bench_norm, lib.lib.rlk_bench_norm_workspace
    function.argtypes = [ctypes.POINTER(NormCall), ctypes.c_void_p]
    x = tensors["x"]
    call = NormCall(method=method.encode(), contract=contract.encode(), x_dtype=DTYPES[x.dtype],
                    weight_dtype=DTYPES[tensors["weight"].dtype], rows=x.shape[0],
                    length=x.shape[1])
    for name, tensor in tensors.items():
        setattr(call, name, tensor.data_ptr())
    require(workspace(ctypes.byref(call)) == 0, f"{method} has no cuda variant")
    scratch = torch.empty(max(call.workspace_bytes, 1), dtype=torch.uint8, device="cuda")
    call.workspace = scratch.data_ptr()
    stream = current_stream()
    pointer = ctypes.byref(call)

    def run(keep=(tensors, scratch, call)):
        if function(pointer, stream) != 0:
            raise RuntimeError(f"{method} {contract} failed")

    return run


def eager(x, weight, gate=None):
    wide = x.float()
    y = wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + EPS) * weight.float()
    if gate is not None:
        z = gate.float()
        y = y * z * torch.sigmoid(z)
    return y.to(x.dtype)


def library(x, weight, gate=None):
    y = torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, EPS)
    return y if gate is None else y * torch.nn.functional.silu(gate)


compiled = torch.compile(eager, dynamic=False)
# A backward that is timed many times keeps its buffers.
torch._functorch.config.donated_buffer = False


def close(actual, expected, limit: float) -> bool:
    difference = (actual.float() - expected.float()).norm() / expected.float().norm()
    return bool(difference < limit)


def make(rows: int, length: int, gated: bool) -> dict:
    tensors = {"x": torch.randn(rows, length, device="cuda").bfloat16(),
               "weight": torch.randn(length, device="cuda").bfloat16()}
    if gated:
        tensors["gate"] = torch.randn(rows, length, device="cuda").bfloat16()
    return tensors


def copy_of(lib: Library, words: tuple, n: int):
    """A copy that reads words[0] and writes words[1] times n BF16 elements."""
    source = torch.randint(0, 255, (2 * n * words[0],), dtype=torch.uint8, device="cuda")
    target = torch.empty(2 * n * words[1], dtype=torch.uint8, device="cuda")
    run = lib.prepared("copy", *words, 0, source.data_ptr(), target.data_ptr(), n * 2 // 16,
                       current_stream())
    return lambda keep=(source, target): run()


def report(name: str, result: dict, size: int, subjects: list) -> dict:
    peers = [k for k in result if k in ("compile", "f.rms_norm")]
    best = min(peers, key=lambda k: result[k]["us"])
    entry = {"row": name, "bytes": size, "best_peer": best,
             "us": {k: v["us"] for k, v in result.items()},
             "blocks_us": {k: v["blocks_us"] for k, v in result.items()},
             "of_floor": {s: ratio_of_blocks(result, s, "copy") for s in subjects},
             "of_best_peer": {s: ratio_of_blocks(result, s, best) for s in subjects}}
    times = "  ".join(f"{k} {v['us']:.1f}" for k, v in result.items())
    ratios = "  ".join(f"{s} of copy {entry['of_floor'][s]:.3f} of {best} "
                       f"{entry['of_best_peer'][s]:.3f}" for s in subjects)
    print(f"{name:38s} {times} us | {ratios}", flush=True)
    return entry


def forward_row(lib: Library, timer: Timer, rows: int, length: int, gated: bool) -> dict:
    op = "rms_norm_gated" if gated else "rms_norm"
    inputs = make(rows, length, gated)
    y = torch.full_like(inputs["x"], float("nan"))
    run = prepared(lib, op + ".forward", op + "/leftfold-v1", {**inputs, "y": y})
    run()
    with torch.no_grad():
        require(close(y, eager(**inputs), 5e-3), f"{op} {rows}x{length} against eager")
        require(close(compiled(**inputs), y, 1e-2) and close(library(**inputs), y, 2e-2),
                "a peer computes something else")
    n = rows * length
    words = (2, 1) if gated else (1, 1)

    def without_gradient(function):
        def call():
            with torch.no_grad():
                function(**inputs)
        return call

    result = timer.measure({"rlk": run, "compile": without_gradient(compiled),
                            "f.rms_norm": without_gradient(library),
                            "copy": copy_of(lib, words, n)})
    return report(f"{op} forward {rows}x{length}", result, 2 * n * sum(words), ["rlk"])


def backward_row(lib: Library, timer: Timer, rows: int, length: int, gated: bool) -> dict:
    op = "rms_norm_gated" if gated else "rms_norm"
    inputs = make(rows, length, gated)
    grad_y = torch.randn(rows, length, device="cuda").bfloat16()
    leaves = {name: t.clone().requires_grad_() for name, t in inputs.items()}
    graphs = {"compile": compiled(**leaves), "f.rms_norm": library(**leaves)}
    expected = torch.autograd.grad(eager(**leaves), list(leaves.values()), grad_y)

    def peer(y):
        return lambda: torch.autograd.grad(y, list(leaves.values()), grad_y, retain_graph=True)

    runs = {}
    for contract in ("leftfold-v1", "chunk128-v1"):
        outputs = {"y": torch.full_like(grad_y, float("nan")),
                   "grad_weight": torch.full_like(inputs["weight"], float("nan"))}
        if gated:
            outputs["grad_gate"] = torch.full_like(grad_y, float("nan"))
        run = prepared(lib, op + ".backward", f"{op}/{contract}",
                       {**inputs, "grad_y": grad_y, **outputs})
        run()
        for got, want, limit in zip(outputs.values(), expected, (1e-2, 3e-2, 1e-2)):
            require(close(got, want, limit), f"{op} backward {rows}x{length} {contract}")
        runs[contract] = run
    n = rows * length
    words = (3, 2) if gated else (2, 1)
    result = timer.measure({**runs, **{name: peer(y) for name, y in graphs.items()},
                            "copy": copy_of(lib, words, n)})
    return report(f"{op} backward {rows}x{length}", result, 2 * n * sum(words), list(runs))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.05, help="of one block of one runner")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("norm_bench.py needs a GPU that torch can use")
    if options.blocks < 5:
        raise SystemExit("ratios need five blocks or more")
    torch.manual_seed(0)
    lib = Library(options.library)
    timer = Timer(options.blocks, options.seconds)
    results = []
    with torch.cuda.stream(torch.cuda.Stream()):
        for shape in SHAPES:
            # Every shape is compiled for itself, and dynamo gives up after eight.
            torch._dynamo.reset()
            results.append(forward_row(lib, timer, *shape))
            results.append(backward_row(lib, timer, *shape))
            torch.cuda.empty_cache()
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump({"provenance": provenance(), "rows": results}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
