"""Tensors that stay on the server, and calls that are too large for a message."""

import asyncio
import queue
import signal
import subprocess
import sys
import textwrap
import time

import grpc
import ml_dtypes
import numpy as np
import pytest
from conftest import PACKAGE, Server

import rlk
from rlk import _session
from rlk._proto import session_pb2


@pytest.fixture(params=["tcp", "unix"])
def client(request, server):
    with rlk.connect(getattr(server, request.param), timeout=60) as made:
        yield made


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_every_pattern_of_sixteen_bits_passes(client, dtype):
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype).reshape(256, 256)
    with client.put(x, label="patterns") as held:
        assert held.digest == rlk.digest(x)
        assert (
            held.shape == (256, 256)
            and held.nbytes == 1 << 17
            and held.label == "patterns"
        )
        back = held.get()
        assert back.dtype == x.dtype and back.flags.writeable
        assert back.tobytes() == x.tobytes()
        assert [tensor.id for tensor in client.tensors()] == [held.id]
    assert client.tensors() == ()


def test_views_of_every_kind_are_put_in_c_order(client):
    x = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    for view in (
        x.T,
        x[:, ::-1],
        np.broadcast_to(x[0], (5, 3, 4)),
        x[:0],
        x[0, 0, 0],
        x.astype(">i4"),
    ):
        with client.put(view) as held:
            np.testing.assert_array_equal(held.get(), view)


def test_calls_take_and_keep_residents(client):
    x = np.linspace(-60, 60, 3000, dtype=np.float32)
    expected = client.call(
        "final_logit_softcap.forward", x=x, softcap=20.0, digests="tensor"
    )
    held = client.put(x)
    result = client.call(
        "final_logit_softcap.forward", x=held, softcap=20.0, digests="tensor", keep="y"
    )
    assert isinstance(result.y, rlk.Resident)
    assert result.report.transports == ("resident",)
    assert dict(result.report.output_digests) == dict(expected.report.output_digests)
    assert result.y.get().tobytes() == expected.y.tobytes()
    plain = client.call("final_logit_softcap.forward", x=held, softcap=20.0)
    assert plain.y.tobytes() == expected.y.tobytes()
    client.release([held, result.y])


def test_state_is_written_in_place_by_its_generation(client):
    x = np.ones(10, np.float32)
    state = client.put(np.zeros(10, np.float32))
    updated = client.call("final_logit_softcap.forward", x=x, into={"y": state}).y
    assert updated.id == state.id and (state.generation, updated.generation) == (1, 2)
    assert (updated.get() != 0).all()
    with pytest.raises(rlk.NotFoundError) as caught:
        client.call("final_logit_softcap.forward", x=x, into={"y": state})
    assert caught.value.reason == "TENSOR_NOT_FOUND"
    with pytest.raises(rlk.NotFoundError):
        state.get()
    with pytest.raises(rlk.InvalidArgumentError) as caught:
        client.call("final_logit_softcap.forward", x=updated, into={"y": updated})
    assert caught.value.reason == "PLACEMENT_OVERLAP"
    updated.release()


def test_what_is_there_already_is_not_sent_again(client):
    x = np.arange(1000, dtype=np.float32)
    sent = []
    first = client.put(x, reuse=True, progress=lambda done, total: sent.append(done))
    second = client.put(x, reuse=True, progress=lambda done, total: sent.append(done))
    assert first.id == second.id and sent == [4000]
    client.release(first)
    assert second.get().tobytes() == x.tobytes()
    client.release(second)
    assert client.tensors() == ()


def test_a_tensor_that_is_shared_ends_with_no_lease(client):
    x = np.arange(1000, dtype=np.float32)
    sent = []
    put = [
        client.put(x, reuse=True, lease=lease, progress=lambda done, total: sent.append(done))
        for lease in (60, None, None, 60)
    ]
    leased, first, second, again = put
    assert first.id == second.id and len({tensor.id for tensor in put}) == 3
    assert sent == [4000] * 3
    client.release(put)
    assert client.tensors() == ()


@pytest.mark.parametrize("lease", [0, -1, 1e300, float("nan"), float("inf"), "5", [1]])
def test_refuses_leases_that_are_none(server, client, lease):
    with pytest.raises(rlk.InvalidArgumentError) as error:
        client.put(np.zeros(1, np.float32), lease=lease)
    assert error.value.reason == "LIMIT_EXCEEDED" and error.value.field == "lease"
    with rlk.connect(server.tcp, session_lease=lease, timeout=60) as other:
        with pytest.raises(rlk.InvalidArgumentError) as error:
            other.session()
    assert error.value.field == "lease"


def test_a_short_lease_is_not_an_endless_one(client):
    x = client.put(np.zeros(1, np.float32), lease=1e-9)
    with pytest.raises(rlk.NotFoundError):
        while True:  # its lease of a millisecond passes
            x.get()


@pytest.mark.parametrize(
    "expected",
    [{}, {"dtype": "f32"}, {"dtype": "f32", "shape": (2**70,), "sha256": ""}, {"shape": 1}, None],
)
def test_refuses_manifests_that_are_none(client, expected):
    with pytest.raises(rlk.InvalidArgumentError) as error:
        client.load("a.safetensors", {"w": expected})
    assert error.value.reason == "MALFORMED_MESSAGE" and error.value.field == "manifest[w]"


def test_what_a_progress_function_raises_is_raised(client):
    class Stop(Exception):
        pass

    def stop(done, total):
        raise Stop(done)

    x = np.zeros(3 << 18, np.float32)
    with pytest.raises(Stop, match=str(1 << 20)):
        client.put(x, progress=stop)
    kept = client.put(x)
    with pytest.raises(Stop, match=str(1 << 20)):
        kept.get(progress=stop)
    client.release(kept)
    while client.tensors():  # what was sent of the first goes with its stream
        pass


def test_progress_counts_up_to_all(client):
    x = np.zeros((5 << 20) // 2 + 3, np.float16)
    up, down = [], []
    held = client.put(x, progress=lambda done, total: up.append((done, total)))
    held.get(progress=lambda done, total: down.append((done, total)))
    for steps in (up, down):
        assert len(steps) == 6 and steps == sorted(steps)
        assert steps[-1] == (x.nbytes, x.nbytes)
    held.release()


def test_large_calls_travel_in_streams_unseen(client):
    x = np.linspace(-60, 60, 3 << 18, dtype=np.float32).reshape(3, -1)
    result = client.call(
        "final_logit_softcap.forward", x=x, softcap=20.0, digests="tensor"
    )
    assert result.report.input_digests["x"] == rlk.digest(x)
    assert result.report.output_digests["y"] == rlk.digest(result.y)
    assert result.report.moved_to_resident == ("y",)
    # A small request with a large reply.
    half = client.call(
        "final_logit_softcap.forward",
        x=x[0, :1].astype(np.float16) * np.ones(1 << 20, np.float16),
    )
    assert half.y.shape == (1 << 20,)
    assert client.tensors() == ()


def test_nobody_else_reaches_a_tensor(server, client):
    held = client.put(np.ones(4, np.float32))
    with rlk.connect(server.tcp, timeout=60) as other:
        other.session()
        stolen = rlk.Resident(other, held._handle, 1, (4,))
        for attempt in (
            stolen.get,
            stolen.release,
            lambda: other.call("final_logit_softcap.forward", x=stolen),
            lambda: other.call(
                "final_logit_softcap.forward",
                x=np.ones(4, np.float32),
                into={"y": stolen},
            ),
        ):
            with pytest.raises(rlk.NotFoundError) as caught:
                attempt()
            assert caught.value.reason == "TENSOR_NOT_FOUND"
        with pytest.raises(rlk.FailedPreconditionError):
            other.get(held)
    with rlk.connect(server.tcp, timeout=60, session="f" * 32) as impostor:
        with pytest.raises(rlk.UnauthenticatedError):
            impostor.put(np.ones(1, np.float32))
    assert (held.get() == 1).all()


def test_a_token_opens_the_session_elsewhere(server, client):
    held = client.put(np.arange(5))
    with rlk.connect(server.tcp, timeout=60, session=client.session()) as other:
        (found,) = other.tensors()
        np.testing.assert_array_equal(found.get(), np.arange(5))
    # It was not its own to close.
    np.testing.assert_array_equal(held.get(), np.arange(5))


def test_what_cannot_be_put_is_refused_here(client):
    with pytest.raises(rlk.InvalidArgumentError):
        client.put([1, 2, 3])
    with pytest.raises(rlk.InvalidArgumentError):
        client.put(np.zeros(3, np.complex64))
    with pytest.raises(rlk.InvalidArgumentError):
        client.release(np.zeros(3))
    with pytest.raises(rlk.InvalidArgumentError):
        client.call(
            "final_logit_softcap.forward", x=np.ones(1, np.float32), into={"y": 5}
        )


@pytest.fixture
def own_server(server_binary, tmp_path):
    """A server whose gauges nobody else moves."""
    running = Server(server_binary, tmp_path)
    yield running
    assert running.stop() == 0


@pytest.mark.parametrize("way", ["tcp", "unix"])
def test_a_killed_client_leaves_nothing(own_server, way):
    server = own_server
    program = textwrap.dedent(
        f"""
        import numpy as np, rlk, sys, time
        client = rlk.connect({getattr(server, way)!r})
        client.put(np.zeros(1000))
        print(client.session(), flush=True)
        time.sleep(600)
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        env={"PYTHONPATH": str(PACKAGE)},
        text=True,
    ) as process:
        token = process.stdout.readline().strip()
        assert len(token) == 65
        assert server.gauge("rlk_leases") == 1
        process.send_signal(signal.SIGKILL)
    if way == "tcp":
        # The lease is long, so that a slow machine does not end it before; and cut short now.
        with grpc.insecure_channel(server.tcp) as channel:
            channel.unary_unary(_session.SERVICE + "RenewSession")(
                session_pb2.RenewSessionRequest(lease_ms=1).SerializeToString(),
                metadata=[(_session.KEY, token)],
            )
    server.await_gauge("rlk_leases", 0)
    server.await_gauge("rlk_sessions", 0)


def test_a_session_is_renewed_while_the_client_lives(server, monkeypatch):
    # That a renewal prolongs the lease is the server's part, tested there with a clock of its own;
    # a short lease here would end on a machine that stands still for so long.
    intervals, renewed = [], queue.SimpleQueue()
    renew = _session.SessionHolder._renew

    def hurried(holder, call, interval):
        def watched(*arguments):
            response = call(*arguments)
            renewed.put(arguments[0])
            return response

        intervals.append(interval)
        renew(holder, watched, 0.001)

    monkeypatch.setattr(_session.SessionHolder, "_renew", hurried)
    with rlk.connect(server.tcp, timeout=60, session_lease=90) as client:
        held = client.put(np.arange(3))
        for _ in range(3):
            assert renewed.get(timeout=300) == _session.SERVICE + "RenewSession"
        np.testing.assert_array_equal(held.get(), np.arange(3))
    assert intervals == [30]


def test_side_socket_only_beside_unix_addresses(server):
    assert _session.open_beside(server.tcp) is None
    assert _session.open_beside("unix:/nothing/here") is None
    connection, token = _session.open_beside(server.unix)
    assert len(token) == 65
    connection.close()


def test_asyncio(server):
    async def run(address):
        async with rlk.aio.connect(address, timeout=60) as client:
            x = np.arange(1 << 20, dtype=np.float32)
            held = await client.put(x, label="x")
            assert (await client.get(held)).tobytes() == x.tobytes()
            result = await client.call("final_logit_softcap.forward", x=held, keep="y")
            y = await result.y.get()
            await client.release([held, result.y])
            return y

    first, second = (asyncio.run(run(address)) for address in (server.tcp, server.unix))
    assert first.tobytes() == second.tobytes()


def test_torch_tensors(client):
    torch = pytest.importorskip("torch")
    x = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    held = client.put(x.reshape(256, 256))
    back = held.get()
    assert isinstance(back, torch.Tensor) and back.dtype == torch.bfloat16
    assert torch.equal(back.reshape(-1).view(torch.int16), x.view(torch.int16))
    result = client.call("final_logit_softcap.forward", x=held)
    assert isinstance(result.y, torch.Tensor)
    if torch.cuda.is_available():
        on_gpu = client.put(x.cuda())
        assert on_gpu.get().device.type == "cuda"
