"""Chapters of checks, chains and calls, and the provenance of each, as blocks."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from rlk._report_blocks import (
    UNKNOWN,
    Block,
    Facts,
    Figure,
    Heading,
    Note,
    Table,
    comparison_blocks,
    policy_blocks,
    share,
    show,
    verdict,
)


def _device(device: Optional[Dict[str, Any]]) -> str:
    if device is None:
        return UNKNOWN
    return (
        f"{show(device['kind'])}:{show(device['ordinal'])} {show(device['name'])} "
        f"({show(device['uuid'])})"
    )


def provenance_facts(provenance: Optional[Dict[str, Any]]) -> List[Tuple[str, str]]:
    """What a server says of its build; one that says nothing is unknown in every line."""
    names = {
        "id": "provenance",
        "version": "version",
        "git_commit": "commit",
        "git_dirty": "uncommitted changes",
        "compiler": "compiler",
        "compile_flags": "flags",
        "cuda_architectures": "CUDA architectures",
        "cuda_runtime": "CUDA runtime",
        "cuda_driver": "CUDA driver",
        "cpu_isa": "CPU instructions",
        "tolerance_contract_version": "tolerance contract",
        "tolerance_contract_sha256": "its SHA-256",
    }
    return [(text, show((provenance or {}).get(name))) for name, text in names.items()]


def server_blocks(report: Dict[str, Any]) -> List[Block]:
    """The provenance of a whole report."""
    server = report["server"]
    facts = [("server", show((server or {}).get("server_id")))]
    facts += provenance_facts((server or {}).get("provenance"))
    for device in (server or {}).get("devices") or ():
        facts.append(
            (
                "device",
                f"{_device(device['device'])}, compute capability "
                f"{show(device['compute_capability'])}, {show(device['multiprocessor_count'])} "
                f"multiprocessors, {show(device['memory_bytes'])} bytes, "
                f"healthy: {show(device['healthy'])}",
            )
        )
    client = report["client"]
    facts.append(("client", f"rlk for Python {show(client['version'])}"))
    facts.append(("Python", show(client["python"])))
    facts.append(("made at", show(report["created"])))
    return [Facts(tuple(facts))]


def _call_facts(call: Dict[str, Any]) -> List[Tuple[str, str]]:
    fallback = call["fallback"]
    rejected = [
        f"{show(r['backend'])} {r['kernel'] or ''}".strip() + f": {show(r['reason'])}"
        for r in call["rejected"]
    ]
    return [
        ("contract", show(call["contract"])),
        ("backend, kernel", f"{show(call['backend'])}, {show(call['kernel'])}"),
        ("device", _device(call["device"])),
        ("claim", show(call["claim"])),
        (
            "fallback",
            "none"
            if fallback is None
            else f"{show(fallback['from_backend'])}: {show(fallback['reason'])}",
        ),
        ("rejected", "; ".join(rejected) or "none"),
        (
            "attributes",
            ", ".join(f"{n} = {show(v)}" for n, v in call["attributes"].items()) or "none",
        ),
        *((f"input {n}", show(digest)) for n, digest in call["input_digests"].items()),
        *((f"output {n}", show(digest)) for n, digest in call["output_digests"].items()),
        ("made-up inputs", show(call["synthetic_inputs"])),
        ("provenance", show(call["provenance_id"])),
    ]


def call_blocks(call: Dict[str, Any]) -> List[Block]:
    """What one call ran, and where its time went."""
    blocks: List[Block] = [Facts(tuple(_call_facts(call)))]
    rows: Tuple[Tuple[str, ...], ...]
    if call["verification"] is not None:
        found = call["verification"]
        rows = tuple(
            (
                show(o["name"]),
                verdict(o["passed"]),
                share(o["mismatched_elements"], o["compared_elements"]),
                show(o["max_abs_error"]),
            )
            for o in found["outputs"]
        )
        caption = f"Verification, {show(found['verification'])}: {verdict(found['passed'])}"
        headers = ("output", "verdict", "elements that differ", "max |error|")
        blocks.append(Table(caption, headers, rows))
    if call["phases"] is not None:
        phases = [(n[: -len("_ns")].replace("_", " "), v) for n, v in call["phases"].items()]
        rows = tuple((name, UNKNOWN if v is None else show(v / 1000)) for name, v in phases)
        table = Table("Phases on the server", ("phase", "microseconds"), rows)
        blocks.append(Figure("phases", "Time on the server", phases, table))
    return blocks


def _side_blocks(name: str, side: Optional[Dict[str, Any]]) -> List[Block]:
    if side is None:
        return [Heading(f"{name}: {UNKNOWN}")]
    blocks: List[Block] = [Heading(f"{name}: {show(side['where'])}")]
    facts = [("server", show(side["server_id"])), *provenance_facts(side["provenance"])]
    blocks.append(Facts(tuple(facts)))
    for method in side["methods"]:
        blocks.append(Heading(f"{name}: {show(method['method'])}"))
        if method["report"] is not None:
            blocks.append(Facts(tuple(_call_facts(method["report"]))))
    return blocks


def parity_blocks(parity: Dict[str, Any]) -> List[Block]:
    """One call on two sides."""
    rows = []
    details: List[Block] = []
    for output in parity["outputs"]:
        comparison = output["comparison"] or {}
        counts = comparison.get("counts") or {}
        rows.append(
            (
                show(output["method"]),
                show(output["output"]),
                verdict(output["passed"]),
                share(counts.get("mismatched"), counts.get("compared")),
                f"{show(output['unwritten_left'])}, {show(output['unwritten_right'])}",
                f"{show(output['nan_created_left'])}, {show(output['nan_created_right'])}",
            )
        )
        if comparison and comparison["difference"] != "NOTHING":
            details.append(Heading(f"{show(output['method'])} {show(output['output'])}"))
            details += comparison_blocks(comparison)
    for skipped in parity["not_compared"]:
        rows.append((show(skipped["method"]), show(skipped["output"]), "not compared", "", "", ""))
        details.append(
            Note(
                f"{show(skipped['method'])} {show(skipped['output'])} was not compared: "
                f"{show(skipped['reason'])}"
            )
        )
    headers: Tuple[str, ...] = ("method", "output", "verdict", "elements that differ")
    headers += ("unwritten (left, right)", "NaN created (left, right)")
    facts = (
        ("first difference", parity["first_difference"] or "none"),
        ("elements compared", show(parity["compared_elements"])),
        ("calls", show(parity["calls"])),
        ("versions that differ", show(parity["different_versions"])),
    )
    blocks: List[Block] = [Facts(facts), Table("Outputs", headers, tuple(rows)), *details]
    return blocks + _side_blocks("left", parity["left"]) + _side_blocks("right", parity["right"])


def invariance_blocks(invariance: Dict[str, Any]) -> List[Block]:
    """One call in other layouts."""
    rows = []
    details: List[Block] = []
    for axis in invariance["axes"]:
        word = verdict(axis["passed"]) if axis["applicable"] else "no meaning"
        rows.append(
            (
                show(axis["method"]),
                show(axis["axis"]),
                word,
                show(axis["layouts"]),
                show(axis["compared_elements"]),
                axis["note"] or "",
            )
        )
        difference = axis["difference"]
        if difference is None:
            continue
        where = "" if difference["row"] is None else f" of row {difference['row']}"
        details.append(Heading(f"{show(axis['method'])}, {show(axis['axis'])}"))
        details.append(
            Note(f"{show(difference['output'])}{where} differs with {show(difference['layout'])}.")
        )
        if difference["comparison"] is not None:
            details += comparison_blocks(difference["comparison"])
    headers = ("method", "axis", "verdict", "layouts", "elements", "note")
    blocks: List[Block] = [Facts((("calls", show(invariance["calls"])),))]
    blocks.append(Table("Axes", headers, tuple(rows)))
    return blocks + details + _side_blocks("side", invariance["side"])


def _stage_row(count: Any, stage: Dict[str, Any]) -> Tuple[str, ...]:
    cells = []
    for part in ("chain", "on_reference_inputs"):
        counts = [(o[part]["counts"] or {}) for o in stage["outputs"]]
        known = all(c.get("mismatched") is not None for c in counts)
        mismatched = sum(c["mismatched"] for c in counts) if known else None
        cells.append(share(mismatched, sum(c.get("compared") or 0 for c in counts)))
        cells.append(show(largest(stage, part)))
    report = stage["checked"]["report"]
    return (
        show(count),
        show(stage["stage"]),
        show(stage["verdict"]),
        show(report["backend"]),
        show(report["contract"]),
        *cells,
    )


def largest(stage: Dict[str, Any], part: str) -> Any:
    """The largest |error| of a stage's outputs; None where one is not known."""
    found = [(output[part]["magnitude"] or {}).get("max_abs") for output in stage["outputs"]]
    known = [value for value in found if isinstance(value, (int, float))]
    return max(known) if known and len(known) == len(found) else None


def chain_blocks(chain: Dict[str, Any]) -> List[Block]:
    """A chain of calls beside its reference."""
    weights, first = chain["weights"], chain["first_difference"]
    synthetic = weights["synthetic"]
    made_up = UNKNOWN if synthetic is None else synthetic or "no: of the model"
    facts = [
        ("made-up weights", made_up),
        ("manifest", f"{show(weights['manifest'])}, SHA-256 {show(weights['manifest_sha256'])}"),
        ("sizes", ", ".join(f"{n} {show(weights[n])}" for n in _SIZES)),
        ("reference", show(chain["reference"])),
        ("server", f"{show(chain['server'])}, version {show(chain['version'])}"),
        ("provenance", show(chain["provenance_id"])),
        ("timesteps", show(chain["values"])),
        (
            "first stage that differs",
            "none"
            if first is None
            else f"{show(first['stage'])}, output {show(first['output'])}, {show(first['verdict'])}"
            f" (T = {show(first['timesteps'])})",
        ),
        ("rows compared for every T", show(chain["rows_compared"])),
        ("rows whose bits depend on T", show(chain["rows_that_differ"])),
        ("outputs that differ through the client", show(chain["through_client_differs"])),
    ]
    rows = [_stage_row(run["timesteps"], stage) for run in chain["runs"] for stage in run["stages"]]
    headers: Tuple[str, ...] = (
        "T",
        "stage",
        "verdict",
        "backend",
        "contract",
        "differ in the chain",
        "max |error|",
    )
    headers += ("differ on the reference's inputs", "max |error|")
    blocks: List[Block] = [Facts(tuple(facts))]
    table = Table("Stages", headers, tuple(rows))
    last = chain["runs"][-1] if chain["runs"] else None
    if last is None:
        return [*blocks, table]
    title = f"Largest error by stage (T = {show(last['timesteps'])})"
    data = [
        (show(s["stage"]), largest(s, "chain"), largest(s, "on_reference_inputs"))
        for s in last["stages"]
    ]
    blocks.append(Figure("stages", title, data, table))
    failures = [
        failure
        for run in chain["runs"]
        for stage in run["stages"]
        for failure in _failures(run["timesteps"], stage)
    ]
    for heading, comparison in failures[:_FAILURES_MAX]:
        blocks.append(Heading(heading))
        blocks += comparison_blocks(comparison)
    if len(failures) > _FAILURES_MAX:
        left = len(failures) - _FAILURES_MAX
        blocks.append(Note(f"{left} more comparisons failed; the report's JSON has them all."))
    return blocks


def _failures(count: Any, stage: Dict[str, Any]) -> List[Tuple[str, Dict[str, Any]]]:
    """Comparisons that failed; on the same inputs both are one."""
    found = []
    for output in stage["outputs"]:
        where = f"T = {show(count)}, {show(stage['stage'])} {show(output['output'])}"
        if not output["chain"]["passed"]:
            found.append((f"{where}, in the chain", output["chain"]))
        if not output["on_reference_inputs"]["passed"] and not stage["same_inputs"]:
            found.append((f"{where}, on the reference's inputs", output["on_reference_inputs"]))
    return found


_FAILURES_MAX = 12  # in a page: each has figures
_SIZES = ("channels", "hidden", "embedding", "width")


def digests_blocks(digests: Dict[str, Any]) -> List[Block]:
    """Tensors of two servers, by their digests."""
    facts = []
    for name in ("left", "right"):
        side = digests[name]
        shape = UNKNOWN if side["shape"] is None else f"[{', '.join(map(str, side['shape']))}]"
        facts.append((f"{name}, of", show(side["address"])))
        facts.append((name, f"{show(side['dtype'])} {shape}, digest {show(side['digest'])}"))
    if not digests["passed"]:
        facts.append(("rows that differ", share(digests["different_rows"], digests["rows"])))
        facts.append(("first", show(digests["first_different_row"])))
    blocks: List[Block] = [Facts(tuple(facts))]
    if digests["comparison"] is not None:
        blocks.append(Heading("The first row that differs"))
        blocks += comparison_blocks(digests["comparison"])
    return blocks


def chapter_blocks(chapter: Dict[str, Any]) -> List[Block]:
    """All that a chapter says."""
    kind, found = chapter["kind"], chapter["result"]
    if kind == "comparison":
        return comparison_blocks(found, chapter["profile"])
    if kind == "policy":
        return policy_blocks(found, chapter["positions"])
    return _BLOCKS[kind](found)


_BLOCKS = {
    "parity": parity_blocks,
    "invariance": invariance_blocks,
    "chain": chain_blocks,
    "call": call_blocks,
    "digests": digests_blocks,
}
