"""Tensors that stay in device memory, by the `rlk` command and by the Python client.

Starts rlk-server with room on its GPU, runs `rlk bench transport` on the Unix socket, and passes
tensors of torch's, on the CPU and the GPU, in and out. Fails where tensors do not lie on a GPU.

    python3 resident_check.py --bin DIR/bin --python DIR/python --out FILE
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile

import server_check

FLAGS = [f"--{name}={8 << 30}" for name in
         ("device-bytes-max", "resident-bytes-max", "session-resident-bytes-max",
          "arena-bytes-max", "session-arena-bytes-max")]


def bench(binary: str, address: str) -> dict:
    done = subprocess.run([binary, "bench", "transport", "--seconds", "2", "--server", address,
                           "--json"], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise SystemExit(f"rlk bench transport: {done.stdout}{done.stderr}")
    result = json.loads(done.stdout)
    for row in result["sizes"]:
        print(f"    {row['bytes']:>11} bytes: upload/socket {row['upload_to_unix_socket']}, "
              f"upload/unary {row['upload_to_unary_bytes']}, resident call "
              f"{row['resident_call_less_kernel_seconds'] * 1e6:.1f} us, to a small call "
              f"{row['resident_call_to_small_call']:.3f}", flush=True)
    return result


def check_python(address: str) -> int:
    try:
        import numpy as np
        import torch

        import rlk
    except ImportError as error:
        print(f"skipped: the Python client needs what is not here: {error}")
        return 0
    checked = 0
    with rlk.connect(address) as client:
        gpus = [d.device.uuid for d in client.info().devices if d.device.kind == "cuda"]
        bits = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16)
        for device in ("cpu", "cuda"):
            for dtype in (torch.bfloat16, torch.float16):
                x = bits.to(device).view(dtype)
                with client.put(x) as held:
                    if held.device_uuid not in gpus:
                        raise SystemExit(f"the tensor lies on {held.device_uuid}, no GPU")
                    back = held.get()
                    if back.device.type != device or not torch.equal(
                            back.view(torch.int16), x.view(torch.int16)):
                        raise SystemExit(f"{dtype} of {device}: other bits came back")
                    call = client.call("final_logit_softcap.forward", x=held, keep="y")
                    with call.y as y:
                        expected = client.call("final_logit_softcap.forward", backend="cpu",
                                               x=x.cpu())
                        if not torch.equal(y.get().cpu().view(torch.int32),
                                           expected.y.view(torch.int32)):
                            raise SystemExit(f"{dtype} of {device}: cuda and cpu differ")
                checked += 1
        large = np.arange(1 << 26, dtype=np.float32)
        with client.put(large) as held:
            if held.get().tobytes() != large.tobytes():
                raise SystemExit("256 MiB: other bits came back")
        if client.tensors():
            raise SystemExit("tensors are left")
    print(f"ok  torch on the CPU and the GPU: {checked} tensors, in and out", flush=True)
    return checked + 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    sys.path.insert(0, options.python)
    with tempfile.TemporaryDirectory() as folder:
        server = server_check.Server(os.path.join(options.bin, "rlk-server"), folder, FLAGS)
        try:
            result = bench(os.path.join(options.bin, "rlk"), "unix:" + server.addresses["unix"])
            checked = check_python(server.address)
        finally:
            code = server.stop()
        if code != 0:
            raise SystemExit(f"rlk-server exited with {code} after SIGTERM")
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump({"transport": result, "python_tensors": checked}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
