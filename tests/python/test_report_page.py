"""The page of a report: its text, its figures, and what a browser does with it."""

import hashlib
import html
import html.parser
import http.server
import pathlib
import re
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest
import report_cases as cases

from rlk import _report_figures, reporting

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
browser_only = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
BROWSER_SECONDS = 900  # a browser that hangs ends the test, a slow one does not


@pytest.fixture(scope="module")
def page():
    """Every kind of figure, with hostile texts wherever a text is anybody's."""
    pytest.importorskip("matplotlib", reason="the package's extra `report` is not installed")
    report = reporting.Report(cases.HOSTILE, server=cases.info())
    x = np.zeros((4, 8), np.float32)
    bare = cases.comparison_message()
    for side in (bare.left, bare.right):
        side.digest = ""
    report.add(cases.record_from_proto(bare), label=cases.HOSTILE, left=x, right=x + np.eye(4, 8,
               dtype=np.float32))
    report.add(cases.comparison(), label="without tensors")
    report.add(cases.policy(), label="policy", rollout=np.zeros((2, 3), np.float32),
               trainer=np.full((2, 3), 4e-3, np.float64))
    report.add(cases.policy(), label="policy without tensors")
    report.add(cases.parity(cases.HOSTILE), label="parity")
    report.add(cases.invariance(), label="layouts")
    report.add(cases.chain(), label="chain")
    report.add(cases.digests(), label="digests")
    report.add(cases.parity(cases.HOSTILE).left.methods[0].report, label="call")
    return report.html()


class Elements(html.parser.HTMLParser):
    """Tags with their attributes, and the text."""

    def __init__(self, page):
        super().__init__()
        self.found, self.text = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text.append(data)


def test_nothing_in_the_page_refers_to_elsewhere(page):
    elements = Elements(page).found
    tags = {tag for tag, _ in elements}
    assert not tags & {"script", "img", "iframe", "link", "object", "embed", "base", "a", "image"}
    for tag, attributes in elements:
        assert not [name for name in attributes if name.startswith("on") or name == "src"], tag
        assert attributes.get("href", "#").startswith("#")
    assert not re.search(r"url\((?!#)|@import|<!DOCTYPE svg|<\?xml", page)
    assert "default-src 'none'" in page


def test_hostile_texts_are_text(page):
    text = "".join(Elements(page).text)
    shown = cases.HOSTILE.replace("\x1b", "\ufffd").replace("\u202e", "\ufffd")
    assert text.count(shown) >= 4
    assert "\x1b" not in page and "\u202e" not in page


def test_ids_are_unique_and_references_have_a_target(page):
    elements = Elements(page).found
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = re.findall(r"url\(#([^)]+)\)", page)
    targets += [a["href"][1:] for _, a in elements if "href" in a]
    assert targets and set(targets) <= set(ids)


def test_figures_have_axes_with_names_and_a_table(page):
    figures = re.findall(r"<figure>.*?</figure>", page, re.DOTALL)
    # One of each drawing.
    assert len(_report_figures._DRAWINGS) == 9 and len(figures) >= 9
    labels = []
    for figure in figures:
        texts = re.findall(r"<text[^>]*>([^<]*)</text>", figure)
        labels += texts
        assert "<details>" in figure and "<table>" in figure and "viewBox" in figure
        assert len(texts) > 3 and not [text for text in texts if "$" in text or "\\" in text]
        # Colours are those of the page, in light and dark.
        assert not re.findall(r"(?:fill|stroke): #[0-9a-f]{6}", figure)
    for label in ("distance (ULP)", "row (index)", "column (index in the row)", "stage",
                  "position in the sequence (tokens)", "size (nats, log scale)",
                  "time (microseconds)", "|error| (unit of the tensors)",
                  "|d log-probability| (nats)"):
        assert label in labels


def test_unknown_is_told_in_the_page(page):
    row = re.search(r"<th[^>]*>uncommitted changes</th><td>(.*?)</td>", page)
    assert row.group(1) == "unknown"


@pytest.mark.parametrize("drawing", _report_figures._DRAWINGS)
def test_a_figure_of_nothing_is_a_figure(drawing):
    pytest.importorskip("matplotlib")
    data = {"axis": "row", "bins": []} if drawing == "profile" else []
    assert _report_figures.draw(drawing, data, "f").startswith("<svg")


def test_a_histogram_of_no_elements_says_nothing_to_the_user(recwarn):
    pytest.importorskip("matplotlib")
    for bars in ([], [("0", 0), ("1", 0)]):
        assert "elements (log scale)" in _report_figures.draw("histogram", bars, "f")
    assert [str(warning.message) for warning in recwarn] == []


@pytest.mark.parametrize("value", [None, "NaN", "Infinity", 0.0, 5e-324, 1e308])
def test_a_figure_of_odd_values_is_a_figure(value):
    pytest.importorskip("matplotlib")
    points = [("mean |d|", value), ("k1", 0.5)]
    assert "size (nats, log scale)" in _report_figures.draw("metrics", points, "f")


PRINT_DIGEST = """
import hashlib, sys
sys.path[:0] = {path!r}
import report_cases as cases
from rlk import reporting
page = reporting.Report("same", server=cases.info()).add(cases.policy()).html()
print(hashlib.sha256(page.encode()).hexdigest())
"""


def test_the_same_results_give_the_same_bytes(page, tmp_path):
    # In other processes, with other hash seeds and with settings of the user.
    (tmp_path / "matplotlibrc").write_text("lines.linewidth: 9\nsvg.fonttype: path\n")
    folders = [str(pathlib.Path(__file__).parent), str(pathlib.Path(reporting.__file__).parents[1])]
    report = reporting.Report("same", server=cases.info()).add(cases.policy())
    digest = hashlib.sha256(report.html().encode()).hexdigest()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", PRINT_DIGEST.format(path=folders)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == digest


def test_a_page_without_matplotlib_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    report = reporting.Report("one").add(cases.comparison())
    assert report.markdown() and report.json()
    with pytest.raises(ImportError, match=r"pip install 'rlk\[report\]'"):
        report.html()


class Recorder(http.server.BaseHTTPRequestHandler):
    """A proxy that fetches nothing and keeps what it was asked for."""

    def do_GET(self):  # noqa: N802
        self.server.asked.append(self.path)
        self.send_error(404)

    do_CONNECT = do_POST = do_GET

    def log_message(self, *_):
        pass


@pytest.fixture
def proxy():
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    made.asked = []
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def browse(page, folder, proxy, *flags):
    """What the browser makes of a page, all of whose requests go to the proxy."""
    file = folder / "page.html"
    file.write_text(page, encoding="utf-8")
    done = subprocess.run(
        [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            f"--user-data-dir={folder / 'profile'}",
            f"--proxy-server=127.0.0.1:{proxy.server_address[1]}",
            "--proxy-bypass-list=<-loopback>",
            *flags,
            "--dump-dom",
            file.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=BROWSER_SECONDS,
        check=True,
    )
    return done.stdout


@browser_only
def test_a_browser_shows_the_page_and_loads_nothing(page, tmp_path, proxy):
    shown = Elements(browse(page, tmp_path, proxy))
    assert not [url for url in proxy.asked if "leak.example" in url]
    text = "".join(shown.text)
    for part in ("without tensors", "ULP histogram", "Policy metrics", "Difference by position",
                 "Provenance", "distance (ULP)", "onerror=alert(1)>"):
        assert part in text
    assert not {tag for tag, _ in shown.found} & {"script", "img"}
    assert sum(tag == "svg" for tag, _ in shown.found) == page.count("<svg")


@browser_only
def test_a_page_that_does_load_something_is_seen(tmp_path, proxy):
    browse('<img src="http://leak.example/a.png">', tmp_path, proxy)
    assert "http://leak.example/a.png" in proxy.asked


# A page of its own measures the report in a frame as wide as a phone.
MEASURE = """<iframe id="f" style="width:{width}px;height:9000px;border:0" srcdoc="{page}"></iframe>
<script>document.getElementById("f").onload = e => {{
  const root = e.target.contentDocument.documentElement;
  document.title = root.scrollWidth + " of " + root.clientWidth;
}};</script>"""


def widths(page, width, folder, proxy):
    """How wide a frame of this width is, and how wide what it shows is."""
    shown = browse(MEASURE.format(width=width, page=html.escape(page)), folder, proxy)
    content, frame = re.search(r"<title>(\d+) of (\d+)</title>", shown).groups()
    return int(frame), int(content)


@browser_only
@pytest.mark.parametrize("width", [320, 360, 1280])
def test_the_page_is_as_wide_as_the_screen(page, tmp_path, proxy, width):
    assert widths(page, width, tmp_path, proxy) == (width, width)


@browser_only
def test_a_page_that_is_too_wide_is_seen(page, tmp_path, proxy):
    wide = page.replace("<main>", '<main style="width: 700px">')
    frame, content = widths(wide, 360, tmp_path, proxy)
    assert frame == 360 and content >= 700
