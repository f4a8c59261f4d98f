"""A tiny Qwen3-Next whose norms run on the GPU server: losses and log-probabilities of cpu.

    python3 torch_check.py --bin DIR/bin --python DIR/python --example FILE --out FILE

Runs the example of the Python package with torch on the CPU and on the GPU. Skipped, with the
reason, where the host's Python has no torch, no transformers with Qwen3-Next, or no grpc.
--backend and --device say otherwise for a host without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

LIMIT = 120  # seconds of one run
NEEDS = "import rlk, torch, transformers; transformers.Qwen3NextForCausalLM"


def run_example(options: argparse.Namespace, device: str, dtype: str, env: dict) -> dict:
    """What one run of the example said; "error" where it failed."""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "policies.json")
        done = subprocess.run(
            [sys.executable, options.example, "--start", os.path.join(options.bin, "rlk-server"),
             "--backend", options.backend, "--device", device, "--dtype", dtype,
             "--report", report],
            capture_output=True, text=True, timeout=LIMIT, env=env, check=False)
        if done.returncode != 0:
            return {"error": (done.stdout + done.stderr)[-4000:]}
        with open(report, encoding="utf-8") as file:
            chapters = json.load(file)["chapters"]
    lines = done.stdout.splitlines()
    policies = {}
    for chapter in chapters:
        found = chapter["result"]
        policies[chapter["label"]] = {
            "tokens": found["tokens"], "mismatched": found["difference"]["mismatched"],
            "max_abs": found["difference"]["max_abs"], "k3": found["kl"]["k3"]}
    return {
        "backends": dict(re.findall(r"^(server|reference server \(cpu\)): (.*)$", done.stdout,
                                    re.MULTILINE)),
        "losses": [line.split()[1:] for line in lines if re.match(r"^ *\d+  ", line)],
        "step_ms": [int(ms) for ms in re.findall(r"(\d+) ms a step", done.stdout)],
        "policies": policies,
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("--bin", "--python", "--example", "--out"):
        parser.add_argument(name, required=True)
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--device", default="cuda", help="the second device of torch")
    options = parser.parse_args()
    env = {**os.environ, "PYTHONPATH": options.python, "HF_HUB_OFFLINE": "1"}
    looked = subprocess.run([sys.executable, "-c", NEEDS], capture_output=True, text=True, env=env,
                            check=False)
    results: dict = {"runs": {}}
    if looked.returncode != 0:
        results["skipped"] = looked.stderr.strip().splitlines()[-1]
        print(f"skipped: the example needs what is not here: {results['skipped']}")
    else:
        for device, dtype in (("cpu", "float32"), (options.device, "float32"),
                              (options.device, "bfloat16")):
            found = run_example(options, device, dtype, env)
            results["runs"][f"{device} {dtype}"] = found
            if "error" in found:
                print(f"FAILED torch on {device}, {dtype}:\n{found['error']}", flush=True)
                continue
            ran = found["backends"]["server"]
            if not ran.startswith(options.backend + " "):
                found["error"] = f"the server ran {ran}"
                print(f"FAILED torch on {device}, {dtype}: {found['error']}", flush=True)
                continue
            print(f"ok  torch on {device}, {dtype}: {ran}; losses and weights are those of cpu, "
                  f"ms a step: {found['step_ms']}")
            for label, policy in found["policies"].items():
                print(f"    {label}: {policy['mismatched']} of {policy['tokens']} tokens differ, "
                      f"by {policy['max_abs']:.3g} at most", flush=True)
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1)
    return 1 if any("error" in run for run in results["runs"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
