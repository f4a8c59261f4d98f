"""The examples of the Python package, small, against real servers. Skipped without transformers."""

import importlib.util
import json

import pytest
from conftest import PACKAGE, Server

import rlk

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
if not hasattr(transformers, "Qwen3NextForCausalLM"):
    pytest.skip(
        f"transformers {transformers.__version__} has no Qwen3-Next", allow_module_level=True
    )

SMALL = ["--steps=3", "--batch=4", "--length=24"]


@pytest.fixture(scope="module")
def example():
    path = PACKAGE / "examples" / "tiny_qwen3_next.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="module")
def reference(server_binary, tmp_path_factory):
    running = Server(server_binary, tmp_path_factory.mktemp("reference"), "--backends=cpu")
    yield running
    assert running.stop() == 0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_trains_and_meets_its_rollout(example, server, reference, tmp_path, capsys, dtype):
    report = tmp_path / "policies.json"
    words = [f"--server={server.tcp}", f"--reference={reference.tcp}", f"--report={report}"]
    code = example.main([*words, *SMALL, f"--dtype={dtype}"])
    printed = capsys.readouterr().out
    assert code == 0, printed
    assert "losses of both servers: the same bits" in printed
    assert "weights after the last step: the same bits" in printed
    assert "14 norms" in printed and printed.endswith("\nok\n")
    chapters = json.loads(report.read_text())["chapters"]
    assert [c["result"]["tokens"] for c in chapters] == [4 * (24 - example.PROMPT)] * 4
    for chapter in chapters[:2]:  # both sides on servers
        found = chapter["result"]
        assert found["difference"]["mismatched"] == found["difference"]["max_abs"] == 0
        assert found["kl"]["k3"] == 0 and found["ratios"]["token"]["max"] == 1
    assert chapters[2]["label"] == "transformers | server"
    own = chapters[2]["result"]  # in BF16, 64 tokens may happen to be the same
    assert dtype == "bfloat16" or (own["difference"]["mismatched"] > 0 and own["kl"]["k3"] > 0)


def test_starts_its_servers(example, server_binary, capsys):
    assert example.main([f"--start={server_binary}", *SMALL, "--steps=1", "--length=10"]) == 0
    assert "reference server (cpu): cpu on" in capsys.readouterr().out


@pytest.mark.parametrize("where", ["training", "rollout"])
def test_fails_where_bits_differ(example, server, reference, capsys, monkeypatch, where):
    """With a reference that leaves the norms to transformers, which is what it would do if nothing
    were replaced."""
    replace = example.Side.replace

    def forgetful(side, model):
        forgets = side.name.startswith("reference")
        in_rollout = not torch.is_grad_enabled() or where == "training"
        return None if forgets and in_rollout else replace(side, model)

    monkeypatch.setattr(example.Side, "replace", forgetful)
    if where == "rollout":
        compare = example.compare

        def without_gradients(*args, **kwargs):
            with torch.no_grad():
                return compare(*args, **kwargs)

        monkeypatch.setattr(example, "compare", without_gradients)
    words = [f"--server={server.tcp}", f"--reference={reference.tcp}", *SMALL]
    assert example.main(words) == 1
    printed = capsys.readouterr().out
    assert printed.endswith("\nFAILED\n")
    assert ("losses of both servers: DIFFERENT" in printed) == (where == "training")
    assert "FAILED: server | reference server (cpu) differ" in printed


@pytest.mark.parametrize(
    "words", [[], ["--server=x"], ["--start=/bin/sh", "--server=b", "--reference=c"]]
)
def test_needs_two_servers(example, words, capsys):
    with pytest.raises(SystemExit):
        example.arguments(words)
    assert "give --start, or --server and --reference" in capsys.readouterr().err


@pytest.mark.parametrize(
    "word",
    [
        "--steps=0",
        "--batch=0",
        "--length=8",  # nothing would be sampled, and nothing compared
        "--device=nothing",
        "--start=/nonexistent",
        "--report=policies.pdf",
        "--report=/nonexistent/policies.html",
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is(example, word, capsys):
    with pytest.raises(SystemExit) as ended:
        example.arguments(["--server=a", "--reference=b", word])
    assert ended.value.code == 2
    assert f"argument {word.split('=')[0]}:" in capsys.readouterr().err


def test_a_program_that_is_no_server_is_said(example):
    with pytest.raises(SystemExit, match="is no rlk-server"):
        example.main(["--start=/bin/echo"])


def test_losses_are_compared_by_their_bits(example, capsys):
    """NaN is the same as itself, 0 is not -0, and last bits count."""
    nan, zero = float("nan"), 0.0
    for ours, theirs, equal in (
        ([1.0, nan], [1.0, nan], True),
        ([zero], [-zero], False),
        ([1.0], [1.0 + 2**-23], False),
    ):
        runs = {
            name: example.Trained(None, [torch.tensor(x) for x in losses], 1.0, "digest")
            for name, losses in (("a", ours), ("b", theirs), ("c", ours))
        }
        assert example.show_training(runs, 1) == equal
        assert ("DIFFERENT BITS" in capsys.readouterr().out) != equal


def test_a_backend_that_is_not_there_is_an_error(example, server, reference):
    words = [f"--server={server.tcp}", f"--reference={reference.tcp}", "--backend=nothing", *SMALL]
    with pytest.raises(rlk.InvalidArgumentError, match="nothing"):
        example.main(words)
