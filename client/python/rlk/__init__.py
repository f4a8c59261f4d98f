"""rlk: deterministic kernels over gRPC; bits are the API.

Example::

    import numpy as np
    import rlk

    with rlk.connect("127.0.0.1:50051") as client:
        result = client.call("final_logit_softcap.forward", x=np.float32([1, 100]), softcap=20.0)
        print(result.y, result.report.contract)

``rlk.aio`` has the asyncio client, ``rlk.torch`` differentiable functions for torch, ``rlk.h3`` the
timestep conditioning of MiniMax-H3 as a chain of calls, ``rlk.reporting`` reports of results.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import Any

from rlk._channel import Tls
from rlk._codec import CallResult
from rlk._digest import digest, row_digests
from rlk._checks import Gradients, Side
from rlk._random import random_tensor
from rlk._staging import SlowerTransportWarning
from rlk.arena import Arena
from rlk.client import (
    CallFuture,
    Client,
    connect,
    get_default_client,
    set_default_client,
)
from rlk.errors import (
    CancelledError,
    DataLossError,
    DeadlineExceededError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    ResourceExhaustedError,
    RlkError,
    UnauthenticatedError,
    UnavailableError,
    UnimplementedError,
)
from rlk.operators import (
    adaln_projection_3mod,
    adaln_projection_3mod_backward,
    adaln_projection_3mod_table,
    det_linear,
    det_linear_backward_input,
    det_linear_backward_weight,
    final_logit_softcap,
    final_logit_softcap_backward,
    qwen3_next_rms_norm,
    qwen3_next_rms_norm_backward,
    rms_norm,
    rms_norm_backward,
    rms_norm_gated,
    rms_norm_gated_backward,
    timestep_mlp_fp32,
    timestep_mlp_fp32_backward,
    timestep_sinusoid_h3,
    timestep_sinusoid_h3_backward,
)
from rlk.options import CallOptions
from rlk.report import CallReport, Record
from rlk.resident import Resident

__all__ = [
    "Arena",
    "CallFuture",
    "CallOptions",
    "CallReport",
    "CallResult",
    "CancelledError",
    "Client",
    "DataLossError",
    "DeadlineExceededError",
    "FailedPreconditionError",
    "Gradients",
    "InternalError",
    "InvalidArgumentError",
    "NotFoundError",
    "PermissionDeniedError",
    "Record",
    "Resident",
    "ResourceExhaustedError",
    "RlkError",
    "Side",
    "SlowerTransportWarning",
    "Tls",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "adaln_projection_3mod",
    "adaln_projection_3mod_backward",
    "adaln_projection_3mod_table",
    "aio",
    "connect",
    "det_linear",
    "det_linear_backward_input",
    "det_linear_backward_weight",
    "digest",
    "final_logit_softcap",
    "final_logit_softcap_backward",
    "get_default_client",
    "h3",
    "qwen3_next_rms_norm",
    "qwen3_next_rms_norm_backward",
    "random_tensor",
    "reporting",
    "rms_norm",
    "rms_norm_backward",
    "rms_norm_gated",
    "rms_norm_gated_backward",
    "row_digests",
    "set_default_client",
    "timestep_mlp_fp32",
    "timestep_mlp_fp32_backward",
    "timestep_sinusoid_h3",
    "timestep_sinusoid_h3_backward",
    "torch",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        try:
            return importlib.metadata.version("rlk")
        except importlib.metadata.PackageNotFoundError:  # a source tree that is not installed
            return "0+unknown"
    # Loaded when used: not everybody has torch, or wants asyncio.
    if name in ("aio", "h3", "reporting", "torch"):
        return importlib.import_module(f"rlk.{name}")
    raise AttributeError(f"module 'rlk' has no attribute {name!r}")
