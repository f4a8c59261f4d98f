"""What metrics cost: their part of the instructions of a small call, by callgrind."""

import json
import re
import shutil
import subprocess

import pytest
from conftest import full_only, find_server
from test_bench_load import bench

CALLS = 2000
# Of all instructions of a call; design bound.
PART_MAX = 0.01
METRICS = re.compile(r"^ *([\d,]+) .*(rlk::server::Metrics::On\w+\(.*)$", re.M)


def control(pid, *words):
    subprocess.run(["callgrind_control", *words, str(pid)], check=True, capture_output=True)


def inclusive(profile):
    """(instructions in all, {function: instructions with what it calls}) of a profile."""
    words = ["callgrind_annotate", "--inclusive=yes", "--threshold=100", str(profile)]
    text = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    total = int(re.search(r"^([\d,]+) .*PROGRAM TOTALS", text, re.M)[1].replace(",", ""))
    functions = {}
    for count, function in METRICS.findall(text):
        functions[function] = max(functions.get(function, 0), int(count.replace(",", "")))
    return total, functions


@full_only
def test_metrics_cost_below_one_percent_of_a_call(tmp_path, record_property):
    if None in map(shutil.which, ("valgrind", "callgrind_control", "callgrind_annotate")):
        pytest.skip("valgrind is not installed")
    binary, reason = find_server()
    if binary is None:
        pytest.skip(reason)
    process = subprocess.Popen(
        [
            "valgrind",
            "--tool=callgrind",
            f"--callgrind-out-file={tmp_path / 'profile'}",
            str(binary),
            "--listen=127.0.0.1:0",
            "--metrics=127.0.0.1:0",
            "--selftest-interval-seconds=0",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        address = json.loads(process.stdout.readline())["listen"][0]
        words = ("--clients=1", "--mix=small", "--warm-up=0")
        bench(address, "--calls=200", *words)
        control(process.pid, "--zero")
        bench(address, f"--calls={CALLS}", *words)
        control(process.pid, "--dump")
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
    total, functions = inclusive(next(tmp_path.glob("profile.*")))
    spent = sum(functions.values())
    called = {name: round(count / CALLS) for name, count in functions.items()}
    record_property("instructions_per_call", total / CALLS)
    record_property("metrics_per_call", spent / CALLS)
    print(f"{total / CALLS:.0f} instructions a call, {spent / CALLS:.0f} of them metrics: {called}")
    # All that a call does was seen.
    for name in ("OnCallDone", "OnInFlight", "OnSent"):
        assert any(f"::{name}(" in function for function in functions), functions
    assert spent < PART_MAX * total
