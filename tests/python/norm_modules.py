"""Norms as models have them, by formula, for tests of rlk.torch.replace. Needs torch."""

import torch

F32 = torch.float32


class Norm(torch.nn.Module):
    """What every norm here has."""

    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))
        self.eps = eps

    def normed(self, x, eps=None):
        wide = x.to(F32)
        return wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + (eps or self.eps))


class LlamaLikeRMSNorm(Norm):
    def forward(self, x):
        return self.weight * self.normed(x).to(x.dtype)


class OlmoLikeRMSNorm(Norm):
    def forward(self, x):
        return (self.weight * self.normed(x)).to(x.dtype)


class GemmaLikeRMSNorm(Norm):
    def forward(self, x):
        return (self.normed(x) * (1.0 + self.weight.float())).type_as(x)


class GatedCastRMSNorm(Norm):
    def forward(self, hidden_states, gate):
        y = self.weight * self.normed(hidden_states).to(hidden_states.dtype)
        return (y * torch.nn.functional.silu(gate.to(F32))).to(hidden_states.dtype)


class GatedRMSNorm(Norm):
    """vLLM's convention, with any activation and offset."""

    def __init__(self, width, activation="silu", offset=0.0):
        super().__init__(width)
        self.activation = activation
        self.offset = offset

    def forward(self, x, gate):
        z = gate.to(F32)
        act = torch.sigmoid(z) * (z if self.activation == "silu" else 1)
        return (self.normed(x) * (self.offset + self.weight.to(F32)) * act).to(x.dtype)


class HiddenRMSNorm(Norm):
    """One class for two conventions: which one, only a private attribute and a function say."""

    def __init__(self, width, offset, activation=None):
        super().__init__(width)
        self._offset = offset
        self.act = activation or torch.nn.functional.silu

    def forward(self, x, gate):
        y = self.normed(x) * (self._offset + self.weight.to(F32))
        return (y * self.act(gate.to(F32))).to(x.dtype)


# (module, contract, weight_offset, activation, pairs of dtypes that it may be called with)
MAPPED = {
    "llama": (LlamaLikeRMSNorm, "rms_norm/hf-v1", 0.0, None, 3),
    "olmo": (OlmoLikeRMSNorm, "rms_norm/leftfold-v1", 0.0, None, 5),
    "gemma": (GemmaLikeRMSNorm, "qwen3_next_rms_norm/leftfold-v1", 1.0, None, 5),
    "gated, casts": (GatedCastRMSNorm, "rms_norm_gated/hf-v1", 0.0, "silu", 5),
    "gated": (GatedRMSNorm, "rms_norm_gated/leftfold-v1", 0.0, "silu", 5),
    "gated, sigmoid": (
        lambda width: GatedRMSNorm(width, "sigmoid"),
        "rms_norm_gated/leftfold-v1", 0.0, "sigmoid", 5,
    ),
    "gated, offset": (
        lambda width: GatedRMSNorm(width, "silu", 1.0),
        "rms_norm_gated/leftfold-v1", 1.0, "silu", 5,
    ),
    "gated, offset, sigmoid": (
        lambda width: GatedRMSNorm(width, "sigmoid", 1.0),
        "rms_norm_gated/leftfold-v1", 1.0, "sigmoid", 5,
    ),
}


if hasattr(torch.nn, "RMSNorm"):  # torch 2.4
    MAPPED["torch"] = (
        lambda width: torch.nn.RMSNorm(width, 1e-6), "rms_norm/leftfold-v1", 0.0, None, 5
    )


class OffsetInWeightDtypeRMSNorm(Norm):
    """1 + 15.8125 is no BF16 number."""

    def forward(self, x):
        return (self.normed(x) * (1.0 + self.weight).float()).type_as(x)


class OffsetAfterCastRMSNorm(Norm):
    def forward(self, x):
        return self.normed(x).to(x.dtype) * (1.0 + self.weight)


class HalfOffsetRMSNorm(Norm):
    def forward(self, x):
        return (self.normed(x) * (0.5 + self.weight.float())).type_as(x)


class SumRMSNorm(Norm):
    """The sum of squares, not their mean."""

    def forward(self, x):
        wide = x.to(F32)
        y = wide * torch.rsqrt(wide.pow(2).sum(-1, keepdim=True) + self.eps)
        return (self.weight * y).to(x.dtype)


class OtherEpsRMSNorm(Norm):
    """Says one eps and takes another."""

    def forward(self, x):
        return (self.weight * self.normed(x, eps=1.1e-6)).to(x.dtype)


class GateFirstRMSNorm(Norm):
    """Mamba's: the gate comes before the norm."""

    def forward(self, x, gate):
        y = x.to(F32) * torch.nn.functional.silu(gate.to(F32))
        return self.weight * self.normed(y).to(x.dtype)


class CentredRMSNorm(Norm):
    def forward(self, x):
        return (self.weight * self.normed(x - x.mean(-1, keepdim=True))).to(x.dtype)


class NoGradientRMSNorm(Norm):
    """The right value and no gradient through the statistic."""

    def forward(self, x):
        wide = x.to(F32)
        r = torch.rsqrt(wide.detach().pow(2).mean(-1, keepdim=True) + self.eps)
        return (self.weight * wide * r).to(x.dtype)


class EvaluationRMSNorm(Norm):
    """Something else when it does not train."""

    def forward(self, x):
        return (self.weight * self.normed(x)).to(x.dtype) * (1 if self.training else 2)


class SqueezingRMSNorm(Norm):
    def forward(self, x):
        y = (self.weight * self.normed(x)).to(x.dtype)
        return y.squeeze(1) if x.dim() == 3 and x.shape[1] == 1 else y


class CountingRMSNorm(OlmoLikeRMSNorm):
    """Something else after some calls."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * (1 if self.calls < 10 else 2)


class FinalRMSNorm(OlmoLikeRMSNorm):
    def __init_subclass__(cls, **kwargs):
        raise TypeError("it is final")


class DtypeEpsRMSNorm(OlmoLikeRMSNorm):
    """As torch.nn.RMSNorm, whose eps is None by default."""

    def __init__(self, width):
        super().__init__(width, eps=None)

    def normed(self, x):
        return super().normed(x, eps=torch.finfo(x.dtype).eps)


class BiaslessLayerNorm(Norm):
    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        return self.weight * self.normed(centred).to(x.dtype)


class NoEpsRMSNorm(Norm):
    def __init__(self, width):
        super().__init__(width)
        del self.eps

    def forward(self, x):
        return (self.weight * self.normed(x, eps=1e-6)).to(x.dtype)


class TwoEpsRMSNorm(OlmoLikeRMSNorm):
    def __init__(self, width):
        super().__init__(width)
        self.variance_epsilon = 1e-5


class ZeroEpsRMSNorm(OlmoLikeRMSNorm):
    def __init__(self, width):
        super().__init__(width, eps=0.0)


class WeightlessRMSNorm(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.eps = 1e-6

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)


class BiasedRMSNorm(OlmoLikeRMSNorm):
    def __init__(self, width):
        super().__init__(width)
        self.bias = torch.nn.Parameter(torch.zeros(width))


class BufferedRMSNorm(OlmoLikeRMSNorm):
    def __init__(self, width):
        super().__init__(width)
        self.register_buffer("scale", torch.ones(width))


class ThreeTensorRMSNorm(Norm):
    def forward(self, x, gate, residual):
        return (self.weight * self.normed(x + residual)).to(x.dtype) * gate


def patched(width):
    """A forward that was replaced on the instance, as kernels and accelerate do it."""
    module = OlmoLikeRMSNorm(width)
    module.forward = lambda x: x
    return module


def parametrized(width):
    module = OlmoLikeRMSNorm(width)
    torch.nn.utils.parametrize.register_parametrization(module, "weight", torch.nn.Identity())
    return module


# What is refused, and what the error must say.
REFUSED = {
    "offset in the dtype of the weight": (OffsetInWeightDtypeRMSNorm, "follows no contract"),
    "offset after the cast": (OffsetAfterCastRMSNorm, "follows no contract"),
    "half an offset": (HalfOffsetRMSNorm, "follows no contract"),
    "sum of squares": (SumRMSNorm, "follows no contract"),
    "another eps": (OtherEpsRMSNorm, "follows no contract"),
    "gate before the norm": (GateFirstRMSNorm, "follows no contract"),
    "centred": (CentredRMSNorm, "follows no contract"),
    "gradient": (NoGradientRMSNorm, "its gradient of x is not that of"),
    "evaluation": (EvaluationRMSNorm, "follows no contract"),
    "squeezes": (SqueezingRMSNorm, "follows no contract"),
    "no eps": (NoEpsRMSNorm, "one attribute must be its eps"),
    "two eps": (TwoEpsRMSNorm, "it has eps, variance_epsilon"),
    "eps of 0": (ZeroEpsRMSNorm, "eps is 0.0"),
    "infinite eps": (lambda width: OlmoLikeRMSNorm(width, float("inf")), "eps is inf"),
    "eps that FP32 has not": (lambda width: OlmoLikeRMSNorm(width, 1e-60), "eps is 1e-60"),
    "torch's eps of the dtype": (DtypeEpsRMSNorm, "eps is None"),
    "no weight": (WeightlessRMSNorm, "it has none"),
    "a bias": (BiasedRMSNorm, "it has weight, bias"),
    "a buffer": (BufferedRMSNorm, "it has weight, scale"),
    "three tensors": (ThreeTensorRMSNorm, "its forward takes 3 tensors"),
    "a patched forward": (patched, "replaced on the instance"),
    "a parametrized weight": (parametrized, "its weight is parametrized"),
    "state": (CountingRMSNorm, "its forward changes the module: calls"),
    "a final class": (FinalRMSNorm, "no class that derives from it: it is final"),
    "no elements": (lambda width: OlmoLikeRMSNorm(0), "its weight has no elements"),
    "too wide": (lambda width: OlmoLikeRMSNorm(65537), "no contract is for its width"),
}
