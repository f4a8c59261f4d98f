"""The package: generated code, the descriptor pool, typing marker, public names."""

import pathlib
import shutil
import subprocess

import pytest
from conftest import PACKAGE, ROOT
from google.protobuf import descriptor_pool
from google.rpc import error_details_pb2

import rlk
from rlk import _methods
from rlk._proto import contract_pb2


def protoc_version():
    protoc = shutil.which("protoc")
    if protoc is None:
        return "none"
    return subprocess.run([protoc, "--version"], capture_output=True, text=True).stdout.strip()


def test_generated_code_is_up_to_date(tmp_path):
    version = protoc_version()
    if not version.startswith("libprotoc 3.21."):
        pytest.skip(f"protoc 3.21 is needed, found {version}")
    if not (ROOT / "proto").is_dir():
        pytest.skip("the proto files are not here")
    subprocess.run([str(PACKAGE / "generate.sh"), str(tmp_path)], check=True)
    committed = pathlib.Path(PACKAGE / "rlk" / "_proto")
    fresh = {path.name: path.read_text() for path in tmp_path.glob("*_pb2.py*")}
    assert any(name.endswith(".pyi") for name in fresh)
    assert fresh == {path.name: path.read_text() for path in committed.glob("*_pb2.py*")}


@pytest.mark.parametrize("name", ["ActivationService", "ConditioningService", "LinearService",
                                  "NormService"])
def test_every_operator_method_is_known(name):
    service = descriptor_pool.Default().FindServiceByName("rlk.v1." + name)
    for method in service.methods:
        operator = method.GetOptions().Extensions[contract_pb2.method].operator
        assert any(
            known.path == f"/{service.full_name}/{method.name}"
            and known.name.startswith(operator + ".")
            for known in _methods.all_methods().values()
        )


def test_google_rpc_comes_from_elsewhere():
    # One copy in the pool: ours would collide with any other package's.
    assert not list((PACKAGE / "rlk").rglob("error_details*"))
    assert error_details_pb2.ErrorInfo.DESCRIPTOR.full_name == "google.rpc.ErrorInfo"


def test_typed_and_public_names():
    assert (pathlib.Path(rlk.__file__).parent / "py.typed").exists()
    for name in rlk.__all__:
        if name != "torch":
            assert getattr(rlk, name) is not None
    with pytest.raises(AttributeError):
        rlk.nothing  # noqa: B018


@pytest.mark.parametrize("address", ["", "localhost", None, 5])
def test_bad_addresses(address):
    with pytest.raises(rlk.InvalidArgumentError):
        rlk.connect(address)
