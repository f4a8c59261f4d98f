"""What a GPU server did, done again: every call run twice and recorded, then replayed on `cpu`.

    python3 replay_check.py --bin DIR/bin --out FILE [--backend cpu]

--backend is that of the first server's calls; a host without a GPU tries the check itself with cpu.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import urllib.request

from server_check import Server, rlk

CALLS = 2000
LIMIT = 150  # seconds of a command
MIX = "small,softcap,softcap_backward,rms_norm,rms_norm_backward,det_linear,resident,resident_norm"


def series(text: str, name: str) -> float:
    values = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE)
    return sum(map(float, values))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--backend", default="cuda")
    options = parser.parse_args()
    binary, program = (os.path.join(options.bin, name) for name in ("rlk", "rlk-server"))
    failures: list[str] = []

    def expect(truth: bool, what: str, *facts: object) -> None:
        print("ok " if truth else "FAILED", what, *(facts if not truth else ()))
        if not truth:
            failures.append(what)

    with tempfile.TemporaryDirectory() as folder:
        recording = os.path.join(folder, "calls.rlkrec")
        one, two = (os.path.join(folder, name) for name in ("one", "two"))
        os.mkdir(one)
        os.mkdir(two)
        first = Server(program, one, ["--replay-every=1", f"--record={recording}",
                                      "--record-tensors=true", "--selftest-interval-seconds=0",
                                      f"--backends={options.backend}"])
        code, load = rlk(binary, "bench", "load", "--server", first.address, f"--mix={MIX}",
                         f"--calls={CALLS}", "--clients=4", "--warm-up=0", timeout=LIMIT)
        expect(code == 0, f"{CALLS} calls on {options.backend}", load.get("error"))
        with urllib.request.urlopen(f"http://{first.addresses['metrics']}/metrics") as answer:
            text = answer.read().decode()
        replays = series(text, "rlk_replays_total")
        expect(replays >= CALLS, "every call was run twice", replays)
        expect(series(text, "rlk_replay_mismatches_total") == 0, "both runs gave the same bits")
        expect(first.stop() == 0, "the first server ended well")
        code, contents = rlk(binary, "record", recording, timeout=LIMIT)
        recorded = contents.get("calls", 0)
        expect(recorded >= CALLS, "every call was recorded", recorded)
        whole = code == 0 and contents.get("complete") is True
        expect(whole, "the recording is whole", contents.get("error"))
        second = Server(program, two, ["--backends=cpu", "--selftest-interval-seconds=0"])
        code, replay = rlk(binary, "replay", recording, "--server", second.address, timeout=LIMIT)
        expect(code == 0, "cpu gives the bits that were recorded",
               json.dumps(replay.get("first_different"), indent=1), replay.get("error"))
        expect(replay.get("equal") == contents.get("calls"), "all of them were replayed", replay)
        expect(second.stop() == 0, "the second server ended well")
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump({"replays": replays, "recorded": recorded, "contents": contents,
                   "replay": replay, "failures": failures}, file, indent=1)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
