"""CONTRIBUTING.md: the files that it names are there, and every operator is in all places that its steps
name. So an operator that leaves a step out fails, and so does a step that is no longer true."""

import json
import re

import pytest
from conftest import ROOT
from deploy_tools import project_version

import rlk
import rlk.operators

PAGE = (ROOT / "CONTRIBUTING.md").read_text()
METHODS = re.findall(
    r"^(\w+)\.(\w+) /", (ROOT / "tests" / "golden" / "signatures.txt").read_text(), re.MULTILINE
)
OPERATORS = sorted({operator for operator, _ in METHODS})
# A family shares a folder.
FOLDERS = {"qwen3_next_rms_norm": "rms_norm", "rms_norm_gated": "rms_norm"}


def text(name):
    return (ROOT / name).read_text()


def sources(folder, *suffixes):
    paths = sorted((ROOT / folder).rglob("*"))
    return "\n".join(path.read_text() for path in paths if path.suffix in suffixes)


def camel(name):
    return "".join(part.capitalize() for part in name.split("_"))


def test_what_the_page_names_is_there():
    named = {word for word in re.findall(r"`([^`\n]+)`", PAGE) if "/" in word and " " not in word}
    paths = {word for word in named if "<" not in word and not word.startswith("--")}
    assert len(paths) > 15
    assert not [word for word in paths if not (ROOT / word).exists()]


def test_there_are_operators():
    assert len(OPERATORS) >= 8


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_operator_is_where_the_steps_say(operator):
    folder = FOLDERS.get(operator, operator)
    methods = [f"{operator}.{method}" for name, method in METHODS if name == operator]
    ops = f"kernels/ops/{folder}"

    assert operator in text(f"{ops}/README.md")  # 1
    claims = json.loads(text("tests/golden/claims.json"))["claims"]
    assert any(claim["contract"].startswith(f"{operator}/") for claim in claims)
    service = sources("proto/rlk/v1", ".proto")  # 2
    assert f'operator: "{operator}"' in service
    assert (ROOT / ops / "golden.cc").exists()  # 3
    cmake = text("kernels/CMakeLists.txt")
    assert re.search(rf"ops/{folder}/\w*cpu\w*\.cc", cmake)  # 4
    assert f"ops/{folder}/" in text("kernels/cuda/CMakeLists.txt")  # 5
    assert f"kernels/ops/{folder}/" in text("kernels/builtin.cc")  # 6
    stored = text("server/selftest.cc")  # 7
    assert not [method for method in methods if f'"{method}"' not in stored]
    assert operator in sources(f"tests/ops/{folder}", ".cc", ".h")  # 8
    assert folder in sources("tests/gpu", ".cc", ".h")
    assert folder in sources("tests/gpu", ".py")  # 10
    typed = rf"\b{camel(operator)}\w*\(\s*const Client&"
    assert re.search(typed, sources("client/cpp", ".h"))  # 11
    assert callable(getattr(rlk, operator))
    if any("backward" in method for method in methods):
        assert re.search(rf"\b{operator}\b", sources("client/python/rlk", ".py"))
        assert operator in text("client/python/rlk/torch.py")
    for page in ("README.md", "CHANGELOG.md", "client/python/README.md"):  # 12
        assert operator in text(page)


def test_the_changelog_goes_with_the_version():
    headings = re.findall(r"^## \[([^\]]+)\]", text("CHANGELOG.md"), re.MULTILINE)
    assert headings and headings[0] in ("Unreleased", project_version())
    released = [heading for heading in headings if heading != "Unreleased"]
    assert released == sorted(released, key=lambda v: [int(n) for n in v.split(".")], reverse=True)


def test_public_headers_are_those_that_operators_have():
    installed = set(re.findall(r"client/cpp/(\w+\.h)", text("client/install.cmake")))
    typed = {
        path.name
        for path in (ROOT / "client" / "cpp").glob("*.h")
        if re.search(r"\w+Result> \w+\(\s*const Client&", path.read_text())
    }
    assert typed and typed <= installed
