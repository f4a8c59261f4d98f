"""What metrics and sampled replays cost of the instructions of a small call, by callgrind."""

import json
import re
import shutil
import subprocess

import pytest
from conftest import find_server, full_only
from test_bench_load import bench

CALLS = 2000
# Of all instructions of a call; design bound.
PART_MAX = 0.01
# Of all instructions, where one call of a hundred is run twice; design bound.
REPLAY_ADDS_MAX = 0.02
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


def patient_bench(process, address, *words):
    """Counts from here on. A server under callgrind on a busy machine may take longer to answer than
    the command waits for it."""
    while process.poll() is None:
        control(process.pid, "--zero")
        try:
            return bench(address, *words)
        except AssertionError as error:
            if "no server answers" not in str(error):
                raise
    raise AssertionError("the server ended")


def profile(folder, calls, *flags, mix="small"):
    """The profile of a server with these flags that answers so many calls."""
    if None in map(shutil.which, ("valgrind", "callgrind_control", "callgrind_annotate")):
        pytest.skip("valgrind is not installed")
    binary, reason = find_server()
    if binary is None:
        pytest.skip(reason)
    folder.mkdir()
    process = subprocess.Popen(
        [
            "valgrind",
            "--tool=callgrind",
            f"--callgrind-out-file={folder / 'profile'}",
            str(binary),
            "--listen=127.0.0.1:0",
            "--metrics=127.0.0.1:0",
            "--selftest-interval-seconds=0",
            *flags,
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        address = json.loads(process.stdout.readline())["listen"][0]
        words = ("--clients=1", f"--mix={mix}", "--warm-up=0")
        patient_bench(process, address, "--calls=200", *words)
        patient_bench(process, address, f"--calls={calls}", *words)
        control(process.pid, "--dump")
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
    return next(folder.glob("profile.*"))


@full_only
def test_metrics_cost_below_one_percent_of_a_call(tmp_path, record_property):
    total, functions = inclusive(profile(tmp_path / "metrics", CALLS))
    spent = sum(functions.values())
    called = {name: round(count / CALLS) for name, count in functions.items()}
    record_property("instructions_per_call", total / CALLS)
    record_property("metrics_per_call", spent / CALLS)
    print(f"{total / CALLS:.0f} instructions a call, {spent / CALLS:.0f} of them metrics: {called}")
    # All that a call does was seen.
    for name in ("OnCallDone", "OnInFlight", "OnSent"):
        assert any(f"::{name}(" in function for function in functions), functions
    assert spent < PART_MAX * total


# A call that is mostly transport, and one that is mostly its kernel.
@full_only
@pytest.mark.parametrize(("mix", "calls"), [("small", CALLS), ("softcap", CALLS // 4)])
def test_replaying_one_percent_costs_two_percent_at_most(tmp_path, record_property, mix, calls):
    # Two runs differ by a percent or two without a cause, so every call is a sample here, and a
    # hundredth of what that adds is what a hundredth of the samples does.
    alone, _ = inclusive(profile(tmp_path / "alone", calls, mix=mix))
    every, functions = inclusive(profile(tmp_path / "every", calls, "--replay-every=1", mix=mix))
    added = (every / alone - 1) / 100
    record_property("one_percent_of_replays_adds", added)
    print(f"{alone / calls:.0f} instructions a call, {every / calls:.0f} run twice: {added:+.3%}")
    # There were samples.
    assert any("::OnReplay(" in function for function in functions), functions
    assert added <= REPLAY_ADDS_MAX
