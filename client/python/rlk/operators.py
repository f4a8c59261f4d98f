"""A function for each operator method, with the names and defaults of its signature.

``client`` is a :class:`rlk.Client`, or an asyncio client; then the functions return awaitables.
``options`` are the fields of :class:`rlk.CallOptions`. Errors are those of
:meth:`rlk.Client.call`.
"""

from __future__ import annotations

from typing import Any

from rlk._codec import CallResult


def final_logit_softcap(
    client: Any, x: Any, softcap: float = 30.0, *, output_dtype: Any = None, **options: Any
) -> CallResult:
    """``y = softcap * tanh(x / softcap)``, element by element.

    Args:
        client: the client to call with.
        x: F32, F16 or BF16, of any shape.
        softcap: finite and greater than 0 once rounded to FP32.
        output_dtype: F32 (the default) or the dtype of x.

    Returns:
        A result with ``y``, of the shape of x, and ``report``.
    """
    return client.call(
        "final_logit_softcap.forward",
        x=x,
        softcap=softcap,
        output_dtype=output_dtype,
        **options,
    )


def final_logit_softcap_backward(
    client: Any, x: Any, grad_y: Any, softcap: float = 30.0, **options: Any
) -> CallResult:
    """``grad_x = grad_y * (1 - tanh(x / softcap)^2)``, recomputed from x.

    Args:
        client: the client to call with.
        x: F32, F16 or BF16, of any shape.
        grad_y: F32 or the dtype of x, of the shape of x.
        softcap: finite and greater than 0 once rounded to FP32.

    Returns:
        A result with ``grad_x``, of the shape and dtype of x, and ``report``.
    """
    return client.call(
        "final_logit_softcap.backward", x=x, grad_y=grad_y, softcap=softcap, **options
    )
