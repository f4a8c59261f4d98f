"""The chain of MiniMax-H3's timestep conditioning, on made-up weights: rlk.h3, and the command."""

import hashlib
import json
import os
import pathlib
import subprocess

import jsonschema
import numpy as np
import pytest
from conftest import Server, find_server
from google.protobuf import json_format

import rlk
from rlk import h3, reporting

SIZES = (32, 48, 24, 8)  # channels, hidden, embedding, width


def find_command():
    named = os.environ.get("RLK_COMMAND_BIN")
    if named:
        return pathlib.Path(named)
    server, _ = find_server()
    return server.parents[1] / "client" / "rlk" if server else None


def command(*words, code=0):
    found = find_command()
    if found is None or not os.access(found, os.X_OK):
        pytest.skip("rlk is not built beside the server; set RLK_COMMAND_BIN")
    done = subprocess.run([str(found), *map(str, words)], capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder of weights, and its manifest beside it."""
    made = tmp_path_factory.mktemp("h3")
    sizes = ",".join(map(str, SIZES))
    command("weights", "synthetic", made / "weights", "--sizes", sizes, "--seed", 7)
    command("weights", "prepare", made / "weights", "--out", made / "h3.json")
    return made


@pytest.fixture(scope="module")
def manifest(root):
    return h3.load_manifest(root / "h3.json")


@pytest.fixture(scope="module")
def serving(server_binary, root, tmp_path_factory):
    running = Server(server_binary, tmp_path_factory.mktemp("server"), f"--weights-root={root}")
    yield running
    assert running.stop() == 0, running.log.read_text()[-2000:]


@pytest.fixture
def client(serving):
    with rlk.connect(serving.tcp, timeout=60) as made:
        yield made
        assert made.tensors() == (), "everything is released"


def check(client, manifest, **options):
    return h3.check_chain(client, manifest, folder="weights", **options)


def test_agrees_with_the_reference_for_every_t(client, manifest):
    report = check(client, manifest, backward=True)
    assert report.passed and report.first is None
    assert report.synthetic == "seed 7" and len(report.timesteps) == 4
    assert list(report.counts) == [1, 2, 3, 4]
    for stages in report.counts.values():
        assert [stage.stage for stage in stages] == [stage.name for stage in h3.STAGES]
        for stage in stages:
            assert stage.checked.backend == "cpu" and stage.reference.backend == "golden"
            assert all(output.chain.counts.compared > 0 for output in stage.outputs)
            assert all(output.chain.judgment == "ACCURACY" for output in stage.outputs)
        assert stages[1].checked.synthetic_inputs == ("w1", "b1", "w2", "b2")


def test_the_command_and_python_see_the_same_bits(client, serving, root, manifest):
    report = check(client, manifest, backward=True, seed=3, counts=[2])
    words = ("--weights", root / "h3.json", "--folder", "weights", "--server", serving.tcp)
    out = root / "report.md"
    done = command(
        "chain", "h3", *words, "--backward", "--seed=3", "--timesteps=2", "--json", "--out", out
    )
    theirs = json.loads(done.stdout)
    assert theirs["passed"] and theirs["first_difference"] is None
    assert theirs["weights"]["synthetic"] == "seed 7"
    manifest_bytes = (root / "h3.json").read_bytes()
    assert theirs["weights"]["manifest_sha256"] == hashlib.sha256(manifest_bytes).hexdigest()
    assert tuple(theirs["values"])[:2] == report.timesteps[:2]
    for mine, stage in zip(report.counts[2], theirs["runs"][0]["stages"]):
        assert mine.stage == stage["stage"] and stage["verdict"] == "passed"
        digests = {o["output"]: o["digest"] for o in stage["outputs"]}
        assert list(digests.values()) == list(mine.checked.output_digests.values())
    chapters = reporting.Report("both").add(report).add(theirs).to_dict()["chapters"]
    mine, printed = (chapter["result"]["runs"][0]["stages"] for chapter in chapters)
    for stage, other in zip(mine, printed):
        assert other["checked"]["seconds"] > 0 and stage["checked"]["seconds"] is None
        assert stage["outputs"] == other["outputs"] and stage["verdict"] == other["verdict"]
    text = out.read_text()
    assert "**Made-up weights** (seed 7)" in text and "| 2 | sinusoid_backward | passed |" in text


class Faulty:
    """A client whose server has a wrong kernel: one element of one output of one method."""

    def __init__(self, client, method):
        self._client = client
        self._method = method

    def __getattr__(self, name):
        return getattr(self._client, name)

    def call(self, method, **arguments):
        result = self._client.call(method, **arguments)
        if method != self._method or arguments["backend"] == "golden":
            return result
        name = next(iter(result))
        right = result[name]
        array = right.get() if isinstance(right, rlk.Resident) else right
        wrong = array.astype(np.float32)
        wrong.reshape(-1)[-1] += 1 + abs(wrong.reshape(-1)[-1])
        wrong = wrong.astype(array.dtype)
        if isinstance(right, rlk.Resident):
            right.release()
            wrong = self._client.put(wrong)
        return rlk.CallResult({**dict(result), name: wrong}, result.report)


@pytest.mark.parametrize("at", range(len(h3.STAGES)))
def test_names_the_stage_of_a_planted_fault(client, manifest, at):
    stage = h3.STAGES[at]
    report = check(Faulty(client, stage.method), manifest, backward=True, counts=[2])
    assert not report.passed
    assert (report.first.stage, report.first.verdict) == (stage.name, "injected")
    written = reporting.Report("a fault", server=client.info()).add(report)
    jsonschema.validate(json.loads(written.json()), reporting.schema())
    assert f"{stage.name}, output {report.first.output}, injected" in written.markdown().replace(
        "\\", ""
    )
    assert report.first.timestep_count == 2
    verdicts = [found.verdict for found in report.counts[2]]
    assert verdicts[:at] == ["passed"] * at and "injected" not in verdicts[at + 1 :]


@pytest.mark.parametrize("through_client", [False, True])
def test_runs_alone(client, manifest, through_client):
    weights = h3.load_weights(client, manifest, folder="weights")
    assert weights.tensors["weight"].synthetic == "seed 7"
    run = h3.run_chain(client, weights, [0.25, 1.0], through_client=through_client)
    assert run.tensors["gate_mlp"].shape == (6, 8)
    assert ("temb" in run.tensors) is not through_client
    transports = run.reports["projection"].transports
    assert ("inline" in transports) is through_client
    client.release(list(run.tensors.values()))
    weights.release(client)


@pytest.mark.parametrize("stages", [["mlp"], ["sinusoid", "projection"], ["sinusoid_backward"]])
def test_a_stage_needs_those_before_it(client, manifest, stages):
    with pytest.raises(rlk.InvalidArgumentError) as refused:
        check(client, manifest, stages=stages)
    assert refused.value.field == "stages" and refused.value.allowed.startswith("sinusoid, mlp")
    assert check(client, manifest, stages=["sinusoid", "mlp"], counts=[1]).passed


# Refused before there is a session.
@pytest.mark.parametrize(
    ("options", "field", "allowed"),
    [
        ({"counts": [8]}, "counts", "1 to 4"),
        ({"counts": [-1]}, "counts", "1 to 4"),
        ({"counts": [0]}, "counts", "1 to 4"),
        ({"counts": [1, 8]}, "counts", "1 to 4"),
        ({"contracts": ["bogus/v1"]}, "contracts", "contracts of the operators of the chain"),
    ],
)
def test_refuses_what_it_would_have_to_ignore(serving, manifest, options, field, allowed):
    with rlk.connect(serving.tcp, timeout=60) as client:
        with pytest.raises(rlk.InvalidArgumentError) as refused:
            check(client, manifest, **options)
    assert refused.value.field == field and refused.value.allowed == allowed


def test_a_failed_stage_leaves_nothing(client, manifest):
    with pytest.raises(rlk.InvalidArgumentError) as refused:
        check(client, manifest, timesteps=[0.5, 1.5])
    assert refused.value.reason == "VALUE_OUT_OF_RANGE"


def test_evidence_about_the_model_refuses_made_up_weights(client, serving, root, manifest):
    with pytest.raises(rlk.FailedPreconditionError) as refused:
        check(client, manifest, real_weights=True)
    assert refused.value.reason == "SYNTHETIC_WEIGHTS"
    # A manifest that hides it: its sizes are not those of the model, and the files say it too.
    hidden = type(manifest)()
    hidden.CopyFrom(manifest)
    hidden.synthetic = ""
    with pytest.raises(rlk.InvalidArgumentError) as refused:
        check(client, hidden, real_weights=True)
    assert refused.value.field == "w1.shape (time_embedder.linear_1.weight)"
    assert refused.value.allowed == "[5376, 256]"
    bias = next(entry.tensor for entry in manifest.tensors if entry.role == "b1")
    expected = {"dtype": "f32", "shape": tuple(bias.shape), "sha256": bias.sha256}
    with pytest.raises(rlk.FailedPreconditionError) as refused:
        client.load(f"weights/{bias.path}", {bias.key: expected})
    assert refused.value.reason == "SYNTHETIC_WEIGHTS"
    words = ("--weights", root / "h3.json", "--folder", "weights", "--server", serving.tcp)
    done = command("chain", "h3", *words, "--real-weights", "--json", code=2)
    assert json.loads(done.stdout)["error"]["reason"] == "SYNTHETIC_WEIGHTS"


@pytest.mark.parametrize(
    "text", ["", "[]", '{"format": "rlk-weights-v1", "model": "minimax-h3"}', '{"other": 1}']
)
def test_refuses_manifests_that_are_none(tmp_path, text):
    path = tmp_path / "h3.json"
    path.write_text(text)
    with pytest.raises(rlk.InvalidArgumentError):
        h3.load_manifest(path)


@pytest.mark.parametrize("case", ["swapped", "another dtype", "another shape", "no dimensions"])
def test_a_manifest_that_contradicts_itself(serving, tmp_path, manifest, case):
    """Before anything is loaded, and naming the same field."""
    changed = type(manifest)()
    changed.CopyFrom(manifest)
    entries = {entry.role: entry for entry in changed.tensors}
    if case == "swapped":
        entries["w1"].role, entries["w2"].role = "w2", "w1"
        field = "b1.shape (time_embedder.linear_1.bias)"
    elif case == "another dtype":
        entries["w2"].tensor.dtype = entries["bias"].tensor.dtype
        field = "w2.dtype (time_embedder.linear_2.weight)"
    elif case == "another shape":
        entries["b2"].tensor.shape[0] += 1
        field = "b2.shape (time_embedder.linear_2.bias)"
    else:
        del entries["w1"].tensor.shape[:]
        field = "w1.shape (time_embedder.linear_1.weight)"
    with rlk.connect(serving.tcp, timeout=60) as client:
        with pytest.raises(rlk.InvalidArgumentError) as refused:
            h3.load_weights(client, changed, folder="weights")
    assert refused.value.reason == "FILE_MISMATCH" and refused.value.field == field
    path = tmp_path / "changed.json"
    path.write_text(json_format.MessageToJson(changed))
    with pytest.raises(rlk.InvalidArgumentError):
        h3.load_manifest(path)
    words = ("--weights", path, "--folder", "weights", "--server", serving.tcp, "--json")
    done = command("chain", "h3", *words, code=2)
    assert json.loads(done.stdout)["error"]["field"] == field


def test_the_command_refuses_by_name(serving, root):
    words = ("--weights", root / "h3.json", "--folder", "weights", "--server", serving.tcp, "--json")
    for extra, field in (
        (("--stages=mlp",), "stages"),
        (("--timesteps=5",), "counts"),
        (("--timesteps=x",), "--timesteps"),
        (("--values=a",), "--values"),
        (("--out=x.txt",), "--out"),
        (("--contract=bogus/v1",), "contracts"),
        (("--backward", "--stages=sinusoid"), "--stages"),
    ):
        code = 1 if field == "counts" else 2
        done = command("chain", "h3", *words, *extra, code=code)
        assert json.loads(done.stdout)["error"]["field"] == field, extra
    elsewhere = ("--weights", root / "h3.json", "--server", serving.tcp, "--json")
    error = json.loads(command("chain", "h3", *elsewhere, code=1).stdout)["error"]
    assert error["reason"] == "FILES_UNAVAILABLE" and "model-00001" in error["value"]
    command("chain", "h4", code=2)
