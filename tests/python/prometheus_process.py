"""A real Prometheus that scrapes a real server, on free ports, and what it answers.

The programs are those on PATH, or in RLK_PROMETHEUS_DIR.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus"
LISTENING = re.compile(r'msg="Listening on" address=(\S+)')
READY = "Server is ready to receive web requests"


def find(program):
    """The path of `prometheus` or `promtool`; None where it is not installed."""
    folder = os.environ.get("RLK_PROMETHEUS_DIR")
    return shutil.which(program, path=folder or None)


def configuration(targets, scrape_seconds, rules):
    """deploy/prometheus/prometheus.yml with other targets and a shorter interval, and the rules of a
    folder."""
    text = (RULES / "prometheus.yml").read_text()
    text, intervals = re.subn(r"_interval: 15s$", f"_interval: {scrape_seconds}s", text, flags=re.M)
    text, places = re.subn(r"targets: \[.*\]", f"targets: {json.dumps(targets)}", text)
    text, files = re.subn(r"^  - (\w+\.yml)$", lambda m: f"  - {rules / m[1]}", text, flags=re.M)
    assert (intervals, places, files) == (2, 1, 2)
    return text


class Prometheus:
    """Runs until stop()."""

    def __init__(self, folder, targets, scrape_seconds=1, rules=RULES):
        config = folder / "prometheus.yml"
        config.write_text(configuration(targets, scrape_seconds, rules))
        self.log = folder / "prometheus.log"
        self.process = subprocess.Popen(
            [
                find("prometheus"),
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                "--web.listen-address=127.0.0.1:0",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.address = None
        with open(self.log, "w") as log:
            for line in self.process.stderr:
                log.write(line)
                if found := LISTENING.search(line):
                    self.address = found[1]
                if READY in line:
                    break
        if self.address is None:
            self.process.wait()
            raise RuntimeError(f"prometheus did not start: {self.log.read_text()[-2000:]}")
        # A full pipe would stop it.
        self.drain = threading.Thread(target=lambda: self.process.stderr.read(), daemon=True)
        self.drain.start()

    def get(self, path, **arguments):
        """The data of an answer of the API; RuntimeError with its text where it is an error."""
        query = urllib.parse.urlencode(arguments)
        try:
            with urllib.request.urlopen(f"http://{self.address}/api/v1/{path}?{query}") as reply:
                return json.load(reply)["data"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{path} {arguments}: {error.read().decode()}") from error

    def query(self, expression):
        """(labels, value) of each series of an instant vector."""
        data = self.get("query", query=expression)
        assert data["resultType"] == "vector", expression
        return [(entry["metric"], float(entry["value"][1])) for entry in data["result"]]

    def value(self, expression):
        """The value of the only series; None where there is none."""
        found = self.query(expression)
        assert len(found) <= 1, expression
        return found[0][1] if found else None

    def alerting_rules(self):
        """Each alert as Prometheus sees it: name, state, health, query, annotations, alerts."""
        groups = self.get("rules", type="alert")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.drain.join()
        self.process.stderr.close()
