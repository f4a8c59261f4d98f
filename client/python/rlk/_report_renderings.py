"""A report as Markdown and as one page of HTML: what a text of a result holds stays text."""

from __future__ import annotations

import html
import re
import unicodedata
from typing import Any, Dict, List

from rlk import _report_figures
from rlk._report_blocks import Block, Facts, Figure, Heading, Note, Table, verdict
from rlk._report_chapters import chapter_blocks, server_blocks

# What Markdown, or HTML in it, gives a meaning.
_MARKED = re.compile(r"([\\`*_{}\[\]<>#!|~&$@]|:(?=//)|(?<=www)\.|^[-+=]|^\d+(?=[.)]))")


def printable(text: str) -> str:
    """The text in one line, with nothing that is unseen or turns the direction of writing."""
    return "".join(
        " " if c in "\t\n\r" else c if unicodedata.category(c)[0] != "C" else "\ufffd" for c in text
    )


def _backslash(found: "re.Match[str]") -> str:
    mark = found.group()
    return f"&#{ord(mark[0])};{mark[1:]}" if mark[0].isdigit() else "\\" + mark


def _escape(text: str) -> str:
    """The text for Markdown."""
    return _MARKED.sub(_backslash, printable(text))


def _cells(cells: Any) -> str:
    return "| " + " | ".join(_escape(cell) for cell in cells) + " |\n"


def _markdown_table(table: Table) -> str:
    text = f"{_escape(table.caption)}:\n\n" + _cells(table.headers)
    text += "|" + " --- |" * len(table.headers) + "\n"
    return text + "".join(_cells(row) for row in table.rows) + "\n"


def _markdown(block: Block) -> str:
    if isinstance(block, Facts):
        rows = "".join(_cells(row) for row in block.rows)
        return "| | |\n| --- | --- |\n" + rows + "\n"
    if isinstance(block, Heading):
        return f"### {_escape(block.text)}\n\n"
    if isinstance(block, Note):
        return f"{_escape(block.text)}\n\n"
    if isinstance(block, Table):
        return _markdown_table(block)
    return f"**{_escape(block.title)}.** " + _markdown_table(block.table)


def markdown(report: Dict[str, Any]) -> str:
    """The report as Markdown; figures are tables there."""
    text = f"# {_escape(report['title'])}: {verdict(report['passed'])}\n\n"
    for chapter in report["chapters"]:
        text += f"## {_escape(chapter['label'])}: {verdict(chapter['passed'])}\n\n"
        text += "".join(_markdown(block) for block in chapter_blocks(chapter))
    text += "## Provenance\n\n"
    text += "".join(_markdown(block) for block in server_blocks(report))
    return text.rstrip("\n") + "\n"


_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #ffffff; --grid: #d5dae1;
  --soft: #f4f6f8; --first: #1f6fb4; --second: #c2570c; --good: #17692f; --bad: #b3201f; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4e8ed; --paper: #14171b; --grid: #3a424c; --soft: #1d2228; --first: #6cb2f0;
    --second: #f0a35e; --good: #6fce8b; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 60rem; padding: 1rem; color: var(--ink);
  background: var(--paper); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; }
h2 { font-size: 1.25rem; margin-top: 2.5rem; border-bottom: 1px solid var(--grid); }
h3 { font-size: 1.05rem; margin-top: 1.75rem; }
.passed, .failed, .unknown { white-space: nowrap; font-weight: 600; }
.passed { color: var(--good); } .failed { color: var(--bad); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.875rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: 0.5rem 0 0.25rem; }
th, td { text-align: left; vertical-align: top; padding: 0.25rem 0.75rem 0.25rem 0;
  border-bottom: 1px solid var(--grid); }
.wide th, .wide td { overflow-wrap: normal; }
.short { white-space: nowrap; }
.facts { width: 100%; } .facts th { width: 11rem; font-weight: 600; }
figure { margin: 1.5rem 0; max-width: 36rem; }
figcaption { font-weight: 600; margin-bottom: 0.25rem; }
figure svg { display: block; width: 100%; height: auto; }
summary { cursor: pointer; font-size: 0.875rem; }
@media (max-width: 30rem) { .facts, .facts tbody, .facts tr, .facts th, .facts td {
  display: block; width: 100%; } .facts th { border: 0; padding-bottom: 0; } }
@media print { details:not([open]) > *:not(summary) { display: block; } }
""".strip()
# Nothing is loaded, whatever the page holds.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def _text(text: str) -> str:
    return html.escape(printable(text), quote=True)


def _word(passed: Any) -> str:
    name = "unknown" if passed is None else "passed" if passed else "failed"
    return f'<span class="{name}">{verdict(passed)}</span>'


def _row(cells: Any, tag: str) -> str:
    """Short cells stay in one line: a number is not read in two."""
    found = []
    for cell in cells:
        short = "" if len(cell) > 32 else ' class="short"'
        found.append(f"<{tag}{short}>{_text(cell)}</{tag.split()[0]}>")
    return "<tr>" + "".join(found) + "</tr>\n"


def _html_table(table: Table) -> str:
    head = _row(table.headers, 'th scope="col"')
    return (
        f'<div class="wide" tabindex="0" role="group" aria-label="{_text(table.caption)}"><table>'
        f"<caption>{_text(table.caption)}</caption>\n<thead>{head}</thead>\n<tbody>\n"
        + "".join(_row(row, "td") for row in table.rows)
        + "</tbody></table></div>\n"
    )


class _Page:
    """Counts figures, whose ids must differ."""

    def __init__(self) -> None:
        self._figures = 0

    def block(self, block: Block) -> str:
        if isinstance(block, Facts):
            rows = "".join(
                f'<tr><th scope="row">{_text(name)}</th><td>{_text(value)}</td></tr>\n'
                for name, value in block.rows
            )
            return f'<table class="facts"><tbody>\n{rows}</tbody></table>\n'
        if isinstance(block, Heading):
            return f"<h3>{_text(block.text)}</h3>\n"
        if isinstance(block, Note):
            return f"<p>{_text(block.text)}</p>\n"
        if isinstance(block, Table):
            return _html_table(block)
        return self._figure(block)

    def _figure(self, figure: Figure) -> str:
        self._figures += 1
        svg = _report_figures.draw(figure.drawing, figure.data, f"f{self._figures}")
        return (
            f"<figure><figcaption>{_text(figure.title)}</figcaption>\n{svg}\n"
            f"<details><summary>As a table</summary>\n{_html_table(figure.table)}</details>"
            "</figure>\n"
        )


def page(report: Dict[str, Any]) -> str:
    """The report as one page: no scripts, nothing from elsewhere."""
    made = _Page()
    title = _text(report["title"])
    parts: List[str] = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{title}</title>\n<style>\n{_STYLE}\n</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{title}: {_word(report['passed'])}</h1>\n"
    ]
    for chapter in report["chapters"]:
        word = _word(chapter["passed"])
        parts.append(f"<section>\n<h2>{_text(chapter['label'])}: {word}</h2>\n")
        parts += [made.block(block) for block in chapter_blocks(chapter)]
        parts.append("</section>\n")
    parts.append("<section>\n<h2>Provenance</h2>\n")
    parts += [made.block(block) for block in server_blocks(report)]
    parts.append("</section>\n</main>\n</body>\n</html>\n")
    return "".join(parts)
