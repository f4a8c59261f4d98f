"""What a report says, chapter by chapter, as blocks that Markdown and HTML are made of.

Texts of results (labels, hints, names of kernels) are anybody's: blocks hold them as they are, and
each rendering escapes them.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

UNKNOWN = "unknown"


class Facts(NamedTuple):
    """Names and values."""

    rows: Tuple[Tuple[str, str], ...]


class Table(NamedTuple):
    caption: str
    headers: Tuple[str, ...]
    rows: Tuple[Tuple[str, ...], ...]


class Note(NamedTuple):
    text: str


class Heading(NamedTuple):
    text: str


class Figure(NamedTuple):
    """``drawing`` names a function of ``_report_figures``; ``table`` has the same data as text."""

    drawing: str
    title: str
    data: Any
    table: Table


Block = Union[Facts, Table, Note, Heading, Figure]


def show(value: Any) -> str:
    """A value as text: what is not known is "unknown"."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(show(item) for item in value) if value else "none"
    return str(value)


def verdict(passed: Optional[bool]) -> str:
    """In one word."""
    return UNKNOWN if passed is None else "passed" if passed else "FAILED"


def share(part: Optional[int], whole: Optional[int]) -> str:
    """A count of elements, and what part of all it is."""
    if part is None or not whole:
        return f"{show(part)} of {show(whole)}"
    return f"{part} of {whole} ({100.0 * part / whole:.3g} %)"


def span(first: int, last: int) -> str:
    """The text of a bin."""
    return str(first) if first == last else f"{first}-{last}"


def _get(values: Optional[Dict[str, Any]], *names: str) -> Any:
    for name in names:
        values = None if values is None else values.get(name)
    return values


def _tensor(tensor: Optional[Dict[str, Any]]) -> str:
    if tensor is None:
        return UNKNOWN
    shape = UNKNOWN if tensor["shape"] is None else "[" + ", ".join(map(str, tensor["shape"])) + "]"
    text = f"{show(tensor['dtype'])} {shape}, digest {show(tensor['digest'])}"
    return text + ("; NaN payloads other than the canonical one" if tensor["nan_payloads"] else "")


def _mismatch(first: Optional[Dict[str, Any]]) -> str:
    if first is None:
        return "none, or not looked for"
    axes = ", ".join(f"{c['axis']} {c['index']}".strip() for c in first["coordinates"])
    return (
        f"index {show(first['flat_index'])}{f' ({axes})' if axes else ''}: "
        f"bits {show(first['left_bits'])} and {show(first['right_bits'])}, "
        f"values {show(first['left_value'])} and {show(first['right_value'])}"
    )


def _rule(rule: Optional[Dict[str, Any]]) -> str:
    if rule is None:
        return UNKNOWN
    if rule["bitwise"]:
        return "every bit"
    return (
        f"{show(rule['row'])} of tolerance contract {show(rule['tolerance_contract_version'])}: "
        f"|error| at most {show(rule['atol'])} + {show(rule['rtol'])} |right|; "
        f"outside {show(rule['outside'])}, worst excess {show(rule['worst_excess'])}"
    )


def _classes(counts: Optional[Dict[str, Any]]) -> str:
    found = counts or {}
    if found.get("mismatched") is None:
        return UNKNOWN
    kinds = [n for n in found if n not in ("compared", "mismatched") and found[n]]
    return ", ".join(f"{name.replace('_', ' ')} {found[name]}" for name in kinds) or "none"


def _rows_fact(rows: Optional[Dict[str, Any]]) -> str:
    text = share(_get(rows, "mismatched"), _get(rows, "rows"))
    if rows and rows["first"] is not None:
        text += f", {rows['first']} to {rows['last']}"
        text += f"; columns {rows['first_column']} to {rows['last_column']}"
    return text


def _magnitude(magnitude: Dict[str, Any]) -> Table:
    names = {
        "max_abs": "max |error|",
        "max_rel": f"max |error| / max(|right|, {show(magnitude['relative_floor'])})",
        "max_abs_over_max_right": "max |error| / max |right|",
        "mean_abs": "mean |error|",
        "root_mean_square": "RMS error",
        "signed_mean": "signed mean (bias)",
        "magnitude_mean": "mean of |left| - |right|",
        "cosine": "cosine",
        "pearson": "Pearson",
    }
    rows = tuple((text, show(magnitude[name])) for name, text in names.items())
    return Table("Size of the errors, left minus right", ("figure", "value"), rows)


def buckets(ulp: Dict[str, Any]) -> List[Tuple[str, int]]:
    """Bars of the histogram, to the last that has an element."""
    found = []
    for at, bucket in enumerate(ulp["buckets"]):
        last = at + 1 == len(ulp["buckets"])
        text = (
            f"> {bucket['at_least'] - 1}" if last else span(bucket["at_least"], bucket["at_most"])
        )
        found.append((text, bucket["elements"]))
    while len(found) > 3 and not found[-1][1]:
        found.pop()
    for name in ("sign_differs", "not_finite"):
        if ulp[name]:
            found.append((name.replace("_", " "), ulp[name]))
    return found


def _histogram(ulp: Dict[str, Any]) -> Figure:
    bars = buckets(ulp)
    table = Table("Elements by distance", ("ULP", "elements"), tuple((t, show(n)) for t, n in bars))
    return Figure("histogram", f"ULP histogram (at most {show(ulp['max'])} ULP)", bars, table)


def _profile(axis: str, bins: Sequence[Dict[str, Any]]) -> Figure:
    worst = sorted(bins, key=lambda b: (-(b["max_abs"] or 0), b["first"]))[:8]
    rows = tuple(
        (
            span(b["first"], b["last"]),
            show(b["mismatched"]),
            show(b["max_abs"]),
            show(b["root_mean_square"]),
        )
        for b in worst
    )
    table = Table(
        f"The {axis}s with the largest errors", (axis, "differ", "max |error|", "RMS error"), rows
    )
    title = "Error by row" if axis == "row" else "Difference by position in a row"
    return Figure("profile", title, {"axis": axis, "bins": list(bins)}, table)


def _worst_rows(rows: Dict[str, Any]) -> Figure:
    table = Table(
        "The rows with the most elements that differ",
        ("row", "elements that differ"),
        tuple((show(row["row"]), show(row["mismatched"])) for row in rows["worst"]),
    )
    return Figure("worst_rows", "Rows with the most elements that differ", rows["worst"], table)


def comparison_blocks(
    comparison: Dict[str, Any], profile: Optional[Dict[str, Any]] = None
) -> List[Block]:
    """One comparison; where the tensors are known, the profile of their errors."""
    counts, ulp = comparison["counts"], comparison["ulp"]
    blocks: List[Block] = [
        Facts(
            (
                ("judgment", f"{show(comparison['judgment'])}: {verdict(comparison['passed'])}"),
                ("difference", show(comparison["difference"])),
                (_get(comparison, "left", "role") or "left", _tensor(comparison["left"])),
                (_get(comparison, "right", "role") or "right", _tensor(comparison["right"])),
                (
                    "elements that differ",
                    share(_get(counts, "mismatched"), _get(counts, "compared")),
                ),
                ("first", _mismatch(comparison["first_mismatch"])),
                ("classes", _classes(counts)),
                ("rows that differ", _rows_fact(comparison["rows"])),
                ("rule", _rule(comparison["rule"])),
                (
                    "triage",
                    f"{show(_get(comparison, 'triage', 'triage_class'))}: "
                    f"{show(_get(comparison, 'triage', 'hint'))}",
                ),
                ("compared on", show(comparison["compared_on"])),
            )
        )
    ]
    if ulp is not None:
        blocks.append(_histogram(ulp))
    if profile is not None:
        blocks += [_profile("row", profile["rows"]), _profile("column", profile["columns"])]
    elif _get(comparison, "rows", "worst"):
        blocks.append(_worst_rows(comparison["rows"]))
    if comparison["magnitude"] is not None:
        blocks.append(_magnitude(comparison["magnitude"]))
    return blocks


def _policy_figures(policy: Dict[str, Any]) -> Figure:
    difference, kl = policy["difference"], policy["kl"]
    points = [
        ("mean |d|", difference["mean_abs"]),
        ("p50 |d|", difference["p50_abs"]),
        ("p99 |d|", difference["p99_abs"]),
        ("max |d|", difference["max_abs"]),
        ("k1", kl["k1"]),
        ("k2", kl["k2"]),
        ("k3", kl["k3"]),
    ]
    table = Table(
        "d is the trainer's log-probability minus the rollout's",
        ("metric", "nats"),
        tuple((name, show(value)) for name, value in points),
    )
    return Figure("metrics", "Policy metrics", points, table)


def _ratios(policy: Dict[str, Any]) -> Figure:
    names = {
        "token": "token",
        "sequence_sum": "sequence, sum",
        "sequence_mean": "sequence, mean",
    }
    spans = [(text, policy["ratios"][name]) for name, text in names.items()]
    table = Table(
        "Importance ratios, raw: nothing is clipped",
        ("ratio", "min", "mean", "max"),
        tuple(
            (text, *(show(_get(summary, n)) for n in ("min", "mean", "max")))
            for text, summary in spans
        ),
    )
    return Figure("ratios", "Importance ratios", spans, table)


def _positions(bins: Optional[List[Dict[str, Any]]], policy: Dict[str, Any]) -> List[Block]:
    worst = policy["worst"]
    headers = ("sequence", "position", "rollout", "trainer", "d", "ratio")
    names = ("sequence", "position", "rollout", "trainer", "difference", "ratio")
    rows = tuple(tuple(show(token[name]) for name in names) for token in worst)
    tokens = Table("The tokens that differ most", headers, rows)
    if bins is None:
        if not worst:
            return []
        title = "Difference by position: the tokens that differ most"
        return [Figure("tokens", title, worst, tokens)]
    largest = sorted(bins, key=lambda b: (-(b["max_abs"] or 0), b["first"]))[:8]
    table = Table(
        "The positions with the largest differences",
        ("position", "tokens", "mean |d|", "max |d|"),
        tuple(
            (
                span(b["first"], b["last"]),
                show(b["tokens"]),
                show(b["mean_abs"]),
                show(b["max_abs"]),
            )
            for b in largest
        ),
    )
    return [Figure("positions", "Difference by position", bins, table), *([tokens] if rows else [])]


def _support(support: Optional[Dict[str, Any]]) -> str:
    if support is None:
        return "not declared"
    return ", ".join(f"{name.replace('_', ' ')} {show(value)}" for name, value in support.items())


def policy_blocks(
    policy: Dict[str, Any], positions: Optional[List[Dict[str, Any]]] = None
) -> List[Block]:
    """Log-probabilities of rollout and trainer."""
    facts = [
        (
            "tokens",
            f"{show(policy['tokens'])} in {show(policy['sequences'])} sequences, "
            f"{show(policy['masked'])} masked, {show(policy['not_finite'])} not finite",
        ),
        ("tokens that differ", share(_get(policy, "difference", "mismatched"), policy["tokens"])),
        (
            "perplexity",
            ", ".join(
                f"{name} {show(_get(policy, 'perplexity', name))}"
                for name in ("rollout", "trainer", "ratio")
            ),
        ),
        (
            "ratios outside [0.8, 1.2]",
            f"{show(_get(policy, 'ratios', 'outside'))}; above "
            f"{show(_get(policy, 'ratios', 'cap'))}: {show(_get(policy, 'ratios', 'above_cap'))}",
        ),
        ("KL of whole distributions, mean", show(_get(policy, "distribution", "kl", "mean"))),
        (
            "greedy flips",
            share(
                _get(policy, "distribution", "greedy_flips"), _get(policy, "distribution", "tokens")
            ),
        ),
        ("support of the rollout", _support(policy["rollout_support"])),
        ("support of the trainer", _support(policy["trainer_support"])),
    ]
    if policy["support_note"]:
        facts.append(("support", policy["support_note"]))
    if policy["chain"]["failure"]:
        facts.append(("failure", policy["chain"]["failure"]))
    chain = policy["chain"]
    bounds = tuple(
        (show(v["name"]), show(v["value"]), show(v["threshold"]), verdict(v["passed"]))
        for v in chain["values"]
    )
    caption = f"Bounds of the chain, executed in {show(chain['execution_dtype'])}"
    blocks: List[Block] = [Facts(tuple(facts))]
    blocks.append(Table(caption, ("value", "found", "at most", "verdict"), bounds))
    if policy["difference"] is not None and policy["kl"] is not None:
        blocks.append(_policy_figures(policy))
    if policy["ratios"] is not None:
        blocks.append(_ratios(policy))
    blocks += _positions(positions, policy)
    if policy["metrics"]:
        rows = tuple((name, show(value)) for name, value in policy["metrics"].items())
        blocks.append(Table("Under the names that trainers log", ("metric", "value"), rows))
    return blocks
