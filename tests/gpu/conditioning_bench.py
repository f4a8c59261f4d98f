"""Times det_linear, the timestep MLP and the sinusoid beside torch, and compares provider bits.

As bench.py: results are checked first, then all runners are timed in turns, in blocks, with L2
overwritten before each call. The peer is torch with cuBLAS in FP32, TF32 off; the floor reads the
weights once (torch's sum), or is an empty kernel. FP32.

Provider bits: h3-v1 of the sinusoid against the operations of diffusers' get_timestep_embedding
(and that function itself where diffusers is there), and silu_cuda against torch's SiLU for all 2^32
inputs.

    python3 conditioning_bench.py --library librlk_gpu_bench.so --out FILE.json [--blocks 5]
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import sys

import torch

from bench import DTYPES, Library, Timer, current_stream, provenance, ratio_of_blocks, require

HIDDEN, WIDTH, CHANNELS = 5376, 2688, 256
LINEAR = "det_linear/h3-det-linear-v1"
NONE, SILU, SILU_CUDA = 1, 2, 3  # rlk.v1.LinearActivation


class OpTensor(ctypes.Structure):
    """OpBenchTensor of bench/op.cc."""

    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_int64), ("rank", ctypes.c_int64),
                ("shape", ctypes.c_int64 * 4), ("data", ctypes.c_void_p)]


class OpAttribute(ctypes.Structure):
    """OpBenchAttribute of bench/op.cc."""

    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_double)]


class OpCall(ctypes.Structure):
    """OpBenchCall of bench/op.cc."""

    _fields_ = [("method", ctypes.c_char_p), ("contract", ctypes.c_char_p),
                ("inputs", ctypes.POINTER(OpTensor)), ("outputs", ctypes.POINTER(OpTensor)),
                ("attributes", ctypes.POINTER(OpAttribute)), ("input_count", ctypes.c_int64),
                ("output_count", ctypes.c_int64), ("attribute_count", ctypes.c_int64),
                ("workspace", ctypes.c_void_p), ("workspace_bytes", ctypes.c_int64)]


def tensors_of(tensors: dict):
    array = (OpTensor * len(tensors))()
    for entry, (name, tensor) in zip(array, tensors.items()):
        entry.name, entry.dtype = name.encode(), DTYPES[tensor.dtype]
        entry.rank = tensor.dim()
        for i, size in enumerate(tensor.shape):
            entry.shape[i] = size
        entry.data = tensor.data_ptr()
    return array


def prepared(lib: Library, method: str, contract: str, inputs: dict, outputs: dict, **attributes):
    """A launch, ready for the timed loop; the tensors stay alive with it."""
    function, workspace = lib.lib.rlk_bench_op, lib.lib.rlk_bench_op_workspace
    function.argtypes = [ctypes.POINTER(OpCall), ctypes.c_void_p]
    ins, outs = tensors_of(inputs), tensors_of(outputs)
    attrs = (OpAttribute * max(len(attributes), 1))()
    for entry, (name, value) in zip(attrs, attributes.items()):
        entry.name, entry.value = name.encode(), value
    call = OpCall(method=method.encode(), contract=contract.encode(), inputs=ins, outputs=outs,
                  attributes=attrs, input_count=len(ins), output_count=len(outs),
                  attribute_count=len(attributes))
    require(workspace(ctypes.byref(call)) == 0, f"{method} {contract} has no cuda variant")
    scratch = torch.empty(max(call.workspace_bytes, 256), dtype=torch.uint8, device="cuda")
    call.workspace = scratch.data_ptr()
    stream = current_stream()
    pointer = ctypes.byref(call)

    def run(keep=(inputs, outputs, scratch, ins, outs, attrs, call)):
        if function(pointer, stream) != 0:
            raise RuntimeError(f"{method} {contract} failed")

    return run


def near(actual: torch.Tensor, expected: torch.Tensor, limit: float = 1e-4) -> bool:
    difference = (actual.double() - expected.double()).norm() / expected.double().norm()
    return bool(difference < limit)


def report(name: str, result: dict, size: int, floor: str, peers: list) -> dict:
    best = min(peers, key=lambda k: result[k]["us"])
    entry = {"row": name, "bytes": size, "best_peer": best, "floor": floor,
             "us": {k: v["us"] for k, v in result.items()},
             "blocks_us": {k: v["blocks_us"] for k, v in result.items()},
             "of_floor": ratio_of_blocks(result, "rlk", floor),
             "of_best_peer": ratio_of_blocks(result, "rlk", best)}
    times = "  ".join(f"{k} {v['us']:.1f}" for k, v in result.items())
    print(f"{name:44s} {times} us | of {floor} {entry['of_floor']:.3f} of {best} "
          f"{entry['of_best_peer']:.3f}", flush=True)
    return entry


def normal(*shape: int, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(*shape, device="cuda") * scale


def empty_like_nan(*shape: int) -> torch.Tensor:
    return torch.full(shape, float("nan"), device="cuda")


def reading(lib: Library, tensor: torch.Tensor):
    """Reads the tensor, as fast as the GPU does that for so many bytes."""
    out = torch.zeros(4, dtype=torch.int32, device="cuda")
    arguments = (ctypes.c_void_p(tensor.data_ptr()),
                 ctypes.c_int64(tensor.numel() * tensor.element_size()),
                 ctypes.c_void_p(out.data_ptr()), ctypes.c_void_p(current_stream()))
    return lambda keep=(tensor, out): lib.lib.rlk_bench_read(*arguments)


def mlp_row(lib: Library, timer: Timer, rows: int) -> dict:
    x = normal(rows, CHANNELS)
    w1, b1 = normal(HIDDEN, CHANNELS, scale=CHANNELS**-0.5), normal(HIDDEN)
    w2, b2 = normal(WIDTH, HIDDEN, scale=HIDDEN**-0.5), normal(WIDTH)
    y = empty_like_nan(rows, WIDTH)
    run = prepared(lib, "timestep_mlp_fp32.forward", "timestep_mlp_fp32/portable-v1",
                   {"x": x, "w1": w1, "b1": b1, "w2": w2, "b2": b2}, {"y": y})

    def peer():
        with torch.no_grad():
            hidden = torch.nn.functional.silu(torch.nn.functional.linear(x, w1, b1))
            return torch.nn.functional.linear(hidden, w2, b2)

    run()
    require(near(y, peer()), f"timestep MLP forward, T = {rows}")
    weights = normal(w1.numel() + w2.numel())
    result = timer.measure({"rlk": run, "torch": peer,
                            "read": reading(lib, weights),
                            "empty": lib.prepared("empty", current_stream())})
    return report(f"timestep MLP forward T={rows}", result, weights.numel() * 4, "read", ["torch"])


def mlp_backward_row(lib: Library, timer: Timer, rows: int) -> dict:
    leaves = [normal(rows, CHANNELS), normal(HIDDEN, CHANNELS, scale=CHANNELS**-0.5),
              normal(HIDDEN), normal(WIDTH, HIDDEN, scale=HIDDEN**-0.5), normal(WIDTH)]
    x, w1, b1, w2, b2 = (leaf.requires_grad_() for leaf in leaves)
    grad_y = normal(rows, WIDTH)
    pre = torch.nn.functional.linear(x, w1, b1)
    y = torch.nn.functional.linear(torch.nn.functional.silu(pre), w2, b2)

    def peer():
        return torch.autograd.grad(y, leaves, grad_y, retain_graph=True)

    names = ("grad_x", "grad_w1", "grad_b1", "grad_w2", "grad_b2")
    outputs = {name: empty_like_nan(*leaf.shape) for name, leaf in zip(names, leaves)}
    data = {"x": x, "w1": w1, "b1": b1, "w2": w2, "grad_y": grad_y, "pre": pre.detach()}
    run = prepared(lib, "timestep_mlp_fp32.backward", "timestep_mlp_fp32/portable-v1",
                   {k: v.detach() for k, v in data.items()}, outputs)
    run()
    for got, want in zip(outputs.values(), peer()):
        require(near(got, want), f"timestep MLP backward, T = {rows}")
    # The weights are read and their gradients written.
    n = w1.numel() + w2.numel()
    source = torch.randint(0, 255, (4 * n,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copy = lib.prepared("copy", 1, 1, 0, source.data_ptr(), target.data_ptr(), n // 4,
                        current_stream())
    result = timer.measure({"rlk": run, "torch": peer,
                            "copy": lambda keep=(source, target): copy()})
    return report(f"timestep MLP backward T={rows}", result, 8 * n, "copy", ["torch"])


def linear_row(lib: Library, timer: Timer, rows: int, inputs: int, outputs: int) -> dict:
    x, w, b = normal(rows, inputs), normal(outputs, inputs, scale=inputs**-0.5), normal(outputs)
    y = empty_like_nan(rows, outputs)
    run = prepared(lib, "det_linear.forward", LINEAR, {"x": x, "weight": w, "bias": b}, {"y": y},
                   activation=NONE)

    def peer():
        with torch.no_grad():
            return torch.nn.functional.linear(x, w, b)

    run()
    require(near(y, peer()), f"det_linear forward {rows} x {inputs} x {outputs}")
    weights = normal(w.numel())
    result = timer.measure({"rlk": run, "torch": peer,
                            "read": reading(lib, weights)})
    return report(f"det_linear forward T={rows} K={inputs} N={outputs}", result, w.numel() * 4,
                  "read", ["torch"])


def torch_embedding(t: torch.Tensor, channels: int = CHANNELS, max_period: int = 10000):
    """Operation for operation what diffusers does with flip_sin_to_cos, shift 0 and scale 1."""
    half = channels // 2
    exponent = -math.log(max_period) * torch.arange(half, dtype=torch.float32, device=t.device)
    angles = t[:, None].float() * torch.exp(exponent / half)[None, :]
    return torch.cat([torch.cos(angles), torch.sin(angles)], dim=-1)


def sinusoid_row(lib: Library, timer: Timer, rows: int, contract: str) -> list:
    t = torch.rand(rows, device="cuda")
    embedding = empty_like_nan(rows, CHANNELS)
    run = prepared(lib, "timestep_sinusoid_h3.forward", contract, {"timestep": t},
                   {"embedding": embedding}, num_channels=CHANNELS, max_period=10000.0)
    run()
    require(near(embedding, torch_embedding(t), 1e-5), f"sinusoid forward {contract}")
    result = timer.measure({"rlk": run, "torch": lambda: torch_embedding(t),
                            "empty": lib.prepared("empty", current_stream())})
    entry = report(f"{contract} forward T={rows}", result, embedding.numel() * 4, "empty",
                   ["torch"])
    grad, grad_t = normal(rows, CHANNELS), empty_like_nan(rows)
    backward = prepared(lib, "timestep_sinusoid_h3.backward", contract,
                        {"grad_embedding": grad, "embedding": embedding},
                        {"grad_timestep": grad_t}, max_period=10000.0, timestep_dtype=1)
    backward()
    leaf = t.clone().requires_grad_()
    y = torch_embedding(leaf)

    def peer():
        return torch.autograd.grad(y, leaf, grad, retain_graph=True)

    require(near(grad_t, peer()[0]), f"sinusoid backward {contract}")
    result = timer.measure({"rlk": backward, "torch": peer,
                            "empty": lib.prepared("empty", current_stream())})
    return [entry, report(f"{contract} backward T={rows}", result, grad.numel() * 8, "empty",
                          ["torch"])]


def same_bits(a: torch.Tensor, b: torch.Tensor) -> int:
    """Elements that differ; two NaN are the same."""
    differs = a.view(torch.int32) != b.view(torch.int32)
    return int((differs & ~(a.isnan() & b.isnan())).sum())


def sinusoid_parity(lib: Library, step: int = 509) -> dict:
    """h3-v1 against torch for FP32 timesteps in [0, 1], every `step`-th pattern."""
    bits = torch.arange(0, 0x3F800001, step, dtype=torch.int32, device="cuda")
    differ = timesteps = 0
    for part in list(bits.split(1 << 16)) + [torch.tensor([0x3F800000], dtype=torch.int32,
                                                          device="cuda")]:
        t = part.view(torch.float32)
        embedding = empty_like_nan(t.numel(), CHANNELS)
        prepared(lib, "timestep_sinusoid_h3.forward", "timestep_sinusoid_h3/h3-v1",
                 {"timestep": t}, {"embedding": embedding}, num_channels=CHANNELS,
                 max_period=10000.0)()
        differ += same_bits(embedding, torch_embedding(t))
        timesteps += t.numel()
    result = {"timesteps": timesteps, "channels": CHANNELS, "differ": differ}
    try:
        from diffusers.models.embeddings import get_timestep_embedding
    except ImportError:
        result["diffusers"] = "not here: its operations were replayed with torch"
    else:
        t = bits[:: max(1, bits.numel() // 65536)].view(torch.float32)
        theirs = get_timestep_embedding(t, CHANNELS, flip_sin_to_cos=True,
                                        downscale_freq_shift=0)
        result["diffusers"] = same_bits(theirs, torch_embedding(t))
    print(f"h3-v1 sinusoid against torch: {result}", flush=True)
    return result


def silu_parity(lib: Library) -> dict:
    """silu_cuda against torch.nn.functional.silu for every FP32 input, as a linear of one input."""
    rows = 1 << 22
    x = torch.zeros(rows, 4, device="cuda")
    w = torch.zeros(1, 4, device="cuda")
    w[0, 0] = 1
    y = empty_like_nan(rows, 1)
    run = prepared(lib, "det_linear.forward", LINEAR, {"x": x, "weight": w}, {"y": y},
                   activation=SILU_CUDA)
    differ = 0
    offsets = torch.arange(rows, dtype=torch.int64, device="cuda")
    for first in range(0, 1 << 32, rows):
        bits = (offsets + first) & 0xFFFFFFFF
        bits = torch.where(bits >= 1 << 31, bits - (1 << 32), bits).to(torch.int32)
        x[:, 0] = bits.view(torch.float32)
        run()
        # The sum of products turns -0 into +0, and so does the comparison's input.
        differ += same_bits(y[:, 0], torch.nn.functional.silu(x[:, 0] + 0.0))
    result = {"inputs": 1 << 32, "differ": differ}
    print(f"silu_cuda against torch: {result}", flush=True)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.03, help="of one block of one runner")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("conditioning_bench.py needs a GPU that torch can use")
    if options.blocks < 5:
        raise SystemExit("ratios need five blocks or more")
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    lib = Library(options.library)
    timer = Timer(options.blocks, options.seconds)
    rows = []
    with torch.cuda.stream(torch.cuda.Stream()):
        for t in (1, 2, 4, 8, 16, 64):
            rows.append(mlp_row(lib, timer, t))
        for t in (1, 8, 64):
            rows.append(mlp_backward_row(lib, timer, t))
        for t in (1, 4, 8, 64, 512):
            rows.append(linear_row(lib, timer, t, HIDDEN, WIDTH))
        rows.append(linear_row(lib, timer, 8, CHANNELS, HIDDEN))
        for contract in ("timestep_sinusoid_h3/portable-v1", "timestep_sinusoid_h3/h3-v1"):
            for t in (1, 64):
                rows += sinusoid_row(lib, timer, t, contract)
        parity = {"sinusoid_h3": sinusoid_parity(lib), "silu_cuda": silu_parity(lib)}
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump({"provenance": provenance(), "rows": rows, "parity": parity}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
