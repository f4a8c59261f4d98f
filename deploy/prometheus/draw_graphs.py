#!/usr/bin/env python3
"""Draws the main graphs of the dashboard from a Prometheus as one SVG. Standard library only.

Usage: draw_graphs.py --prometheus HOST:PORT --seconds S --out graphs.svg
"""

import argparse
import json
import math
import pathlib
import time
import urllib.parse
import urllib.request
from xml.sax.saxutils import escape

WINDOW = "15s"  # of rates; the picture is of minutes, scraped every second
STEPS = 240
PANEL_WIDTH, PANEL_HEIGHT, COLUMNS = 480, 250, 2
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 62, 32  # margins of a plot in its panel
HEADER = 44

STYLE = """
  .panel { fill: #ffffff; stroke: #d0d7de; }
  .grid { stroke: #d8dee4; stroke-width: 1; }
  .axis { stroke: #8c959f; stroke-width: 1; }
  .line { fill: none; stroke-width: 1.6; stroke-linejoin: round; }
  .area { stroke: none; fill-opacity: 0.75; }
  .bound { stroke: #cf222e; stroke-dasharray: 5 4; stroke-width: 1.2; }
  text { font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif;
         font-size: 11px; fill: #57606a; }
  .title { font-size: 14px; font-weight: 600; fill: #1f2328; }
  .head { font-size: 15px; font-weight: 600; fill: #1f2328; }
  .end { text-anchor: end; }
  .mid { text-anchor: middle; }
"""
DARK = """
    .panel { fill: #0d1117; stroke: #30363d; }
    .grid { stroke: #21262d; }
    .axis { stroke: #6e7681; }
    .bound { stroke: #f85149; }
    text { fill: #9da7b3; }
    .title, .head { fill: #e6edf3; }
"""
# Light and dark; told apart by colour-blind readers too.
COLOURS = [
    ("#0969da", "#58a6ff"),
    ("#d4730e", "#f0a04b"),
    ("#1a7f5a", "#3fb98a"),
    ("#a33ea1", "#d58bd3"),
    ("#8a6d00", "#e3c55b"),
    ("#5aa7c7", "#9ad4ea"),
    ("#b3312c", "#f28b82"),
    ("#6e7781", "#b1bac4"),
]


def quantile(q, metric, by):
    return f"histogram_quantile({q}, sum by ({by}le) (rate({metric}_bucket[{WINDOW}])))"


def rates(metric, by, selector=""):
    return f"sum by ({by}) (rate({metric}{selector}[{WINDOW}]))"


# Title, unit, scale, bound or None, queries: (expression, text of labels that names the lines).
STACKED, LINEAR, LOG = "stacked areas", "lines", "lines on a logarithmic scale"
PANELS = [
    ("Mean call by phase", "s", STACKED, None,
     [(f"{rates('rlk_phase_duration_seconds_sum', 'phase')} / "
       f"{rates('rlk_phase_duration_seconds_count', 'phase')}", "{phase}")]),
    ("Latency of calls", "s", LOG, None,
     [(quantile(0.5, "rlk_request_duration_seconds", "operator, "), "{operator} p50"),
      (quantile(0.99, "rlk_request_duration_seconds", ""), "all p99")]),
    ("Throughput by status", "/s", STACKED, None,
     [(rates("rlk_requests_total", "code"), "{code}")]),
    ("Transports, into the server", "B/s", STACKED, None,
     [(rates("rlk_transport_bytes_total", "transport", '{direction="in"}'), "{transport}")]),
    ("Memory, part of its bound", "%", LINEAR, 0.9,
     [("100 * max by (kind) (instance_device_kind:rlk_memory:ratio)", "{kind}")]),
    ("Refused calls by reason", "/s", STACKED, None,
     [(rates("rlk_contract_rejections_total", "reason"), "{reason}"),
      (rates("rlk_admission_rejections_total", "reason"), "{reason}")]),
    ("Self-tests by result", "/s", STACKED, None,
     [(rates("rlk_selftest_total", "result"), "{result}")]),
    ("In flight and waiting", "", LINEAR, None,
     [("sum(rlk_inflight_requests)", "in flight"), ("sum(rlk_queue_depth)", "waiting")]),
]


def fetch(address, expression, start, end):
    """[(labels, [(seconds since start, value)])], without what is not finite."""
    query = urllib.parse.urlencode(
        {"query": expression, "start": start, "end": end, "step": (end - start) / STEPS}
    )
    with urllib.request.urlopen(f"http://{address}/api/v1/query_range?{query}") as reply:
        result = json.load(reply)["data"]["result"]
    series = []
    for entry in result:
        points = [(at - start, float(value)) for at, value in entry["values"]]
        series.append((entry["metric"], [p for p in points if math.isfinite(p[1])]))
    return series


def lines_of(address, queries, start, end):
    """{name: points} of the lines that are not zero all the time; one of the others if all are."""
    lines, flat = {}, {}
    for expression, pattern in queries:
        for labels, points in fetch(address, expression, start, end):
            name = pattern.format(**labels)
            (lines if any(value > 0 for _, value in points) else flat)[name] = points
    return lines or dict(list(flat.items())[:1])


def nice_ticks(top):
    """Four or five round numbers from 0 to at least `top`."""
    if top <= 0:
        top = 1
    raw = top / 4
    power = 10 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    count = math.ceil(top / step * 0.999)
    return [i * step for i in range(count + 1)]


def decades(lowest, highest):
    """Powers of ten from one that is not above the lowest to one that is not below the highest."""
    first = math.floor(math.log10(lowest))
    return [10.0**i for i in range(first, max(math.ceil(math.log10(highest)), first + 1) + 1)]


def value_text(value, unit):
    """A number for an axis, with a prefix before the unit."""
    if value == 0:
        return "0"
    if unit == "%":
        return f"{value:g} %"
    if unit == "s":
        scales = ((1, " s"), (1e-3, " ms"), (1e-6, " us"), (1e-9, " ns"))
    elif unit == "B/s":
        scales = ((1e9, " GB/s"), (1e6, " MB/s"), (1e3, " kB/s"), (1, " B/s"))
    else:
        scales = ((1e6, "M"), (1e3, "k"), (1, ""), (1e-3, "m"))
    scale, prefix = next((s for s in scales if value >= s[0] * 0.999), scales[-1])
    return f"{value / scale:.3g}{prefix}{unit if unit == '/s' else ''}"


class Plot:
    """One panel at (x, y) of the picture."""

    def __init__(self, x, y, seconds, ticks, log):
        self.left, self.right = x + LEFT, x + PANEL_WIDTH - RIGHT
        self.top, self.bottom = y + TOP, y + PANEL_HEIGHT - BOTTOM
        self.seconds, self.lowest, self.highest, self.log = seconds, ticks[0], ticks[-1], log

    def at(self, seconds, value):
        x = self.left + (self.right - self.left) * seconds / self.seconds
        value = min(max(value, self.lowest), self.highest)
        if self.log:
            part = math.log(value / self.lowest) / math.log(self.highest / self.lowest)
        else:
            part = value / self.highest
        return f"{x:.1f},{self.bottom - (self.bottom - self.top) * part:.1f}"

    def across(self, kind, y):
        return f'<line class="{kind}" x1="{self.left}" y1="{y}" x2="{self.right}" y2="{y}"/>'

    def axes(self, ticks, unit):
        parts = []
        for tick in ticks:
            y = float(self.at(0, tick).split(",")[1])
            parts.append(self.across("axis" if tick == ticks[0] else "grid", y))
            text = value_text(tick, unit)
            parts.append(f'<text class="end" x="{self.left - 6}" y="{y + 4}">{text}</text>')
        minutes = self.seconds / 60
        step = next(s for s in (0.5, 1, 2, 5, 10, 30, 60) if minutes / s <= 6 or s == 60)
        for i in range(int(minutes / step + 1e-6) + 1):
            x = float(self.at(i * step * 60, 0).split(",")[0])
            text = f"{i * step:g} min" if i else "0"
            # The last one stays within the picture.
            anchor = "end" if x > self.right - 16 else "mid"
            parts.append(f'<text class="{anchor}" x="{x:.1f}" y="{self.bottom + 17}">{text}</text>')
        return parts


def legend(names, x, y):
    """Swatches and names in lines of the panel's width, under its title."""
    parts, at, line = [], 0.0, 0
    for i, name in enumerate(names):
        # About the width of the letters; capitals are wider.
        width = 28 + sum(8.2 if letter.isupper() else 6.3 for letter in name)
        if at and at + width > PANEL_WIDTH - 30:
            at, line = 0.0, line + 1
        left, top, colour = x + 16 + at, y + 34 + 13 * line, i % len(COLOURS)
        swatch = f'x="{left:.1f}" y="{top}" width="10" height="8"'
        parts.append(f'<rect class="f{colour}" {swatch}/>')
        parts.append(f'<text x="{left + 14:.1f}" y="{top + 8}">{escape(name)}</text>')
        at += width
    return parts


def common_times(lines):
    return sorted({at for points in lines.values() for at, _ in points})


def stacked(lines):
    """[(name, lower points, upper points)] from the bottom up."""
    times = common_times(lines)
    below, layers = dict.fromkeys(times, 0.0), []
    for name, points in lines.items():
        values = dict(points)
        above = {at: below[at] + values.get(at, 0.0) for at in times}
        layers.append((name, sorted(below.items()), sorted(above.items())))
        below = above
    return layers


def draw(panel, lines, x, y, seconds):
    title, unit, scale, bound, _ = panel
    bound = bound * 100 if bound and unit == "%" else bound
    # The largest at the bottom: what matters does not move with the rest.
    lines = dict(sorted(lines.items(), key=lambda item: -sum(v for _, v in item[1])))
    layers = stacked(lines) if scale == STACKED else []
    values = [v for points in lines.values() for _, v in points if v > 0] or [1]
    if layers:
        values = [v for _, v in layers[-1][2]]
    log = scale == LOG
    ticks = decades(min(values), max(values)) if log else nice_ticks(max(*values, bound or 0))
    plot = Plot(x, y, seconds, ticks, log)
    parts = [f'<text class="title" x="{x + 16}" y="{y + 25}">{escape(title)}</text>']
    parts += legend(lines, x, y) + plot.axes(ticks, unit)
    for i, (_, lower, upper) in enumerate(layers):
        outline = [plot.at(*p) for p in upper] + [plot.at(*p) for p in reversed(lower)]
        parts.append(f'<polygon class="area f{i % len(COLOURS)}" points="{" ".join(outline)}"/>')
    if not layers:
        for i, points in enumerate(lines.values()):
            path = " ".join(plot.at(*p) for p in points)
            parts.append(f'<polyline class="line l{i % len(COLOURS)}" points="{path}"/>')
    if bound:
        height = float(plot.at(0, bound).split(",")[1])
        parts.append(plot.across("bound", height))
        text = f"alert above {bound:g} %"
        parts.append(f'<text class="end" x="{plot.right}" y="{height - 5}">{text}</text>')
    return parts


def style():
    light, dark = (
        "".join(
            f"  .f{i} {{ fill: {colours[mode]}; }} .l{i} {{ stroke: {colours[mode]}; }}\n"
            for i, colours in enumerate(COLOURS)
        )
        for mode in (0, 1)
    )
    dark = f"  @media (prefers-color-scheme: dark) {{{DARK}{dark}  }}\n"
    return f"<style>{STYLE}{light}{dark}</style>"


def picture(address, seconds, heading):
    end = time.time()
    start = end - seconds
    rows = math.ceil(len(PANELS) / COLUMNS)
    width, height = PANEL_WIDTH * COLUMNS, HEADER + PANEL_HEIGHT * rows
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-labelledby="t">',
        f'<title id="t">Main graphs of an rlk server: {escape(heading)}</title>',
        style(),
        f'<rect class="panel" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>',
        f'<text class="head" x="16" y="29">{escape(heading)}</text>',
    ]
    for i, panel in enumerate(PANELS):
        lines = lines_of(address, panel[-1], start, end)
        x, y = PANEL_WIDTH * (i % COLUMNS), HEADER + PANEL_HEIGHT * (i // COLUMNS)
        parts += draw(panel, lines, x, y - 4, seconds)
    return "\n".join([*parts, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--prometheus", required=True, metavar="HOST:PORT")
    parser.add_argument("--seconds", type=float, default=300, help="how far back from now")
    parser.add_argument("--heading", default="rlk")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    args.out.write_text(picture(args.prometheus, args.seconds, args.heading))


if __name__ == "__main__":
    main()
