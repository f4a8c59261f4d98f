"""`rlk bench load` against a real server: what it prints, and that the server saw its calls."""

import json
import os
import re
import subprocess

import jsonschema
import pytest
from conftest import ROOT, Server, find_command

SCHEMA = json.loads((ROOT / "client" / "cli" / "bench_load.schema.json").read_text())
SOURCE = (ROOT / "client" / "cli" / "load_kinds.cc").read_text()
KINDS = re.findall(r'^ +\{"(\w+)", "(?!random:)', SOURCE, re.M)


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
    ],
    ids=" ".join,
)
def test_json_is_that_of_the_schema(server, words):
    result, _ = bench(server.unix, "--calls=200", "--clients=3", "--warm-up=5", *words)
    jsonschema.validate(result, SCHEMA)
    plan = result["plan"]
    assert plan["loop"] == ("open" if any("rate" in word for word in words) else "closed")
    assert len(result["runs"]) == (1 if plan["blocks"] == 1 else 2)
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


def test_every_kind_runs_and_is_counted_by_the_server(server):
    assert len(KINDS) == 9
    before = requests_ok(server)
    words = ("--calls=180", "--clients=2", "--warm-up=0", f"--mix={','.join(KINDS)}")
    result, _ = bench(server.tcp, *words)
    [run] = result["runs"]
    [block] = run["blocks"]
    kinds = block["kinds"]
    assert set(kinds) == set(KINDS) and all(kind["calls"] > 0 for kind in kinds.values())
    # An upload is no call of an operator.
    assert requests_ok(server) - before == 180 - kinds["upload"]["calls"]


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
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_wrong_options_are_named(server, words, field):
    result, _ = bench(server.tcp, *words, code=2)
    assert result["error"]["field"] == field and result["error"]["allowed"]
