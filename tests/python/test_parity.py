"""Comparisons of tensors, policies and digests, by the Python client."""

import ml_dtypes
import numpy as np
import pytest

import rlk


@pytest.fixture(name="client", params=["tcp", "unix"])
def connected(request, server):
    with rlk.connect(getattr(server, request.param), timeout=60) as made:
        yield made


def normals(shape, seed=1, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def test_equal_tensors_pass_and_say_how_much_was_compared(client):
    x = normals((4, 100), dtype=ml_dtypes.bfloat16)
    found = client.compare(x, x.copy())
    assert found.passed and found.difference == "NOTHING"
    assert found.counts.compared == 400 and found.counts.mismatched == 0
    assert found.triage.triage_class == "NONE" and found.first_mismatch is None
    assert found.left.digest == rlk.digest(x) == found.right.digest


def test_the_first_mismatch_has_coordinates_bits_and_values(client):
    x = normals((2, 3, 5))
    y = x.copy()
    y[1, 2, 3] = 7
    found = client.compare(x, y, axes=("layer", "token", "channel"))
    first = found.first_mismatch
    assert not found.passed and found.difference == "BITS" and first.flat_index == 28
    assert [(c.axis, c.index) for c in first.coordinates] == [
        ("layer", 1),
        ("token", 2),
        ("channel", 3),
    ]
    assert first.right_value == 7 and first.right_bits == "40e00000"
    assert found.rows.mismatched == 1 and found.rows.worst[0].row == 5


def test_large_tensors_go_to_the_server_and_are_gone_afterwards(client):
    x = normals((1024, 2048))
    y = x.copy()
    y[1000, 5] += 1
    found = client.compare(x.T, y.T)
    assert found.counts.mismatched == 1
    assert found.first_mismatch.flat_index == 5 * 1024 + 1000
    assert client.tensors() == ()


def test_residents_and_digests_take_a_side(client):
    x = normals((64, 256))
    with client.put(x) as held:
        assert client.compare(held, x).passed
        assert client.compare(held, rlk.digest(x)).passed
        assert not client.compare(held, rlk.digest(x + 1)).passed
        digests = client.digest(held, rows=True)
    assert digests.digest == rlk.digest(x) and digests.dtype == "F32" and digests.shape == (64, 256)
    assert list(digests.rows) == list(rlk.row_digests(x))


def test_judgments_take_their_tolerance_from_the_contract(client):
    gold = normals((8, 64), dtype=np.float64)
    found = client.compare(
        gold.astype(ml_dtypes.bfloat16), gold, judgment="ACCURACY", op_class="ELEMENTWISE"
    )
    assert found.passed and found.rule.row == "forward_accuracy/elementwise/bfloat16"
    with pytest.raises(rlk.InvalidArgumentError) as error:
        client.compare(gold, gold, judgment="INVARIANCE", op_class="LOGPROB")
    assert error.value.field == "options.tolerance"
    with pytest.raises(rlk.InvalidArgumentError):
        client.compare(gold, gold, judgment="EYEBALL")
    with pytest.raises(rlk.InvalidArgumentError):
        client.compare(gold, gold, gradient=True)
    with pytest.raises(rlk.InvalidArgumentError):
        client.compare(gold, [1, 2])


def test_policies_have_the_figures_of_numpy(client):
    rollout = -np.abs(normals((6, 50), seed=2))
    trainer = rollout + 0.01 * normals((6, 50), seed=3)
    mask = np.random.default_rng(4).random((6, 50)) < 0.8
    found = client.compare_policy(rollout, trainer, mask=mask, execution_dtype="bf16")
    d = (trainer.astype(np.float64) - rollout)[mask]
    assert found.tokens == mask.sum() and found.masked == (~mask).sum()
    np.testing.assert_allclose(found.difference.mean_abs, np.abs(d).mean(), rtol=1e-12)
    np.testing.assert_allclose(found.difference.max_abs, np.abs(d).max(), rtol=0)
    np.testing.assert_allclose(found.kl.k1, -d.mean(), rtol=1e-9)
    np.testing.assert_allclose(found.kl.k3, (np.exp(d) - 1 - d).mean(), rtol=1e-9)
    np.testing.assert_allclose(found.ratios.token.mean, np.exp(d).mean(), rtol=1e-12)
    assert found.metrics["sampling/importance_sampling_ratio/max"] == found.ratios.token.max
    assert found.chain.passed and found.chain.execution_dtype == "BF16"
    lengths = mask.sum(axis=1)
    packed = client.compare_policy(
        rollout[mask],
        trainer[mask],
        cu_seqlens=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
    )
    assert dict(packed.metrics) == dict(found.metrics)


def test_supports_are_echoed_and_explained(client):
    x = np.float32([-1, -2])
    found = client.compare_policy(
        x,
        x,
        rollout_support={"top_p": 0.9, "after_processors": True, "temperature": 1},
        trainer_support={"temperature": 1},
    )
    assert found.rollout_support.top_p == 0.9 and "truncated" in found.support_note
    with pytest.raises(rlk.InvalidArgumentError):
        client.compare_policy(x, x, rollout_support={"top": 1})


def test_torch_tensors_compare(client):
    torch = pytest.importorskip("torch")
    x = torch.arange(12, dtype=torch.bfloat16).reshape(3, 4)
    assert client.compare(x, x.clone()).passed
    assert client.compare(x, x + 1).triage.triage_class == "CONSTANT_OFFSET"
