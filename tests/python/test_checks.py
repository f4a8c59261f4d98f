"""check_parity and check_invariance against the real server."""

import numpy as np
import pytest
from conftest import Server

import rlk


@pytest.fixture
def norm():
    generator = np.random.default_rng(5)
    return {
        "x": generator.normal(size=(9, 48)).astype(np.float32),
        "weight": generator.normal(size=48).astype(np.float32),
    }


@pytest.mark.parametrize("mode", ["random", "ones"])
def test_the_cpu_agrees_with_the_reference(client, norm, mode):
    result = client.check_parity(
        "rms_norm.forward",
        left="cpu",
        right={"backend": "golden"},
        judgment="accuracy",
        gradients=rlk.Gradients(mode=mode),
        **norm,
    )
    assert result.passed and result.first_difference == ""
    assert [output.output for output in result.outputs] == [
        "y",
        "grad_x",
        "grad_weight",
    ]
    assert (
        result.outputs[1].comparison.rule.row == "gradient_accuracy/reduction/float32"
    )
    assert result.left.methods[1].report.backend == "cpu"
    assert result.to_dict()["right"]["where"] == "this server"


def test_a_provided_tensor_is_a_side(client, norm):
    y = client.call("rms_norm.forward", **norm).y
    assert client.check_parity(
        "rms_norm.forward", right=rlk.Side(provided={"y": y}), **norm
    ).passed
    y[3, 5] = np.nextafter(y[3, 5], np.float32(9))
    result = client.check_parity(
        "rms_norm.forward", right={"provided": {"y": y}}, **norm
    )
    assert not result.passed and result.first_difference == "rms_norm.forward y"
    mismatch = result.outputs[0].comparison.first_mismatch
    assert [axis.index for axis in mismatch.coordinates] == [3, 5]


def test_given_gradients_are_taken(client, norm):
    gradients = rlk.Gradients(given={"grad_y": np.zeros((9, 48), np.float32)})
    result = client.check_parity("rms_norm.forward", gradients=gradients, **norm)
    assert result.passed
    digest = rlk.digest(np.zeros((9, 48), np.float32))
    inputs = result.left.methods[1].report.input_digests
    assert {entry.name: entry.digest for entry in inputs}["grad_y"] == digest


def test_large_tensors_are_uploaded_and_released(client):
    x = np.random.default_rng(6).normal(size=(512, 2048)).astype(np.float32)
    before = len(client.tensors()) if client._session.token else 0
    result = client.check_parity(
        "final_logit_softcap.forward", x=x, softcap=20.0, gradients=True
    )
    assert result.passed and result.compared_elements == 2 * x.size
    assert len(client.tensors()) == before


def test_two_servers_are_two_sides(server, server_binary, tmp_path, norm):
    asking = Server(server_binary, tmp_path, f"--parity-peer={server.tcp}")
    try:
        with rlk.connect(asking.tcp, timeout=60) as client:
            result = client.check_parity(
                "rms_norm.forward", right={"server": server.tcp}, gradients=True, **norm
            )
            assert result.passed and result.right.where == server.tcp
            assert result.right.server_id == server.addresses["server_id"]
            assert result.different_versions == ()
            with pytest.raises(rlk.FailedPreconditionError) as refused:
                client.check_parity(
                    "rms_norm.forward", right={"server": asking.tcp}, **norm
                )
            assert refused.value.reason == "PEER_NOT_LISTED"
            assert refused.value.field == "right.server"
    finally:
        assert asking.stop() == 0


def test_rows_depend_on_themselves_alone(client, norm):
    result = client.check_invariance(
        "rms_norm.forward",
        repeats=10,
        gradients=True,
        contracts="rms_norm/leftfold-v1",
        **norm,
    )
    assert result.passed and len(result.axes) == 14
    assert all(axis.compared_elements > 0 for axis in result.axes)
    few = client.check_invariance("rms_norm.forward", axes=["slice", "PERMUTE"], **norm)
    assert [axis.axis for axis in few.axes] == ["SLICE", "PERMUTE"]


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"judgment": "taste"}, "judgment"),
        ({"left": {"backened": "cpu"}}, "backened"),
        ({"gradients": rlk.Gradients(mode="twos")}, "gradients.mode"),
        ({"gradients": "ones"}, "gradients"),
        ({"gradients": {"mode": "ones"}}, "gradients"),
        ({"timeout": "soon"}, "options.timeout"),
        ({"left": "abacus"}, "left.options.backend"),
        (
            {"right": rlk.Side(backend="cpu", provided={"y": np.zeros(3)})},
            "right.backend",
        ),
    ],
)
def test_refusals_name_the_field(client, norm, arguments, field):
    with pytest.raises(rlk.InvalidArgumentError) as refused:
        client.check_parity("rms_norm.forward", **arguments, **norm)
    assert refused.value.field == field


def test_a_check_has_a_timeout_of_its_own(server, norm):
    # A mebi of runs never ends in so short a time; without the option the client would wait for it.
    with rlk.connect(server.tcp, timeout=600) as patient:
        with pytest.raises(rlk.DeadlineExceededError):
            patient.check_invariance(
                "rms_norm.forward",
                axes=["repeat"],
                repeats=1 << 20,
                timeout=0.2,
                **norm,
            )
        with pytest.raises(rlk.DeadlineExceededError):
            patient.check_parity("rms_norm.forward", timeout=0, **norm)
        assert patient.check_parity("rms_norm.forward", timeout=600, **norm).passed


def test_a_check_that_compared_nothing_does_not_pass(client, norm):
    norm["x"] = norm["x"][:1]
    result = client.check_invariance("rms_norm.forward", axes=["slice"], **norm)
    assert not result.passed
    assert not result.axes[0].applicable and result.axes[0].note


def test_rows_that_are_laid_out_are_bounded(client):
    x = np.zeros((1 << 22) + 1, np.float16)
    with pytest.raises(rlk.InvalidArgumentError) as refused:
        client.check_invariance("final_logit_softcap.forward", x=x, axes=["permute"])
    assert (
        refused.value.reason == "LIMIT_EXCEEDED" and refused.value.field == "invocation"
    )
    clean = client.check_invariance(
        "final_logit_softcap.forward", x=x, axes=["repeat"], repeats=2
    )
    assert clean.passed
