"""Memory that the server shares with the client."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import time

import ml_dtypes
import numpy as np
import pytest
from conftest import PACKAGE, Server

import rlk

FORWARD = "final_logit_softcap.forward"
MIB = 1 << 20


@pytest.fixture
def client(server):
    with rlk.connect(server.unix, timeout=60) as made:
        yield made


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_calls_in_arenas_give_the_bits_of_inline_ones(client, dtype):
    read, written = client.arena(4 * MIB), client.arena(4 * MIB, "output")
    x = read.empty((100, 257), dtype)
    assert x.shape == (100, 257) and x.flags.c_contiguous and x.flags.writeable
    x[:] = np.random.default_rng(7).normal(0, 30, x.shape)
    plain = client.call(FORWARD, x=np.array(x))
    assert plain.report.transports == ("inline",)
    y = written.empty((100, 257), "f32")
    assert not y.flags.writeable
    result = client.call(FORWARD, x=x, out={"y": y})
    assert result.y is y
    assert y.tobytes() == plain.y.tobytes()
    assert result.report.transports == ("host_arena",)
    assert result.report.input_capture == "LIVE"
    # A result is an input as it lies, and nobody can write it.
    again = client.call(FORWARD, x=y)
    assert again.report.input_capture == "SNAPSHOT"
    assert again.y.tobytes() == client.call(FORWARD, x=plain.y).y.tobytes()
    told = client.call(FORWARD, x=x, out={"y": y}, digests=True, verify="repeat")
    assert told.report.input_capture == "SNAPSHOT"
    assert told.report.output_digests["y"] == rlk.digest(plain.y)


def test_views_go_by_their_place_where_the_wire_has_them(client):
    x = client.arena(MIB).empty((64, 100), "f32")
    x[:] = np.arange(x.size).reshape(x.shape)
    ways = {
        "T": (x.T, "host_arena"),
        "slice": (x[3:9, 10:20], "host_arena"),
        "step": (x[::2, ::5], "host_arena"),
        "row": (x[63], "host_arena"),
        "expanded": (np.broadcast_to(x[0], (5, 100)), "host_arena"),
        "scalar": (x[2, 3], "inline"),
        "reversed": (x[::-1], "inline"),
        "empty": (x[:0], "inline"),
        "copy": (x.copy(), "inline"),
    }
    for name, (view, way) in ways.items():
        result = client.call(FORWARD, x=view)
        transports = ("inline", way) if way != "inline" else ("inline",)
        assert result.report.transports == transports, name
        plain = client.call(FORWARD, x=np.array(view))
        assert result.y.tobytes() == plain.y.tobytes(), name


def test_a_slot_is_free_when_its_last_view_is_gone(client):
    arena = client.arena(4096, "input")
    first = arena.empty(1024, "f32")
    with pytest.raises(rlk.ResourceExhaustedError) as error:
        arena.empty(1, "u8")
    assert error.value.reason == "BYTES_EXHAUSTED"
    view = first.reshape(32, 32)[5:].T
    del first
    gc.collect()
    with pytest.raises(rlk.ResourceExhaustedError):
        arena.empty(1, "u8")
    del view
    gc.collect()
    assert arena.empty(1024, "f32").nbytes == 4096


def test_closed_arenas_are_of_no_use_and_harm_nobody(client):
    with client.arena(MIB) as arena:
        x = arena.empty(16, "f32")
        x[:] = 2
    assert client.call(FORWARD, x=x).report.transports == ("inline",)
    arena.close()
    x[:] = 3
    with pytest.raises(rlk.RlkError) as error:
        arena.empty(1, "f32")
    assert error.value.code == "NOT_FOUND"


def test_refuses_outputs_that_lie_elsewhere(client):
    read, written = client.arena(MIB), client.arena(MIB, "output")
    x, y = read.empty(64, "f32"), written.empty(64, "f32")
    x[:] = 1
    cases = {
        "plain": ({"y": np.empty(64, np.float32)}, "PLACEMENT_UNAVAILABLE"),
        "no mapping": (y, "PLACEMENT_UNAVAILABLE"),
        "strided": ({"y": y[::2]}, "PLACEMENT_UNAVAILABLE"),
        "input arena": ({"y": read.empty(64, "f32")}, "PLACEMENT_UNAVAILABLE"),
        "too small": ({"y": y[:1]}, "SHAPE_MISMATCH"),
        "unknown": ({"z": y}, "UNKNOWN_OUTPUT"),
    }
    for name, (out, reason) in cases.items():
        with pytest.raises(rlk.RlkError) as error:
            client.call(FORWARD, x=x, out=out)
        assert error.value.reason == reason, name
    with client.put(y) as kept:
        for twice in ({"keep": "y"}, {"into": {"y": kept}}):
            with pytest.raises(rlk.InvalidArgumentError, match="one place") as error:
                client.call(FORWARD, x=x, out={"y": y}, **twice)
            assert error.value.field == "options.out"
        assert kept.generation == 1 and len(client.tensors()) == 1
    with pytest.raises(rlk.InvalidArgumentError):
        client.arena(MIB, "sideways")
    with pytest.raises(rlk.FailedPreconditionError) as error:
        client.arena(MIB, "device")
    assert error.value.reason == "DEVICE_NOT_FOUND"


@pytest.mark.parametrize(
    "shape", [-1, (-1, -1), (-2, -3), 2**70, (2**40, 2**40), 1.5, (1.5,), "ab", None]
)
def test_refuses_shapes_that_are_none(client, shape):
    arena = client.arena(MIB)
    with pytest.raises(rlk.InvalidArgumentError) as error:
        arena.empty(shape)
    assert error.value.reason == "SHAPE_MISMATCH" and error.value.field == "shape"
    assert arena.empty(MIB, "u8").shape == (MIB,), "nothing of it was taken"


@pytest.mark.parametrize("shape", [(0, 2**62), (2**62, 0)])
def test_empty_arrays_are_bounded_as_numpys(client, shape):
    with pytest.raises(rlk.InvalidArgumentError):
        client.arena(MIB).empty(shape)
    assert client.arena(MIB).empty((0, 2**40)).shape == (0, 2**40)


@pytest.mark.parametrize("nbytes", [0, -1, 2**63, 2**70, 1.5, "4", None, 2**62])
def test_refuses_sizes_that_are_none(client, nbytes):
    with pytest.raises(rlk.InvalidArgumentError) as error:
        client.arena(nbytes)
    assert error.value.reason == "LIMIT_EXCEEDED" and error.value.field == "bytes"


def test_arenas_need_the_side_socket(server):
    with rlk.connect(server.tcp) as client:
        with pytest.raises(rlk.FailedPreconditionError) as error:
            client.arena(MIB)
    assert error.value.reason == "PLACEMENT_UNAVAILABLE"
    with rlk.connect(server.unix) as client:
        offered = {c.name: c for c in client.info().capabilities}
        assert offered["host_arena"].available and not offered["device_arena"].available


def test_bits_of_every_dtype_survive(client):
    patterns = np.arange(1 << 16, dtype=np.uint16)
    arena = client.arena(MIB)
    x = arena.empty(1 << 16, ml_dtypes.bfloat16)
    x[:] = patterns.view(ml_dtypes.bfloat16)
    assert x.tobytes() == patterns.tobytes()
    for dtype in ("f64", "i32", "i64", "u8", "bool"):
        assert arena.empty((2, 3), dtype).shape == (2, 3)
    assert arena.empty((), "f32").shape == ()
    assert arena.empty((0, 5), "f32").size == 0


def test_a_killed_client_gives_its_memory_back(server):
    program = textwrap.dedent(
        """
        import sys, time
        sys.path.insert(0, sys.argv[1])
        import rlk
        client = rlk.connect(sys.argv[2])
        arenas = [client.arena(1 << 20, kind) for kind in ("input", "output")]
        arrays = [arena.empty(1000, "f32") for arena in arenas]
        print("holds", flush=True)
        time.sleep(600)
        """
    )
    server.await_gauge("rlk_arena_bytes", 0)
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(PACKAGE), server.unix],
        stdout=subprocess.PIPE,
    )
    assert child.stdout.readline() == b"holds\n"
    assert server.gauge("rlk_arena_bytes") == 2 * MIB
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    server.await_gauge("rlk_arena_bytes", 0)


def test_arenas_leave_nothing_in_the_client(server):
    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    def run(count):
        with rlk.connect(server.unix, timeout=60) as client:
            for _ in range(count):
                with client.arena(64 << 10) as read, client.arena(64 << 10, "output") as written:
                    x, y = read.empty(1000, "f32"), written.empty(1000, "f32")
                    client.call(FORWARD, x=x, out={"y": y})
                    del x, y
            gc.collect()

    run(3)
    before = descriptors()
    run(50)
    while descriptors() > before:  # connections are closed behind their clients
        time.sleep(0.01)
    server.await_gauge("rlk_arena_bytes", 0)


@pytest.fixture
def small_server(server_binary, tmp_path):
    running = Server(server_binary, tmp_path, f"--arena-bytes-max={20 * MIB}")
    yield running
    assert running.stop() == 0


def test_large_inputs_go_through_shared_memory_unseen(server):
    x = np.random.default_rng(5).normal(0, 30, (1000, 1100)).astype(np.float32)
    grad = np.ones_like(x)
    with rlk.connect(server.tcp, timeout=60) as far, rlk.connect(server.unix, timeout=60) as near:
        for view in (x, x.T, x[::-1], x[:, ::2]):
            streamed, shared = far.call(FORWARD, x=view), near.call(FORWARD, x=view)
            assert streamed.report.transports == ("resident",)
            assert "host_arena" in shared.report.transports, shared.report.transports
            assert shared.y.tobytes() == streamed.y.tobytes()
        backward = "final_logit_softcap.backward"
        streamed, shared = (c.call(backward, x=x, grad_y=grad) for c in (far, near))
        assert shared.grad_x.tobytes() == streamed.grad_x.tobytes()
        # Copies are in one arena, used again.
        assert server.gauge("rlk_arena_bytes") == 16 * MIB
        assert near.tensors() == ()
        with pytest.raises(rlk.InvalidArgumentError) as error:
            near.call(FORWARD, x=x.astype(np.int64))
        assert error.value.reason == "DTYPE_NOT_ALLOWED"
        near.call(FORWARD, x=x)
        assert server.gauge("rlk_arena_bytes") == 16 * MIB


def test_a_slower_way_than_was_promised_is_told(small_server):
    with rlk.connect(small_server.unix, timeout=60) as client:
        x = np.ones((6000, 1000), np.float32)
        with pytest.warns(rlk.SlowerTransportWarning, match="arena_bytes_max"):
            result = client.call(FORWARD, x=x)
        assert result.report.transports == ("resident",) and result.y.shape == x.shape


def test_an_arena_without_room_is_not_lost_and_not_an_error(server):
    """As when a call was given up whose inputs the server still reads."""
    x = np.random.default_rng(5).normal(0, 30, (1000, 1000)).astype(np.float32)
    with rlk.connect(server.unix, timeout=60) as client:
        shared = client.call(FORWARD, x=x)
        (idle,) = client._staging._idle
        for _ in range(3):
            taken = idle.empty(idle.nbytes - MIB, "u8")
            with pytest.warns(rlk.SlowerTransportWarning, match="no room"):
                streamed = client.call(FORWARD, x=x)
            assert "host_arena" not in streamed.report.transports
            assert streamed.y.tobytes() == shared.y.tobytes()
            del taken
            assert "host_arena" in client.call(FORWARD, x=x).report.transports
        assert client._staging._idle == [idle]


def test_a_copy_that_is_interrupted_leaves_its_arena(server, monkeypatch):
    x = np.zeros((1000, 1000), np.float32)
    with rlk.connect(server.unix, timeout=60) as client:
        client.call(FORWARD, x=x)
        idle = list(client._staging._idle)
        with monkeypatch.context() as patch:

            def interrupt(*_):
                raise KeyboardInterrupt

            patch.setattr("rlk._staging.np.copyto", interrupt)
            for _ in range(3):
                with pytest.raises(KeyboardInterrupt):
                    client.call(FORWARD, x=x)
        assert client._staging._idle == idle
        assert "host_arena" in client.call(FORWARD, x=x).report.transports


def test_torch_tensors_of_the_same_memory_go_by_their_place(client):
    torch = pytest.importorskip("torch")
    x = client.arena(MIB).empty((64, 100), "f32")
    tensor = torch.from_numpy(x).normal_()
    for view in (tensor, tensor.t(), tensor[::2, 3:], tensor[5].expand(4, 100)):
        result = client.call(FORWARD, x=view)
        assert "host_arena" in result.report.transports
        plain = client.call(FORWARD, x=view.clone())
        assert torch.equal(result.y, plain.y) and result.y.device.type == "cpu"
    # Large ones are brought over and come back as torch's.
    large = torch.randn(1000, 1000, dtype=torch.float64).to(torch.bfloat16).repeat(2, 1)
    result = client.call(FORWARD, x=large)
    assert "host_arena" in result.report.transports
    assert torch.equal(result.y[:1000], client.call(FORWARD, x=large[:1000]).y)
    with pytest.raises(rlk.InvalidArgumentError) as error:
        client.call("final_logit_softcap.backward", x=tensor, grad_y=np.ones((64, 100), np.float32))
    assert error.value.reason == "SOURCE_NOT_SUPPORTED"
