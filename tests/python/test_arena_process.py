"""Shared memory and what goes on in the client's process: collection, threads, forks, signals."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from conftest import PACKAGE

import rlk
from rlk import _side
from rlk import arena as arenas

FORWARD = "final_logit_softcap.forward"
MIB = 1 << 20
# What a program that hangs is ended by; no test passes by it.
HANGS_SECONDS = 300


@pytest.fixture
def client(server):
    with rlk.connect(server.unix, timeout=60) as made:
        yield made


def gauge(server, name):
    """The value of an unlabelled series."""
    lines = server.scrape().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(name + " "))


def await_gauge(server, name, value):
    while gauge(server, name) != value:  # the test's own time-out is the bound
        time.sleep(0.01)


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
        from rlk import _side
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
    await_gauge(server, "rlk_arena_bytes", 0)
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
        assert gauge(server, "rlk_arena_bytes") == MIB
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        await_gauge(server, "rlk_arena_bytes", 0)
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
    await_gauge(server, "rlk_arena_bytes", 0)
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
    await_gauge(server, "rlk_arena_bytes", 0)


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
