"""Results for the tests of reports: messages with every field, hostile texts and unknown values."""

from rlk._proto import comparison_pb2, parity_check_pb2, policy_pb2, server_pb2, tensor_pb2
from rlk.report import record_from_proto

# Breaks out of text, attributes, comments, Markdown and terminals, where it is not escaped.
HOSTILE = (
    '</td><script>alert("x")</script><img src="http://leak.example/a.png" onerror=alert(1)>'
    "--> ${x} `code` [link](http://leak.example/b) | *cell* &amp; \x1b[31m \u202egnp.exe"
)


def comparison_message(**fields):
    """A comparison of which a few rows differ; fields replace whole messages."""
    made = comparison_pb2.Comparison(
        judgment=comparison_pb2.JUDGMENT_PARITY,
        passed=False,
        difference=comparison_pb2.DIFFERENCE_BITS,
        compared_on="cpu",
    )
    for name in ("left", "right"):
        side = getattr(made, name)
        side.role, side.dtype = name, tensor_pb2.DATA_TYPE_F32
        side.shape.extend([4, 8])
        side.digest = side.canonical_nan_digest = f"xxh3-tree4k-v1:{'0' * 31}{len(name)}"
    made.counts.compared, made.counts.mismatched, made.counts.single_bit = 32, 3, 2
    first = made.first_mismatch
    first.flat_index, first.left_bits, first.right_bits = 9, "3f800000", "3f800001"
    first.left_value, first.right_value = 1.0, 1.0000001
    first.coordinates.add(axis="token", index=1)
    first.coordinates.add(axis="channel", index=1)
    made.rows.rows, made.rows.mismatched, made.rows.counted = 4, 2, True
    made.rows.first, made.rows.last, made.rows.first_column, made.rows.last_column = 1, 2, 1, 7
    made.rows.worst.add(row=2, mismatched=2)
    made.rows.worst.add(row=1, mismatched=1)
    made.ulp.max = 3
    for low, high, count in ((0, 0, 29), (1, 1, 2), (2, 2, 0), (3, 4, 1), (5, 2**63 - 1, 0)):
        made.ulp.buckets.add(at_least=low, at_most=high, elements=count)
    made.magnitude.elements, made.magnitude.max_abs, made.magnitude.cosine = 32, 2.5e-7, 1.0
    made.rule.bitwise = True
    made.triage.triage_class = comparison_pb2.TRIAGE_CLASS_REDUCTION_ORDER
    made.triage.hint = "few ULP, no bias"
    for name, value in fields.items():
        getattr(made, name).CopyFrom(value)
    return made


def comparison(**fields):
    return record_from_proto(comparison_message(**fields))


def policy_message():
    """Two sequences whose log-probabilities differ a little; one figure is infinite."""
    made = policy_pb2.PolicyComparison(tokens=6, sequences=2)
    made.difference.mean_abs, made.difference.max_abs = 1e-3, 4e-3
    made.difference.mismatched = 6
    made.kl.k1, made.kl.k2, made.kl.k3 = -1e-3, 1e-6, 1e-6
    made.perplexity.rollout = made.perplexity.trainer = 2.0
    for name in ("token", "sequence_sum", "sequence_mean"):
        ratio = getattr(made.ratios, name)
        ratio.min, ratio.mean, ratio.max = 0.9, 1.0, 1.3
    made.ratios.sequence_sum.max = float("inf")
    made.ratios.cap = 2
    made.worst.add(flat_index=4, sequence=1, position=1, rollout=-1, trainer=-1.004,
                   difference=-0.004, ratio=0.996)
    made.chain.execution_dtype = tensor_pb2.DATA_TYPE_F32
    made.chain.values.add(name="max_abs_dlogp", value=4e-3, threshold=1e-5, passed=False)
    made.metrics["rollout_corr/kl"] = -1e-3
    return made


def policy():
    return record_from_proto(policy_message())


def parity_message(text="this server"):
    """Two outputs, of which one is equal and one differs; the right side is another server."""
    made = parity_check_pb2.CheckParityResponse(
        first_difference="rms_norm.forward y", compared_elements=64, calls=2
    )
    made.outputs.add(method="rms_norm.forward", output="y", comparison=comparison_message())
    made.not_compared.add(method="rms_norm.backward", output="grad_x", reason=text)
    made.left.where, made.right.where = "this server", "10.0.0.7:50051"
    made.left.server_id = "a" * 32
    made.left.provenance.version = "0.1.0"
    method = made.left.methods.add(method="rms_norm.forward")
    method.report.contract, method.report.kernel = "rms_norm/leftfold-v1", text
    method.report.phases.kernel_ns = 1500
    method.report.attributes["eps"].number = 1e-6
    method.report.output_digests.add(name="y", digest="xxh3-tree4k-v1:" + "1" * 32, rows=b"\0" * 16)
    return made


def parity(text="this server"):
    return record_from_proto(parity_message(text))


def invariance():
    """One axis that fails, and one that has no meaning."""
    made = parity_check_pb2.CheckInvarianceResponse(calls=3)
    failed = made.axes.add(method="rms_norm.forward", applicable=True, layouts=2)
    failed.axis = parity_check_pb2.INVARIANCE_AXIS_SLICE
    failed.difference.layout, failed.difference.output = "rows [1, 2) alone", "y"
    failed.difference.row = -1
    failed.difference.comparison.CopyFrom(comparison_message())
    other = made.axes.add(method="rms_norm.forward", note="it has no accumulator")
    other.axis = parity_check_pb2.INVARIANCE_AXIS_CHUNK
    made.side.where = "this server"
    return record_from_proto(made)


def info(dirty=None):
    """A server that knows little of itself."""
    made = server_pb2.GetInfoResponse(server_id="b" * 32)
    made.provenance.version = "0.1.0"
    if dirty is not None:
        made.provenance.git_dirty = dirty
    device = made.devices.add(healthy=True)
    device.device.kind, device.device.name = "cpu", "a processor"
    return record_from_proto(made)


def digests():
    """What the command prints of the tensors of two servers."""
    sides = {
        name: {"address": address, "handle": "handle:" + "ab" * 16, "dtype": "F32",
               "shape": [4, 8], "digest": "xxh3-tree4k-v1:" + digit * 32}
        for name, address, digit in (("left", "a:1", "1"), ("right", "b:2", "2"))
    }
    return {"equal": False, **sides, "rows": 4, "different_rows": 1, "first_different_row": 2,
            "comparison": comparison().to_dict()}


def chain():
    """What the command prints of a chain whose second stage differs by its own fault."""
    same = comparison_message()
    same.passed = True
    failed = comparison()
    call = {"seconds": 0.01, "report": parity().left.methods[0].report.to_dict()}
    stages = []
    for stage, verdict, found in (("sinusoid", "passed", record_from_proto(same)),
                                  ("mlp", "injected", failed)):
        output = {"output": "y", "chain": found.to_dict(), "on_reference_inputs": found.to_dict()}
        stages.append({"stage": stage, "verdict": verdict, "same_inputs": stage == "sinusoid",
                       "outputs": [output], "chain": call, "reference": call})
    return {
        "chain": "h3",
        "passed": False,
        "weights": {"manifest": "h3.json", "manifest_sha256": "0" * 64, "synthetic": "seed 7",
                    "channels": 8, "hidden": 16, "embedding": 8, "width": 4},
        "server": "127.0.0.1:50051",
        "version": "0.1.0",
        "provenance_id": "c" * 32,
        "reference": "golden",
        "values": [0.25, 1.0],
        "first_difference": {"stage": "mlp", "output": "y", "verdict": "injected", "timesteps": 1},
        "rows_compared": 3,
        "rows_that_differ": [],
        "digests_compared": 4,
        "through_client_differs": [],
        "runs": [{"timesteps": 1, "stages": stages}],
    }
