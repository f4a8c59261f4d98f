"""The kinds of results that are no message of the API: chains, and digests of two servers."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Tuple

from rlk._report_values import (
    KINDS,
    MESSAGES,
    VERDICTS,
    call,
    integer,
    items,
    kind_of,
    mapping,
    message,
    number,
    plain,
    refuse,
    text,
)


def chain(value: Any, path: str) -> Dict[str, Any]:
    """A chain's result: of ``rlk.h3.check_chain``, or of ``rlk chain h3 --json``."""
    found = mapping(value, path)
    runs = found.get("runs")
    if runs is None:
        counts = mapping(found.get("counts"), f"{path}.counts")
        runs = [{"timesteps": count, "stages": counts[count]} for count in counts]
    weights = mapping(found.get("weights") or {"synthetic": found.get("synthetic")}, path)
    first = found.get("first_difference", found.get("first"))
    values = items(found.get("values", found.get("timesteps")), f"{path}.values")
    return {
        "passed": found.get("passed")
        if isinstance(found.get("passed"), bool)
        else not (first or found["rows_that_differ"] or found["through_client_differs"]),
        "weights": {
            **{n: text(weights.get(n), path) for n in ("manifest", "manifest_sha256", "synthetic")},
            **{
                n: number(weights.get(n), path)
                for n in ("channels", "hidden", "embedding", "width")
            },
        },
        **{
            n: text(found.get(n), path) for n in ("server", "version", "provenance_id", "reference")
        },
        "values": [number(value, f"{path}.values") for value in values],
        "first_difference": _finding(first, path) if first else None,
        "rows_compared": number(found.get("rows_compared"), path),
        "rows_that_differ": [text(t, path) for t in items(found["rows_that_differ"], path)],
        "digests_compared": number(found.get("digests_compared"), path),
        "through_client_differs": [
            text(t, path) for t in items(found["through_client_differs"], path)
        ],
        "runs": [_run(run, f"{path}.runs[{at}]") for at, run in enumerate(items(runs, path))],
    }


def _finding(value: Any, path: str) -> Dict[str, Any]:
    found = mapping(value, f"{path}.first_difference")
    return {
        **{name: text(found.get(name), path) for name in ("stage", "output", "verdict")},
        "timesteps": number(found.get("timesteps", found.get("timestep_count")), path),
    }


def _run(value: Any, path: str) -> Dict[str, Any]:
    run = mapping(value, path)
    stages = items(run.get("stages"), path)
    return {
        "timesteps": number(run.get("timesteps"), path),
        "stages": [_stage(stage, f"{path}.stages[{at}]") for at, stage in enumerate(stages)],
    }


def _stage(value: Any, path: str) -> Dict[str, Any]:
    stage = mapping(value, path)
    checked = _timed(stage.get("chain", stage.get("checked")), f"{path}.chain")
    reference = _timed(stage.get("reference"), f"{path}.reference")
    outputs = []
    for at, item in enumerate(items(stage.get("outputs"), path)):
        here = f"{path}.outputs[{at}]"
        output = mapping(item, here)
        alone = output.get("on_reference_inputs", output.get("alone"))
        outputs.append(
            {
                "output": text(output.get("output", output.get("name")), here),
                "chain": message(MESSAGES["comparison"], output.get("chain"), f"{here}.chain"),
                "on_reference_inputs": message(MESSAGES["comparison"], alone, f"{here}.alone"),
            }
        )
    same = stage.get("same_inputs")
    return {
        "stage": text(stage.get("stage"), path),
        "verdict": _verdict(stage.get("verdict"), path),
        "same_inputs": same if isinstance(same, bool) else None,
        "outputs": outputs,
        "checked": checked,
        "reference": reference,
    }


def _verdict(value: Any, path: str) -> Optional[str]:
    if value not in (None, *VERDICTS):
        raise refuse(f"{path}.verdict", value, ", ".join(VERDICTS))
    found: Optional[str] = value
    return found


def _timed(value: Any, path: str) -> Dict[str, Any]:
    """A call of a chain; the command times it."""
    timed = mapping(value, path)
    report = timed.get("report", timed)
    return {"seconds": number(timed.get("seconds"), path), "report": call(report, path)}


def _flag(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise refuse(path, value, "true, false")
    return value


def _count(value: Any, path: str) -> Optional[int]:
    return None if value is None else integer(value, path)


def _digest_side(value: Any, path: str) -> Dict[str, Any]:
    """A tensor of a server. Its handle is nobody else's business."""
    side = mapping(value, path)
    shape = [integer(size, f"{path}.shape") for size in items(side.get("shape"), f"{path}.shape")]
    return {
        **{name: text(side.get(name), f"{path}.{name}") for name in ("address", "dtype", "digest")},
        "shape": shape if side.get("shape") is not None else None,
    }


def digests(value: Any, path: str) -> Dict[str, Any]:
    """What ``rlk parity digests --json`` prints."""
    found = mapping(value, path)
    comparison = found.get("comparison")
    return {
        "passed": _flag(found.get("equal"), f"{path}.equal"),
        **{name: _digest_side(found.get(name), f"{path}.{name}") for name in ("left", "right")},
        **{
            name: _count(found.get(name), f"{path}.{name}")
            for name in ("rows", "different_rows", "first_different_row")
        },
        # Of the first row that differs.
        "comparison": None
        if comparison is None
        else message(MESSAGES["comparison"], comparison, f"{path}.comparison"),
    }


def result(value: Any, path: str) -> Tuple[str, Dict[str, Any]]:
    """The kind of a result, and its values."""
    found = plain(value)
    if isinstance(found, Mapping) and "report" in found and kind_of(found) is None:
        found = found["report"]  # of rlk call --json, or an rlk.CallResult
    kind = kind_of(found)
    if kind is None:
        raise refuse(path, found, "a result: " + ", ".join(KINDS))
    if kind in ("chain", "digests"):
        return kind, (chain if kind == "chain" else digests)(found, path)
    return kind, message(MESSAGES[kind], found, path)
