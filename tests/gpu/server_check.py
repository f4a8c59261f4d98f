"""The server with its CUDA backend, called by the `rlk` command and by the Python client.

Starts rlk-server, makes the same calls on `cuda` and on `cpu` and compares their digests, and
prints the phases of the CUDA calls. Fails where the server has no CUDA backend.

    python3 server_check.py --bin DIR/bin --python DIR/python --out FILE
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence

# The quickstart's input: logits of a real model.
SAMPLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../data/minilm_logits.safetensors")

CALLS = [
    ("final_logit_softcap.forward", [f"x={SAMPLE}#logits", "softcap=30"]),
    ("final_logit_softcap.backward",
     [f"x={SAMPLE}#logits", f"grad_y={SAMPLE}#grad_y", "softcap=30"]),
    ("final_logit_softcap.forward", ["x=random:4x4096:bf16:7:30", "softcap=20"]),
    ("final_logit_softcap.forward", ["x=random:2x3x257:f16:8:30"]),
    ("final_logit_softcap.forward", ["x=random:1x65536:f32:9:30", "softcap=30"]),
    ("final_logit_softcap.backward",
     ["x=random:4x4096:bf16:7:30", "grad_y=random:4x4096:f32:11:1", "softcap=20"]),
]


class Server:
    """A server on free ports; stopped by SIGTERM, which must make it exit with 0."""

    def __init__(self, binary: str, folder: str, flags: Sequence[str] = ()):
        self.log = open(os.path.join(folder, "server.log"), "wb")
        self.process = subprocess.Popen(
            [binary, "--listen", "127.0.0.1:0", "--unix", os.path.join(folder, "rlk.sock"),
             "--metrics", "127.0.0.1:0", *flags],
            stdout=subprocess.PIPE, stderr=self.log)
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("rlk-server did not start: " + open(self.log.name).read()[-2000:])
        self.addresses = json.loads(line)
        listen = self.addresses["listen"]
        self.address = listen[0] if isinstance(listen, list) else listen

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)


def rlk(binary: str, *arguments: str, timeout: float | None = None) -> tuple[int, dict]:
    """The command's exit code and its JSON; without JSON not 0, and the end of what it said."""
    done = subprocess.run([binary, *arguments, "--json"], capture_output=True, text=True,
                          timeout=timeout, check=False)
    try:
        return done.returncode, json.loads(done.stdout)
    except ValueError:
        return done.returncode or 1, {"error": done.stderr[-2000:]}


def command(binary: str, *arguments: str) -> dict:
    done = subprocess.run([binary, *arguments, "--json"], capture_output=True, text=True,
                          timeout=60, check=False)
    if done.returncode != 0:
        raise SystemExit(f"rlk {' '.join(arguments)}: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def find(value, key: str):
    """The first value under `key`, at any depth."""
    if isinstance(value, dict):
        if key in value:
            return value[key]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            found = find(item, key)
            if found is not None:
                return found
    return None


def digests(outputs) -> dict:
    """Name to digest, of the outputs as the command prints them."""
    if isinstance(outputs, dict):
        return {name: find(entry, "digest") for name, entry in outputs.items()}
    return {entry["name"]: find(entry, "digest") for entry in outputs}


def check_command(binary: str, address: str) -> list[dict]:
    rows = []
    for method, values in CALLS:
        by_backend = {}
        for backend in ("cuda", "cpu"):
            answer = command(binary, "call", method, *values, "--backend", backend, "--server",
                             address)
            if find(answer, "backend") != backend:
                raise SystemExit(f"{method}: asked for {backend}, ran {find(answer, 'backend')}")
            by_backend[backend] = answer
        cuda, cpu = (digests(by_backend[b]["outputs"]) for b in ("cuda", "cpu"))
        if not cuda or None in cuda.values() or cuda != cpu:
            raise SystemExit(f"{method} {values}: cuda {cuda}, cpu {cpu}")
        # The second call: the first one may have grown a lane.
        again = command(binary, "call", method, *values, "--backend", "cuda", "--server", address)
        values = [value.replace(os.path.dirname(SAMPLE) + "/", "") for value in values]
        rows.append({"method": method, "values": values, "digests": cuda,
                     "phases": find(again, "phases") or find(again, "phases_ns"),
                     "device": find(again, "device")})
        print(f"ok  {method} {' '.join(values)}  {rows[-1]['phases']}", flush=True)
    return rows


def check_python(address: str) -> int:
    try:
        import numpy as np

        import rlk
    except ImportError as error:
        print(f"skipped: the Python client needs what is not here: {error}")
        return 0
    generator = np.random.default_rng(3)
    checked = 0
    client = rlk.connect(address)
    for shape in ((), (1,), (3, 1000), (0, 5)):
        x = (generator.standard_normal(shape) * 30).astype(np.float32)
        results = [client.call("final_logit_softcap.forward", x=x, softcap=20.0,
                               options=rlk.CallOptions(backend=backend)) for backend in
                   ("cuda", "cpu")]
        cuda, cpu = (np.asarray(result.y) for result in results)
        if cuda.tobytes() != cpu.tobytes():
            raise SystemExit(f"Python client, shape {shape}: cuda and cpu differ")
        checked += 1
    print(f"ok  Python client: {checked} shapes, cuda equals cpu", flush=True)
    return checked


def check_devices(address: str, info: dict) -> list[str]:
    """Every GPU by its uuid, under several clients at once: the bytes are those of cpu."""
    try:
        import numpy as np

        import rlk
    except ImportError:
        return []  # check_python has said so
    generator = np.random.default_rng(4)
    inputs = [(generator.standard_normal((5, size)) * 30).astype(np.float32)
              for size in (1, 255, 1024, 20000)]
    with rlk.connect(address) as client:
        def run(x, **options):
            return client.call("final_logit_softcap.forward", x=x, softcap=20.0,
                               options=rlk.CallOptions(**options))

        expected = [np.asarray(run(x, backend="cpu").y).tobytes() for x in inputs]
        checked = []
        for device in find(info, "devices"):
            if find(device, "kind") != "cuda":
                continue
            uuid = find(device, "uuid")

            def work(seed, uuid=uuid):
                for step in range(25):
                    k = (seed + step) % len(inputs)
                    result = run(inputs[k], backend="cuda", device_uuid=uuid)
                    if result.report.device.uuid != uuid:
                        return f"ran on {result.report.device.uuid}"
                    if np.asarray(result.y).tobytes() != expected[k]:
                        return "cuda and cpu differ"
                return None

            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                for problem in pool.map(work, range(8)):
                    if problem:
                        raise SystemExit(f"device {uuid}: {problem}")
            checked.append(f"{find(device, 'kind')}:{find(device, 'ordinal') or 0}")
        print(f"ok  8 clients at once on each of {', '.join(checked)}: cuda equals cpu", flush=True)
        return checked


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    sys.path.insert(0, options.python)
    with tempfile.TemporaryDirectory() as folder:
        server = Server(os.path.join(options.bin, "rlk-server"), folder)
        try:
            binary = os.path.join(options.bin, "rlk")
            rows = check_command(binary, server.address)
            checked = check_python(server.address)
            info = command(binary, "info", "--server", server.address)
            devices = check_devices(server.address, info)
        finally:
            code = server.stop()
        if code != 0:
            raise SystemExit(f"rlk-server exited with {code} after SIGTERM")
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump({"info": info, "calls": rows, "python_shapes": checked, "devices": devices}, file,
                  indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
