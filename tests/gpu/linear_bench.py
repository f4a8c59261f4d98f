"""Times the BF16 linear of AdaLN (2688 -> 96768) beside cuBLAS and its floors, on one GPU.

As bench.py: results are checked first, then all runners are timed in turns, in blocks, with L2
overwritten before each call. The floor of the forward and of grad_x reads the weights, that of
grad_weight writes them. cuBLAS is torch's: linear, and the two products of its backward. The
accuracy of both is against FP64: the share of BF16 outputs that are FP64's, rounded once, and the
error over the sum of magnitudes. The SiLU of contract h3-v1 is compared with torch's for all inputs.

    python3 linear_bench.py --library librlk_gpu_bench.so --out linear_bench.json [--blocks 5]
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys

import torch

from bench import Library, Timer, current_stream, provenance, ratio_of_blocks, require

INPUTS, OUTPUTS = 2688, 96768
SLICE = 2048  # outputs whose accuracy is measured
ROWS = (1, 8, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
BACKWARD_ROWS = (1, 2, 8, 16, 32, 64, 128, 256, 2048)
# Outputs, inputs and rows of the other shapes.
OTHER_SHAPES = ((8192, 8192, 1024), (8192, 8192, 4096), (12288, 2048, 1024), (12288, 2048, 4096))


class LinearCall(ctypes.Structure):
    """LinearBenchCall of bench/linear.cu."""

    _fields_ = [*((name, ctypes.c_int64) for name in ("rows", "outputs", "inputs")),
                *((name, ctypes.c_void_p) for name in (
                    "temb", "x", "weight", "bias", "grad", "y", "grad_x", "grad_weight",
                    "grad_bias", "plain", "packed", "partial")), ("grad_f32", ctypes.c_int64)]


class Shape:
    """Tensors of one number of rows; the weights are shared."""

    def __init__(self, lib: Library, weights: dict, rows: int, backward: bool = False,
                 f32: bool = False):
        self.raw, self.tensors = lib.lib, dict(weights)
        outputs, inputs = weights["weight"].shape
        self.struct = LinearCall(rows=rows, outputs=outputs, inputs=inputs, grad_f32=f32)
        for name in ("packed_bytes", "partial_bytes"):
            getattr(self.raw, "rlk_bench_linear_" + name).restype = ctypes.c_int64
        pointer = ctypes.byref(self.struct)
        packed = self.raw.rlk_bench_linear_packed_bytes(pointer)
        partial = self.raw.rlk_bench_linear_partial_bytes(pointer) if backward else 1
        bf16 = {"dtype": torch.bfloat16, "device": "cuda"}
        self.tensors |= {
            "temb": torch.randn(rows, inputs, device="cuda"),
            "y": torch.full((rows, outputs), float("nan"), **bf16),
            "plain": torch.empty(rows, inputs, **bf16),
            "packed": torch.empty(packed, dtype=torch.uint8, device="cuda"),
            "partial": torch.empty(max(partial, 1), dtype=torch.uint8, device="cuda"),
        }
        if backward:
            grad = torch.randn(rows, outputs, device="cuda")
            self.tensors |= {
                "grad": grad if f32 else grad.bfloat16(),
                "grad_x": torch.full((rows, inputs), float("nan"), device="cuda"),
                "grad_bias": torch.full((outputs,), float("nan"), **bf16)}
        for name, tensor in self.tensors.items():
            setattr(self.struct, name, tensor.data_ptr())
        # The contract's SiLU, whose rounding torch's does not share.
        self.run("silu")()
        self.tensors["x"] = self.tensors["plain"].clone()
        self.struct.x = self.tensors["x"].data_ptr()

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.tensors[name]

    def run(self, name: str, *arguments):
        function = getattr(self.raw, "rlk_bench_linear_" + name)
        pointer, stream = ctypes.byref(self.struct), ctypes.c_void_p(current_stream())

        def call():
            if function(pointer, *arguments, stream) != 0:
                raise RuntimeError(name)

        return call


def floor(lib: Library, tensor: torch.Tensor, name: str):
    size = ctypes.c_int64(tensor.numel() * tensor.element_size())
    at, stream = ctypes.c_void_p(tensor.data_ptr()), ctypes.c_void_p(current_stream())
    out = torch.zeros(4, dtype=torch.int32, device="cuda")
    if name == "write":
        return lambda: lib.lib.rlk_bench_write(at, size, stream)
    target = ctypes.c_void_p(out.data_ptr())
    return lambda keep=out: lib.lib.rlk_bench_read(at, size, target, stream)


def silu_parity(lib: Library) -> dict:
    """The SiLU of contract h3-v1 against torch's, for all 2^32 inputs; NaN by class."""
    count, differ = 1 << 27, 0
    y = torch.empty(count, device="cuda")
    offsets = torch.arange(count, device="cuda")
    for first in range(0, 1 << 32, count):
        require(lib.lib.rlk_bench_silu_cuda(
            ctypes.c_uint32(first), ctypes.c_int64(count), ctypes.c_void_p(y.data_ptr()),
            ctypes.c_void_p(current_stream())) == 0, "silu_cuda")
        signed = first - (1 << 32) if first >= 1 << 31 else first
        x = (offsets + signed).to(torch.int32).view(torch.float32)
        expected = torch.nn.functional.silu(x)
        same = (y.view(torch.int32) == expected.view(torch.int32)) | (y.isnan() & expected.isnan())
        differ += count - int(same.sum().item())
    print(f"    silu of h3-v1 against torch: {differ} of 2^32 inputs differ", flush=True)
    require(differ == 0, "the SiLU of h3-v1 is not torch's")
    return {"inputs": 1 << 32, "differ": differ}


def accuracy(values: torch.Tensor, gold: torch.Tensor, magnitude: torch.Tensor) -> dict:
    """Of BF16 or FP32 values against FP64."""
    rounded = gold.to(torch.float32).to(values.dtype)
    error = ((values.double() - gold).abs() / magnitude).max().item()
    return {"equal_to_fp64_rounded": (values == rounded).double().mean().item(),
            "error_over_magnitudes": error}


def report(name: str, result: dict, floor_name: str, subjects: list, peer: str, extra: dict) -> dict:
    entry = {"row": name, "us": {k: v["us"] for k, v in result.items()},
             "blocks_us": {k: v["blocks_us"] for k, v in result.items()},
             "of_floor": {s: ratio_of_blocks(result, s, floor_name) for s in subjects},
             "of_peer": {s: ratio_of_blocks(result, s, peer) for s in subjects}, **extra}
    times = "  ".join(f"{k} {v['us']:.1f}" for k, v in result.items())
    ratios = "  ".join(f"{s} of {floor_name} {entry['of_floor'][s]:.3f} of {peer} "
                       f"{entry['of_peer'][s]:.3f}" for s in subjects)
    print(f"{name:34s} {times} us | {ratios} | {extra}", flush=True)
    return entry


def forward_row(lib: Library, timer: Timer, weights: dict, rows: int, label: str = "") -> dict:
    shape = Shape(lib, weights, rows)
    weight, bias = weights["weight"], weights["bias"]

    def peer():
        x = torch.nn.functional.silu(shape["temb"]).bfloat16()
        return torch.nn.functional.linear(x, weight, bias)

    runs, bytes_of = {}, {}
    for name, kind in (("mma", 0), ("wgmma", 1), ("k128", 2)):
        if name == "mma" and rows > 64:
            continue
        run = shape.run("forward", kind)
        shape["y"].fill_(float("nan"))
        run()
        bytes_of[name] = shape["y"][:, :SLICE].clone()
        runs[name] = run
    if "mma" in runs:
        require(torch.equal(bytes_of["mma"].view(torch.int16), bytes_of["wgmma"].view(torch.int16)),
                "mma.sync and wgmma give other bits")
    some = slice(None) if rows <= 2048 else slice(0, 2048)
    x = shape["x"][some].double()
    part = weight[:SLICE].double()
    gold = x @ part.T + bias[:SLICE].double()
    magnitude = x.abs() @ part.abs().T
    cublas = torch.nn.functional.linear(shape["x"][some], weight[:SLICE], bias[:SLICE])
    extra = {name: accuracy(bytes_of[name][some], gold, magnitude) for name in ("wgmma", "k128")}
    extra["cublas"] = accuracy(cublas, gold, magnitude)
    del x, gold, magnitude
    for name in ("wgmma", "k128"):
        require(extra[name]["equal_to_fp64_rounded"] > 0.999, f"forward {rows}: {extra}")
    runs["cublas"] = lambda: torch.nn.functional.linear(shape["x"], weight, bias)
    if label == "":
        runs["cublas+silu"] = peer
    runs["read"] = floor(lib, weight, "read")
    subjects = [name for name in ("mma", "wgmma", "k128") if name in runs]
    return report(f"forward{label} T={rows}", timer.measure(runs), "read", subjects, "cublas", extra)


def backward_rows(lib: Library, timer: Timer, weights: dict, rows: int) -> list:
    shape = Shape(lib, weights, rows, backward=True)
    weight, grad = weights["weight"], shape["grad"]
    shape.struct.temb = None
    run_input, run_weight = shape.run("backward_input"), shape.run("backward_weight")
    run_input()
    gold = grad.double() @ weight.double()
    magnitude = grad.double().abs() @ weight.double().abs()
    of_input = {"rlk": accuracy(shape["grad_x"], gold, magnitude),
                "cublas": accuracy((grad @ weight).float(), gold, magnitude)}
    require(of_input["rlk"]["error_over_magnitudes"] < 1e-5, f"grad_x {rows}: {of_input}")
    runs = {"rlk": run_input, "k128": shape.run("backward_k128", 1)}
    runs["k128"]()
    of_input["k128"] = accuracy(shape["grad_x"], gold, magnitude)
    require(of_input["k128"]["error_over_magnitudes"] < 1e-5, f"grad_x {rows}: {of_input}")
    runs |= {"cublas": lambda: grad @ weight, "read": floor(lib, weight, "read")}
    entries = [report(f"grad_x T={rows}", timer.measure(runs), "read", ["rlk", "k128"], "cublas",
                      of_input)]
    grad_weight = torch.full_like(weight, float("nan"))
    shape.struct.grad_weight = grad_weight.data_ptr()
    run_weight()
    part = grad[:, :SLICE].double().T @ shape["x"].double()
    size = grad[:, :SLICE].double().abs().T @ shape["x"].double().abs()
    of_weight = {"rlk": accuracy(grad_weight[:SLICE], part, size.clamp_min(1e-30))}
    require(of_weight["rlk"]["equal_to_fp64_rounded"] > 0.999, f"grad_weight {rows}: {of_weight}")
    runs = {"rlk": run_weight, "k128": shape.run("backward_k128", 2)}
    runs["k128"]()
    of_weight["k128"] = accuracy(grad_weight[:SLICE], part, size.clamp_min(1e-30))
    require(of_weight["k128"]["equal_to_fp64_rounded"] > 0.999, f"grad_weight {rows}: {of_weight}")
    runs |= {"cublas": lambda: grad.T @ shape["x"], "write": floor(lib, grad_weight, "write")}
    entries.append(report(f"grad_weight T={rows}", timer.measure(runs), "write", ["rlk", "k128"],
                          "cublas", of_weight))
    return entries


def both_gradients(lib: Library, timer: Timer, weights: dict, rows: int) -> dict:
    """grad_x, grad_weight and grad_bias under k128, for gradients of both dtypes."""
    shapes = {dtype: Shape(lib, weights, rows, backward=True, f32=dtype == "f32")
              for dtype in ("bf16", "f32")}
    grad_weight = torch.full_like(weights["weight"], float("nan"))
    runs = {}
    for dtype, shape in shapes.items():
        shape.struct.grad_weight = grad_weight.data_ptr()
        runs[dtype] = shape.run("backward_k128", 3)
    grad, x, weight = shapes["bf16"]["grad"], shapes["bf16"]["x"], weights["weight"]
    runs["cublas"] = lambda: (grad @ weight, grad.T @ x)
    runs["write"] = floor(lib, grad_weight, "write")
    return report(f"both gradients T={rows}", timer.measure(runs), "write", ["bf16", "f32"],
                  "cublas", {})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.05, help="of one block of one runner")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("linear_bench.py needs a GPU that torch can use")
    torch.manual_seed(0)
    lib = Library(options.library)
    timer = Timer(options.blocks, options.seconds)
    results = []
    with torch.cuda.stream(torch.cuda.Stream()):
        weights = {"weight": (torch.randn(OUTPUTS, INPUTS, device="cuda") * 0.02).bfloat16(),
                   "bias": torch.randn(OUTPUTS, device="cuda").bfloat16()}
        parity = silu_parity(lib)
        for rows in ROWS:
            results.append(forward_row(lib, timer, weights, rows))
            torch.cuda.empty_cache()
        for rows in BACKWARD_ROWS:
            results += backward_rows(lib, timer, weights, rows)
            torch.cuda.empty_cache()
        for rows in (8, 64, 256, 2048):
            results.append(both_gradients(lib, timer, weights, rows))
            torch.cuda.empty_cache()
        for outputs, inputs, rows in OTHER_SHAPES:
            other = {"weight": (torch.randn(outputs, inputs, device="cuda") * 0.02).bfloat16(),
                     "bias": torch.randn(outputs, device="cuda").bfloat16()}
            results.append(forward_row(lib, timer, other, rows, f" {outputs}x{inputs}"))
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump({"provenance": provenance(), "silu_cuda": parity, "rows": results}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
