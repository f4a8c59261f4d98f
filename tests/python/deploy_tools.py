"""Programs that check deployment files. They come from PyPI, into the environment of these tests; where
one is missing, the tests that need it are skipped."""

import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT

DEPLOY = ROOT / "deploy"


def program(name, package):
    """The program's path; skips where it is not installed."""
    beside = pathlib.Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed; it is in the PyPI package {package}")
    return found


def run(*command, expect=0, **options):
    """Its stdout. `expect` None takes any exit code, and both streams."""
    done = subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        **options,
    )
    if expect is None:
        return done.stdout + done.stderr
    assert done.returncode == expect, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def project_version():
    text = (ROOT / "CMakeLists.txt").read_text()
    return re.search(r"^project\(rlk VERSION (\d+\.\d+\.\d+)", text, re.MULTILINE).group(1)


def flags(arguments):
    """{"drain-seconds": "90", ...}"""
    return dict(word.removeprefix("--").split("=", 1) for word in arguments)
