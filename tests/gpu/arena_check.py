"""Arenas on a GPU host: torch tensors in memory that the server shares, and what calls cost there.

Starts rlk-server on a Unix socket; proves by the Python client that calls on a device arena and on
host arenas give the bits of the CPU, with torch's own allocator and with expandable segments, that a
client that writes meanwhile or is killed harms nobody, and that no host bytes move; then times them
by `rlk bench transport` beside an empty call, and the floors (torch's copies) of the same run: as the
host is, and with processors that are kept from sleeping, whose waking is the larger part of a call
after a long wait.

    python3 arena_check.py --bin DIR/bin --python DIR/python --out FILE
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import server_check

GIB = 1 << 30
FLAGS = [f"--{name}={16 * GIB}" for name in
         ("device-bytes-max", "resident-bytes-max", "session-resident-bytes-max",
          "arena-bytes-max", "session-arena-bytes-max", "call-bytes-max")]
FLAGS += ["--session-arenas-max=64", "--selftest-interval-seconds=0"]
FORWARD = "final_logit_softcap.forward"


def series(server: server_check.Server, name: str, **labels: str) -> float:
    url = f"http://{server.addresses['metrics']}/metrics"
    total = 0.0
    for line in urllib.request.urlopen(url, timeout=10).read().decode().splitlines():
        if re.match(rf"{name}[{{ ]", line) and all(f'{k}="{v}"' in line for k, v in labels.items()):
            total += float(line.rsplit(" ", 1)[1])
    return total


def await_series(server: server_check.Server, name: str, value: float, **labels: str) -> None:
    deadline = time.monotonic() + 30
    while series(server, name, **labels) != value:
        if time.monotonic() > deadline:
            raise SystemExit(f"{name}{labels} is {series(server, name, **labels)}, not {value}")
        time.sleep(0.01)


def need(truth: bool, message: str) -> None:
    if not truth:
        raise SystemExit(message)


def bits(tensor):
    """Integers with the tensor's bits, on the CPU."""
    import torch

    widths = {2: torch.int16, 4: torch.int32}
    return tensor.detach().contiguous().cpu().view(widths[tensor.element_size()])


def same(a, b) -> bool:
    import torch

    return torch.equal(bits(a), bits(b))


def check_tensors(address: str) -> int:
    """Bits, captures and transports of calls on tensors of a device arena."""
    import rlk
    import torch

    checked = 0
    with rlk.connect(address) as client, client.arena(256 << 20, "device") as arena:
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            for rows, columns in ((1, 1), (3, 257), (8, 30522)):
                x = arena.empty((rows, columns), dtype)
                need(x.is_cuda and x.dtype == dtype, f"{x.device} {x.dtype}")
                x.copy_(torch.randn(rows, columns, device=x.device) * 30)
                plain = client.call(FORWARD, x=x.cpu(), backend="cpu").y
                y = arena.empty((rows, columns), "f32")
                live = client.call(FORWARD, x=x, out={"y": y})
                need(live.y is y, "the result is another tensor")
                need(same(y, plain), f"{dtype} {rows}x{columns}: device arena and cpu differ")
                need(live.report.transports == ("device_arena",), str(live.report.transports))
                need(live.report.input_capture.upper().endswith("LIVE"),
                     live.report.input_capture)
                y.zero_()
                torch.cuda.synchronize()
                told = client.call(FORWARD, x=x, out={"y": y}, digests=True)
                need(told.report.input_capture.upper().endswith("SNAPSHOT"),
                     told.report.input_capture)
                need(same(y, plain), f"{dtype}: a snapshot gives other bits")
                need(told.report.output_digests["y"] == rlk.digest(y),
                     f"{told.report.output_digests} {rlk.digest(y)}")
                need(told.report.input_digests["x"] == rlk.digest(x), "the input's digest")
                for verify in ("repeat", "reference"):
                    client.call(FORWARD, x=x, out={"y": y}, verify=verify)
                # A view, and an output that comes back as it does for any tensor of torch's.
                turned = client.call(FORWARD, x=x.t())
                need(turned.y.is_cuda and same(turned.y, plain.t()), "a view gives other bits")
                # Results are inputs of the next call as they lie.
                again = arena.empty((rows, columns), "f32")
                client.call(FORWARD, x=y, out={"y": again})
                need(same(again, client.call(FORWARD, x=plain, backend="cpu").y), "a chain")
                checked += 1
        check_places(client, arena)
    print(f"ok  {checked} tensors of a device arena: the bits of cpu, live and as snapshots",
          flush=True)
    return checked


def check_places(client, arena) -> None:
    """The same memory by other names, values that are checked, and places that are gone."""
    import rlk
    import torch

    kept = arena.empty(1000, "f32")
    # Torch's DLPack of a tensor of the arena names the same memory.
    x = arena.empty(1000, "f32")
    other = torch.from_dlpack(x)
    need(other.data_ptr() == x.data_ptr(), "DLPack made a copy")
    other.fill_(5)
    torch.cuda.synchronize()
    got = client.call(FORWARD, x=other)
    need(got.report.transports[-1] == "device_arena", str(got.report.transports))
    # Values that are checked are checked in a copy, and computed from it.
    timestep = arena.empty(16, "f32")
    timestep.copy_(torch.linspace(0, 1, 16))
    embedding = client.call("timestep_sinusoid_h3.forward", timestep=timestep, num_channels=64)
    plain = client.call("timestep_sinusoid_h3.forward", timestep=timestep.cpu(),
                        num_channels=64, backend="cpu", contract=embedding.report.contract)
    need(same(embedding.embedding, plain.embedding), "the sinusoid differs")
    timestep[3] = 2
    try:
        client.call("timestep_sinusoid_h3.forward", timestep=timestep, num_channels=64)
        raise SystemExit("a timestep of 2 was taken")
    except rlk.InvalidArgumentError as error:
        need(error.reason == "VALUE_OUT_OF_RANGE", str(error))
    # What is freed is free again, and its number is nobody's.
    place = client._arenas.find(x)
    del x, other, got
    gc.collect()
    try:
        request = rlk._codec.build_request(FORWARD, None, {"x": kept}, client=client)
        message = request.method.request.FromString(request.data)
        message.x.arena.generation = place.generation
        client._send(request._replace(data=message.SerializeToString()))
        raise SystemExit("a freed slot was taken")
    except rlk.NotFoundError:
        pass


def check_host(address: str) -> None:
    import numpy as np
    import rlk

    with rlk.connect(address) as client, client.arena(64 << 20, "input") as read, \
            client.arena(64 << 20, "output") as written:
        x = read.empty((8, 30522), "bf16")
        x[:] = np.random.default_rng(3).normal(0, 30, x.shape).astype(x.dtype)
        y = written.empty((8, 30522), "f32")
        expected = client.call(FORWARD, x=np.array(x), backend="cpu").y
        for options in ({}, {"digests": True}, {"verify": "repeat"}, {"backend": "cpu"}):
            result = client.call(FORWARD, x=x, out={"y": y}, **options)
            need(result.y is y and y.tobytes() == expected.tobytes(), f"{options}: other bits")
            need(result.report.transports == ("host_arena",), str(result.report.transports))
        small = read.empty((4, 1000), "f32")
        small[:] = 3
        client.call(FORWARD, x=small, verify="reference", digests=("tensor", "rows"))
    print("ok  host arenas: the bits of cpu", flush=True)


def check_bytes(server: server_check.Server, address: str) -> None:
    """No host bytes on the device way, and the counters say what moved."""
    import rlk

    ways = [(way, direction) for way in ("stream", "resident", "host_arena", "device_arena")
            for direction in ("in", "out")]

    def read():
        return {way: series(server, "rlk_transport_bytes_total", transport=way[0],
                            direction=way[1]) for way in ways}

    with rlk.connect(address) as client, client.arena(64 << 20, "device") as arena:
        x, y = arena.empty(1 << 20, "f32"), arena.empty(1 << 20, "f32")
        before = read()
        report = client.call(FORWARD, x=x, out={"y": y}).report
        after = read()
        moved = {way: after[way] - before[way] for way in ways}
        need(moved == {way: (4 << 20 if way[0] == "device_arena" else 0) for way in ways},
             str(moved))
        need(report.phases.stage_in_ns == 0 and report.phases.stage_out_ns == 0, str(report.phases))
    print("ok  4 MiB each way in a device arena, 0 bytes on the host", flush=True)


def check_hostile(server: server_check.Server, address: str) -> None:
    """Writes while calls read: its own results alone may suffer."""
    import rlk
    import torch

    with rlk.connect(address) as hostile, rlk.connect(address) as honest:
        mine, theirs = honest.arena(64 << 20, "device"), hostile.arena(64 << 20, "device")
        x, y = mine.empty(1 << 20, "f32"), mine.empty(1 << 20, "f32")
        x.copy_(torch.randn(1 << 20, device=x.device))
        honest.call(FORWARD, x=x, out={"y": y})
        expected = bits(y)
        bad, out = theirs.empty(1 << 20, "f32"), theirs.empty(1 << 20, "f32")
        stream = torch.cuda.Stream()
        for step in range(200):
            with torch.cuda.stream(stream):
                for value in (float("nan"), float("inf"), -1e38, 0.5):
                    bad.fill_(value)
                    out.fill_(value)
            call = hostile.call_async(FORWARD, x=bad, out={"y": out}, digests=step % 2 == 0)
            with torch.cuda.stream(stream):
                bad.fill_(step)
            honest.call(FORWARD, x=x, out={"y": y})
            need(torch.equal(bits(y), expected), "another client's writes were seen")
            call.result()
        torch.cuda.synchronize()
    await_series(server, "rlk_sessions", 0)
    print("ok  200 calls on tensors that were written meanwhile", flush=True)


HOLDER = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
import rlk
client = rlk.connect(sys.argv[2])
arena = client.arena(1 << 30, sys.argv[3])
x = arena.empty(1 << 20, "f32")
if sys.argv[3] == "device":
    x.fill_(1)
    client.call("final_logit_softcap.forward", x=x, keep="y")
print("holds", flush=True)
time.sleep(600)
"""


def check_kill(server: server_check.Server, address: str, python: str) -> None:
    """kill -9 of a client: its memory is back."""
    import torch

    free = None
    for kind in ("device", "device", "input", "output"):
        child = subprocess.Popen([sys.executable, "-c", HOLDER, python, address, kind],
                                 stdout=subprocess.PIPE)
        need(child.stdout.readline() == b"holds\n", f"{kind}: no arena")
        held = torch.cuda.mem_get_info()[0]
        need(series(server, "rlk_arena_bytes") >= GIB, "the arena is not charged")
        child.send_signal(signal.SIGKILL)
        child.wait()
        await_series(server, "rlk_arena_bytes", 0)
        await_series(server, "rlk_device_memory_bytes", 0, kind="arena")
        now = torch.cuda.mem_get_info()[0]
        if kind == "device":
            need(now - held > GIB // 2, f"the GPU has {now - held} bytes more, not 1 GiB")
            need(free is None or abs(free - now) < 64 << 20, "memory is lost at each kill")
            free = now
    print("ok  killed clients give 1 GiB back", flush=True)


def check_leaks(server: server_check.Server, address: str) -> int:
    """Many calls and arenas: nothing grows."""
    import rlk
    import torch

    def descriptors(pid) -> int:
        return len(os.listdir(f"/proc/{pid}/fd"))

    def run(calls: int, arenas: int) -> None:
        with rlk.connect(address) as client:
            with client.arena(8 << 20, "device") as arena:
                x, y = arena.empty(1000, "f32"), arena.empty(1000, "f32")
                for _ in range(calls):
                    client.call(FORWARD, x=x, out={"y": y})
                del x, y
            for _ in range(arenas):
                with client.arena(4 << 20, "device") as arena:
                    arena.empty(10, "f32").fill_(1)
                    torch.cuda.synchronize()

    calls = 5000
    run(500, 20)
    gc.collect()
    await_series(server, "rlk_sessions", 0)
    before = (descriptors(server.process.pid), descriptors("self"), torch.cuda.mem_get_info()[0])
    run(calls, 200)
    gc.collect()
    await_series(server, "rlk_sessions", 0)
    after = (descriptors(server.process.pid), descriptors("self"), torch.cuda.mem_get_info()[0])
    need(after[0] <= before[0] and after[1] <= before[1], f"descriptors: {before} {after}")
    need(before[2] - after[2] < 16 << 20, f"GPU memory: {before} {after}")
    print(f"ok  {calls} calls and 200 device arenas leave nothing", flush=True)
    return calls


def check_load(folder: str, server: server_check.Server, address: str) -> None:
    """Many clients at once, in every way that tensors travel."""
    done = subprocess.run([os.path.join(folder, "rlk"), "bench", "load", "--server", address, "--json",
                           "--mix", "device_arena=2,host_arena=1,resident=1,small=1",
                           "--calls", "4000", "--clients", "8"],
                          capture_output=True, text=True, timeout=100, check=False)
    if done.returncode != 0:
        raise SystemExit(f"rlk bench load: {done.stdout[-2000:]}{done.stderr}")
    await_series(server, "rlk_sessions", 0)
    print("ok  4000 calls of 8 clients, in arenas, on resident tensors and inline", flush=True)


def floors() -> dict:
    """torch's copies: of the device, and between pinned memory and the device. Seconds."""
    import torch

    def timed(run, rounds: int) -> float:
        times = []
        for _ in range(rounds + 3):
            begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
            begin.record()
            run()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e-3)
        return statistics.median(times[3:])

    found = {}
    for nbytes in (256 << 20, GIB):
        x = torch.ones(nbytes // 4, device="cuda")
        y, host = torch.empty_like(x), torch.empty(nbytes // 4, pin_memory=True)
        found[nbytes] = {
            "device_copy_seconds": timed(lambda: y.copy_(x), 20),
            "pinned_in_seconds": timed(lambda: x.copy_(host, non_blocking=True), 10),
            "pinned_out_seconds": timed(lambda: host.copy_(x, non_blocking=True), 10),
        }
        del x, y, host
        torch.cuda.empty_cache()
    return found


def digest_seconds(address: str) -> float:
    """What the server takes for the digest of 1 GiB that lies on its GPU, by itself."""
    import rlk
    import torch

    with rlk.connect(address) as client:
        times = []
        for count in (256, GIB // 4):
            x = client.put(torch.ones(count, device="cuda"), verify=False)
            taken = []
            for _ in range(9):
                # Its digest is computed once: each time of another tensor, an output, as an
                # upload's was asked for already.
                y = client.call("final_logit_softcap.forward", x=x, keep="y")["y"]
                begin = time.perf_counter()
                client.digest(y)
                taken.append(time.perf_counter() - begin)
                client.release([y])
            client.release([x])
            times.append(statistics.median(taken))
    return times[1] - times[0]


@contextlib.contextmanager
def awake():
    """No processor sleeps meanwhile: on each runs a process that gives way to all others."""
    script = ("import os, sys\n"
              "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\n"
              "os.sched_setaffinity(0, {int(sys.argv[1])})\n"
              "while True: os.sched_yield()\n")
    running = [subprocess.Popen([sys.executable, "-c", script, str(cpu)])
               for cpu in sorted(os.sched_getaffinity(0))]
    try:
        yield
    finally:
        for process in running:
            process.kill()
        for process in running:
            process.wait()


def bench(binary: str, address: str) -> list:
    done = subprocess.run([binary, "bench", "transport", "--arenas-only", "--seconds", "1.5",
                           "--server", address, "--json"],
                          capture_output=True, text=True, timeout=200, check=False)
    if done.returncode != 0:
        raise SystemExit(f"rlk bench transport: {done.stdout}{done.stderr}")
    return json.loads(done.stdout)["arenas"]


def judge(rows: list, floor: dict, digest: float) -> dict:
    """The figures beside their bars; nothing here fails a run."""
    by_size = {row["bytes"]: row for row in rows}
    small, large, quarter = by_size[1024], by_size[GIB], by_size[256 << 20]
    own = large["empty_call_seconds"]
    copy = floor[GIB]["device_copy_seconds"]
    snapshot = large["device_snapshot_less_kernel_seconds"] - large["device_live_less_kernel_seconds"]
    # The digests of the input's copy and of the output.
    digests = large["device_digests_less_kernel_seconds"] - large["device_live_less_kernel_seconds"]
    figures = {
        "live_1KiB_us": (small["device_live_less_kernel_seconds"] * 1e6,
                         "at most", (1.25 * small["empty_call_seconds"] + 25e-6) * 1e6),
        "live_1GiB_us": (large["device_live_less_kernel_seconds"] * 1e6,
                         "at most", (1.25 * own + 25e-6) * 1e6),
        "live_1GiB_to_1KiB": (large["device_live_less_kernel_seconds"] /
                              small["device_live_less_kernel_seconds"], "at most", 1.1),
        "snapshot_adds_us": (snapshot * 1e6, "at most", copy / 0.8 * 1e6),
        "digests_add_us": (digests * 1e6, "at most", (copy + 2 * digest) / 0.8 * 1e6),
        "host_in_to_pinned": (floor[256 << 20]["pinned_in_seconds"] /
                              quarter["host_stage_in_seconds"], "at least", 0.85),
        "host_out_to_pinned": (floor[256 << 20]["pinned_out_seconds"] /
                               quarter["host_stage_out_seconds"], "at least", 0.85),
        "host_transport_256MiB_to_1KiB": (quarter["host_transport_seconds"] /
                                          small["host_transport_seconds"], "at most", 1.3),
    }
    judged = {}
    for name, (value, way, bar) in figures.items():
        met = value <= bar if way == "at most" else value >= bar
        judged[name] = {"value": value, way.replace(" ", "_"): bar, "met": met}
        print(f"    {name:<32} {value:10.3f}  {way} {bar:10.3f}  {'met' if met else 'NOT MET'}",
              flush=True)
    return judged


def measure(folder: str, address: str, floor: dict, digest: float) -> dict:
    rows = bench(os.path.join(folder, "rlk"), address)
    for row in rows:
        print("    " + json.dumps(row), flush=True)
    return {"rows": rows, "judged": judge(rows, floor, digest)}


def prove(server: server_check.Server, address: str, options) -> dict:
    checked = check_tensors(address)
    check_host(address)
    check_bytes(server, address)
    check_hostile(server, address)
    check_kill(server, address, options.python)
    calls = check_leaks(server, address)
    check_load(options.bin, server, address)
    return {"tensors": checked, "calls": calls}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--out", required=True)
    # The same checks of tensors in a process of its own, which torch reads its settings in.
    parser.add_argument("--only-tensors", metavar="ADDRESS")
    options = parser.parse_args()
    sys.path.insert(0, options.python)
    if options.only_tensors:
        check_tensors(options.only_tensors)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        server = server_check.Server(os.path.join(options.bin, "rlk-server"), folder, FLAGS)
        try:
            address = "unix:" + server.addresses["unix"]
            proved = prove(server, address, options)
            for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
                environment = {**os.environ, name: "expandable_segments:True"}
                subprocess.run([sys.executable, *sys.argv, "--only-tensors", address], check=True,
                               env=environment, timeout=100)
            print("ok  the same with torch's expandable segments", flush=True)
            floor, digest = floors(), digest_seconds(address)
            figures = {"as_it_is": measure(options.bin, address, floor, digest)}
            with awake():
                figures["no_processor_sleeps"] = measure(options.bin, address, floor, digest)
        finally:
            code = server.stop()
        if code != 0:
            raise SystemExit(f"rlk-server exited with {code} after SIGTERM")
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump({"proved": proved, "figures": figures, "digest_seconds": digest,
                   "floors": {str(size): values for size, values in floor.items()}}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
