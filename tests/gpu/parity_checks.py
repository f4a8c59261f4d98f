"""The checks of ParityService on a GPU: every operator on `cuda` against `golden` and against `cpu`,
and its rows in other layouts on `cuda`, forward and backward, by the `rlk` command.

    python3 parity_checks.py --bin DIR/bin --out FILE
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile

from server_check import Server, rlk

# Rows that are no multiple of anything, and sizes with a tail.
SOFTCAP = ["x=random:37x1027:{dtype}:7:30", "softcap=30"]
NORM = ["x=random:37x{width}:{dtype}:7", "weight=random:{width}:{dtype}:8"]
LINEAR = ["x=random:19x264:{dtype}:7", "weight=random:72x264:{dtype}:8", "bias=random:72:{dtype}:9"]
MLP = ["x=random:19x256:f32:7", "w1=random:68x256:f32:8", "b1=random:68:f32:9",
       "w2=random:36x68:f32:10", "b2=random:36:f32:11"]
ADALN = ["temb=random:9x264:f32:7", "weight=random:288x264:{dtype}:8", "bias=random:288:{dtype}:9"]

CALLS = (
    [("final_logit_softcap.forward", SOFTCAP, dtype) for dtype in ("f32", "f16", "bf16")]
    + [(f"{name}.forward", [*(word.replace("{width}", str(width)) for word in NORM),
                            *([f"gate=random:37x{width}:{{dtype}}:9"] if "gated" in name else [])],
        dtype)
       for name in ("rms_norm", "qwen3_next_rms_norm", "rms_norm_gated")
       for width in (128, 2048) for dtype in ("f32", "bf16")]
    + [("det_linear.forward", LINEAR, dtype) for dtype in ("f32", "bf16")]
    + [("det_linear.forward", [*LINEAR, "activation=silu"], dtype) for dtype in ("f32", "bf16")]
    + [("timestep_mlp_fp32.forward", MLP, "f32")]
    + [("adaln_projection_3mod.forward", ADALN, dtype) for dtype in ("f32", "bf16")]
)
WIDE = ["--normalized-dim", "2048"]
DEEP = ["--k-dim", "264", "--n-dim", "72"]
# The sizes that the operator has.
OPERATORS = {
    "final_logit_softcap": [], "rms_norm": WIDE, "qwen3_next_rms_norm": WIDE,
    "rms_norm_gated": WIDE, "det_linear": DEEP, "timestep_sinusoid_h3": [],
    "timestep_mlp_fp32": DEEP, "adaln_projection_3mod": WIDE,
}


def words(call: tuple[str, list[str], str]) -> list[str]:
    method, given, dtype = call
    return [method, *(word.replace("{dtype}", dtype) for word in given), "--check-grad"]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    binary = os.path.join(options.bin, "rlk")
    results, failed = [], 0
    with tempfile.TemporaryDirectory() as folder:
        server = Server(os.path.join(options.bin, "rlk-server"), folder)
        checks = [["check-operator", name, "--candidate", "cuda", "--device", "cuda",
                   "--check-grad", "--dtype", dtype, *sizes]
                  for name, sizes in OPERATORS.items() for dtype in ("fp32", "bf16")
                  if not (name == "timestep_mlp_fp32" and dtype == "bf16")]
        checks += [["parity", "check", *words(call), "--left", "cuda", "--right", "cpu"]
                   for call in CALLS]
        checks += [["parity", "invariance", *words(call), "--backend", "cuda", "--repeats", "100"]
                   for call in CALLS]
        for arguments in checks:
            code, answer = rlk(binary, *arguments, "--server", server.address, timeout=120)
            passed = code == 0
            results.append({"arguments": arguments, "passed": passed,
                            "answer": None if passed else answer})
            failed += not passed
            print("ok " if passed else "FAILED", " ".join(arguments))
            if not passed:
                print(json.dumps(answer, indent=1)[:4000])
        if server.stop() != 0:
            print("FAILED the server did not end well")
            failed += 1
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump({"checks": len(results), "failed": failed, "results": results}, file, indent=1)
    print(f"{'ok' if failed == 0 else 'FAILED'}  {len(results)} checks, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
