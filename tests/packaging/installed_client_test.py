#!/usr/bin/env python3
"""Installs the build, moves the tree, and builds and runs a foreign project against it.

The project (consumer/) finds the package, links rlk::client, includes every installed header, and
calls the installed server. Also: one version everywhere, no path of the source or build tree in the
package, and an error where another version is asked for.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
STOP_SECONDS = 60


def run(*command, expect=0, **options):
    done = subprocess.run([str(word) for word in command], text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **options)
    if (done.returncode == 0) != (expect == 0):
        sys.exit(f"{' '.join(map(str, command))}\nended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def check(condition, text):
    if not condition:
        sys.exit(f"FAILED: {text}")


def install(args):
    """Both components below one prefix, which then moves: a package must not know where it was."""
    first, prefix = args.work / "first", args.work / "prefix"
    for component in ("development", "runtime"):
        run(args.cmake, "--install", args.build, "--prefix", first, "--component", component)
    first.rename(prefix)
    return prefix


def check_no_foreign_paths(args, prefix):
    texts = [path for path in prefix.rglob("*") if path.suffix in (".cmake", ".h", ".proto")]
    check(any(path.name == "rlkConfig.cmake" for path in texts), "rlkConfig.cmake is installed")
    for path in texts:
        text = path.read_text(encoding="utf-8")
        for tree in (args.source, args.build, args.work / "first"):
            # A generated header names its .proto relative to the root of the imports.
            check(str(tree) not in text, f"{path.relative_to(prefix)} names {tree}")


def check_versions(args, prefix):
    command = run(prefix / "bin" / "rlk", "--version").strip()
    check(command == f"rlk {args.version}", f"rlk --version says {command}")
    server = run(prefix / "bin" / "rlk-server", "--version").split("\n")[0]
    check(server.startswith(f"rlk-server {args.version} "), f"rlk-server --version says {server}")


def configure(args, prefix, folder, *options, expect=0):
    return run(args.cmake, "-G", "Ninja", "-S", HERE / "consumer", "-B", args.work / folder,
               "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_PREFIX_PATH={prefix}",
               f"-DCMAKE_CXX_COMPILER={args.compiler}", f"-DCMAKE_CXX_FLAGS={args.cxx_flags}",
               f"-DCMAKE_CXX_COMPILER_LAUNCHER={args.launcher}", *options, expect=expect)


def build_consumer(args, prefix):
    include = prefix / "include" / "rlk"
    headers = sorted(path.relative_to(include) for path in include.rglob("*.h"))
    check(len(headers) > 30, f"only {len(headers)} headers are installed")
    source = args.work / "all_headers.cc"
    source.write_text("".join(f'#include "{header}"\n' for header in headers))
    configure(args, prefix, "consumer", f"-DALL_HEADERS={source}")
    output = run(args.cmake, "--build", args.work / "consumer")
    check("warning:" not in output, f"the consumer compiles without warnings:\n{output}")
    return args.work / "consumer" / "consumer"


def call_server(prefix, consumer, version):
    server = subprocess.Popen(
        [prefix / "bin" / "rlk-server", "--listen=127.0.0.1:0", "--metrics="],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = server.stdout.readline()
        check(line, "the installed server starts")
        listen = json.loads(line)["listen"]
        address = listen if isinstance(listen, str) else listen[0]
        output = run(consumer, address).split("\n")
        wanted = [f"rlk {version}", "-19.998 0.000 19.998 under final_logit_softcap/portable-v1",
                  "refused softcap", ""]
        check(output == wanted, f"the consumer printed {output}, not {wanted}")
        health = run(prefix / "bin" / "rlk", "health", "--server", address).strip()
        check(health == "SERVING", f"rlk health says {health}")
        server.send_signal(signal.SIGTERM)
        _, log = server.communicate(timeout=STOP_SECONDS)
        check(server.returncode == 0, f"the server ended with {server.returncode}:\n{log}")
    finally:
        server.kill()
        server.wait()
    gone = subprocess.run([prefix / "bin" / "rlk", "health", "--server", address],
                          capture_output=True, check=False)
    check(gone.returncode == 3, f"rlk health without a server ends with {gone.returncode}")


def main():
    parser = argparse.ArgumentParser()
    for name in ("cmake", "build", "source", "work"):
        parser.add_argument(f"--{name}", required=True, type=pathlib.Path)
    for name in ("compiler", "cxx-flags", "launcher", "version"):
        parser.add_argument(f"--{name}", required=True)
    args = parser.parse_args()
    os.environ.setdefault("CCACHE_BASEDIR", str(args.source))
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)

    prefix = install(args)
    check_no_foreign_paths(args, prefix)
    check_versions(args, prefix)
    consumer = build_consumer(args, prefix)
    refusal = configure(args, prefix, "refused", "-DRLK_WANTED_VERSION=99.0", expect=1)
    check(f"version: {args.version}" in refusal, f"another version is refused:\n{refusal}")
    call_server(prefix, consumer, args.version)


if __name__ == "__main__":
    main()
