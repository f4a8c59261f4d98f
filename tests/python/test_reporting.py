"""Reports of results: JSON by its schema, unknown values, Markdown, and the command."""

import copy
import json
import os
import re
import subprocess
import sys

import jsonschema
import numpy as np
import pytest
import report_cases as cases
from conftest import PACKAGE, find_command

import rlk
from rlk import _report_figures, _report_schema, reporting
from rlk._proto import comparison_pb2
from rlk._report_blocks import Figure
from rlk._report_chapters import chapter_blocks
from rlk.report import record_from_proto

SCHEMA = reporting.schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
RESULTS = {
    "comparison": cases.comparison,
    "policy": cases.policy,
    "parity": cases.parity,
    "invariance": cases.invariance,
    "chain": cases.chain,
    "digests": cases.digests,
}


def of(result, **more):
    """The one chapter of a report, which is by the schema."""
    report = reporting.Report("one", server=cases.info()).add(result, **more)
    VALIDATOR.validate(json.loads(report.json()))
    return report.to_dict()["chapters"][0]


def test_the_schema_is_that_of_the_messages():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert (PACKAGE / "rlk" / "report.schema.json").read_text() == _report_schema.text()


@pytest.mark.parametrize("kind", RESULTS)
def test_a_result_is_a_chapter_of_its_kind(kind):
    chapter = of(RESULTS[kind](), label="a label")
    assert (chapter["kind"], chapter["label"], chapter["passed"]) == (kind, "a label", False)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("passed",), "yes"),
        (("server", "provenance", "git_dirty"), "unknown"),
        (("chapters", 0, "passed"), 0),
        (("chapters", 0, "result", "counts", "mismatched"), "3"),
        (("chapters", 0, "result", "judgment"), "TASTE"),
        (("chapters", 0, "result", "more"), 1),
    ],
)
def test_the_schema_refuses_what_is_no_report(path, value):
    report = reporting.Report("one", server=cases.info()).add(cases.comparison()).to_dict()
    VALIDATOR.validate(report)
    place = report
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert not VALIDATOR.is_valid(report)


@pytest.mark.parametrize(("dirty", "text"), [(None, "unknown"), (False, "no"), (True, "yes")])
def test_a_tree_of_which_nothing_is_known_is_not_clean(dirty, text):
    report = reporting.Report("one", server=cases.info(dirty))
    assert report.to_dict()["server"]["provenance"]["git_dirty"] is dirty
    assert f"| uncommitted changes | {text} |" in report.markdown()


def test_without_a_server_every_line_of_its_provenance_is_unknown():
    report = reporting.Report("one").add(cases.comparison())
    assert report.to_dict()["server"] is None
    for name in ("server", "provenance", "commit", "uncommitted changes", "compiler", "made at"):
        assert f"| {name} | unknown |" in report.markdown()


def test_what_was_not_compared_has_no_counts():
    counts, rows = comparison_pb2.ComparisonCounts(), comparison_pb2.ComparisonRows(rows=4)
    found = of(cases.comparison(counts=counts, rows=rows))["result"]
    assert found["counts"]["compared"] == 0 and found["counts"]["mismatched"] is None
    assert found["ulp"] is None and found["magnitude"] is None
    assert found["rows"]["rows"] == 4 and found["rows"]["counted"] is None
    assert found["rows"]["mismatched"] is None and found["rows"]["worst"] is None
    assert found["rule"]["outside"] is None


def test_an_empty_tensor_has_no_element_that_differs():
    message = cases.comparison_message(counts=comparison_pb2.ComparisonCounts())
    message.left.shape[0] = message.right.shape[0] = 0
    assert of(record_from_proto(message))["result"]["counts"]["mismatched"] == 0


def test_rows_that_were_not_counted_are_unknown():
    rows = comparison_pb2.ComparisonRows(rows=1 << 40, counted=False, first=3, last=9)
    found = of(cases.comparison(rows=rows))["result"]["rows"]
    assert found["mismatched"] is None and found["worst"] is None


def test_without_digests_nobody_knows_of_nan_payloads():
    side = comparison_pb2.ComparedTensor(role="left", shape=[4, 8])
    found = of(cases.comparison(left=side))["result"]["left"]
    assert found["digest"] is None and found["nan_payloads"] is None and found["shape"] is None


def test_memory_of_another_server_is_not_known_to_be_written():
    output = of(cases.parity())["result"]["outputs"][0]
    assert output["unwritten_left"] == 0 and output["unwritten_right"] is None


def test_an_axis_without_meaning_neither_passes_nor_fails():
    axes = of(cases.invariance())["result"]["axes"]
    assert [axis["passed"] for axis in axes] == [False, None]
    assert axes[0]["difference"]["row"] is None


def test_supports_that_nobody_declared_are_unknown():
    assert of(cases.policy())["result"]["rollout_support"] is None
    message = cases.policy_message()
    message.rollout_support.top_k = 5
    support = of(record_from_proto(message))["result"]["rollout_support"]
    assert (support["top_k"], support["temperature"], support["after_processors"]) == (5, None, False)


def test_handles_of_tensors_are_not_told():
    report = reporting.Report("one").add(cases.digests())
    for text in (report.json(), report.markdown()):
        assert "handle" not in text and "b:2" in text


def test_policies_without_a_token_have_no_figures():
    message = cases.policy_message()
    message.not_finite = message.tokens
    found = of(record_from_proto(message))["result"]
    assert found["difference"] is None and found["kl"] is None and found["ratios"] is None
    assert found["metrics"] == {"rollout_corr/kl": None}


def test_numbers_without_digits_in_json_are_texts():
    text = reporting.Report("one").add(cases.policy()).json()
    found = json.loads(text, parse_constant=pytest.fail)
    ratios = found["chapters"][0]["result"]["ratios"]
    assert ratios["sequence_sum"]["max"] == "Infinity" and ratios["token"]["max"] == 1.3


@pytest.mark.parametrize(
    ("passed", "verdict"), [((), None), ((True, True), True), ((True, False), False)]
)
def test_a_report_passes_where_all_its_chapters_do(passed, verdict):
    report = reporting.Report("several")
    for each in passed:
        message = cases.comparison_message()
        message.passed = each
        report.add(record_from_proto(message))
    assert report.passed is verdict and report.to_dict()["passed"] is verdict


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"some": "thing"}, "results[0]"),
        ([1, 2], "results[0]"),
        ("text", "results[0]"),
        ({"judgment": "parity", "counts": {}, "ulp": {}}, "results[0].passed"),
        (
            {"judgment": "taste", "passed": True, "difference": "bits", "counts": {}, "ulp": {}},
            "results[0].judgment",
        ),
        (
            {"judgment": "parity", "passed": 1, "difference": "bits", "counts": {}, "ulp": {}},
            "results[0].passed",
        ),
        (
            {"judgment": "parity", "passed": True, "difference": "bits", "counts": {"compared": "3"},
             "ulp": {}},
            "results[0].counts.compared",
        ),
        (
            {"judgment": "parity", "passed": True, "difference": "bits", "counts": [], "ulp": {}},
            "results[0].counts",
        ),
    ],
)
def test_what_is_no_result_is_refused_by_the_name_of_its_field(value, field):
    with pytest.raises(rlk.InvalidArgumentError) as refused:
        reporting.Report("one").add(value)
    assert refused.value.field == field and refused.value.allowed


PARTS = ("comparison", "on_reference_inputs", "report")


def fields(value, path=()):
    """The places of a value; of a list the first element stands for all. What is a result of its
    own is looked at once, as one."""
    for key, item in value.items():
        yield (*path, key)
        if path and (key in PARTS or (key == "chain" and "outputs" in path)):
            continue
        if isinstance(item, list) and item and isinstance(item[0], dict):
            yield from fields(item[0], (*path, key, 0))
        elif isinstance(item, dict):
            yield from fields(item, (*path, key))


@pytest.mark.parametrize("kind", RESULTS)
def test_what_lacks_a_field_is_refused_or_reported(kind):
    found = RESULTS[kind]()
    whole = found if isinstance(found, dict) else found.to_dict()
    refused = 0
    for path in fields(whole):
        damaged = copy.deepcopy(whole)
        place = damaged
        for step in path[:-1]:
            place = place[step]
        for value in (None, 10**400, [[]], "text"):
            place[path[-1]] = value
            try:
                report = reporting.Report("damaged").add(damaged)
            except rlk.InvalidArgumentError as error:
                refused += 1
                assert error.field.startswith("results[0]") and error.allowed
                continue
            assert VALIDATOR.is_valid(json.loads(report.json())), (path, value)
            assert report.markdown()
            draw_all(report)
    assert refused > 20


def draw_all(report):
    """The data of every figure is what its drawing takes."""
    for chapter in report.to_dict()["chapters"]:
        for block in chapter_blocks(chapter):
            if isinstance(block, Figure):
                key = (block.drawing, repr(block.data))
                if key not in DRAWN:
                    DRAWN.add(key)
                    _report_figures.draw(block.drawing, block.data, "f")


DRAWN = set()


@pytest.mark.parametrize("kind", RESULTS)
def test_markdown_has_no_markup_of_its_texts(kind):
    hostile = cases.parity(cases.HOSTILE) if kind == "parity" else RESULTS[kind]()
    report = reporting.Report(cases.HOSTILE).add(hostile, label=cases.HOSTILE)
    text = report.markdown()
    assert "\x1b" not in text and "\u202e" not in text
    bare = re.sub(r"\\.", "", text)  # without what is escaped
    for mark in ("<script", "<img", "`code`", "[link]", "http://leak", "${x}", "*cell*", "&amp;"):
        assert mark not in bare
    # A bar in a text would add a column to a row of its table.
    width = None
    for line in bare.splitlines():
        bars = line.count("|") if line.startswith("|") else None
        assert width is None or bars is None or bars == width, line
        width = bars


def test_profiles_find_the_row_the_column_and_the_size(client):
    x = np.zeros((1000, 40), np.float32)
    y = x.copy()
    y[777, 13] = 0.5
    y[3, 3] = np.nan
    chapter = of(client.compare(x, y), left=x, right=y)
    rows, columns = chapter["profile"]["rows"], chapter["profile"]["columns"]
    assert rows[0]["first"] == 0 and rows[-1]["last"] == 999 and len(rows) <= 128
    assert all(a["last"] + 1 == b["first"] for a, b in zip(rows, rows[1:]))
    assert sum(row["mismatched"] for row in rows) == 2
    [worst] = [row for row in rows if row["max_abs"]]
    assert worst["first"] <= 777 <= worst["last"] and worst["max_abs"] == 0.5
    size = (worst["last"] - worst["first"] + 1) * 40
    assert worst["root_mean_square"] == pytest.approx(0.5 / size**0.5)
    assert [c["first"] for c in columns if c["max_abs"]] == [13] and len(columns) == 40
    assert columns[3]["elements"] == 999 and columns[3]["mismatched"] == 1


def test_profiles_of_scalars_and_of_errors_without_a_number(client):
    """A scalar is the tensor that was compared; errors that FP64 has not are unknown."""
    x, y = np.float32(1), np.float32(1.5)
    chapter = of(client.compare(x, y), left=x, right=y)
    assert [row["max_abs"] for row in chapter["profile"]["rows"]] == [0.5]
    x = np.array([[1e308, 0], [1e200, 0]])
    y = np.array([[-1e308, 0], [-1e200, 0]])
    first, second = of(client.compare(x, y), left=x, right=y)["profile"]["rows"]
    assert (first["elements"], first["max_abs"], first["root_mean_square"]) == (2, None, None)
    assert second["max_abs"] == 2e200
    assert second["root_mean_square"] == pytest.approx(2e200 / 2**0.5)


def test_tensors_of_other_shapes_are_what_was_found(client):
    x, y = np.ones((2, 3), np.float32), np.ones((3, 2), np.float32)
    chapter = of(client.compare(x, y), left=x, right=y)
    assert chapter["passed"] is False and chapter["profile"] is None
    assert chapter["result"]["difference"] == "SHAPE"
    with pytest.raises(rlk.InvalidArgumentError):  # not those that were compared
        of(client.compare(x, y), left=y, right=x)


def test_positions_follow_masks_and_sequences(client):
    rollout = -np.ones(10, np.float32)
    trainer = rollout.copy()
    trainer[[2, 7]] -= [0.25, 0.5]
    mask = np.ones(10, np.uint8)
    mask[9] = 0
    tensors = {"mask": mask, "cu_seqlens": np.int64([0, 4, 10])}
    found = client.compare_policy(rollout, trainer, **tensors)
    bins = of(found, rollout=rollout, trainer=trainer, **tensors)["positions"]
    assert [item["tokens"] for item in bins] == [2, 2, 2, 2, 1, 0]
    assert [item["max_abs"] for item in bins] == [0, 0, 0.25, 0.5, 0, None]
    assert bins[2]["mean_abs"] == 0.125 and found.worst[0].position == 3


def test_torch_tensors_and_residents_have_profiles(client):
    torch = pytest.importorskip("torch")
    x = torch.arange(12, dtype=torch.bfloat16).reshape(3, 4)
    y = x.clone()
    y[2, 1] += 1
    with client.put(x) as held:
        rows = of(client.compare(held, y), left=held, right=y)["profile"]["rows"]
    assert [row["mismatched"] for row in rows] == [0, 0, 1] and rows[2]["max_abs"] == 1


def test_log_probabilities_are_those_that_were_compared(client):
    x = -np.ones(4, np.float32)
    found = client.compare_policy(x, x - np.float32(0.5))
    with pytest.raises(rlk.InvalidArgumentError) as refused:
        reporting.Report("one").add(found, rollout=x, trainer=x - np.float32(0.25))
    assert refused.value.field == "trainer" and refused.value.allowed == "0.5"
    assert of(found, rollout=x, trainer=x - np.float32(0.5))["positions"][0]["max_abs"] == 0.5


@pytest.mark.parametrize(
    ("tensors", "field"),
    [
        ({"left": np.zeros((4, 8), np.float32)}, "right"),
        ({"left": np.zeros((4, 9), np.float32), "right": np.zeros((4, 9), np.float32)}, "left"),
        ({"left": np.ones((4, 8), np.float32), "right": np.ones((4, 8), np.float32)}, "left"),
        ({"rollout": np.zeros((4, 8), np.float32)}, "rollout"),
    ],
)
def test_tensors_are_those_that_were_compared(client, tensors, field):
    x = np.zeros((4, 8), np.float32)
    with pytest.raises(rlk.InvalidArgumentError) as refused:
        reporting.Report("one").add(client.compare(x, x + 1), **tensors)
    assert refused.value.field == field


def test_results_of_a_server_are_chapters(client):
    x = np.random.default_rng(3).normal(size=(5, 32)).astype(np.float32)
    arguments = {"x": x, "weight": np.ones(32, np.float32)}
    report = reporting.Report("a server", server=client.info(), created="2026-01-02")
    report.add(client.compare(x, x))
    report.add(client.compare(x, rlk.digest(x)))
    report.add(client.compare_policy(-abs(x), -abs(x)))
    report.add(client.check_parity("rms_norm.forward", right="golden", judgment="accuracy",
                                   gradients=True, **arguments))
    report.add(client.check_invariance("rms_norm.forward", repeats=2, **arguments))
    report.add(client.call("rms_norm.forward", verify="reference", digests="tensor", **arguments))
    found = json.loads(report.json())
    VALIDATOR.validate(found)
    assert [chapter["passed"] for chapter in found["chapters"]] == [True] * 6
    assert found["server"]["provenance"]["id"] == client.info().provenance.id
    call = found["chapters"][-1]["result"]
    assert call["provenance_id"] == client.info().provenance.id
    assert call["output_digests"]["y"].startswith("xxh3-tree4k-v1:")
    side = found["chapters"][3]["result"]["left"]["methods"][0]["report"]
    assert side["attributes"]["eps"] == pytest.approx(1e-6)
    text = report.markdown()
    assert "| made at | 2026-01-02 |" in text and found["server"]["server_id"] in text


def run(command, *words, code):
    done = subprocess.run([*map(str, command), *map(str, words)], capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def command_json(*words, code):
    command = find_command()
    if command is None or not os.access(command, os.X_OK):
        pytest.skip("rlk is not built beside the server; set RLK_COMMAND_BIN")
    return run([command], *words, code=code).stdout


def module(*words, code):
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    done = subprocess.run(
        [sys.executable, "-m", "rlk.reporting", *map(str, words)],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_the_command_and_the_client_give_the_same_chapters(server, client, tmp_path):
    words = ("--json", "--server", server.tcp)
    one, other = "random:3x16:f32:1", "random:3x16:f32:2"
    norm = ("rms_norm.forward", f"x={one}", "weight=random:16:f32:3")
    printed = {
        "compare": command_json("compare", *words, one, other, code=1),
        "policy": command_json("parity", "policy", *words, one, one, code=0),
        "check": command_json("parity", "check", *words, *norm, "--right=golden",
                              "--judgment=accuracy", code=0),
        "call": command_json("call", *words, *norm, code=0),
        "invariance": command_json("parity", "invariance", *words, *norm, "--axes=slice", code=0),
    }
    for name, text in printed.items():
        (tmp_path / f"{name}.json").write_text(text)
    (tmp_path / "info.json").write_text(command_json("info", *words, code=0))
    out = tmp_path / "out.json"
    files = [tmp_path / f"{name}.json" for name in printed]
    module(*files, "--server", tmp_path / "info.json", "--out", out, "--label=first", code=1)
    found = json.loads(out.read_text())
    VALIDATOR.validate(found)
    assert [chapter["label"] for chapter in found["chapters"]] == ["first", *list(printed)[1:]]

    x, y = (rlk.random_tensor(text) for text in (one, other))
    arguments = {"x": x, "weight": rlk.random_tensor("random:16:f32:3")}
    report = reporting.Report("rlk report", server=client.info())
    report.add(client.compare(x, y), label="first")
    report.add(client.compare_policy(x, x), label="policy")
    report.add(client.check_parity("rms_norm.forward", right="golden", judgment="accuracy",
                                   **arguments), label="check")
    report.add(client.call("rms_norm.forward", digests="tensor", **arguments), label="call")
    report.add(client.check_invariance("rms_norm.forward", axes=["slice"], **arguments),
               label="invariance")
    assert without_times(found) == without_times(json.loads(report.json()))


def without_times(value):
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key != "phases"}
    return [without_times(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", ("--out", "x.md")),
        ('{"some": "thing"}', ("--out", "x.md")),
        ("[" * 100_000, ("--out", "x.md")),
        (None, ("--out", "x.md")),
        (json.dumps(cases.comparison().to_dict()), ("--out", "x.pdf")),
    ],
)
def test_the_command_says_what_it_cannot_read(tmp_path, content, words):
    file = tmp_path / "result.json"
    if content is not None:
        file.write_text(content)
    done = module(file, *(w if w.startswith("--") else tmp_path / w for w in words), code=2)
    assert done.stderr.startswith("rlk.reporting: ") and "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == (["result.json"] if content else [])
