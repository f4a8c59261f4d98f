"""Alerts fire on faults of real servers, each on its own, and on nothing else.

The rules are those of deploy/prometheus without their waiting times. What no server without a GPU
and without a fault of its own can show (wrong bits, devices) is in alerts_test.yml alone.
"""

import hashlib
import signal
import socket
import threading

import numpy as np
import prometheus_process
import pytest
from certificates import Authority
from conftest import Server
from prometheus_process import Prometheus
from test_prometheus import await_true, needs_prometheus

import rlk

pytestmark = needs_prometheus
TOKEN = "token-0123456789abcdef0123456789abcdef"
X = np.linspace(-60, 60, 4096, dtype=np.float32)


def softcap(client, **options):
    return client.call("final_logit_softcap.forward", **{"x": X, "softcap": 20.0, **options})


def good_calls(address, **credentials):
    with rlk.connect(address, timeout=300, **credentials) as client:
        for _ in range(20):
            softcap(client)


def refused(error, call):
    with pytest.raises(error):
        call()


class Healthy:
    """A server that is used as it should be. The others differ from it by their fault."""

    alerts = frozenset()
    flags = ()

    def __init__(self, binary, folder):
        self.binary = binary
        self.folder = folder / type(self).__name__
        self.folder.mkdir()
        self.server = Server(binary, self.folder, *self.prepare())
        self.instance = self.server.addresses["metrics"]
        self.held = []

    def prepare(self):
        return self.flags

    def use(self):
        good_calls(self.server.tcp)

    def fail(self, prometheus):
        pass

    def stop(self):
        for thing in self.held:
            thing.close()
        self.server.stop()


class Restarting(Healthy):
    alerts = {"RlkRestarts"}

    def fail(self, prometheus):
        for times in (1, 2):
            assert self.server.stop() == 0
            self.server = Server(self.binary, self.folder, f"--metrics={self.instance}")
            starts = f'changes(process_start_time_seconds{{instance="{self.instance}"}}[1h])'
            await_true(lambda: prometheus.value(starts) == times)


class Gone(Healthy):
    alerts = {"RlkDown"}

    def fail(self, _):
        self.server.stop()

    def stop(self):
        self.server.process.kill()


class Overloaded(Healthy):
    """Its queue takes one call: other callers are refused, and so are self-tests."""

    alerts = {"RlkOverloaded", "RlkSelftestError"}
    flags = ("--queue-calls-max=1", "--selftest-interval-seconds=0.2")

    def use(self):
        pass

    def prepare(self):
        self.over, self.callers = threading.Event(), []
        return super().prepare()

    def fail(self, _):
        self.callers += [threading.Thread(target=self.call_on) for _ in range(12)]
        for caller in self.callers:
            caller.start()

    def call_on(self):
        x = np.zeros((32, 4096), np.float32)
        with rlk.connect(self.server.tcp, timeout=300) as client:
            while not self.over.is_set():
                try:
                    client.call("rms_norm.forward", x=x, weight=x[0])
                except rlk.ResourceExhaustedError:
                    pass

    def stop(self):
        self.over.set()
        for caller in self.callers:
            caller.join()
        super().stop()


class Misused(Healthy):
    """Asked for what cannot be, and for what its dtype cannot hold."""

    alerts = {"RlkRejectionRatio", "RlkNonfinite"}

    def fail(self, _):
        with rlk.connect(self.server.tcp, timeout=300) as client:
            for _ in range(20):
                refused(rlk.InvalidArgumentError, lambda: softcap(client, softcap=-1.0))
            x = np.zeros((4, 64), np.float16)
            x[:, 0] = 1
            weight = np.full(64, 60000, np.float16)
            try:
                client.call("rms_norm.forward", x=x, weight=weight, verify="reference")
            except rlk.RlkError as error:
                assert error.reason == "VERIFICATION_FAILED", error


class Full(Healthy):
    """Its memory is taken, and its connections."""

    alerts = {"RlkMemoryHigh", "RlkConnectionsRefused"}
    flags = ("--resident-bytes-max=1048576", "--connections-max=8")

    def fail(self, _):
        client = rlk.connect(self.server.tcp, timeout=300)
        self.held.append(client)
        client.put(np.zeros(245_000, np.float32))
        host, _, port = self.server.tcp.rpartition(":")
        self.held += [socket.create_connection((host, int(port))) for _ in range(20)]


class Secure(Healthy):
    """Its certificate ends tomorrow, callers have old tokens, new tokens cannot be read. None of
    that is load."""

    alerts = {"RlkCertificateEnds", "RlkCredentialsRefused", "RlkCredentialReloadFailed"}

    def prepare(self):
        authority = Authority(self.folder, "authority")
        names = "DNS:localhost,IP:127.0.0.1"
        certificate, key = authority.issue("server", names=names, usage="serverAuth")
        self.tls = rlk.Tls(ca=authority.pem)
        self.tokens = self.folder / "tokens"
        self.write(f"caller sha256:{hashlib.sha256(TOKEN.encode()).hexdigest()}\n")
        return f"--tls-cert={certificate}", f"--tls-key={key}", f"--tokens={self.tokens}"

    def write(self, text):
        new = self.folder / "new"
        new.write_text(text)
        new.chmod(0o600)
        new.rename(self.tokens)

    def use(self):
        good_calls(self.server.tcp, tls=self.tls, token=TOKEN)

    def fail(self, _):
        with rlk.connect(self.server.tcp, timeout=300, tls=self.tls, token="x" * 40) as client:
            for _ in range(30):
                refused(rlk.UnauthenticatedError, lambda: softcap(client))
        self.write("nonsense\n")


class Stuck(Healthy):
    """Its drain is over, and a reference is still computed: for minutes, with such a matrix."""

    alerts = {"RlkDrainStuck"}
    flags = ("--drain-seconds=0.1", "--selftest-interval-seconds=0")

    def prepare(self):
        self.caller = threading.Thread(target=self.call)
        return super().prepare()

    def fail(self, _):
        self.caller.start()
        self.server.await_gauge("rlk_inflight_requests", 1)
        self.server.process.send_signal(signal.SIGTERM)

    def call(self):
        with rlk.connect(self.server.tcp, timeout=600) as client:
            x = client.put(np.ones((4096, 4096), np.float32))
            refused(
                rlk.RlkError,
                lambda: client.call("det_linear.forward", x=x, weight=x, backend="golden"),
            )

    def stop(self):
        self.server.process.kill()
        self.server.process.wait()
        if self.caller.ident is not None:
            self.caller.join()


# One scrape that a busy machine answers too late is enough, for nothing waits here.
MAY_FIRE = {"RlkDown"}
FAULTS = [Healthy, Restarting, Gone, Overloaded, Misused, Full, Secure, Stuck]


def without_waiting(folder):
    """The rules, and alerts that fire as soon as their expression holds."""
    for name in ("rules.yml", "alerts.yml"):
        text = (prometheus_process.RULES / name).read_text()
        lines = [line for line in text.splitlines() if not line.strip().startswith("for: ")]
        (folder / name).write_text("\n".join(lines) + "\n")
    return folder


def test_each_fault_fires_its_alerts_and_no_other(server_binary, tmp_path):
    servers, prometheus = [], None
    try:
        servers += [fault(server_binary, tmp_path) for fault in FAULTS]
        targets = [server.instance for server in servers]
        prometheus = Prometheus(tmp_path, targets, rules=without_waiting(tmp_path))
        # An increase needs a scrape before it.
        seen = "count(count_over_time(rlk_build_info[1h]) >= 2)"
        await_true(lambda: prometheus.value(seen) == len(servers))
        for server in servers:
            server.use()
            server.fail(prometheus)

        def fired():
            """{instance: alerts} that fire, or did."""
            found = {server.instance: set() for server in servers}
            for labels, _ in prometheus.query('max_over_time(ALERTS{alertstate="firing"}[1h])'):
                found[labels["instance"]].add(labels["alertname"])
            return found

        expected = {server.instance: set(server.alerts) for server in servers}
        await_true(lambda: all(expected[at] <= fired()[at] for at in expected))
        for server in servers:
            assert fired()[server.instance] - MAY_FIRE <= server.alerts, server
    finally:
        for server in servers:
            server.stop()
        if prometheus is not None:
            prometheus.stop()
