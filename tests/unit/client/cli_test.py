"""The `rlk` command, the client library and its example against a real server.

Starts a server on free addresses and runs each check; prints one line a check and fails on any.
"""

import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile

import parity_cli_checks

FORWARD = "final_logit_softcap.forward"
BACKWARD = "final_logit_softcap.backward"
failures = []


def check(name, condition, detail=""):
    print(("ok   " if condition else "FAIL ") + name + ("" if condition else f": {detail}"))
    if not condition:
        failures.append(name)


class Command:
    def __init__(self, rlk, server):
        self.rlk, self.server = rlk, server

    def __call__(self, *words, server=None):
        return subprocess.run([self.rlk, *words, "--server", server or self.server],
                              capture_output=True, text=True, timeout=120)

    def json(self, *words, code=0, server=None):
        done = self(*words, "--json", server=server)
        check(f"exit code of {' '.join(words)[:70]}", done.returncode == code,
              f"{done.returncode} instead of {code}: {done.stdout} {done.stderr}")
        try:
            return json.loads(done.stdout)
        except json.JSONDecodeError as error:
            check(f"JSON of {' '.join(words)}", False, f"{error}: {done.stdout!r}")
            return {}


def check_info(rlk):
    info = rlk.json("info")
    check("info names the server", bool(info["server_id"]))
    check("info has a cpu backend",
          any(b["name"] == "cpu" and b["available"] for b in info["backends"]), info["backends"])
    check("info has the inline limit", "inline_bytes_max" in info["limits"], info["limits"])
    check("unknown provenance is null", "cuda_driver" in info["provenance"])
    text = rlk("info").stdout
    check("info as text", "provenance" in text and "inline_bytes_max" in text, text)
    check("version is the server's",
          rlk("--version").stdout == f"rlk {info['provenance']['version']}\n", rlk("--version"))
    for words in (("--version", "--json"), ("--json", "version")):
        check("the version as JSON",
              json.loads(rlk(*words).stdout) == {"version": info["provenance"]["version"]}, words)


def check_health(rlk):
    for service in ((), ("rlk.v1.ServerService",)):
        health = rlk.json("health", *service)
        check("a server that serves is healthy", health.get("status") == "SERVING", health)
    check("health as text", rlk("health").stdout == "SERVING\n")
    error = rlk.json("health", "no.such.Service", code=1).get("error", {})
    check("an unknown service is not", error.get("code") == "NOT_FOUND", error)


def check_ops(rlk):
    methods = rlk.json("ops")["methods"]
    check("ops lists both methods",
          {FORWARD, BACKWARD} <= {m["method"] for m in methods}, methods)
    one = rlk.json("ops", "final_logit_softcap")["methods"]
    check("ops of one operator", len(one) == 2)
    forward = next(m for m in one if m["method"] == FORWARD)
    check("ops has contracts with arithmetic", bool(forward["contracts"][0]["arithmetic"]))
    check("ops has claims", any(v["backend"] == "cpu" and v["available"]
                                for v in forward["contracts"][0]["variants"]), forward)
    check("ops has inputs", forward["inputs"][0]["dtypes"] == ["F32", "F16", "BF16"], forward)
    check("ops as text", "tanh" in rlk("ops", "final_logit_softcap").stdout)
    error = rlk.json("ops", "nope", code=1)["error"]
    check("ops of an unknown operator", error["code"] == "NOT_FOUND", error)


def check_call(rlk, directory):
    spec = "random:2x3x257:bf16:7:30"
    result = rlk.json("call", FORWARD, f"x={spec}", "softcap=20")
    y = result["outputs"]["y"]
    check("output dtype and shape", y["dtype"] == "F32" and y["shape"] == [2, 3, 257], y)
    check("server and command agree on the digest",
          result["report"]["output_digests"]["y"] == y["digest"])
    check("input digest", result["report"]["input_digests"]["x"] == result["inputs"][0]["digest"])
    check("effective attributes", result["report"]["attributes"]["softcap"] == 20)
    check("text output", y["digest"] in rlk("call", FORWARD, f"x={spec}", "softcap=20").stdout)
    again = rlk.json("call", FORWARD, f"x={spec}", "softcap=20", "--repeat", "20",
                     "--backend", "cpu", "--mode", "strict",
                     "--contract", result["report"]["contract"])
    check("repeated calls have one digest", again["repeat"]["distinct_digests"] == {"y": 1}, again)
    check("the same digest as before", again["outputs"]["y"]["digest"] == y["digest"])
    check("20 calls timed", again["repeat"]["calls"] == 20 and
          again["repeat"]["latency_us"]["p50"] > 0)
    for kind in ("repeat", "reference"):
        verified = rlk.json("call", FORWARD, f"x={spec}", "--verify", kind)
        verification = verified["report"]["verification"]
        check(f"verify {kind}", verification["verification"] == kind and verification["passed"],
              verification)
    cast = rlk.json("call", FORWARD, f"x={spec}", "output_dtype=bf16")
    check("output_dtype", cast["outputs"]["y"]["dtype"] == "BF16", cast["outputs"])

    out = os.path.join(directory, "out.safetensors")
    rlk.json("call", FORWARD, f"x={spec}", "softcap=20", "--out", out)
    digest = rlk.json("digest", out + "#y")
    check("digest of the written file", digest["digest"] == y["digest"], digest)
    check("digest as text", rlk("digest", out).stdout.startswith(y["digest"]))
    backward = rlk.json("call", BACKWARD, f"x={spec}", f"grad_y={out}#y")
    check("backward", backward["outputs"]["grad_x"]["dtype"] == "BF16", backward["outputs"])

    npy = os.path.join(directory, "y.npy")
    rlk.json("call", FORWARD, f"x={spec}", "softcap=20", "--out", npy)
    check("digest of the .npy", rlk.json("digest", npy)["digest"] == y["digest"])
    # Fortran order of [[1, 2], [3, 4]] is 1 3 2 4.
    header = "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }\n"
    fortran = os.path.join(directory, "f.npy")
    with open(fortran, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() +
                   struct.pack("<4f", 1, 3, 2, 4))
    result = rlk.json("call", FORWARD, "x=" + fortran)
    check("Fortran order", result["inputs"][0]["first_values"] == [1, 2, 3, 4], result["inputs"])
    for shape, elements in (("scalar", 1), ("0x5", 0), ("1x1x1x1x1x1x1x3", 3)):
        result = rlk.json("call", FORWARD, f"x=random:{shape}:f32:1")
        check(f"shape {shape}", len(result["outputs"]["y"]["first_values"]) == elements, result)


def check_options_before_the_command(rlk):
    words = ["call", FORWARD, "x=random:2x3x257:bf16:7:30", "softcap=20"]
    expected = rlk.json(*words)["outputs"]
    for before in (["--server", rlk.server, "--json"], ["--json", f"--server={rlk.server}"],
                   ["--timeout-ms", "60000", "--server", rlk.server, "--json"]):
        done = subprocess.run([rlk.rlk, *before, *words], capture_output=True, text=True,
                              timeout=120)
        name = f"before the command: {' '.join(before)}"
        check(name, done.returncode == 0 and json.loads(done.stdout)["outputs"] == expected,
              done.stdout + done.stderr)
    for words in (["--json"], ["--server"], ["--server", rlk.server], ["--json", "--server"],
                  ["--contract", "a", "info"], ["--json", "--nope", "info"],
                  ["--json", "--json", "info"], ["--json", "--", "info"]):
        done = subprocess.run([rlk.rlk, *words], capture_output=True, text=True, timeout=120)
        check(f"usage error of {' '.join(words)}", done.returncode == 2 and done.stderr,
              done.stdout + done.stderr)


def check_tensors(rlk, directory):
    opened = rlk.json("session", "open", "--ttl", "600")
    check("a session has its lease", opened["lease_ms"] == 600000, opened)
    session = ("--session", opened["token"])
    value = "random:300x1024:bf16:7:30"
    put = rlk.json("put", value, *session)
    check("put gives handle and digest", put["handle"].startswith("handle:") and
          put["digest"] == rlk("digest", value).stdout.split()[0] and put["label"] == value, put)
    again = rlk.json("put", value, "--reuse", "--label", "again", *session)
    check("what is there is not put again", again["handle"] == put["handle"], again)
    plain = rlk.json("call", FORWARD, "x=" + value)["outputs"]["y"]
    by_handle = rlk.json("call", FORWARD, "x=" + put["handle"], *session)
    check("a call by handle gives the same bits",
          by_handle["outputs"]["y"]["digest"] == plain["digest"], by_handle["outputs"])
    kept = rlk.json("call", FORWARD, "x=" + put["handle"], "--keep", "y", "--repeat", "2", *session)
    y = kept["outputs"]["y"]
    check("an output stays", y["shape"] == [300, 1024] and kept["repeat"]["distinct_digests"] ==
          {"y": 1} and kept["report"]["transports"] == ["resident"], kept)
    listed = rlk.json("ls", *session)["tensors"]
    check("ls lists what stays", sorted(t["handle"] for t in listed) ==
          sorted([put["handle"], y["handle"]]), listed)
    out = os.path.join(directory, "kept.safetensors")
    rlk.json("get", y["handle"], "--out", out, *session)
    check("get gives the bits of the call",
          rlk("digest", out).stdout.split()[0] == plain["digest"])
    stranger = rlk.json("session", "open")["token"]
    for words in (("get", y["handle"], "--out", out), ("rm", y["handle"]),
                  ("call", FORWARD, "x=" + y["handle"])):
        error = rlk.json(*words, "--session", stranger, code=1)["error"]
        check(f"another session cannot {words[0]}", error["code"] == "NOT_FOUND", error)
    error = rlk.json("ls", "--session", "0" * 32, code=1)["error"]
    check("no such session", error["code"] == "UNAUTHENTICATED", error)
    rlk.json("rm", put["handle"], y["handle"], *session)
    rlk.json("rm", put["handle"], *session)
    check("rm frees", rlk.json("ls", *session)["tensors"] == [])
    rlk.json("session", "renew", "--ttl", "500", *session)
    rlk.json("session", "close", *session)
    error = rlk.json("ls", *session, code=1)["error"]
    check("a closed session is none", error["code"] == "UNAUTHENTICATED", error)


def check_secrets(rlk):
    """One in the wrong place goes no further."""
    secret = "SECRET-0123"
    for words in (("--token=" + secret, "info"), ("info", "--token", secret), (secret, "info"),
                  ("info", "--flagfile", secret), ("info", secret), ("session", "close", secret),
                  ("info", "--token-file", secret), ("info", "--token-file=" + secret),
                  ("info", "--tls-key", secret), ("info", "--session", secret + "!"),
                  ("info", "--session", secret, "--session", secret)):
        told = rlk(*words)
        check(f"no secret in the error of {' '.join(words)}",
              told.returncode != 0 and secret not in told.stdout + told.stderr, told)


def check_refusals(rlk, directory):
    x = "x=random:4:f32:1"
    for cap in ("0", "-1", "nan", "inf", "1e-46", "1e39", "0x0p0"):
        error = rlk.json("call", FORWARD, x, f"softcap={cap}", code=1)["error"]
        check(f"softcap={cap}", error["code"] == "INVALID_ARGUMENT" and
              error["field"] == "softcap" and error["allowed"], error)
    server_cases = [
        ((FORWARD, "x=random:4:f64:1"), "DTYPE_NOT_ALLOWED", "x"),
        ((FORWARD, "x=random:4:i32:1"), "DTYPE_NOT_ALLOWED", "x"),
        ((FORWARD,), "MISSING_TENSOR", "x"),
        ((BACKWARD, x, "grad_y=random:5:f32:1"), "SHAPE_MISMATCH", "grad_y"),
        ((FORWARD, x, "--contract", "nope"), "UNKNOWN_CONTRACT", "options.contract"),
        ((FORWARD, x, "--backend", "nope"), "UNKNOWN_BACKEND", "options.backend"),
        ((FORWARD, x, "--want", "nope"), "UNKNOWN_OUTPUT", "options.wanted_outputs"),
    ]
    for words, reason, field in server_cases:
        error = rlk.json("call", *words, code=1)["error"]
        check(f"{reason} of the server", error.get("reason") == reason and
              error.get("field", "").startswith(field), error)

    empty = os.path.join(directory, "empty.safetensors")
    open(empty, "wb").close()
    good = os.path.join(directory, "out.safetensors")
    usage_cases = [
        (("call",), "OPERATOR.METHOD"),
        (("call", "final_logit_softcap.sideways", x), FORWARD),
        (("call", FORWARD, "x"), "NAME=VALUE"),
        (("call", FORWARD, "y=1"), "x, softcap, output_dtype"),
        (("call", FORWARD, x, x), "twice"),
        (("call", FORWARD, x, "softcap=1", "softcap=2"), "twice"),
        (("call", FORWARD, x, "softcap=abc"), "softcap"),
        (("call", FORWARD, x, "output_dtype=float"), "f32"),
        (("call", FORWARD, "x=/nonexistent.npy"), "/nonexistent.npy"),
        (("call", FORWARD, "x=" + empty + "#a"), "too short"),
        (("call", FORWARD, "x=" + good + "#nope"), "the keys are: y"),
        (("call", FORWARD, "x=random:4:f32"), "SHAPE:DTYPE:SEED"),
        (("call", FORWARD, x, "--mode", "fast"), "strict, auto"),
        (("call", FORWARD, x, "--verify", "hope"), "repeat, reference"),
        (("call", FORWARD, x, "--repeat", "0"), "[1, "),
        (("call", FORWARD, x, "--out", "y.bin"), "safetensors"),
        (("call", FORWARD, x, "--nope"), "--contract"),
        (("digest",), "FILE"),
        (("digest", "/nonexistent.safetensors#a"), "/nonexistent"),
        (("bench", "nope"), "rpc, transport"),
        (("frobnicate",), "put, get, ls, rm, compare, parity, check-operator"),
        (("put", "random:4:f32:1"), "rlk session open"),
        (("ls",), "rlk session open"),
        (("rm",), "HANDLE"),
        (("rm", "--session", "t", "handle:12"), "32 hex digits"),
        (("get", "--session", "t", "handle:" + "0" * 32), "--out"),
        (("session", "sideways"), "open, renew, close"),
        (("session", "open", "--ttl", "0"), "[1, "),
        (("call", FORWARD, "x=handle:xyz"), "32 hex digits"),
        (("info", "extra"), "no argument"),
        (("health", "a", "b"), "one service"),
    ]
    for words, expected in usage_cases:
        error = rlk.json(*words, code=2).get("error", {})
        check(f"usage error of {' '.join(words)[:60]}", expected in error.get("message", ""), error)
    check("errors as text go to stderr", "softcap" in rlk("call", FORWARD, x, "softcap=0").stderr)

    nobody = "unix:" + os.path.join(directory, "nobody")
    for words in (("info",), ("health",), ("ops",), ("call", FORWARD, x), ("bench", "rpc")):
        error = rlk.json(*words, code=3, server=nobody)["error"]
        check(f"unreachable server of {words[0]}", nobody in error["message"], error)
    for name in ("info", "health"):
        check(f"malformed address of {name}", rlk(name, server="nowhere").returncode == 2)
    check("help", "Exit codes" in subprocess.run([rlk.rlk, "help"], capture_output=True,
                                                 text=True).stdout)


def check_bench(rlk):
    result = rlk.json("bench", "rpc", "--calls", "50", "--blocks", "2", "--callers", "1,3",
                      "--seconds", "0.1")
    check("bench measures all kinds",
          all(result["latency_us"][k]["calls"] == 100 for k in ("empty", "health", "softcap")))
    check("bench has a ratio", result["p50_ratio"] > 0)
    check("bench has throughput", [t["callers"] for t in result["throughput"]] == [1, 3] and
          all(t["softcap_calls_per_second"] > 0 for t in result["throughput"]))


def write_npy(path, shape, values):
    """FP32 in C order."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape!r}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        file.write(struct.pack(f"<{len(values)}f", *values))


def check_compare(rlk, directory):
    spec = "random:4x300:bf16:7:3"
    equal = rlk.json("compare", spec, spec)
    check("equal tensors pass", equal["passed"] and equal["counts"]["compared"] == 1200 and
          equal["triage"]["triage_class"] == "none" and equal["first_mismatch"] is None, equal)
    digest = rlk("digest", spec).stdout.split()[0]
    check("a digest takes a side", rlk.json("compare", spec, digest)["passed"])
    rlk.json("compare", "random:4x300:bf16:8:3", digest, code=1)
    left, right = (os.path.join(directory, name) for name in ("left.npy", "right.npy"))
    values = [0.25 * i for i in range(6000)]
    write_npy(left, (2, 3000), values)
    values[4567] += 0.5
    write_npy(right, (2, 3000), values)
    differ = rlk.json("compare", left, right, "--axes", "token,channel", code=1)
    first = differ["first_mismatch"]
    check("the first mismatch is found", first["flat_index"] == 4567 and
          [(c["axis"], c["index"]) for c in first["coordinates"]] ==
          [("token", 1), ("channel", 1567)] and first["left_bits"] != first["right_bits"], first)
    text = rlk("compare", left, right)
    check("a difference as text", "FAILED" in text.stdout and "1567" in text.stdout and
          text.returncode == 1 and "do not pass" in text.stderr, text)
    judged = rlk.json("compare", left, left, "--judgment", "accuracy", "--op-class", "reduction",
                      "--gradient")
    check("accuracy names its row",
          judged["rule"]["row"] == "gradient_accuracy/reduction/float32", judged["rule"])
    error = rlk.json("compare", left, left, "--judgment", "taste", code=2)["error"]
    check("judgments are named", error["allowed"] == "accuracy, invariance, parity", error)
    # 3 MB a side: through the server, and gone afterwards.
    large = "random:1000x1500:bf16:7:3"
    check("large tensors are compared", rlk.json("compare", large, large)["passed"])


def check_parity(rlk, directory):
    rollout, trainer = (os.path.join(directory, name) for name in ("rollout.npy", "trainer.npy"))
    write_npy(rollout, (2, 2), [-1, -2, -0.5, -3])
    write_npy(trainer, (2, 2), [-1, -2.25, -0.5, -3])
    policy = rlk.json("parity", "policy", rollout, trainer, code=1)
    check("policies are compared", policy["difference"]["max_abs"] == 0.25 and
          policy["metrics"]["sampling/sampling_logp_difference/max"] == 0.25 and
          policy["chain"]["passed"] is False, policy)
    check("equal policies pass",
          rlk.json("parity", "policy", rollout, rollout)["chain"]["passed"])

    tokens = [rlk("session", "open").stdout.strip() for _ in range(2)]
    left, right = os.path.join(directory, "left.npy"), os.path.join(directory, "right.npy")
    values = [0.25 * i for i in range(6000)]
    write_npy(left, (60, 100), values)
    values[4567] += 0.5
    write_npy(right, (60, 100), values)
    handles = [rlk("put", path, "--session", token).stdout.strip()
               for path, token in zip((left, right, left), (tokens[0], tokens[1], tokens[1]))]
    sides = [f"{rlk.server}#{handle}" for handle in handles]
    sessions = ("--session-left", tokens[0], "--session-right", tokens[1])
    differ = rlk.json("parity", "digests", sides[0], sides[1], *sessions, code=1)
    check("digests find the row", differ["first_different_row"] == 45 and
          differ["different_rows"] == 1 and
          differ["comparison"]["first_mismatch"]["flat_index"] == 67, differ)
    check("equal digests pass",
          rlk.json("parity", "digests", sides[0], sides[2], *sessions)["equal"])
    error = rlk.json("parity", "digests", handles[0], sides[1], *sessions, code=2)["error"]
    check("a side without a server", error["allowed"] == "ADDR#HANDLE", error)
    for token in tokens:
        rlk("session", "close", "--session", token)


def check_program(name, words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=240)
    check(name, done.returncode == 0, done.stdout + done.stderr)


def main():
    parser = argparse.ArgumentParser()
    for flag in ("--server", "--rlk", "--library-test", "--example"):
        parser.add_argument(flag, required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        socket = os.path.join(directory, "r%41#?k.sock")  # the path is no URI
        server = subprocess.Popen(
            [args.server, "--listen", "127.0.0.1:0", "--unix", socket, "--metrics", "127.0.0.1:0"],
            stdout=subprocess.PIPE, text=True)
        try:
            addresses = json.loads(server.stdout.readline())
            listen = addresses["listen"]
            tcp = listen[0] if isinstance(listen, list) else listen
            for address in (tcp, "unix:" + socket):
                rlk = Command(args.rlk, address)
                check_info(rlk)
                check_health(rlk)
                check_call(rlk, directory)
            check_options_before_the_command(rlk)
            check_ops(rlk)
            check_tensors(rlk, directory)
            check_compare(rlk, directory)
            check_parity(rlk, directory)
            parity_cli_checks.run(check, rlk, directory)
            check_refusals(rlk, directory)
            check_secrets(rlk)
            check_bench(rlk)
            check_bench(Command(args.rlk, tcp))
            check_program("example", [args.example, tcp])
            check_program("client library", [args.library_test, tcp, "unix:" + socket])
        finally:
            server.terminate()
            check("server ends", server.wait(timeout=60) == 0, server.returncode)
        left = [name for name in os.listdir(directory) if name.endswith(".part")]
        check("no file is left half written", not left, left)
    print(f"{len(failures)} failed" if failures else "all passed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
