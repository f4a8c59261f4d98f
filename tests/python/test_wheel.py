"""The wheel: built as a release would be, installed where nothing else of rlk is, and used."""

import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
import zipfile

import pytest
from conftest import PACKAGE, ROOT
from deploy_tools import project_version

# Run by the interpreter of the fresh environment.
USE = """
import json, sys
import numpy as np
import rlk
with rlk.connect(sys.argv[1], timeout=60) as client:
    x = np.float32([-100, 0, 100])
    out = client.call("final_logit_softcap.forward", x=x, softcap=20.0, digests="tensor")
    server = client.info().provenance.version
    print(json.dumps({
        "file": rlk.__file__, "version": rlk.__version__, "server": server,
        "y": [round(float(v), 3) for v in out.y],
        "digest": out.report.output_digests["y"] == rlk.digest(out.y)}))
"""


def run(command, **options):
    done = subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        **options,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built through the source distribution, so that one is checked too. Without network: what the
    build needs is in this environment."""
    for module in ("build", "setuptools"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed; it is in the package's extra `test`")
    out = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", out, PACKAGE])
    version = project_version()
    assert sorted(path.name for path in out.iterdir()) == [
        f"rlk-{version}-py3-none-any.whl",
        f"rlk-{version}.tar.gz",
    ]
    return out / f"rlk-{version}-py3-none-any.whl"


def test_holds_the_package_and_its_licence_alone(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        licence = f"rlk-{project_version()}.dist-info/licenses/LICENSE"
        assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()
    source = {
        str(path.relative_to(PACKAGE))
        for path in (PACKAGE / "rlk").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert names == source


def test_works_in_an_environment_of_its_own(wheel, server, tmp_path):
    environment = tmp_path / "venv"
    run([sys.executable, "-m", "venv", environment])
    python = environment / "bin" / "python"
    run([python, "-m", "pip", "install", "--no-index", "--no-deps", wheel])
    # Its dependencies are those of this environment: a line of a .pth file adds a folder, but not
    # the .pth files in it, by which an editable rlk would come along.
    site = run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip()
    folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    with open(os.path.join(site, "dependencies.pth"), "w", encoding="utf-8") as file:
        file.write("".join(folder + "\n" for folder in sorted(folders)))

    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    used = json.loads(run([python, "-c", USE, server.tcp], cwd=tmp_path, env=clean))
    version = project_version()
    assert used.pop("file").startswith(str(environment))
    assert used == {
        "version": version,
        "server": version,
        "y": [-19.998, 0.0, 19.998],
        "digest": True,
    }
    # What the wheel asks for is there. Other packages of this environment may be at odds.
    asked = subprocess.run([python, "-m", "pip", "check"], capture_output=True, text=True, cwd=tmp_path,
                           env=clean, check=False)
    assert not [line for line in asked.stdout.splitlines() if line.startswith("rlk ")]
