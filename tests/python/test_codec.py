"""Requests and replies as bytes, without a server: every kind of field, every kind of tensor."""

import ml_dtypes
import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool

import rlk
from rlk import _codec, _methods
from rlk._proto import contract_pb2, tensor_pb2

FORWARD = "final_logit_softcap.forward"


def build(arguments, name=FORWARD, **keywords):
    request = _codec.build_request(name, None, arguments, **keywords)
    return request, request.method.request.FromString(request.data)


def elements(tensor):
    """The logical elements of a Tensor message, by its definition."""
    dtypes = {1: "f4", 2: "f2", 3: ml_dtypes.bfloat16, 4: "f8", 5: "i4", 6: "i8", 7: "u1", 8: "?"}
    stored = np.frombuffer(tensor.data, dtypes[tensor.dtype])
    result = np.zeros(tuple(tensor.shape), stored.dtype)
    strides = list(tensor.strides)
    if not strides:
        strides = [int(np.prod(tensor.shape[i + 1 :])) for i in range(len(tensor.shape))]
    used = 0
    for index in np.ndindex(*tensor.shape):
        position = sum(i * s for i, s in zip(index, strides))
        result[index] = stored[position]
        used = max(used, position + 1)
    assert len(stored) == used  # exactly the span, as the definition says
    return result


BASE = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
# name: (array, whether it travels with strides)
LAYOUTS = {
    "c order": (BASE, False),
    "transposed": (BASE.transpose(3, 1, 0, 2), True),
    "fortran": (np.asfortranarray(BASE), True),
    "expanded": (np.broadcast_to(BASE[0, 0, 0], (7, 2, 5)), True),
    "expanded to one value": (np.broadcast_to(np.float32(3), (4, 4)), True),
    "sizes of one": (BASE.transpose(1, 0, 2, 3)[:, :1, :1], False),
    "sizes of one transposed": (BASE[:1, :1].transpose(3, 1, 2, 0), True),
    "gaps": (BASE[:, :, :, ::2], False),
    "narrow": (BASE[..., :2], False),
    "reversed": (BASE[::-1], False),
    "scalar": (np.float32(2.5), False),
    "0-d": (np.array(2.5, np.float32), False),
    "empty": (BASE[:0], False),
    "empty transposed": (BASE[:, :0].T, False),
    "rank 8": (np.arange(8, dtype=np.float32).reshape(1, 2, 1, 2, 1, 2, 1, 1), False),
    "big endian": (BASE.astype(">f4"), False),
    "big endian strided": (BASE.astype(">f4").T, None),
    "unaligned field": (np.zeros(3, [("a", "u1"), ("b", "f4")])["b"], False),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    array, strided = LAYOUTS[layout]
    before = np.array(array, copy=True)
    _, message = build({"x": array})
    assert list(message.x.shape) == list(np.shape(array))
    if strided is not None:
        assert bool(message.x.strides) == strided
    assert elements(message.x).tobytes() == np.asarray(array, "<f4").tobytes()
    assert len(message.x.data) <= max(np.asarray(array).nbytes, 4)
    assert message.x.WhichOneof("source") == "data"
    assert np.array_equal(before, array)


@pytest.mark.parametrize(
    "dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.float64, np.int32, np.int64]
)
def test_arrays_of_the_other_byte_order_keep_their_values(dtype):
    values = np.array([[0, 1, 2], [77, 5, 100]]).astype(dtype)
    swapped = values.byteswap().view(values.dtype.newbyteorder(">"))
    assert swapped.dtype.byteorder == ">"
    before = swapped.tobytes()
    _, message = build({"x": swapped})
    _, native = build({"x": values})
    assert message.x == native.x
    assert swapped.tobytes() == before


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("step", [1, -1, 2])
def test_sixteen_bit_patterns_are_bits(dtype, step):
    bits = np.arange(1 << 16, dtype=np.uint16)[::step]
    _, message = build({"x": bits.view(dtype)})
    assert np.frombuffer(message.x.data, np.uint16).tolist() == bits.tolist()


def test_single_precision_nan_payloads_are_bits():
    bits = np.uint32([0x7F800001, 0x7FC00000, 0xFFC00001, 0x7FFFFFFF, 0x80000000, 1])
    _, message = build({"x": bits.view(np.float32)})
    assert message.x.data == bits.tobytes()


@pytest.mark.parametrize(
    "dtype, number",
    [
        (np.float32, 1),
        (np.float16, 2),
        (ml_dtypes.bfloat16, 3),
        (np.float64, 4),
        (np.int32, 5),
        (np.int64, 6),
        (np.uint8, 7),
        (np.bool_, 8),
    ],
)
def test_every_dtype_there_and_back(dtype, number):
    x = np.arange(6).reshape(2, 3).astype(dtype)
    request, message = build({"x": x})
    assert message.x.dtype == number
    reply = request.method.response()
    reply.y.CopyFrom(message.x)
    y = _codec.parse_result(request, reply.SerializeToString()).y
    assert y.dtype == x.dtype and y.tobytes() == x.tobytes() and y.flags.writeable


@pytest.mark.parametrize(
    "value",
    ["bf16", "BF16", "bfloat16", "DATA_TYPE_BF16", ml_dtypes.bfloat16, np.dtype("bfloat16")],
)
def test_dtype_attributes(value):
    _, message = build({"x": BASE, "output_dtype": value})
    assert message.output_dtype == tensor_pb2.DATA_TYPE_BF16


@pytest.mark.parametrize("value", [20, 20.0, np.float32(20), np.int64(20), np.array(20.0)])
def test_number_attributes(value):
    _, message = build({"x": BASE, "softcap": value})
    assert message.softcap == 20.0


def test_absent_is_absent():
    _, message = build({"x": BASE, "softcap": None, "contract": None})
    assert not message.HasField("softcap") and not message.HasField("output_dtype")
    _, message = build({"softcap": 0.0})
    assert message.HasField("softcap") and not message.HasField("x")


REFUSED = [
    ({"y": BASE}, "UNKNOWN_FIELD", "y"),
    ({"x": BASE, "cap": 1.0}, "UNKNOWN_FIELD", "cap"),
    ({"x": [1.0, 2.0]}, "DTYPE_NOT_ALLOWED", "x"),
    ({"x": 1.0}, "DTYPE_NOT_ALLOWED", "x"),
    ({"x": BASE.astype(np.complex64)}, "DTYPE_NOT_ALLOWED", "x"),
    ({"x": BASE.astype(np.uint16)}, "DTYPE_NOT_ALLOWED", "x"),
    ({"x": np.array(["a"])}, "DTYPE_NOT_ALLOWED", "x"),
    ({"x": np.array([None])}, "DTYPE_NOT_ALLOWED", "x"),
    ({"x": BASE, "softcap": "30"}, "ATTRIBUTE_OUT_OF_RANGE", "softcap"),
    ({"x": BASE, "softcap": True}, "ATTRIBUTE_OUT_OF_RANGE", "softcap"),
    ({"x": BASE, "softcap": np.zeros(2)}, "ATTRIBUTE_OUT_OF_RANGE", "softcap"),
    ({"x": BASE, "softcap": 10**400}, "ATTRIBUTE_OUT_OF_RANGE", "softcap"),
    ({"x": BASE, "output_dtype": "f31"}, "DTYPE_NOT_ALLOWED", "output_dtype"),
    ({"x": BASE, "output_dtype": 1}, "DTYPE_NOT_ALLOWED", "output_dtype"),
    ({"x": BASE, "mode": "fast"}, "UNKNOWN_ENUM_VALUE", "options.mode"),
    ({"x": BASE, "mode": "unspecified"}, "UNKNOWN_ENUM_VALUE", "options.mode"),
    ({"x": BASE, "mode": 1}, "UNKNOWN_ENUM_VALUE", "options.mode"),
    ({"x": BASE, "verify": "twice"}, "UNKNOWN_ENUM_VALUE", "options.verify"),
    ({"x": BASE, "minimum_claim": "L4"}, "UNKNOWN_ENUM_VALUE", "options.minimum_claim"),
    ({"x": BASE, "digests": ["tensor", "page"]}, "UNKNOWN_ENUM_VALUE", "options.digests"),
    ({"x": BASE, "contract": 3}, "UNKNOWN_OPTION", "options.contract"),
]


@pytest.mark.parametrize(
    "arguments, reason, field", REFUSED, ids=lambda v: v if isinstance(v, str) else ""
)
def test_refuses_what_is_no_message(arguments, reason, field):
    with pytest.raises(rlk.InvalidArgumentError) as caught:
        build(arguments)
    error = caught.value
    assert (error.code, error.reason, error.field) == ("INVALID_ARGUMENT", reason, field)
    assert error.allowed and error.field.split(".")[-1] in str(error)


def test_unknown_method_names_the_known():
    with pytest.raises(rlk.InvalidArgumentError) as caught:
        build({}, "final_logit_softcap.sideward")
    assert caught.value.reason == "UNKNOWN_OPERATOR" and FORWARD in caught.value.allowed


def test_size_limit():
    _, message = build({"x": np.zeros((1 << 19) - 64, np.float32)})
    # The whole message counts, as on the server.
    assert message.ByteSize() <= 2 << 20
    with pytest.raises(rlk.InvalidArgumentError):
        build({"x": np.zeros(1 << 19, np.float32)})
    build({"x": np.zeros(1 << 19, np.float32)}, inline_bytes_max=message.ByteSize() + 300)
    with pytest.raises(rlk.InvalidArgumentError) as caught:
        build({"x": np.zeros((1 << 19) + 1, np.float32)})
    assert caught.value.reason == "MESSAGE_TOO_LARGE"
    assert "2097152" in caught.value.allowed and caught.value.value == "2097156 bytes"
    assert caught.value.field == "request"
    build({"x": np.zeros((1 << 19) + 1, np.float32)}, inline_bytes_max=3 << 20)
    # An expanded view counts as what travels, not as what it means.
    build({"x": np.broadcast_to(np.float32(1), (1 << 14, 1 << 14))})


def test_options():
    options = rlk.CallOptions(contract="a", mode="auto", digests=("tensor", "rows"))
    request = _codec.build_request(
        FORWARD,
        options,
        {
            "x": BASE,
            "contract": "b",
            "backend": "cpu",
            "minimum_claim": "L3_portable",
            "verify": "VERIFICATION_REPEAT",
            "wanted": "y",
            "device_uuid": "u",
            "input_capture": "live",
            "timeout": 2.5,
        },
    )
    message = request.method.request.FromString(request.data).options
    assert (message.contract, message.backend, message.device_uuid) == ("b", "cpu", "u")
    assert (message.mode, message.minimum_claim, message.verification) == (2, 4, 1)
    assert list(message.digests) == [1, 2] and list(message.wanted_outputs) == ["y"]
    assert message.input_capture == 2 and request.timeout == 2.5
    request = _codec.build_request(FORWARD, {"timeout": 3, "digests": True}, {"x": BASE})
    assert request.timeout == 3
    for bad in ({"speed": 1}, 3):
        with pytest.raises(rlk.InvalidArgumentError) as caught:
            _codec.build_request(FORWARD, bad, {"x": BASE})
        assert caught.value.reason == "UNKNOWN_OPTION"


def test_no_argument_is_called_like_an_option():
    from rlk import options

    for method in _methods.all_methods().values():
        reserved = {*options.NAMES, "options", "method", "self"}
        assert not reserved & set(method.argument_names()), method.name


# A method with every kind of field that no operator has so far.
def probe_file():
    file = descriptor_pb2.FileDescriptorProto(
        name="rlk_test/probe.proto",
        package="rlk_test",
        syntax="proto3",
        dependency=["rlk/v1/call.proto", "rlk/v1/contract.proto", "rlk/v1/tensor.proto"],
    )
    enum = file.enum_type.add(name="FoldKind")
    for number, name in enumerate(("UNSPECIFIED", "LEFT", "CHUNK_128")):
        enum.value.add(name=f"FOLD_KIND_{name}", number=number)
    kind = descriptor_pb2.FieldDescriptorProto
    request = file.message_type.add(name="DetLinear2Request")
    response = file.message_type.add(name="DetLinear2Response")

    def field(message, name, number, type_, type_name=None, repeated=False, optional=False):
        added = message.field.add(
            name=name,
            number=number,
            type=type_,
            label=kind.LABEL_REPEATED if repeated else kind.LABEL_OPTIONAL,
        )
        if type_name:
            added.type_name = type_name
        if optional:
            added.proto3_optional = True
            added.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name="_" + name)

    tensor, report = ".rlk.v1.Tensor", ".rlk.v1.CallReport"
    field(request, "parts", 1, kind.TYPE_MESSAGE, tensor, repeated=True)
    field(request, "weight", 2, kind.TYPE_MESSAGE, tensor)
    field(request, "rows_before", 3, kind.TYPE_INT64, optional=True)
    field(request, "exact", 4, kind.TYPE_BOOL, optional=True)
    field(request, "fold", 5, kind.TYPE_ENUM, ".rlk_test.FoldKind", optional=True)
    field(request, "label", 6, kind.TYPE_STRING, optional=True)
    field(request, "sizes", 7, kind.TYPE_INT64, repeated=True)
    field(request, "options", 100, kind.TYPE_MESSAGE, ".rlk.v1.CallOptions")
    field(response, "pieces", 1, kind.TYPE_MESSAGE, tensor, repeated=True)
    field(response, "extra", 2, kind.TYPE_MESSAGE, tensor)
    field(response, "report", 100, kind.TYPE_MESSAGE, report)
    method = file.service.add(name="ProbeService").method.add(
        name="DetLinear2BackwardWeight",
        input_type=".rlk_test.DetLinear2Request",
        output_type=".rlk_test.DetLinear2Response",
    )
    method.options.Extensions[contract_pb2.method].operator = "det_linear2"
    return file


@pytest.fixture(scope="module")
def probe_method():
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(probe_file().SerializeToString())
    (method,) = _methods.compile_files([pool.FindFileByName("rlk_test/probe.proto")]).values()
    return method


@pytest.fixture
def probe(probe_method, monkeypatch):
    monkeypatch.setitem(_methods._METHODS, probe_method.name, probe_method)
    return lambda arguments: build(arguments, probe_method.name)


def test_names_of_any_method(probe_method):
    assert probe_method.name == "det_linear2.backward_weight"
    assert probe_method.path == "/rlk_test.ProbeService/DetLinear2BackwardWeight"
    assert list(probe_method.tensors) == ["parts", "weight"]
    assert list(probe_method.attributes) == ["rows_before", "exact", "fold", "label", "sizes"]
    assert list(probe_method.outputs) == ["pieces", "extra"]


def test_every_kind_of_field(probe):
    request, message = probe(
        {
            "parts": [BASE, BASE.T, np.float64(3)],
            "rows_before": np.int32(128),
            "exact": np.bool_(False),
            "fold": "chunk_128",
            "label": "text",
            "sizes": (3, 4),
        }
    )
    assert [list(part.shape) for part in message.parts] == [[2, 3, 4, 5], [5, 4, 3, 2], []]
    assert not message.HasField("weight")
    assert message.rows_before == 128 and message.HasField("exact") and not message.exact
    assert message.fold == 2 and message.label == "text" and list(message.sizes) == [3, 4]
    reply = request.method.response()
    reply.pieces.extend(message.parts[i] for i in (0, 2))
    result = _codec.parse_result(request, reply.SerializeToString())
    assert [piece.shape for piece in result.pieces] == [(2, 3, 4, 5), ()]
    assert result.extra is None and list(result) == ["pieces", "extra"]
    with pytest.raises(AttributeError, match="outputs: pieces, extra"):
        result.other  # noqa: B018


@pytest.mark.parametrize(
    "name, value",
    [
        ("rows_before", 1.5),
        ("rows_before", True),
        ("rows_before", 1 << 63),
        ("exact", 1),
        ("fold", "right"),
        ("fold", 1),
        ("label", 3),
        ("sizes", [1, "a"]),
        ("parts", [BASE, [1.0]]),
    ],
)
def test_refusals_of_every_kind_of_field(probe, name, value):
    with pytest.raises(rlk.InvalidArgumentError) as caught:
        probe({name: value})
    assert caught.value.field.split("[")[0] == name and caught.value.allowed


@pytest.mark.parametrize("spoil", ["length", "dtype", "strides", "arena", "bytes"])
def test_replies_that_make_no_sense(spoil):
    request, message = build({"x": BASE})
    reply = request.method.response()
    reply.y.CopyFrom(message.x)
    if spoil == "length":
        reply.y.data = reply.y.data[:-1]
    elif spoil == "dtype":
        reply.y.dtype = 99
    elif spoil == "strides":
        reply.y.strides.extend([1, 1, 1, 1])
    elif spoil == "arena":
        reply.y.arena.arena = b"0" * 16
    data = b"\xff" if spoil == "bytes" else reply.SerializeToString()
    with pytest.raises(rlk.InternalError):
        _codec.parse_result(request, data)


def test_report_view():
    request, message = build({"x": BASE})
    reply = request.method.response()
    report = reply.report
    report.contract = "final_logit_softcap/portable-v1"
    report.claim = 4
    report.device.kind = "cpu"
    report.rejected.add(backend="cuda", kernel="k", reason="no device")
    report.attributes["softcap"].number = 30
    report.attributes["output_dtype"].dtype = 1
    report.input_digests.add(name="x", digest="xxh3-tree4k-v1:00", rows=bytes(range(32)))
    report.input_capture = 1
    view = _codec.parse_result(request, reply.SerializeToString()).report
    assert view.contract == "final_logit_softcap/portable-v1" and view.claim == "L3"
    assert view.rejected[0].reason == "no device" and view.fallback is None
    assert dict(view.attributes) == {"output_dtype": "F32", "softcap": 30.0}
    assert view.input_digests["x"] == "xxh3-tree4k-v1:00"
    assert view.input_row_digests["x"][1] == "xxh3-tree4k-v1:" + bytes(range(16, 32)).hex()
    assert view.verification is None and view.input_capture == "SNAPSHOT"
    plain = view.to_dict()
    assert plain["device"]["kind"] == "cpu" and plain["rejected"][0]["backend"] == "cuda"
    with pytest.raises(AttributeError):
        view.contract = "other"
