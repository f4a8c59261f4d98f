"""Clients with TLS, certificates and tokens, against real servers; and one client of several."""

import asyncio
import hashlib
import json
import os
import subprocess
from typing import NamedTuple

import numpy as np
import pytest
from certificates import Authority
from conftest import Server, find_command

import rlk

TOKEN = "token-0123456789abcdef0123456789abcdef"
X = np.float32([-40, 0, 1, 1000])


class Secure(NamedTuple):
    server: Server
    tls: rlk.Tls
    folder: os.PathLike


def private(path, text):
    path.write_text(text)
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"), "authority")


@pytest.fixture(scope="module")
def secure(server_binary, authority, tmp_path_factory):
    folder = tmp_path_factory.mktemp("secure")
    names = "DNS:localhost,IP:127.0.0.1"
    certificate, key = authority.issue("server", names=names, usage="serverAuth")
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    tokens = private(folder / "tokens", f"caller sha256:{digest}\n")
    running = Server(
        server_binary,
        folder,
        f"--tls-cert={certificate}",
        f"--tls-key={key}",
        f"--tls-client-ca={authority.pem}",
        f"--tokens={tokens}",
        "--health-listen=127.0.0.1:0",
    )
    own, own_key = authority.issue("caller", usage="clientAuth")
    yield Secure(running, rlk.Tls(ca=authority.pem, cert=own, key=own_key), folder)
    assert running.stop() == 0, running.log.read_text()[-2000:]


def connect(secure, **changed):
    arguments = {"tls": secure.tls, "token": TOKEN, "timeout": 60, **changed}
    return rlk.connect(secure.server.tcp, **arguments)


def softcap(client):
    return client.call("final_logit_softcap.forward", x=X, softcap=20.0).y


def test_every_kind_of_call_carries_the_credentials(secure):
    calls = []

    def token():
        calls.append(1)
        return TOKEN

    with connect(secure, token=token) as client:
        expected = softcap(client)
        assert client.info().server_id
        assert client.call_async("final_logit_softcap.forward", x=X, softcap=20.0).result(60)
        resident = client.put(X)
        assert np.array_equal(client.get(resident), X)
        assert np.array_equal(
            client.call("final_logit_softcap.forward", x=resident, softcap=20.0).y, expected
        )
        assert client.compare(X, X).passed
        resident.release()
    assert len(calls) > 7, "the token is asked for at every call"


def test_asyncio(secure):
    async def run():
        async with rlk.aio.connect(secure.server.tcp, tls=secure.tls, token=TOKEN) as client:
            result = await client.call("final_logit_softcap.forward", x=X, softcap=20.0)
            resident = await client.put(X)
            assert np.array_equal(await client.get(resident), X)
            return result.y

    with connect(secure) as client:
        assert np.array_equal(asyncio.run(run()), softcap(client))


@pytest.mark.parametrize("token", [None, TOKEN[:-1], TOKEN + "0", "another"])
def test_a_wrong_token_is_unauthenticated(secure, token):
    with connect(secure, token=token) as client, pytest.raises(rlk.UnauthenticatedError) as raised:
        softcap(client)
    assert raised.value.reason == "UNAUTHENTICATED"
    assert raised.value.field == "authorization"
    assert raised.value.value == ("absent" if token is None else "unknown")
    assert token is None or token not in str(raised.value)


def test_a_wrong_certificate_does_not_connect(secure, tmp_path):
    other = Authority(tmp_path, "other")
    own, key = other.issue("impostor", usage="clientAuth")
    for tls in (
        None,
        True,  # the system's authorities
        rlk.Tls(ca=other.pem, cert=secure.tls.cert, key=secure.tls.key),
        rlk.Tls(ca=secure.tls.ca),
        rlk.Tls(ca=secure.tls.ca, cert=own, key=key),
        rlk.Tls(ca=secure.tls.ca, cert=secure.tls.cert, key=secure.tls.key, server_name="other"),
    ):
        with connect(secure, tls=tls) as client, pytest.raises(rlk.UnavailableError):
            softcap(client)


@pytest.mark.parametrize(
    "address",
    ["10.0.0.1:1", "host:1", "127.0.0.1.example:1", "dns:///host:1", "ipv4:127.0.0.1:1,10.0.0.1:1"],
)
def test_a_token_does_not_travel_readable(address):
    with pytest.raises(rlk.InvalidArgumentError) as raised:
        rlk.connect(address, token=TOKEN)
    assert raised.value.field == "token"
    assert TOKEN not in str(raised.value)
    for there in ("127.0.0.1:1", "[::1]:1", "localhost:1", "unix:/s", "ipv4:127.0.0.1:1"):
        rlk.connect(there, token=TOKEN).close()


def test_wrong_arguments(tmp_path):
    with pytest.raises(rlk.InvalidArgumentError):
        rlk.Tls(cert=tmp_path / "cert")
    for arguments in (
        {"tls": rlk.Tls(ca=tmp_path / "missing")},
        {"tls": rlk.Tls(cert=tmp_path / "missing", key=TOKEN)},
        {"tls": "yes"},
        {"token": ""},
        {"token": 5},
        {"token": TOKEN + "\n"},
        {"token": TOKEN + "\u00e9"},
        {"token": "a" * 4097},
    ):
        with pytest.raises(rlk.InvalidArgumentError) as raised:
            rlk.connect("127.0.0.1:1", **arguments)
        assert raised.value.field in ("tls", "token")
        assert TOKEN not in str(raised.value)
    for text in (TOKEN + "\n", None, ""):
        with rlk.connect("127.0.0.1:1", token=lambda text=text: text) as client:
            with pytest.raises(rlk.InvalidArgumentError) as raised:
                client.info()
            assert raised.value.field == "token" and TOKEN not in str(raised.value)


def command(secure, *words, environment=None):
    binary = find_command()
    if binary is None or not os.access(binary, os.X_OK):
        pytest.skip("rlk is not built beside the server; set RLK_COMMAND_BIN")
    server = () if "--server" in words else ("--server", secure.server.tcp)
    done = subprocess.run(
        [binary, "info", "--json", *server, *map(str, words)],
        capture_output=True,
        text=True,
        env={**os.environ, **(environment or {})},
    )
    return done.returncode, json.loads(done.stdout)


def test_the_command_takes_files(secure, tmp_path):
    token = private(tmp_path / "token", TOKEN + "\n")
    words = {
        "--tls-ca": secure.tls.ca,
        "--tls-cert": secure.tls.cert,
        "--tls-key": secure.tls.key,
        "--token-file": token,
    }
    flat = [word for pair in words.items() for word in pair]
    assert command(secure, *flat)[0] == 0
    environment = {
        "RLK_" + name[2:].replace("-", "_").upper(): str(path) for name, path in words.items()
    }
    assert command(secure, environment=environment)[0] == 0
    assert command(secure, "--server", secure.server.unix, environment=environment)[0] == 0

    code, said = command(secure, *flat[:-2])
    assert code == 1
    assert said["error"]["reason"] == "UNAUTHENTICATED"
    assert command(secure, "--tls-ca", secure.tls.ca, "--token-file", token)[0] == 3

    wrong = {
        "empty": "",
        "two words": TOKEN + " " + TOKEN,
        "two lines": TOKEN + "\n" + TOKEN,
        "too long": "a" * 4097,
    }
    for name, text in wrong.items():
        code, said = command(secure, *flat[:-1], private(tmp_path / name, text))
        assert code == 2, name
        assert said["error"]["field"] == "--token-file"
        assert TOKEN not in json.dumps(said)
    token.chmod(0o604)
    assert command(secure, *flat)[0] == 2


def test_several_servers(server_binary, tmp_path):
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    servers = [Server(server_binary, folder) for folder in folders]
    address = "ipv4:" + ",".join(server.tcp for server in servers)

    def served(server):
        lines = server.scrape().splitlines()
        return sum(
            float(line.split()[-1])
            for line in lines
            if line.startswith('rlk_requests_total{code="OK"')
        )

    try:
        with rlk.connect(address, timeout=60) as client:
            expected = softcap(client)
            while not all(map(served, servers)):
                assert np.array_equal(softcap(client), expected)
            before = [served(server) for server in servers]
            for _ in range(90):
                assert np.array_equal(softcap(client), expected)
            shares = [served(server) - count for server, count in zip(servers, before)]
            assert all(20 <= share <= 40 for share in shares), shares

            servers[0].process.kill()
            for _ in range(50):
                assert np.array_equal(softcap(client), expected)
            assert servers[1].stop() == 0
            for _ in range(50):
                assert np.array_equal(softcap(client), expected)

            with pytest.raises(rlk.FailedPreconditionError) as raised:
                client.put(X)
            assert raised.value.reason == "WRONG_SERVER"
            assert raised.value.field == "address"
    finally:
        for server in servers:
            server.process.kill()
            server.process.wait()
