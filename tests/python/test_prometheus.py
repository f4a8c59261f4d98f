"""The rules, the dashboard and the page of operators: valid, complete, and true of a real server
that a real Prometheus scrapes."""

import functools
import json
import math
import re
import subprocess
import sys
import threading
import time

import numpy as np
import prometheus_process
import pytest
import rlk
from conftest import ROOT, Server
from prometheus_process import RULES, Prometheus

GRAFANA = ROOT / "deploy" / "grafana"
FAMILIES = (ROOT / "tests" / "golden" / "metrics.txt").read_text().splitlines()
ALERTS = re.findall(r"alert: (\w+)", (RULES / "alerts.yml").read_text())
RECORDED = set(re.findall(r"record: (\S+)", (RULES / "rules.yml").read_text()))
PAGE = (RULES / "README.md").read_text()

needs_prometheus = pytest.mark.skipif(
    None in (prometheus_process.find("prometheus"), prometheus_process.find("promtool")),
    reason="prometheus and promtool are not on PATH, nor in RLK_PROMETHEUS_DIR",
)


def promtool(*arguments):
    done = subprocess.run(
        [prometheus_process.find("promtool"), *arguments], cwd=RULES, capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


def dashboard():
    return json.loads((GRAFANA / "rlk.json").read_text())


def dashboard_expressions():
    """(panel, expression) of every query of the dashboard, as Grafana would send it."""
    values = {"$instance": ".*", "$__rate_interval": "1m", "$__range": "1h"}
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", []):
            expression = target["expr"]
            for name, value in values.items():
                expression = expression.replace(name, value)
            yield panel["title"], expression


EXPRESSIONS = list(dashboard_expressions())


@functools.cache
def known_names():
    """Every metric name that a query may use."""
    names = {"up", "ALERTS"} | RECORDED
    for family in FAMILIES:
        name, kind, *_ = family.split()
        ends = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        names |= {name + end for end in ends}
    return names


def metric_names(expression):
    """What stands before a selector or a range, and nothing of PromQL's own words."""
    text = re.sub(r'"[^"]*"', "", expression)
    return set(re.findall(r"\b(\w+:\w+:\w+|(?:rlk|process)_\w+|up(?=\{))", text))


@needs_prometheus
@pytest.mark.parametrize(
    "arguments",
    [("check", "config", "prometheus.yml"), ("check", "rules", "rules.yml", "alerts.yml")],
    ids=["config", "rules"],
)
def test_promtool_checks(arguments):
    status, text = promtool(*arguments)
    assert status == 0, text


@needs_prometheus
def test_rule_unit_tests_pass():
    status, text = promtool("test", "rules", "alerts_test.yml")
    assert status == 0, text


@needs_prometheus
def test_rule_unit_tests_can_fail(tmp_path):
    """An alert that always fires, and one that never does, are found."""
    for wrong in ("vector(1) > 0", "vector(1) < 0"):
        for name in ("rules.yml", "alerts.yml", "alerts_test.yml"):
            (tmp_path / name).write_text((RULES / name).read_text())
        alerts = (tmp_path / "alerts.yml").read_text()
        changed = re.sub(r"expr: instance:rlk_admission.*", f"expr: {wrong}", alerts)
        assert changed != alerts
        (tmp_path / "alerts.yml").write_text(changed)
        status, text = promtool("test", "rules", str(tmp_path / "alerts_test.yml"))
        assert status != 0 and "RlkOverloaded" in text


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_is_tested_and_explained(alert):
    tests = (RULES / "alerts_test.yml").read_text()
    blocks = [block for block in tests.split("\n  - name: ")[1:] if f'alertname="{alert}"' in block]
    assert blocks, "no test in which it fires"
    assert any("exp_samples: []" in block for block in blocks), "no test in which it is silent"
    source = (RULES / "alerts.yml").read_text()
    rule = source.split(f"alert: {alert}\n")[1].split("- alert:")[0]
    assert "summary:" in rule and "description:" in rule and "severity:" in rule
    assert f"runbook: deploy/prometheus/README.md#{alert.lower()}\n" in rule
    assert f"\n### {alert}\n" in PAGE


def test_page_lists_every_family():
    cells = re.findall(r"^\| (`(?:rlk|process)_[^|]*)\|", PAGE, re.M)
    listed = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    assert listed == {family.split()[0] for family in FAMILIES}


def test_dashboard_is_that_of_its_script():
    done = subprocess.run(
        [sys.executable, str(GRAFANA / "make_dashboard.py"), "--check"], capture_output=True
    )
    assert done.returncode == 0, done.stderr


def test_dashboard_panels_have_places_of_their_own():
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = set()
    for panel in panels:
        grid = panel["gridPos"]
        for x in range(grid["x"], grid["x"] + grid["w"]):
            for y in range(grid["y"], grid["y"] + grid["h"]):
                assert x < 24 and (x, y) not in cells, panel["title"]
                cells.add((x, y))


def test_queries_use_known_metrics():
    rules = (RULES / "rules.yml").read_text() + (RULES / "alerts.yml").read_text()
    texts = [expression for _, expression in EXPRESSIONS]
    texts += re.findall(r"expr: (?!>-)(.*)", rules)
    texts += [" ".join(found.split()) for found in re.findall(r"expr: >-\n((?: {10}.*\n)+)", rules)]
    used = set()
    for text in texts:
        names = metric_names(text)
        assert names, text
        assert names <= known_names(), text
        used |= names
    # And nothing that a server tells stays unseen.
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for name in used}
    unseen = {family.split()[0] for family in FAMILIES} - shown
    assert not unseen


class Traffic:
    """Calls of several kinds until it is stopped: good, refused and verified ones, uploads."""

    def __init__(self, address):
        self.address = address
        self.stopping = threading.Event()
        self.failure = None
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        try:
            with rlk.connect(self.address, timeout=60) as client:
                while not self.stopping.is_set():
                    self.round(client)
        except Exception as error:  # told by stop()
            self.failure = error

    def round(self, client):
        x = np.linspace(-60, 60, 4096, dtype=np.float32)
        client.call("final_logit_softcap.forward", x=x, softcap=20.0)
        client.call("final_logit_softcap.backward", x=x, grad_y=x, softcap=20.0)
        client.call("final_logit_softcap.forward", x=x[:64], verify="repeat")
        client.call("final_logit_softcap.forward", x=x[:64], verify="reference")
        weight = np.ones(64, dtype=np.float32)
        client.call("rms_norm.forward", x=x.reshape(64, 64), weight=weight)
        with pytest.raises(rlk.RlkError):
            client.call("final_logit_softcap.forward", x=x, softcap=-1.0)
        resident = client.put(x)
        client.call("final_logit_softcap.forward", x=resident)
        client.release(resident)

    def stop(self):
        self.stopping.set()
        self.thread.join()
        assert self.failure is None, self.failure


def refuse_for_load(address):
    """A refusal of the kind admission: a token that nobody has given out."""
    with rlk.connect(address, timeout=60, session="00" * 16) as client:
        with pytest.raises(rlk.RlkError):
            client.call("final_logit_softcap.forward", x=np.zeros(4, dtype=np.float32))


def await_true(condition):
    """Polls until it holds. The limit is there to end a program that is wrong, however slow a
    correct one may be."""
    end = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < end, "waited for ten minutes"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def watched(server_binary, tmp_path_factory):
    """A Prometheus that has seen a server under traffic, several times, with all its rules."""
    if None in (prometheus_process.find("prometheus"), prometheus_process.find("promtool")):
        pytest.skip("prometheus is not installed")
    folder = tmp_path_factory.mktemp("prometheus")
    server = Server(server_binary, folder, "--selftest-interval-seconds=1")
    prometheus = Prometheus(folder, [server.addresses["metrics"]])
    traffic = Traffic(server.tcp)
    try:
        # A rate needs two scrapes, and the first of them before what it counts.
        await_true(lambda: (prometheus.value("min(count_over_time(up[1h]))") or 0) >= 2)
        refuse_for_load(server.tcp)
        for name in RECORDED:
            await_true(lambda name=name: prometheus.query(f"{{__name__={json.dumps(name)}}}"))
        seen = "sum(increase(rlk_admission_rejections_total[1h])) > 0"
        await_true(lambda: prometheus.query(seen) or traffic.failure)
        yield prometheus, server
    finally:
        traffic.stop()
        prometheus.stop()
        server.stop()


@needs_prometheus
@pytest.mark.parametrize(
    ("panel", "expression"), EXPRESSIONS, ids=[f"{i}-{e[0]}" for i, e in enumerate(EXPRESSIONS)]
)
def test_dashboard_query_has_data(watched, panel, expression):
    prometheus, _ = watched

    def has_data():
        return any(math.isfinite(value) for _, value in prometheus.query(expression))

    # Nothing compares implementations here, so that there is no difference to take a quantile of.
    if "rlk_parity_max_ulp_bucket" in expression:
        assert len(prometheus.query(expression)) == 1
        return
    await_true(has_data)


@needs_prometheus
@pytest.mark.parametrize("alert", ALERTS)
def test_alert_is_evaluated_and_silent(watched, alert):
    prometheus, _ = watched
    [rule] = [rule for rule in prometheus.alerting_rules() if rule["name"] == alert]
    assert rule["health"] == "ok", rule
    # The traffic has calls that are refused; nothing else is wrong with it, but for a scrape that a
    # busy machine answers too late.
    if alert != "RlkRejectionRatio":
        late = ["pending"] if alert == "RlkDown" else []
        assert rule["state"] in ["inactive", *late], rule
    # Each metric that it looks at is there, so that silence means health and no misspelling.
    # After a scrape that came too late there is nothing until the next one.
    for name in metric_names(rule["query"]):
        await_true(lambda name=name: prometheus.query(f"{{__name__={json.dumps(name)}}}"))
    labels = re.search(r"rlk_\w+\{[^}]*\}", rule["query"])
    if labels:
        await_true(lambda: prometheus.query(labels[0]))


@needs_prometheus
def test_series_are_few_and_fixed(watched):
    prometheus, server = watched
    count = prometheus.value('max_over_time(scrape_samples_scraped{job="rlk"}[1h])')
    assert 100 < count <= 2000
    ever = prometheus.get("series", **{"match[]": '{job="rlk", __name__=~"rlk_.*|process_.*"}'})
    now = [line for line in server.scrape().splitlines() if line.startswith(("rlk_", "process_"))]
    assert len(ever) == len(now)


@needs_prometheus
def test_names_and_texts_are_as_prometheus_wants_them(server):
    words = [prometheus_process.find("promtool"), "check", "metrics"]
    done = subprocess.run(words, input=server.scrape(), capture_output=True, text=True)
    assert done.returncode == 0 and not done.stdout + done.stderr, done


@needs_prometheus
def test_a_server_that_is_gone_is_an_alert(server_binary, tmp_path):
    server = Server(server_binary, tmp_path)
    prometheus = Prometheus(tmp_path, [server.addresses["metrics"]])
    try:
        await_true(lambda: prometheus.value('up{job="rlk"}') == 1)
        server.stop()

        def down():
            return [r for r in prometheus.alerting_rules() if r["name"] == "RlkDown"][0]["alerts"]

        await_true(down)
        [alert] = down()
        assert alert["labels"]["instance"] == server.addresses["metrics"]
        assert alert["annotations"]["summary"] == f"{server.addresses['metrics']}: no metrics"
    finally:
        prometheus.stop()
        server.process.kill()
