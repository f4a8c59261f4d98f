"""Shared memory and what goes on around its calls: collection, threads, forks, lost connections."""

import gc
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import warnings

import numpy as np
import pytest
from conftest import PACKAGE
from google.rpc import status_pb2

import rlk
from rlk import _session, _side
from rlk import arena as arenas
from rlk._proto import session_pb2

FORWARD = "final_logit_softcap.forward"
MIB = 1 << 20
# What a program that hangs is ended by; no test passes by it.
HANGS_SECONDS = 300


@pytest.fixture
def client(server):
    with rlk.connect(server.unix, timeout=60) as made:
        yield made


HEAD = """
import gc, os, sys, threading
sys.path.insert(0, sys.argv[1])
import numpy as np
import rlk
FORWARD = "final_logit_softcap.forward"
client = rlk.connect(sys.argv[2], timeout=60)
"""


def program(server, text):
    return [sys.executable, "-c", HEAD + textwrap.dedent(text), str(PACKAGE), server.unix]


def run(server, text):
    """The lines that the program prints."""
    done = subprocess.run(
        program(server, text), stdout=subprocess.PIPE, timeout=HANGS_SECONDS, check=True
    )
    return done.stdout.decode().splitlines()


def test_collection_within_a_question_frees_slots(server):
    # Arrays in reference cycles, as frames of exceptions make them: they are collected at whatever
    # allocation is next, and many of those are within questions.
    lines = run(
        server,
        """
        arena = client.arena(1 << 20)
        gc.set_threshold(7)
        class Node:
            pass
        def work():
            for _ in range(500):
                node = Node()
                node.itself, node.array = node, arena.empty(16, "f32")
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        del threads
        gc.collect()
        print(arena.empty(1 << 20, "u8").nbytes)
        """,
    )
    assert lines == [str(MIB)]


def test_a_slot_that_goes_during_a_question_is_told_after_it(client, monkeypatch):
    arena = client.arena(8192)
    x = arena.empty(1024, "f32")
    receive = _side._receive
    asked, go_on = threading.Event(), threading.Event()

    def held(connection, received):
        asked.set()
        assert go_on.wait(HANGS_SECONDS)
        return receive(connection, received)

    monkeypatch.setattr(_side, "_receive", held)
    taken = []
    thread = threading.Thread(target=lambda: taken.append(arena.empty(1024, "f32")))
    thread.start()
    assert asked.wait(HANGS_SECONDS)
    del x
    gc.collect()  # does not wait for the other thread
    assert len(arena._side._freed) == 1
    go_on.set()
    thread.join()
    assert not arena._side._freed
    assert arena.empty(1024, "f32").nbytes == 4096


def test_a_fork_leaves_the_slots_of_its_parent(server):
    lines = run(
        server,
        """
        arena = client.arena(4096)
        box = [arena.empty(512, "f32"), arena.empty(512, "f32")]
        for array in box:
            array[:] = 1
        del array
        child = os.fork()
        if child == 0:
            say = lambda *words: os.write(1, (" ".join(map(str, words)) + "\\n").encode())
            try:
                say("child reads", box[0][511])
                for ask in (
                    lambda: client.call(FORWARD, x=box[0]),
                    lambda: arena.empty(1, "f32"),
                    lambda: client.arena(4096),
                ):
                    try:
                        ask()
                        say("child may")
                    except rlk.FailedPreconditionError as error:
                        say("child", error.reason, "fork" in str(error))
                box.clear()
                gc.collect()
                arena.close()
                say("child is done")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        try:
            arena.empty(1, "f32")
            print("the slots are free")
        except rlk.ResourceExhaustedError:
            print("the slots are held")
        print(client.call(FORWARD, x=box[0]).report.transports)
        box.clear()
        print(arena.empty(1024, "f32").nbytes, flush=True)
        """,
    )
    refused = "child PLACEMENT_UNAVAILABLE True"
    assert lines == [
        "child reads 1.0",
        *[refused] * 3,
        "child is done",
        "the slots are held",
        "('inline', 'host_arena')",
        "4096",
    ]


def test_a_fork_has_none_of_the_locks_that_were_held(server):
    lines = run(
        server,
        """
        from rlk import _session, _side
        arena = client.arena(4096)
        receive = _side._receive
        asked, go_on = threading.Event(), threading.Event()
        def held(connection, received):
            asked.set()
            go_on.wait()
            return receive(connection, received)
        _side._receive = held
        kept = []
        thread = threading.Thread(target=lambda: kept.append(arena.empty(16, "f32")))
        thread.start()
        asked.wait()
        child = os.fork()
        if child == 0:
            arena._side.close()
            os._exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        go_on.set()
        thread.join()
        print(len(kept))
        """,
    )
    assert lines == ["7", "1"]


def test_the_session_of_a_killed_client_ends_though_a_fork_lives(server):
    server.await_gauge("rlk_arena_bytes", 0)
    parent = subprocess.Popen(
        program(
            server,
            """
            arena = client.arena(1 << 20)
            if os.fork() == 0:
                os.read(0, 1)
                os._exit(0)
            print("holds", flush=True)
            os.read(0, 1)
            """,
        ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert parent.stdout.readline() == b"holds\n"
        assert server.gauge("rlk_arena_bytes") == MIB
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        server.await_gauge("rlk_arena_bytes", 0)
    finally:
        parent.stdin.close()  # ends the fork
        parent.stdout.close()


def test_programs_that_are_started_have_no_descriptor_of_an_arena(client, monkeypatch):
    inheritable = []
    mapped = arenas.Arena._map

    def look(self, descriptor):
        inheritable.append(os.get_inheritable(descriptor))
        mapped(self, descriptor)

    monkeypatch.setattr(arenas.Arena, "_map", look)
    client.arena(MIB)
    assert inheritable == [False]


def test_memory_that_cannot_be_mapped_is_given_back(client, server, monkeypatch):
    server.await_gauge("rlk_arena_bytes", 0)
    asked = []
    ask = _side.SideConnection.ask

    def noted(self, request):
        asked.append(request.WhichOneof("request"))
        return ask(self, request)

    def no_room(*arguments, **options):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(_side.SideConnection, "ask", noted)
    monkeypatch.setattr(arenas.mmap, "mmap", no_room)
    with pytest.raises(rlk.ResourceExhaustedError) as error:
        client.arena(MIB)
    assert (error.value.reason, error.value.value) == ("BYTES_EXHAUSTED", str(MIB))
    assert asked[-2:] == ["open_arena", "close_arena"]
    server.await_gauge("rlk_arena_bytes", 0)


def test_no_answer_is_taken_for_that_of_another_question(client, monkeypatch):
    arena = client.arena(MIB)

    def interrupted(connection, received):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(_side, "_receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            arena.empty(16, "f32")
    with pytest.raises(rlk.UnavailableError):
        arena.empty(32, "f32")


@pytest.fixture
def beside(server, tmp_path):
    """An address of the server, and the path of its side socket, which the test makes."""
    served = server.unix[len("unix:") :]
    path = tmp_path / "s"
    path.symlink_to(served)
    return f"unix:{path}", tmp_path / "s.side", served + ".side"


def test_a_side_socket_that_is_not_to_be_had_now_is_asked_again(server, beside):
    address, side, served = beside
    x = np.random.default_rng(3).normal(0, 30, (1000, 1100)).astype(np.float32)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.bind(str(side))  # it does not listen: connections are refused
        with rlk.connect(address, timeout=60) as client:
            for _ in range(2):
                with pytest.raises(rlk.UnavailableError):
                    client.arena(MIB)
                assert client._session.token is None
            side.unlink()
            side.symlink_to(served)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                result = client.call(FORWARD, x=x)
            assert "host_arena" in result.report.transports
        side.unlink()
    # Every call that goes by a slower way says so, and not only the first.
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.bind(str(side))
        with rlk.connect(address, timeout=60) as client:
            for _ in range(2):
                with pytest.warns(rlk.SlowerTransportWarning, match="side socket") as told:
                    slower = client.call(FORWARD, x=x)
                assert told[0].filename == __file__
                assert slower.report.transports == ("resident",)
                assert slower.y.tobytes() == result.y.tobytes()


def test_without_a_side_socket_nothing_is_promised(beside):
    address, _, _ = beside
    with rlk.connect(address, timeout=60) as client, warnings.catch_warnings():
        warnings.simplefilter("error")
        result = client.call(FORWARD, x=np.ones((1000, 1100), np.float32))
        assert result.report.transports == ("resident",)
        with pytest.raises(rlk.FailedPreconditionError) as error:
            client.arena(MIB)
    assert error.value.reason == "PLACEMENT_UNAVAILABLE"


@pytest.mark.parametrize("first", ["packet", "question"])
def test_a_refused_connection_says_why(tmp_path, first):
    path = tmp_path / "s.side"
    error = rlk.ResourceExhaustedError
    status = status_pb2.Status(code=8, message="too many connections are open")
    packet = session_pb2.SideReply(error=status.SerializeToString()).SerializeToString()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(path))
        listening.listen()

        def refuse():
            accepted, _ = listening.accept()
            with accepted:
                if first == "question":  # it is left unread, which resets the connection
                    accepted.recv(1, socket.MSG_PEEK)
                accepted.send(packet)

        if first == "packet":
            connection = _side.SideConnection.connect(str(path))
            refuse()
            with pytest.raises(error, match="too many"):
                connection.ask(session_pb2.SideRequest())
            connection.close()
            return
        thread = threading.Thread(target=refuse)
        thread.start()
        with pytest.raises(error, match="too many"):
            _session.open_beside(f"unix:{tmp_path / 's'}")
        thread.join()
