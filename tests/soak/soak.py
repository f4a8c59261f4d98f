#!/usr/bin/env python3
"""A bounded soak of a real server, meant for a build with sanitizers.

Client processes call, cancel, run out of time, send what is malformed, leave sessions, streams and
arenas, and are killed in the midst of it, while metrics are scraped. Each reply that is a success has
to have the bits that the same call had on the idle server. In the end nothing may be held any more,
calls must still have their bits, the drain must exit with 0, and the sanitizers must be silent.

Usage: soak.py --server build/asan/server/rlk-server [--operations N] [--clients N] [--seed N]
Prints one JSON document of figures. Needs the package `rlk`.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import selectors
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "client" / "python"))

from workload import OPERATIONS, Workload, known_bits  # noqa: E402

# Nothing of a correct program takes so long; it ends one that is wrong.
PATIENCE_SECONDS = 600
REPORTS = ("ERROR: AddressSanitizer", "ERROR: LeakSanitizer", "runtime error:", "SUMMARY: ")
# A worker is killed after so many operations of all.
KILL_EVERY = 150
MEMORY = "process_resident_memory_bytes"
HELD = (
    "rlk_inflight_requests",
    "rlk_sessions",
    "rlk_leases",
    "rlk_resident_bytes",
    "rlk_arena_bytes",
)


class Server:
    """The server under test. Its leases are the usual minute, so that a client that a busy machine
    keeps waiting does not lose its session."""

    def __init__(self, binary, folder):
        self.log = folder / "server.log"
        environment = dict(os.environ)
        environment.setdefault("ASAN_OPTIONS", "detect_leaks=1:strict_string_checks=1")
        environment.setdefault("UBSAN_OPTIONS", "halt_on_error=1:print_stacktrace=1")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [
                    str(binary),
                    "--listen=127.0.0.1:0",
                    f"--unix={folder / 'soak.sock'}",
                    "--metrics=127.0.0.1:0",
                    "--queue-calls-max=16",
                    "--selftest-interval-seconds=1",
                    "--log-level=warning",
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
            )
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the server did not start: {self.log.read_text()[-3000:]}")
        self.addresses = json.loads(line)

    def scrape(self):
        """{series: value} of all metrics."""
        with urllib.request.urlopen(f"http://{self.addresses['metrics']}/metrics") as reply:
            lines = [line for line in reply.read().decode().splitlines() if line[:1] != "#"]
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE_SECONDS)


def in_child(function, argument):
    """The result, from a process of its own: with gRPC's threads in this one, workers could not be
    forked from it."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            with os.fdopen(writer, "w") as file:
                json.dump(function(argument), file)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as file:
        text = file.read()
    _, status = os.waitpid(pid, 0)
    if status != 0:
        sys.exit("an ordinary call failed: what it says is above")
    return json.loads(text)


class Worker:
    """A client process. It writes the number of an operation's outcome, one byte, after each."""

    def __init__(self, addresses, bits, seed):
        self.reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.reader)
            self.run(addresses, bits, seed, writer)
        os.close(writer)

    def run(self, addresses, bits, seed, writer):
        status = 1
        try:
            workload = Workload(addresses, bits, random.Random(seed))
            while True:
                os.write(writer, bytes([OUTCOMES.index(workload.step())]))
        except BrokenPipeError:  # the soak is over
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            # Neither the parent's clean-up nor gRPC's: a client that just goes.
            os._exit(status)

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        self.wait()

    def wait(self):
        _, status = os.waitpid(self.pid, 0)
        os.close(self.reader)
        return os.waitstatus_to_exitcode(status)


OUTCOMES = sorted(
    {f"{name} {end}" for name in OPERATIONS for end in ("ok", "refused", "given up", "not served")}
)


class Soak:
    def __init__(self, server, clients, seed):
        self.server = server
        self.random = random.Random(seed)
        self.bits = in_child(known_bits, server.addresses)
        self.outcomes = collections.Counter()
        self.kills = self.scrapes = self.done = 0
        self.selector = selectors.DefaultSelector()
        self.workers = {}
        for _ in range(clients):
            self.start_worker()

    def start_worker(self):
        worker = Worker(self.server.addresses, self.bits, self.random.getrandbits(64))
        self.workers[worker.reader] = worker
        self.selector.register(worker.reader, selectors.EVENT_READ)

    def forget(self, worker):
        self.selector.unregister(worker.reader)
        del self.workers[worker.reader]

    def replace_one(self):
        worker = self.random.choice(list(self.workers.values()))
        self.forget(worker)
        worker.kill()
        self.kills += 1
        self.start_worker()

    def run(self, operations):
        last, next_kill = time.monotonic(), KILL_EVERY
        while self.done < operations:
            for key, _ in self.selector.select(timeout=1):
                outcomes = os.read(key.fd, 4096)
                if not outcomes:
                    sys.exit("a client ended by itself: what it says is above")
                self.outcomes.update(OUTCOMES[number] for number in outcomes)
                self.done += len(outcomes)
                last = time.monotonic()
            if self.server.process.poll() is not None:
                sys.exit(f"the server is gone:\n{self.server.log.read_text()[-5000:]}")
            if time.monotonic() - last > PATIENCE_SECONDS:
                sys.exit("no operation has ended for a long time")
            if self.done >= next_kill:
                next_kill = self.done + KILL_EVERY
                self.replace_one()
                self.server.scrape()
                self.scrapes += 1
        self.kills += self.kill_all()

    def kill_all(self):
        """The number of those that were there."""
        workers = list(self.workers.values())
        for worker in workers:
            self.forget(worker)
            worker.kill()
        return len(workers)

    def await_nothing_held(self):
        """What killed clients left ends with their sessions' leases."""
        end = time.monotonic() + PATIENCE_SECONDS
        while any(held := {name: self.server.scrape()[name] for name in HELD}.values()):
            if time.monotonic() > end:
                sys.exit(f"still held: {held}")
            time.sleep(0.1)


def total(series, name, label=""):
    return sum(v for key, v in series.items() if key.startswith(name + "{") and label in key)


def check_end(soak, series):
    """Problems, one a line."""
    log = soak.server.log.read_text(errors="replace")
    problems = [f"the log has {word!r}" for word in REPORTS if word in log]
    # Self-tests that end with an error found the queue full, which is short here.
    if total(series, "rlk_selftest_total", 'result="mismatch"'):
        problems.append("a self-test had other bits")
    if total(series, "rlk_verifications_total", 'result="fail"'):
        problems.append("a verification failed")
    if total(series, "rlk_requests_total", 'code="INTERNAL"'):
        problems.append("a call ended with INTERNAL")
    for name in OPERATIONS:
        if not any(outcome.startswith(name + " ") for outcome in soak.outcomes):
            problems.append(f"no operation of kind {name}")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--server", type=pathlib.Path, required=True)
    parser.add_argument("--operations", type=int, default=20_000)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    args = parser.parse_args()
    print(f"seed {args.seed}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        server = Server(args.server, pathlib.Path(folder))
        begin, soak = time.monotonic(), None
        try:
            soak = Soak(server, args.clients, args.seed)
            memory_before = server.scrape()[MEMORY]
            soak.run(args.operations)
            soak.await_nothing_held()
            series = server.scrape()
            if in_child(known_bits, server.addresses) != soak.bits:
                sys.exit("other bits after the soak")
            status = server.stop()
        finally:
            if soak is not None:
                soak.kill_all()
            server.process.kill()
        problems = check_end(soak, series)
        if status != 0:
            problems.append(f"the server exited with {status}: {server.log.read_text()[-5000:]}")
    figures = {
        "seed": args.seed,
        "operations": soak.done,
        "seconds": round(time.monotonic() - begin, 1),
        "outcomes": dict(sorted(soak.outcomes.items())),
        "clients_killed": soak.kills,
        "scrapes": soak.scrapes,
        "calls_seen": total(series, "rlk_requests_total"),
        "calls_cancelled_or_late": total(series, "rlk_cancelled_total"),
        "rejections": total(series, "rlk_contract_rejections_total")
        + total(series, "rlk_admission_rejections_total"),
        "self_tests_passed": total(series, "rlk_selftest_total", 'result="pass"'),
        "resident_memory_bytes": [memory_before, series[MEMORY]],
        "problems": problems,
    }
    print(json.dumps(figures, indent=2))
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
