"""`rlk bench load` against a real server: what it prints, and that the server saw its calls."""

import json
import os
import re
import subprocess
import threading

import jsonschema
import pytest
from conftest import ROOT, Server, find_command

SCHEMA = json.loads((ROOT / "client" / "cli" / "bench_load.schema.json").read_text())
SOURCE = (ROOT / "client" / "cli" / "load_kinds.cc").read_text()
KINDS = re.findall(r'^ {6}\{"(\w+)",', SOURCE, re.M)


def bench(server, *words, code=0):
    command = find_command()
    if command is None or not os.access(command, os.X_OK):
        pytest.skip("rlk is not built beside the server; set RLK_COMMAND_BIN")
    done = subprocess.run(
        [str(command), "bench", "load", "--json", "--server", server, *words],
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout), done.stderr


def requests_ok(server):
    series = re.findall(r'^rlk_requests_total\{code="OK".*\} (\S+)$', server.scrape(), re.M)
    return sum(map(float, series))


def test_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--rate=2000",),
        ("--rate=2000", "--arrivals=poisson", "--seed=7"),
        ("--blocks=3",),
        ("--blocks=2", "--rate=3000"),
        ("--blocks=2", "--turns=7"),
        ("--blocks=2", "--turns=200"),
        ("--blocks=2", "--turns=3", "--rate=3000", "--arrivals=poisson"),
    ],
    ids=" ".join,
)
def test_json_is_that_of_the_schema(server, words):
    result, _ = bench(server.unix, "--calls=200", "--clients=3", "--warm-up=5", *words)
    jsonschema.validate(result, SCHEMA)
    plan = result["plan"]
    assert plan["loop"] == ("open" if any("rate" in word for word in words) else "closed")
    assert len(result["runs"]) == (1 if plan["blocks"] == 1 else 2)
    asked = [int(word.split("=")[1]) for word in words if word.startswith("--turns")]
    # 200 calls by three clients are two turns with 25 calls of each.
    assert plan["turns"] == (asked[0] if asked else 1 if plan["blocks"] == 1 else 2)
    assert (result["difference_of_medians"] is None) == (plan["blocks"] == 1)
    for run in result["runs"]:
        assert len(run["blocks"]) == plan["blocks"]
        for block in run["blocks"]:
            assert block["calls"] == 200 and block["errors"] == {}
            assert sum(kind["calls"] for kind in block["kinds"].values()) == 200
            assert (block["behind_us"] is None) == (plan["loop"] == "closed")
            latency = block["latency_us"]
            order = [latency[name] for name in ("min", "p50", "p90", "p99", "p999", "max")]
            assert order == sorted(order)
    # The same calls in every block.
    mixes = {
        tuple(kind["calls"] for kind in block["kinds"].values())
        for run in result["runs"]
        for block in run["blocks"]
    }
    assert len(mixes) == 1


def transport_bytes(server):
    """{(transport, direction): bytes}."""
    series = r'^rlk_transport_bytes_total\{direction="(\w+)",transport="(\w+)"\} (\S+)$'
    found = re.findall(series, server.scrape(), re.M)
    return {(transport, direction): float(value) for direction, transport, value in found}


# What calls of a kind read and write elsewhere than in their messages, or stream.
MOVED = {
    "resident": {("resident", "in"): 64 * 4096 * 4, ("resident", "out"): 64 * 4096 * 4},
    "resident_norm": {("resident", "in"): 65 * 2048 * 2, ("resident", "out"): 64 * 2048 * 2},
    "host_arena": {("host_arena", "in"): 64 * 4096 * 4, ("host_arena", "out"): 64 * 4096 * 4},
    "upload": {("stream", "in"): 4 << 20},
    "download": {("stream", "out"): 4 << 20},
}
NO_CALLS = {"upload", "download"}


def test_every_kind_runs_and_is_counted_by_the_server(server):
    assert len(KINDS) == 12
    # The server has no GPU.
    here = [kind for kind in KINDS if kind != "device_arena"]
    requests, moved = requests_ok(server), transport_bytes(server)
    words = ("--calls=220", "--clients=2", "--warm-up=0", f"--mix={','.join(here)}")
    result, _ = bench(server.unix, *words)
    [run] = result["runs"]
    [block] = run["blocks"]
    kinds = {name: kind["calls"] for name, kind in block["kinds"].items()}
    assert set(kinds) == set(here) and min(kinds.values()) > 0
    # A stream is no call of an operator.
    streams = sum(kinds[name] for name in NO_CALLS)
    assert requests_ok(server) - requests == 220 - streams
    now = transport_bytes(server)
    for name, ways in MOVED.items():
        for way, each in ways.items():
            grown = now[way] - moved[way]
            users = [other for other in MOVED if way in MOVED[other]]
            if way[0] == "stream":
                # What stays on the server was sent before the calls.
                assert grown >= kinds[name] * each
            else:
                assert grown == sum(kinds[other] * MOVED[other][way] for other in users), way


@pytest.mark.parametrize(
    ("kind", "over", "reason"),
    [("host_arena", "tcp", "PLACEMENT_UNAVAILABLE"), ("device_arena", "unix", "DEVICE_NOT_FOUND")],
)
def test_a_transport_that_is_not_there_is_refused(server, kind, over, reason):
    result, _ = bench(getattr(server, over), f"--mix=small,{kind}", "--calls=10", code=1)
    assert result["error"]["reason"] == reason


def test_tensors_that_have_no_room_are_the_servers_refusal(server_binary, tmp_path):
    full = Server(server_binary, tmp_path, "--resident-bytes-max=4000000")
    try:
        result, _ = bench(full.tcp, "--mix=resident", "--calls=10", code=1)
        assert result["error"]["reason"] == "BYTES_EXHAUSTED"
        # Two clients have room.
        bench(full.tcp, "--mix=resident", "--calls=10", "--clients=1")
    finally:
        full.stop()


def test_a_server_that_is_killed_is_counted_as_errors(server_binary, tmp_path):
    """Every call of the plan is made or counted; what was measured before is told."""
    dying = Server(server_binary, tmp_path)
    # In the midst of it: the server has answered the warm-up of both runs, and some more.
    killer = threading.Thread(target=kill_after_calls, args=(dying, 2500))
    killer.start()
    try:
        words = ("--calls=30000", "--clients=2", "--warm-up=1000", "--mix=small", "--blocks=2")
        result, errors = bench(dying.tcp, *words, code=1)
    finally:
        killer.join()
        dying.process.stdout.close()
    jsonschema.validate(result, SCHEMA)
    blocks = [block for run in result["runs"] for block in run["blocks"]]
    for block in blocks:
        assert set(block["errors"]) <= {"UNAVAILABLE", "CANCELLED"}
        assert block["calls"] + sum(block["errors"].values()) == 30000
        assert (block["latency_us"] is None) == (block["calls"] == 0)
    failed = sum(sum(block["errors"].values()) for block in blocks)
    assert f"{failed} calls failed; one of them: " in errors
    # The second blocks begin long after its end.
    assert all(run["blocks"][1]["calls_per_second"] == 0 for run in result["runs"])


def kill_after_calls(server, calls):
    while requests_ok(server) < calls:
        pass
    server.process.kill()
    server.process.wait()


def test_clients_have_connections_of_their_own(server_binary, tmp_path):
    few = Server(server_binary, tmp_path, "--connections-max=12")
    try:
        bench(few.tcp, "--calls=50", "--clients=2")
        result, _ = bench(few.tcp, "--calls=50", "--clients=32", "--timeout-ms=2000", code=3)
        assert result["error"]["code"] in ("UNAVAILABLE", "DEADLINE_EXCEEDED")
    finally:
        few.stop()


def test_errors_are_counted_and_fail_the_run(server_binary, tmp_path):
    # What is larger than the bound is refused by the server.
    small = Server(server_binary, tmp_path, "--inline-bytes-max=1024")
    try:
        words = ("--calls=60", "--warm-up=0", "--mix=small,softcap")
        result, errors = bench(small.tcp, *words, code=1)
        jsonschema.validate(result, SCHEMA)
        [block] = result["runs"][0]["blocks"]
        failed = block["kinds"]["softcap"]["errors"]
        assert set(failed) == {"INVALID_ARGUMENT"} and block["kinds"]["softcap"]["calls"] == 0
        assert block["kinds"]["small"]["errors"] == {}
        assert block["calls"] + sum(failed.values()) == 60
        assert "calls failed" in errors
    finally:
        small.stop()


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (("--mix=large",), "--mix"),
        (("--rate=0",), "--rate"),
        (("--arrivals=poisson",), "--arrivals"),
        (("--rate=5", "--arrivals=bursts"), "--arrivals"),
        (("--clients=0",), "--clients"),
        (("--clients=257",), "--clients"),
        (("--against=127.0.0.1:1",), "--against"),
        (("--rate=1e-300",), "--rate"),
        (("--rate=0.1", "--calls=8641"), "--rate"),
        (("--turns=2",), "--turns"),
        (("--turns=0", "--blocks=2"), "--turns"),
        (("--turns=11", "--blocks=2", "--calls=10"), "--turns"),
        (("--callers=4",), "--callers"),
        (("--seconds=1",), "--seconds"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_wrong_options_are_named(server, words, field):
    result, _ = bench(server.tcp, *words, code=2)
    assert result["error"]["field"] == field and result["error"]["allowed"]
