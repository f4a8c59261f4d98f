"""What the server refuses: code, reason, field; and that it goes on."""

import grpc
import numpy as np
import pytest

import rlk
from rlk import _methods, errors

X = np.linspace(-90, 90, 12, dtype=np.float32).reshape(3, 4)
FORWARD, BACKWARD = "final_logit_softcap.forward", "final_logit_softcap.backward"

INVALID = "INVALID_ARGUMENT"
PRECONDITION = "FAILED_PRECONDITION"


def forward(**arguments):
    return FORWARD, {"x": X, **arguments}


def backward(**arguments):
    return BACKWARD, {"x": X, "grad_y": X, **arguments}


# name: (call, code, reason, field)
CASES = {
    "no x": (forward(x=None), INVALID, "MISSING_TENSOR", "x"),
    "no grad_y": (backward(grad_y=None), INVALID, "MISSING_TENSOR", "grad_y"),
    "x of F64": (forward(x=X.astype("f8")), INVALID, "DTYPE_NOT_ALLOWED", "x"),
    "x of I32": (forward(x=X.astype("i4")), INVALID, "DTYPE_NOT_ALLOWED", "x"),
    "x of U8": (forward(x=X.astype("u1")), INVALID, "DTYPE_NOT_ALLOWED", "x"),
    "x of BOOL": (forward(x=X > 0), INVALID, "DTYPE_NOT_ALLOWED", "x"),
    "grad_y of F16 for F32": (
        backward(grad_y=X.astype("f2")),
        INVALID,
        "DTYPE_NOT_ALLOWED",
        "grad_y",
    ),
    "grad_y of another shape": (backward(grad_y=X.T), INVALID, "SHAPE_MISMATCH", "grad_y"),
    "grad_y of another rank": (backward(grad_y=X.reshape(12)), INVALID, "SHAPE_MISMATCH", "grad_y"),
    "rank 9": (forward(x=X.reshape((1,) * 7 + (3, 4))), INVALID, "RANK_TOO_LARGE", "x"),
    "output BF16 for F32": (forward(output_dtype="bf16"), INVALID, None, "output_dtype"),
    "output F64": (forward(output_dtype="f64"), INVALID, None, "output_dtype"),
    "unknown contract": (
        forward(contract="final_logit_softcap/portable-v0"),
        INVALID,
        "UNKNOWN_CONTRACT",
        "options.contract",
    ),
    "unknown backend": (forward(backend="tpu"), INVALID, "UNKNOWN_BACKEND", "options.backend"),
    "unknown output": (forward(wanted="z"), INVALID, "UNKNOWN_OUTPUT", "options.wanted_outputs"),
    "unknown device": (
        forward(device_uuid="none"),
        None,
        "DEVICE_NOT_FOUND",
        "options.device_uuid",
    ),
    **{
        f"softcap {cap}": (forward(softcap=cap), INVALID, "ATTRIBUTE_OUT_OF_RANGE", "softcap")
        for cap in (0.0, -0.0, -30.0, np.inf, -np.inf, np.nan, 1e-46, 1e39)
    },
    "softcap of backward": (backward(softcap=0.0), INVALID, "ATTRIBUTE_OUT_OF_RANGE", "softcap"),
}


# name: (call, field)
SENSELESS = {
    "masked array": (lambda c: c.call(FORWARD, x=np.ma.masked_array(X, mask=X > 0)), "x"),
    "contract no UTF-8": (lambda c: c.call(FORWARD, x=X, contract="\ud800"), "options.contract"),
    "contract a number": (lambda c: c.call(FORWARD, x=X, contract=5), "options.contract"),
    "backend bytes": (lambda c: c.call(FORWARD, x=X, backend=b"cpu"), "options.backend"),
    "device no UTF-8": (
        lambda c: c.call(FORWARD, x=X, device_uuid="\udcff"),
        "options.device_uuid",
    ),
    "digests a number": (lambda c: c.call(FORWARD, x=X, digests=5), "options.digests"),
    "wanted a number": (lambda c: c.call(FORWARD, x=X, wanted=5), "options.wanted"),
    "wanted numbers": (lambda c: c.call(FORWARD, x=X, wanted=[5]), "options.wanted"),
    "method a list": (lambda c: c.call([], x=X), "method"),
    "method no UTF-8": (lambda c: c.call("\ud800", x=X), "method"),
    "operator no UTF-8": (lambda c: c.operators("\ud800"), "operator"),
    "operator a number": (lambda c: c.operators(5), "operator"),
    "address no UTF-8": (lambda c: rlk.connect("\ud800:1"), "address"),
}


@pytest.mark.parametrize("case", SENSELESS)
def test_values_that_no_message_can_carry_are_refused_by_name(client, case):
    call, field = SENSELESS[case]
    with pytest.raises(rlk.InvalidArgumentError) as caught:
        call(client)
    error = caught.value
    assert error.field == field and error.reason is not None and error.allowed, error


@pytest.mark.parametrize(
    "address",
    ["", "x", "127.0.0.1", "127.0.0.1:", ":1", "127.0.0.1:x", "127.0.0.1:0", "127.0.0.1:65536",
     "127.0.0.1:99999", "127.0.0.1:1\n", "127.0.0.1:+1", "127.0.0.1:1,127.0.0.1:2", "unix:",
     "ipv4:127.0.0.1:1,127.0.0.1:99999", "dns:///host:99999", "dns:///host", "dns:///a:1,b:1",
     None, 5],
)  # fmt: skip
def test_addresses_that_are_none_are_refused(address):
    with pytest.raises(rlk.InvalidArgumentError) as caught:
        rlk.connect(address)
    assert caught.value.field == "address" and "host:port" in caught.value.allowed


@pytest.mark.parametrize(
    "address",
    ["localhost:1", "[::1]:65535", "unix:/s.sock", "unix:s.sock", "ipv4:127.0.0.1:1,127.0.0.1:2",
     "ipv6:[::1]:1,[::1]:2", "dns:///host:1", "dns:host:1"],
)  # fmt: skip
def test_addresses_of_every_form_are_taken(address):
    rlk.connect(address).close()


@pytest.mark.parametrize("rpc", ["GetInfo", "ListOperators"])
def test_server_service_refuses_bytes_that_are_no_message(server, client, rpc):
    with grpc.insecure_channel(server.tcp) as channel:
        for data, reason in (
            (b"\xff\xff", "MALFORMED_MESSAGE"),
            (b"\xc8\x3e\x01", "UNKNOWN_FIELD"),
            (b"\x0a\x01\xff", "MALFORMED_MESSAGE" if rpc == "ListOperators" else "UNKNOWN_FIELD"),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(f"/rlk.v1.ServerService/{rpc}")(data, timeout=60)
            error = errors.from_rpc_error(caught.value)
            assert (error.code, error.reason) == (INVALID, reason), error
    assert client.info().server_id


@pytest.mark.parametrize("case", CASES)
def test_refusal(client, case):
    (method, arguments), code, reason, field = CASES[case]
    with pytest.raises(rlk.RlkError) as caught:
        client.call(method, **arguments)
    error = caught.value
    assert error.reason is not None, error
    assert code in (None, error.code), error
    assert reason in (None, error.reason), error
    # "x", or a part of it: "x.shape".
    assert field is None or error.field == field or error.field.startswith(field + "."), error
    if error.code == INVALID:
        assert error.retry_after is None
    # The server goes on.
    client.call(FORWARD, x=X)


def test_allowed_sets_are_named(client):
    for arguments, words in (
        ({"x": X.astype("f8")}, ("F32", "F16", "BF16")),
        ({"x": X, "contract": "nothing"}, ("final_logit_softcap/portable-v1",)),
        ({"x": X, "backend": "tpu"}, ("cpu",)),
    ):
        with pytest.raises(rlk.RlkError) as caught:
            client.call(FORWARD, **arguments)
        assert all(word in caught.value.allowed for word in words), caught.value.allowed


def test_known_backend_that_is_not_here(client):
    missing = [b for b in client.info().backends if not b.available and b.name == "cuda"]
    if not missing:
        pytest.skip("this server has its cuda backend")
    with pytest.raises(rlk.FailedPreconditionError) as caught:
        client.call(FORWARD, x=X, backend="cuda")
    assert caught.value.reason == "BACKEND_UNAVAILABLE"


def raw(server, method, data):
    """Sends bytes as they are and returns the error."""
    with grpc.insecure_channel(server.tcp) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(_methods.find(method).path)(data, timeout=60)
    return errors.from_rpc_error(caught.value)


def message():
    request = _methods.find(FORWARD).request()
    request.x.dtype = 1
    request.x.shape.extend([2, 3])
    request.x.data = bytes(24)
    return request


def spoiled(change):
    request = message()
    change(request)
    return request.SerializeToString()


RAW = {
    "not a message": (lambda: b"\xff\xff\xff", "MALFORMED_MESSAGE", None),
    "cut off": (lambda: message().SerializeToString()[:-1], "MALFORMED_MESSAGE", None),
    "unknown field": (
        lambda: message().SerializeToString() + b"\xc8\x3e\x01",
        "UNKNOWN_FIELD",
        None,
    ),
    "x twice": (lambda: message().SerializeToString() * 2, "DUPLICATE_TENSOR", "x"),
    "no such dtype": (lambda: spoiled(lambda r: setattr(r.x, "dtype", 77)), None, None),
    "no such mode": (lambda: spoiled(lambda r: setattr(r.options, "mode", 77)), None, None),
    "payload too short": (
        lambda: spoiled(lambda r: setattr(r.x, "data", bytes(23))),
        "PAYLOAD_SIZE_MISMATCH",
        "x",
    ),
    "payload too long": (
        lambda: spoiled(lambda r: setattr(r.x, "data", bytes(28))),
        "PAYLOAD_SIZE_MISMATCH",
        "x",
    ),
    "negative size": (lambda: spoiled(lambda r: r.x.shape.append(-1)), None, "x"),
    "size that overflows": (lambda: spoiled(lambda r: r.x.shape.extend([1 << 62] * 3)), None, "x"),
    "negative stride": (
        lambda: spoiled(lambda r: r.x.strides.extend([3, -1])),
        "INVALID_STRIDES",
        "x",
    ),
    "too few strides": (lambda: spoiled(lambda r: r.x.strides.append(3)), "INVALID_STRIDES", "x"),
    "strides beyond the payload": (
        lambda: spoiled(lambda r: r.x.strides.extend([100, 1])),
        "PAYLOAD_SIZE_MISMATCH",
        "x",
    ),
}


@pytest.mark.parametrize("case", RAW)
def test_refusal_of_bytes(server, client, case):
    make, reason, field = RAW[case]
    error = raw(server, FORWARD, make())
    assert error.code == INVALID and error.reason is not None, error
    assert reason in (None, error.reason), error
    # "x", or a part of it: "x.shape".
    assert field is None or error.field.split(".")[0] == field, error
    client.call(FORWARD, x=X)


def test_message_above_the_inline_limit(server):
    with rlk.connect(server.tcp, inline_bytes_max=1 << 30) as unlimited:
        with pytest.raises(rlk.InvalidArgumentError) as caught:
            unlimited.call_async(FORWARD, x=np.zeros(600_000, np.float32)).result()
        assert caught.value.reason == "MESSAGE_TOO_LARGE" and caught.value.field == "request"
        # The whole message counts: a payload of exactly the limit does not fit.
        with pytest.raises(rlk.InvalidArgumentError) as caught:
            unlimited.call_async(FORWARD, x=np.zeros(1 << 19, np.float32)).result()
        assert caught.value.allowed == "at most 2097152 bytes (inline_bytes_max)"


@pytest.mark.parametrize(
    "x", [np.zeros(600_000, np.float16), np.broadcast_to(np.float32(1), (1 << 20,))]
)
def test_a_reply_above_the_limit_without_a_session(server, x):
    # The blocking call would open a session and try again.
    with rlk.connect(server.tcp, timeout=60) as stranger:
        with pytest.raises(rlk.InvalidArgumentError) as caught:
            stranger.call_async(FORWARD, x=x).result()
    assert caught.value.reason == "MESSAGE_TOO_LARGE" and caught.value.field == "reply"


def test_rpc_that_the_server_does_not_have(server):
    with grpc.insecure_channel(server.tcp) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/rlk.v1.ActivationService/Nothing")(b"", timeout=60)
    assert isinstance(errors.from_rpc_error(caught.value), rlk.UnimplementedError)


def test_nobody_listens(tmp_path):
    with rlk.connect(f"unix:{tmp_path}/nothing.sock", timeout=60) as nobody:
        with pytest.raises(rlk.UnavailableError):
            nobody.call(FORWARD, x=X)


def test_a_closed_client_says_so(server):
    with rlk.connect(server.tcp) as closed:
        closed.call(FORWARD, x=X)
    with pytest.raises(rlk.FailedPreconditionError, match="closed"):
        closed.call(FORWARD, x=X)
    closed.close()
