"""How far the RMSNorm family is from transformers' modules. Skipped without transformers.

The casts are the same; sums and functions round differently, so a few elements differ by little.
The counts are printed (pytest -s) and put into the JUnit file.
"""

import numpy as np
import pytest

import rlk

torch = pytest.importorskip("torch", reason="torch is not installed")
modeling = pytest.importorskip(
    "transformers.models.qwen3_next.modeling_qwen3_next",
    reason="transformers with Qwen3-Next is not installed",
)

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def make(dtype, *shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype)


def ulps(actual, expected):
    """Distances in units in the last place."""
    integer = {4: torch.int32, 2: torch.int16}[actual.element_size()]

    def ordered(tensor):
        bits = tensor.contiguous().view(integer).to(torch.int64)
        return torch.where(bits < 0, -(bits & (2 ** (8 * tensor.element_size() - 1) - 1)), bits)

    return (ordered(actual) - ordered(expected)).abs().numpy()


def judge(record_property, name, actual, expected, share, ulp):
    distance = ulps(actual, expected)
    differing = int(np.count_nonzero(distance))
    text = f"{differing} of {distance.size} differ, by at most {distance.max()} ulp"
    print(f"{name}: {text}")
    record_property(name, text)
    # Near 0 a unit is tiny: judge the rest by value.
    torch.testing.assert_close(actual, expected, rtol=2e-2, atol=2e-2)
    assert differing <= share * distance.size
    assert np.percentile(distance, 99.9) <= ulp


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_qwen3_next_rms_norm(client, record_property, dtype):
    module = modeling.Qwen3NextRMSNorm(2048, eps=1e-6).to(dtype)
    x, weight = make(dtype, 64, 2048), make(dtype, 2048, seed=1)
    with torch.no_grad():
        module.weight.copy_(weight)
        expected = module(x)
    actual = rlk.qwen3_next_rms_norm(client, x, weight).y
    share = 0.9 if dtype == torch.float32 else 0.02
    judge(record_property, f"qwen3_next_rms_norm {dtype}", actual, expected, share, 4)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_qwen3_next_rms_norm_gated(client, record_property, dtype):
    module = modeling.Qwen3NextRMSNormGated(128, eps=1e-6).to(dtype)
    x, gate, weight = make(dtype, 512, 128), make(dtype, 512, 128, seed=2), make(dtype, 128, seed=1)
    with torch.no_grad():
        module.weight.copy_(weight)
        expected = module(x, gate)
    share = 0.9 if dtype == torch.float32 else 0.02
    for contract, allowed in (("hf-v1", share), ("leftfold-v1", 0.9)):
        actual = rlk.rms_norm_gated(
            client, x, weight, gate, contract=f"rms_norm_gated/{contract}"
        ).y
        name = f"rms_norm_gated/{contract} {dtype}"
        judge(record_property, name, actual, expected, allowed, 8)
