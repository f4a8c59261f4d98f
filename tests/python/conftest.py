"""Fixtures: the real server, on free ports, and clients of it.

The binary is RLK_SERVER_BIN, or server/rlk-server in RLK_BUILD_DIR, or the newest in build/*.
Without one, tests that need it are skipped, and say so. RLK_TEST_FULL=1 adds the long tests.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import urllib.request

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "client" / "python"

try:
    import rlk
except ImportError:  # not installed: the source tree will do
    sys.path.insert(0, str(PACKAGE))
    import rlk

START_SECONDS = 60
STOP_SECONDS = 30

full_only = pytest.mark.skipif(
    not os.environ.get("RLK_TEST_FULL"), reason="long; set RLK_TEST_FULL=1"
)


def find_server():
    """The server's path, or None and the reason."""
    named = os.environ.get("RLK_SERVER_BIN")
    if named:
        return (pathlib.Path(named), None) if os.access(named, os.X_OK) else (None, f"no {named}")
    build = os.environ.get("RLK_BUILD_DIR")
    folders = [pathlib.Path(build)] if build else sorted(ROOT.glob("build*"))
    found = [
        path
        for folder in folders
        for pattern in ("server/rlk-server", "*/server/rlk-server")
        for path in folder.glob(pattern)
        if os.access(path, os.X_OK)
    ]
    if not found:
        return None, "no rlk-server is built; set RLK_SERVER_BIN or RLK_BUILD_DIR"
    return max(found, key=lambda path: path.stat().st_mtime), None


def find_command():
    """The path of `rlk`: RLK_COMMAND_BIN, or where it is built beside the server; or None."""
    named = os.environ.get("RLK_COMMAND_BIN")
    if named:
        return pathlib.Path(named)
    server, _ = find_server()
    return server.parents[1] / "client" / "rlk" if server else None


class Server:
    """A running rlk-server. `tcp` and `unix` are addresses as clients take them."""

    def __init__(self, binary, folder, *flags):
        self.log = folder / "server.log"
        socket = folder / "r%41#?k.sock"  # the path is no URI
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [
                    str(binary),
                    "--listen=127.0.0.1:0",
                    f"--unix={socket}",
                    "--metrics=127.0.0.1:0",
                    *flags,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        # The server prints the line when it serves; it closes stdout when it cannot start.
        line = self.process.stdout.readline()
        if not line:
            self.process.wait(START_SECONDS)
            raise RuntimeError(f"the server did not start: {self.log.read_text()[-2000:]}")
        self.addresses = json.loads(line)
        listen = self.addresses["listen"]
        self.tcp = listen if isinstance(listen, str) else listen[0]
        self.unix = f"unix:{socket}"

    def scrape(self):
        """The text of the metrics endpoint."""
        with urllib.request.urlopen(f"http://{self.addresses['metrics']}/metrics") as reply:
            return reply.read().decode()

    def gauge(self, name):
        """The value of an unlabelled series."""
        lines = self.scrape().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(name + " "))

    def await_gauge(self, name, value):
        while self.gauge(name) != value:  # the test's own time-out is the bound
            time.sleep(0.01)

    def stop(self):
        """Ends the server as an operator would; returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_SECONDS)
        finally:
            self.process.kill()
            self.process.stdout.close()


@pytest.fixture(scope="session")
def server_binary():
    binary, reason = find_server()
    if binary is None:
        pytest.skip(reason)
    return binary


@pytest.fixture(scope="session")
def server(server_binary, tmp_path_factory):
    running = Server(server_binary, tmp_path_factory.mktemp("server"))
    yield running
    assert running.stop() == 0, running.log.read_text()[-2000:]


@pytest.fixture(scope="session")
def client(server):
    with rlk.connect(server.tcp, timeout=60) as connected:
        yield connected
