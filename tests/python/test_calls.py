"""Calls around the arithmetic: options, reports, transports, futures, threads, asyncio."""

import asyncio
import concurrent.futures
import json
import socket
import threading

import emulation
import numpy as np
import pytest

import rlk
import rlk.aio

FORWARD, BACKWARD = "final_logit_softcap.forward", "final_logit_softcap.backward"
CONTRACT = "final_logit_softcap/portable-v1"


@pytest.fixture(scope="module")
def x():
    return rlk.random_tensor("random:17x129:bf16:7:30")


def test_report(client, x):
    result = client.call(FORWARD, x=x, softcap=20.0)
    report = result.report
    assert report.contract == CONTRACT and report.claim in ("L1", "L2", "L3")
    assert report.backend and report.kernel and report.device.kind in ("cpu", "cuda")
    assert dict(report.attributes) == {"softcap": 20.0, "output_dtype": "F32"}
    assert report.fallback is None and report.verification is None
    assert report.phases.kernel_ns > 0
    assert not report.input_digests and not report.output_digests
    assert report.transports == ("inline",) and report.moved_to_resident == ()
    assert report.provenance_id == client.info().provenance.id
    json.dumps(report.to_dict())
    assert list(result) == ["y"] and result["y"] is result.y
    assert "y" in repr(result)


def test_effective_attributes_are_rounded_once(client, x):
    report = client.call(FORWARD, x=x, softcap=0.1).report
    assert report.attributes["softcap"] == float(np.float32(0.1))


def test_digests_are_those_computed_here(client, x):
    grad = rlk.random_tensor("random:17x129:f32:9")
    result = client.call(BACKWARD, x=x, grad_y=grad, digests=["tensor", "rows"])
    report = result.report
    assert dict(report.input_digests) == {"x": rlk.digest(x), "grad_y": rlk.digest(grad)}
    assert dict(report.output_digests) == {"grad_x": rlk.digest(result.grad_x)}
    assert report.input_row_digests["x"] == rlk.row_digests(x)
    assert report.output_row_digests["grad_x"] == rlk.row_digests(result.grad_x)
    assert report.input_capture == "SNAPSHOT"
    rows = client.call(FORWARD, x=x, digests="rows").report
    assert len(rows.output_row_digests["y"]) == 17 and not rows.output_digests


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (1, 4096), (5, 1025), (3, 4096, 5)])
def test_digests_of_shapes(client, shape):
    x = rlk.random_tensor(shape, "f32", 3, 10.0)
    result = client.call(FORWARD, x=x, digests=True)
    assert result.report.input_digests["x"] == rlk.digest(x)
    assert result.report.output_digests["y"] == rlk.digest(result.y)


def test_verify_repeat(client, x):
    verification = client.call(FORWARD, x=x, verify="repeat").report.verification
    assert verification.kind == "REPEAT" and verification.passed
    assert [(o.name, o.passed, o.mismatched_elements) for o in verification.outputs] == [
        ("y", True, 0)
    ]
    assert verification.outputs[0].compared_elements == x.size


def test_verify_reference(client, x):
    grad = np.ones(x.shape, np.float32)
    for method, arguments, name in (
        (FORWARD, {"x": x}, "y"),
        (BACKWARD, {"x": x, "grad_y": grad}, "grad_x"),
    ):
        verification = client.call(method, verify="reference", **arguments).report.verification
        assert verification.kind == "REFERENCE" and verification.passed
        (output,) = verification.outputs
        assert output.name == name and output.compared_elements == x.size
        assert output.atol > 0 or output.rtol > 0
        assert len(verification.tolerance_contract_sha256) == 64


def test_options(client, x):
    result = client.call(
        FORWARD,
        x=x,
        options=rlk.CallOptions(contract=CONTRACT, mode="auto", timeout=60),
        backend="cpu",
        minimum_claim="L3",
        wanted=["y"],
    )
    assert result.report.backend == "cpu" and result.report.contract == CONTRACT
    assert result.report.claim == "L3"
    golden = client.call(FORWARD, x=x, backend="golden", minimum_claim="L0")
    assert golden.report.backend == "golden"


def test_device_by_uuid(client, x):
    device = client.call(FORWARD, x=x, backend="cpu").report.device
    same = client.call(FORWARD, x=x, backend="cpu", device_uuid=device.uuid).report.device
    assert same == device


def test_named_functions(client, x):
    y = rlk.final_logit_softcap(client, x, 20.0, digests=True)
    assert y.y.tobytes() == emulation.forward(x, 20.0).tobytes()
    assert y.report.output_digests
    narrow = rlk.final_logit_softcap(client, x, output_dtype="bf16").y
    assert narrow.dtype == x.dtype
    grad = rlk.final_logit_softcap_backward(client, x, y.y, 20.0).grad_x
    assert grad.tobytes() == emulation.backward(x, y.y, 20.0).tobytes()


def test_unix_socket_gives_the_same_bits(server, client, x):
    with rlk.connect(server.unix, timeout=60) as other:
        other.wait_ready(60)
        a, b = (c.call(FORWARD, x=x, digests=True) for c in (client, other))
    assert a.y.tobytes() == b.y.tobytes()
    assert a.report.output_digests == b.report.output_digests


def test_messages_up_to_the_inline_limit(client):
    x = rlk.random_tensor(((1 << 19) - 1024,), "f32", 1, 30.0)  # 2 MiB less 4 KiB, both ways
    y = client.call(FORWARD, x=x).y
    assert y.tobytes() == emulation.forward(x, 30.0).tobytes()
    with pytest.raises(rlk.InvalidArgumentError) as caught:
        client.call_async(FORWARD, x=np.zeros(1 << 19, np.float32))
    assert caught.value.reason == "MESSAGE_TOO_LARGE"


def test_results_are_the_callers_own(client, x):
    first = client.call(FORWARD, x=x).y
    second = client.call(FORWARD, x=x).y
    first[...] = 0
    assert second.tobytes() == emulation.forward(x, 30.0).tobytes()


def test_info_and_operators(client):
    info = client.info()
    assert info.server_id and info.provenance.version
    assert any(b.name == "cpu" and b.available for b in info.backends)
    assert {limit.name: limit.value for limit in info.limits}["inline_bytes_max"] == 2 << 20
    assert info.uptime_seconds > 0 and "provenance" in info
    json.dumps(info.to_dict())
    methods = {m.method: m for m in client.operators()}
    assert set(rlk._methods.all_methods()) <= set(methods)
    forward = methods[FORWARD]
    assert forward.direction == "FORWARD" and forward.op_class == "ELEMENTWISE"
    assert forward.contracts[0].id == CONTRACT
    assert any(v.backend == "cpu" and v.available for v in forward.contracts[0].variants)
    assert [i.name for i in forward.inputs] == ["x"] and [o.name for o in forward.outputs] == ["y"]
    assert forward.inputs[0].options.dtypes == ("F32", "F16", "BF16")
    assert {m.method for m in client.operators("final_logit_softcap")} == {FORWARD, BACKWARD}
    with pytest.raises(rlk.NotFoundError) as caught:
        client.operators("nothing")
    assert caught.value.reason == "UNKNOWN_OPERATOR"


def test_time_outs(client, x):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never answers
        with rlk.connect("127.0.0.1:%d" % silent.getsockname()[1], timeout=0.2) as waiting:
            for call in (
                lambda: waiting.call(FORWARD, x=x),
                lambda: waiting.call(FORWARD, x=x, timeout=0.1),
                lambda: waiting.call_async(FORWARD, x=x).result(60),
                lambda: waiting.info(),
                lambda: waiting.wait_ready(0.1),
            ):
                with pytest.raises(rlk.DeadlineExceededError) as caught:
                    call()
                assert caught.value.reason == "DEADLINE_EXCEEDED"
    for passed in (0, 0.0, -1.0):
        with pytest.raises(rlk.DeadlineExceededError):
            client.call(FORWARD, x=x, timeout=passed)
    for wrong in ("1", True, float("nan")):
        with pytest.raises(rlk.InvalidArgumentError) as caught:
            client.call(FORWARD, x=x, timeout=wrong)
        assert caught.value.field == "options.timeout"
    client.call(FORWARD, x=x, timeout=float("inf"))


def test_futures(client):
    inputs = [rlk.random_tensor((n, 7), "f32", n, 30.0) for n in range(1, 33)]
    futures = [client.call_async(FORWARD, x=v, softcap=20.0) for v in inputs]
    done, pending = concurrent.futures.wait(futures, timeout=60)
    assert len(done) == 32 and not pending
    for future, value in zip(futures, inputs):
        assert future.result().y.tobytes() == emulation.forward(value, 20.0).tobytes()


def test_futures_carry_errors(client, x):
    future = client.call_async(FORWARD, x=x, softcap=-1.0)
    with pytest.raises(rlk.InvalidArgumentError) as caught:
        future.result(60)
    assert caught.value.field == "softcap"
    assert isinstance(future.exception(), rlk.RlkError)
    with pytest.raises(rlk.InvalidArgumentError):
        client.call_async(FORWARD, y=x)


def test_a_future_can_be_cancelled(client, x):
    futures = [client.call_async(FORWARD, x=x) for _ in range(50)]
    cancelled = [f.cancel() for f in futures]
    for future, was_cancelled in zip(futures, cancelled):
        assert future.cancelled() == was_cancelled
        if not was_cancelled:
            assert future.result(60).y.shape == x.shape
    client.call(FORWARD, x=x)


def test_closing_a_client_ends_its_calls(x):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never answers
        waiting = rlk.connect("127.0.0.1:%d" % silent.getsockname()[1])
        future = waiting.call_async(FORWARD, x=x)
        waiting.close()
        error = future.exception(60)
    assert isinstance(error, rlk.CancelledError) and error.reason == "CANCELLED"


def test_threads_share_a_client(client):
    inputs = [rlk.random_tensor((31, 33), "bf16", seed, 30.0) for seed in range(8)]
    expected = [emulation.forward(v, 30.0).tobytes() for v in inputs]
    start = threading.Barrier(8)

    def work(i):
        start.wait()
        return all(client.call(FORWARD, x=inputs[i]).y.tobytes() == expected[i] for _ in range(25))

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_asyncio(server, x):
    async def run():
        async with rlk.aio.connect(server.tcp, timeout=60) as client:
            await asyncio.wait_for(client.wait_ready(), 60)
            caps = [10.0 + i for i in range(20)]
            results = await asyncio.gather(
                *(client.call(FORWARD, x=x, softcap=cap, digests=True) for cap in caps)
            )
            for cap, result in zip(caps, results):
                assert result.y.tobytes() == emulation.forward(x, cap).tobytes()
                assert result.report.output_digests["y"] == rlk.digest(result.y)
            named = await rlk.final_logit_softcap(client, x, 20.0)
            assert named.report.attributes["softcap"] == 20.0
            with pytest.raises(rlk.InvalidArgumentError) as caught:
                await client.call(FORWARD, x=x, softcap=0.0)
            assert caught.value.field == "softcap"
            assert (await client.info()).server_id
            assert len(await client.operators("final_logit_softcap")) == 2
            with pytest.raises(rlk.DeadlineExceededError):
                await client.call(FORWARD, x=x, timeout=0.0)
            task = asyncio.ensure_future(client.call(FORWARD, x=x))
            await asyncio.sleep(0)  # let it begin
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await client.call(FORWARD, x=x)
        with pytest.raises(rlk.FailedPreconditionError):
            await client.call(FORWARD, x=x)

    asyncio.run(run())
