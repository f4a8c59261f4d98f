"""The figures of a report: SVG of matplotlib, which takes its colours from the page around it.

The same data give the same bytes: no date, no random ids, no settings of the user.
"""

from __future__ import annotations

import io
import math
import re
import xml.etree.ElementTree as ElementTree
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

# Stand for colours of the page, which are others in the dark.
_INK, _FIRST, _SECOND, _GRID, _BAD = "#000001", "#000002", "#000003", "#000004", "#000005"
_COLOURS = {
    _INK: "currentColor",
    _FIRST: "var(--first)",
    _SECOND: "var(--second)",
    _GRID: "var(--grid)",
    _BAD: "var(--bad)",
}
_SVG = "http://www.w3.org/2000/svg"
_XLINK = "{http://www.w3.org/1999/xlink}href"
_LARGEST, _SMALLEST = 1e300, 1e-300
_SIZE = (4.6, 2.9)  # inches: text stays readable at the width of a phone
_SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "rlk",
    "font.size": 9.0,
    "font.family": "sans-serif",
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "grid.color": _GRID,
    "legend.edgecolor": _GRID,
    "legend.facecolor": "none",
    "legend.labelcolor": _INK,
    "patch.facecolor": _FIRST,
    "text.color": _INK,
    "text.parse_math": False,
    "xtick.color": _INK,
    "ytick.color": _INK,
}


def _require() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError(
            "the figures of a report are drawn by matplotlib, which is not installed: "
            "pip install 'rlk[report]'"
        ) from error
    return matplotlib


def draw(drawing: str, data: Any, name: str) -> str:
    """An ``<svg>`` element for a page; ``name`` makes its ids its own."""
    matplotlib = _require()
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        figure = Figure(figsize=_SIZE, layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        _DRAWINGS[drawing](axes, data)
        for spine in axes.spines.values():
            spine.set_edgecolor(_INK)
        out = io.BytesIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return _element(out.getvalue(), name)


def _element(svg: bytes, name: str) -> str:
    """matplotlib's document as an element: without metadata, with ids and colours of the page."""
    root = ElementTree.fromstring(svg)
    for child in list(root):
        if child.tag == f"{{{_SVG}}}metadata":
            root.remove(child)
    for node in root.iter():
        node.tag = node.tag.replace(f"{{{_SVG}}}", "")
        for key, value in list(node.attrib.items()):
            del node.attrib[key]
            key = "href" if key == _XLINK else key
            if key == "id":
                value = f"{name}-{value}"
            elif key == "href":
                value = "#" + f"{name}-{value.lstrip('#')}"
            value = re.sub(r"url\(#", f"url(#{name}-", value)
            node.attrib[key] = re.sub("#00000[1-5]", lambda m: _COLOURS[m.group()], value)
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.attrib["aria-hidden"] = "true"  # the table beside it says the same
    return ElementTree.tostring(root, encoding="unicode")


def _drawable(value: Any) -> Optional[float]:
    """A number that an axis has room for, or None: the table beside the figure has them all."""
    if isinstance(value, (int, float)) and abs(value) <= _LARGEST:
        return float(value)
    return None


def _short(value: float, _: Any = None) -> str:
    return f"{value:g}"


def _log_or_zero(
    axes: Any, values: Sequence[Optional[float]], which: str, smallest: Optional[float] = None
) -> None:
    """A logarithmic axis that has a 0, below the smallest value."""
    sizes = [abs(value) for value in values if value]
    if smallest is None:
        smallest = 10.0 ** math.floor(math.log10(max(min(sizes), _SMALLEST))) if sizes else 1.0
    scale = axes.set_yscale if which == "y" else axes.set_xscale
    scale("symlog", linthresh=smallest)
    # Decades between the ticks, so that they stay apart.
    from matplotlib.ticker import SymmetricalLogLocator

    decades = math.log10(max(sizes)) - math.log10(smallest) if sizes else 0
    axis = axes.yaxis if which == "y" else axes.xaxis
    locator = SymmetricalLogLocator(base=10.0 ** max(1, math.ceil(decades / 5)), linthresh=smallest)
    axis.set_major_locator(locator)
    axis.set_major_formatter(_short)
    axis.set_minor_locator(SymmetricalLogLocator(base=10.0, linthresh=smallest))


def _histogram(axes: Any, bars: Sequence[Tuple[str, int]]) -> None:
    places = range(len(bars))
    axes.bar(places, [count for _, count in bars], color=_FIRST, width=0.8)
    axes.set_xticks(places, [text for text, _ in bars], rotation=60 if len(bars) > 6 else 0)
    for label in axes.get_xticklabels() if len(bars) > 6 else ():
        label.set_ha("right")
        label.set_rotation_mode("anchor")
    axes.grid(axis="x", visible=False)
    axes.set_xlabel("distance (ULP)")
    axes.set_ylabel("elements (log scale)")
    _log_or_zero(axes, [float(count) for _, count in bars], "y", smallest=1.0)
    axes.set_ylim(0, 2.0 * max([1, *(count for _, count in bars)]))


def _steps(axes: Any, bins: Sequence[Dict[str, Any]], name: str, label: str, colour: str) -> None:
    """A line over bins; of a bin without a value nothing is drawn."""
    xs: List[float] = []
    ys: List[float] = []
    for item in bins:
        value = _drawable(item[name])
        height = math.nan if value is None else value
        xs += [item["first"] - 0.5, item["last"] + 0.5]
        ys += [height, height]
    axes.plot(xs, ys, color=colour, label=label, linewidth=1.4)


def _binned(axes: Any, bins: Sequence[Dict[str, Any]], names: Sequence[Tuple[str, str]]) -> None:
    for (name, label), colour in zip(names, (_FIRST, _SECOND)):
        _steps(axes, bins, name, label, colour)
    _log_or_zero(axes, [_drawable(item[name]) for item in bins for name, _ in names], "y")
    axes.set_ylim(bottom=0)
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    if bins:
        axes.set_xlim(bins[0]["first"] - 0.5, bins[-1]["last"] + 0.5)
    axes.legend(loc="upper left", bbox_to_anchor=(0, 1.16), ncols=2, frameon=False, borderpad=0)


def _profile(axes: Any, data: Dict[str, Any]) -> None:
    _binned(axes, data["bins"], (("max_abs", "max |error|"), ("root_mean_square", "RMS error")))
    axes.set_xlabel("row (index)" if data["axis"] == "row" else "column (index in the row)")
    axes.set_ylabel("|error| (unit of the tensors)")


def _positions(axes: Any, bins: Sequence[Dict[str, Any]]) -> None:
    _binned(axes, bins, (("max_abs", "max |d|"), ("mean_abs", "mean |d|")))
    axes.set_xlabel("position in the sequence (tokens)")
    axes.set_ylabel("|d log-probability| (nats)")


def _tokens(axes: Any, tokens: Sequence[Dict[str, Any]]) -> None:
    points = [(token["position"], _drawable(token["difference"])) for token in tokens]
    drawn = [(x, abs(y)) for x, y in points if x is not None and y is not None]
    axes.plot([x for x, _ in drawn], [y for _, y in drawn], "o", color=_FIRST, markersize=4)
    _log_or_zero(axes, [y for _, y in drawn], "y")
    axes.set_ylim(bottom=0)
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.set_xlabel("position in the sequence (tokens)")
    axes.set_ylabel("|d log-probability| (nats)")


def _worst_rows(axes: Any, rows: Sequence[Dict[str, Any]]) -> None:
    ordered = sorted(rows, key=lambda row: row["row"])[:32]
    places = range(len(ordered))
    axes.bar(places, [row["mismatched"] for row in ordered], color=_FIRST)
    rotation = 60 if len(ordered) > 8 else 0
    axes.set_xticks(places, [str(row["row"]) for row in ordered], rotation=rotation)
    axes.grid(axis="x", visible=False)
    axes.set_xlabel("row (index)")
    axes.set_ylabel("elements that differ")
    from matplotlib.ticker import MaxNLocator

    axes.yaxis.set_major_locator(MaxNLocator(integer=True))


def _metrics(axes: Any, points: Sequence[Tuple[str, Any]]) -> None:
    places = range(len(points))
    values = [_drawable(value) for _, value in points]
    drawn = [abs(value) if value is not None else math.nan for value in values]
    axes.barh(places, drawn, color=_FIRST, height=0.6)
    texts = [f"{n} (< 0)" if v is not None and v < 0 else n for (n, _), v in zip(points, values)]
    axes.set_yticks(places, texts)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    _log_or_zero(axes, values, "x")
    axes.set_xlim(left=0)
    axes.set_xlabel("size (nats, log scale)")
    axes.set_ylabel("metric")


def _ratios(axes: Any, spans: Sequence[Tuple[str, Optional[Dict[str, Any]]]]) -> None:
    for place, (_, summary) in enumerate(spans):
        low, mean, high = (_drawable((summary or {}).get(name)) for name in ("min", "mean", "max"))
        if low is not None and high is not None:
            axes.plot([low, high], [place, place], "|-", color=_FIRST, markersize=9)
        if mean is not None:
            axes.plot([mean], [place], "o", color=_SECOND, markersize=6)
    for bound in (0.8, 1.2):
        axes.axvline(bound, color=_BAD, linestyle="--", linewidth=1)
    axes.set_yticks(range(len(spans)), [text for text, _ in spans])
    axes.set_ylim(max(len(spans), 1) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("ratio (no unit): min, mean, max; dashed: 0.8 and 1.2")
    axes.set_ylabel("ratio of")


def _phases(axes: Any, phases: Sequence[Tuple[str, Optional[int]]]) -> None:
    places = range(len(phases))
    axes.barh(places, [(value or 0) / 1000 for _, value in phases], color=_FIRST, height=0.6)
    axes.set_yticks(places, [name for name, _ in phases])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("time (microseconds)")
    axes.set_ylabel("phase")


def _stages(axes: Any, stages: Sequence[Tuple[str, Any, Any]]) -> None:
    values = [[_drawable(stage[at]) for stage in stages] for at in (1, 2)]
    names = (("in the chain", _FIRST), ("on the reference's inputs", _SECOND))
    for at, ((label, colour), heights) in enumerate(zip(names, values)):
        places = [place + 0.2 * (2 * at - 1) for place in range(len(stages))]
        known = [value if value is not None else math.nan for value in heights]
        axes.bar(places, known, width=0.38, color=colour, label=label)
    axes.set_xticks(range(len(stages)), [stage[0] for stage in stages], rotation=30)
    for tick in axes.get_xticklabels():
        tick.set_ha("right")
        tick.set_rotation_mode("anchor")
    axes.grid(axis="x", visible=False)
    _log_or_zero(axes, [value for part in values for value in part], "y")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("stage")
    axes.set_ylabel("max |error| (log scale)")
    axes.legend(loc="upper left", bbox_to_anchor=(0, 1.18), ncols=2, frameon=False, borderpad=0)


_DRAWINGS: Dict[str, Callable[[Any, Any], None]] = {
    "histogram": _histogram,
    "profile": _profile,
    "positions": _positions,
    "tokens": _tokens,
    "worst_rows": _worst_rows,
    "metrics": _metrics,
    "ratios": _ratios,
    "phases": _phases,
    "stages": _stages,
}
