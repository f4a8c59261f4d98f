"""Reports of results: JSON with a schema, Markdown, and one page of HTML.

Example::

    report = rlk.reporting.Report("nightly parity", server=client.info())
    report.add(client.compare(x, y), label="logits", left=x, right=y)
    report.add(client.compare_policy(rollout, trainer), rollout=rollout, trainer=trainer)
    report.write("parity.html")  # or .md, .json

``python -m rlk.reporting parity.json --out parity.html`` takes what ``rlk compare``,
``rlk parity``, ``rlk chain h3`` and ``rlk call`` print with ``--json``. Pages need matplotlib:
``pip install 'rlk[report]'``.
"""

from __future__ import annotations

import argparse
import copy
import json
import pathlib
import platform
import sys
from typing import Any, Dict, List, Optional, Sequence, Union

import rlk
from rlk import _report_profiles, _report_renderings, _report_results, _report_values
from rlk._codec import CallResult
from rlk.errors import InvalidArgumentError, RlkError

__all__ = ["FORMAT", "Report", "main", "schema"]

FORMAT = "rlk-report-v1"
_SCHEMA = pathlib.Path(__file__).with_name("report.schema.json")
_TENSORS = {
    "comparison": ("left", "right"),
    "policy": ("rollout", "trainer", "mask", "cu_seqlens"),
}


def schema() -> Dict[str, Any]:
    """The JSON schema of :meth:`Report.to_dict`."""
    found: Dict[str, Any] = json.loads(_SCHEMA.read_text(encoding="utf-8"))
    return found


def _refuse(field: str, value: Any, allowed: str, message: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{field}: {message}; allowed: {allowed}",
        reason="UNKNOWN_OPTION",
        field=field,
        value=str(value),
        allowed=allowed,
    )


class Report:
    """Results, one a chapter, and the provenance of them all.

    Args:
        title: of the whole.
        server: ``client.info()``, or what ``rlk info --json`` prints; None where it is not known.
        created: when it was made, as text. By default it is not said: the same results give the
            same bytes.
    """

    def __init__(self, title: str, *, server: Any = None, created: Optional[str] = None) -> None:
        for name, value in (("title", title), ("created", created)):
            if not isinstance(value, str) and (name == "title" or value is not None):
                raise _refuse(name, value, "a text", "not a text")
        self._title = title
        self._created = created
        self._server = None if server is None else _report_values.server(server)
        self._chapters: List[Dict[str, Any]] = []

    def add(self, result: Any, *, label: Optional[str] = None, **tensors: Any) -> "Report":
        """Adds a chapter; returns the report.

        Args:
            result: of ``client.compare``, ``compare_policy``, ``check_parity``,
                ``check_invariance``, ``rlk.h3.check_chain`` or ``client.call``; or what the command
                prints of the same with ``--json``.
            label: its heading; by default its kind.
            tensors: ``left`` and ``right`` of a comparison add the error of every row and column;
                ``rollout``, ``trainer``, ``mask`` and ``cu_seqlens`` of a policy the difference at
                every position. They must be those that were compared.
        """
        path = f"results[{len(self._chapters)}]"
        value = result.report if isinstance(result, CallResult) else result
        kind, found = _report_results.result(value, path)
        chapter: Dict[str, Any] = {
            "kind": kind,
            "label": kind if label is None else _report_values.text(label, "label"),
            "passed": _passed(kind, found),
            "result": found,
            "profile": None,
            "positions": None,
        }
        given = {name: value for name, value in tensors.items() if value is not None}
        allowed = _TENSORS.get(kind, ())
        for name in given:
            if name not in allowed:
                listed = ", ".join(allowed) or "none"
                raise _refuse(name, name, listed, f"a chapter of kind {kind} takes no such tensor")
        if given:
            for name in allowed[:2]:
                if name not in given:
                    raise _refuse(name, None, "both tensors", "the other one is given")
            if kind == "comparison":
                chapter["profile"] = _report_profiles.tensors(found, **given)
            else:
                chapter["positions"] = _report_profiles.positions(found, **given)
        self._chapters.append(chapter)
        return self

    @property
    def passed(self) -> Optional[bool]:
        """False where a chapter failed; None where none says that it passed."""
        said = [c["passed"] for c in self._chapters if c["passed"] is not None]
        return all(said) if said else None

    def to_dict(self) -> Dict[str, Any]:
        """The report as :func:`schema` describes it. What is not known is None."""
        version = rlk.__version__
        return {
            "format": FORMAT,
            "title": self._title,
            "created": self._created,
            "passed": self.passed,
            "client": {
                "version": None if version == "0+unknown" else version,
                "python": platform.python_version(),
            },
            "server": copy.deepcopy(self._server),
            "chapters": copy.deepcopy(self._chapters),
        }

    def json(self) -> str:
        """The report as JSON."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"

    def markdown(self) -> str:
        """The report as Markdown."""
        return _report_renderings.markdown(self.to_dict())

    def html(self) -> str:
        """The report as one page that is opened without a network. Needs matplotlib."""
        return _report_renderings.page(self.to_dict())

    def write(self, path: Union[str, "pathlib.Path"]) -> None:
        """Writes a file; ``.json``, ``.md`` or ``.html`` says which."""
        forms = {".json": self.json, ".md": self.markdown, ".html": self.html}
        target = pathlib.Path(path)
        form = forms.get(target.suffix)
        if form is None:
            raise _refuse("path", target.name, ", ".join(forms), "the ending names no form")
        target.write_text(form(), encoding="utf-8")


def _passed(kind: str, found: Dict[str, Any]) -> Optional[bool]:
    if kind == "policy":
        found = found["chain"] or {}
    if kind == "call":  # nothing was judged, unless it was verified
        found = found["verification"] or {}
    passed: Optional[bool] = found.get("passed")
    return passed


def _load(name: str) -> Any:
    """The JSON of a file, or of the standard input."""
    try:
        text = sys.stdin.read() if name == "-" else pathlib.Path(name).read_text(encoding="utf-8")
        return json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise _refuse(name, name, "a file of JSON", f"not readable: {error}") from None


def _arguments(words: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m rlk.reporting",
        description="Makes a report from what rlk compare, parity, chain h3 and call print with "
        "--json. Exits with 1 where a result did not pass, 2 where it cannot be read.",
    )
    parser.add_argument("results", nargs="+", metavar="RESULT", help="a file of JSON; - for stdin")
    parser.add_argument(
        "--out",
        action="append",
        required=True,
        metavar="FILE",
        help="FILE.html, FILE.md or FILE.json; several times for several",
    )
    parser.add_argument("--title", default="rlk report")
    parser.add_argument("--label", action="append", default=[], help="of the results, in order")
    parser.add_argument("--server", metavar="INFO", help="what rlk info --json printed")
    parser.add_argument("--created", help="when it was made, as text")
    return parser.parse_args(words)


def main(words: Optional[Sequence[str]] = None) -> int:
    """The command; returns its exit code."""
    given = _arguments(words)
    try:
        info = None if given.server is None else _load(given.server)
        report = Report(given.title, server=info, created=given.created)
        for at, name in enumerate(given.results):
            label = given.label[at] if at < len(given.label) else pathlib.Path(name).stem
            report.add(_load(name), label=label)
        for name in given.out:
            report.write(name)
    except (RlkError, ImportError, OSError) as error:
        print(f"rlk.reporting: {_report_renderings.printable(str(error))}", file=sys.stderr)
        return 2
    return 0 if report.passed is not False else 1


if __name__ == "__main__":
    sys.exit(main())
