"""Differentiable functions and modules for torch; forward and backward run on the server.

:func:`replace` makes the norms and the softcap of a transformers model run there.

Gradients are first order only; asking for a second order raises RuntimeError. Inputs are never
modified, and results are new tensors on the inputs' device. Where torch has ``torch.library
.custom_op`` (2.4 and later), each function is a custom operator with a fake implementation, so
that it passes through ``torch.compile`` without a graph break; before that it is an
``autograd.Function``. A tensor on a GPU is copied to the host for the call.
"""

from __future__ import annotations

from rlk._torch_conditioning import (
    adaln_projection_3mod,
    det_linear,
    timestep_mlp_fp32,
    timestep_sinusoid_h3,
)
from rlk._torch_modules import FinalLogitSoftcap, RMSNorm, RMSNormGated
from rlk._torch_norm import qwen3_next_rms_norm, rms_norm, rms_norm_gated
from rlk._torch_operator import HAS_CUSTOM_OP
from rlk._torch_replace import Replaced, Replacement, replace, restore
from rlk._torch_softcap import final_logit_softcap

__all__ = [
    "FinalLogitSoftcap",
    "HAS_CUSTOM_OP",
    "RMSNorm",
    "RMSNormGated",
    "Replaced",
    "Replacement",
    "adaln_projection_3mod",
    "det_linear",
    "final_logit_softcap",
    "qwen3_next_rms_norm",
    "replace",
    "restore",
    "rms_norm",
    "rms_norm_gated",
    "timestep_mlp_fp32",
    "timestep_sinusoid_h3",
]
