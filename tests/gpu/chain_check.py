"""MiniMax-H3's timestep conditioning as a chain on a GPU, by `rlk chain h3` on made-up weights.

Small weights and the model's own sizes, forward and backward: the GPU against `cpu` bit by bit, and
against the FP64 reference. Fails where a stage does not run on the GPU.

    python3 chain_check.py --bin DIR/bin --out FILE
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile

from server_check import Server, rlk

# (name, how the weights are made, reference, T)
RUNS = (
    ("small", [], "cpu", "1,2,3,4"),
    ("small", [], "golden", "1,2,3,4"),
    ("full", ["--full"], "cpu", "1,2,3,4"),
    # The reference takes the CPU a good part of a minute.
    ("full", ["--full"], "golden", "1"),
)


def seconds(report: dict) -> dict:
    """Of the last T, by stage: the chain's kernel, and both sides as the client saw them."""
    return {stage["stage"]: {"chain": stage["chain"]["seconds"],
                             "kernel": stage["chain"]["report"]["phases"]["kernel_ns"] * 1e-9,
                             "reference": stage["reference"]["seconds"]}
            for stage in report["runs"][-1]["stages"]}


def check(binary: str, server: str, folder: str, run: tuple) -> dict:
    name, size, reference, counts = run
    weights = os.path.join(folder, name)
    manifest = weights + ".json"
    if not os.path.exists(manifest):
        for words in (["synthetic", weights, *size], ["prepare", weights, "--out", manifest]):
            code, answer = rlk(binary, "weights", *words)
            if code != 0:
                return {"passed": False, "answer": answer}
    code, report = rlk(binary, "chain", "h3", "--weights", manifest, "--folder", name,
                           "--backward", "--reference", reference, "--timesteps", counts,
                           "--server", server)
    if "runs" not in report:
        return {"passed": False, "answer": report}
    backends = {stage["chain"]["report"]["backend"]
                for each in report["runs"] for stage in each["stages"]}
    passed = code == 0 and report["passed"] and backends <= {"cuda", "cuda_sm90"}
    return {"passed": passed, "backends": sorted(backends), "seconds": seconds(report),
            "answer": None if passed else {key: report[key] for key in (
                "first_difference", "rows_that_differ", "through_client_differs")}}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    binary = os.path.join(options.bin, "rlk")
    results, failed = [], 0
    with tempfile.TemporaryDirectory() as folder:
        server = Server(os.path.join(options.bin, "rlk-server"), folder,
                        ["--weights-root", folder,
                         *(f"--{name}-bytes-max={8 << 30}"
                           for name in ("device", "resident", "session-resident"))])
        for run in RUNS:
            result = check(binary, server.address, folder, run)
            results.append({"weights": run[0], "reference": run[2], "T": run[3], **result})
            failed += not result["passed"]
            print("ok " if result["passed"] else "FAILED", run[0], "against", run[2], "T", run[3])
            for stage, took in result.get("seconds", {}).items():
                print(f"    {stage:20} kernel {took['kernel'] * 1e6:10.1f} us, "
                      f"reference {took['reference']:8.3f} s")
            if not result["passed"]:
                print(json.dumps(result["answer"], indent=1)[:4000])
        if server.stop() != 0:
            print("FAILED the server did not end well")
            failed += 1
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump({"failed": failed, "results": results}, file, indent=1)
    print(f"{'ok' if failed == 0 else 'FAILED'}  {len(results)} chains, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
