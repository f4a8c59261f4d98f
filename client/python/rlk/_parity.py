"""What the blocking client asks of the parity service."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from rlk import _codec, _digest, _tensors, resident
from rlk import options as call_options
from rlk._proto import comparison_pb2, contract_pb2, parity_pb2, policy_pb2, tensor_pb2
from rlk.errors import InvalidArgumentError
from rlk.report import Record, record_from_proto

SERVICE = "/rlk.v1.ParityService/"
# Tensors below this stay in the message of a call whose others are uploaded.
_UPLOAD_FROM = 64 << 10
# What a request holds besides its tensors.
_FRAMING_BYTES = 16 << 10
_DIGEST_ROWS_MAX = 65536


class TensorDigests(NamedTuple):
    """A tensor as the server digests it. ``rows`` is () unless asked for."""

    digest: str
    dtype: str
    shape: Tuple[int, ...]
    rows: Tuple[str, ...]


class ParityCalls:
    """A part of :class:`rlk.Client`."""

    inline_bytes_max: int

    def _message_call(self, path: str, request: Any, reply: Any) -> Any:
        raise NotImplementedError

    def put(self, tensor: Any, **options: Any) -> resident.Resident:
        raise NotImplementedError

    def release(self, tensors: Any) -> None:
        raise NotImplementedError

    def compare(
        self,
        left: Any,
        right: Any,
        *,
        judgment: str = "PARITY",
        op_class: Optional[str] = None,
        gradient: bool = False,
        axes: Sequence[str] = (),
        relative_floor: float = 0.0,
        rows_max: int = 0,
        digests: bool = True,
    ) -> Record:
        """Whether two tensors are the same, and if not, what differs, where and how.

        Args:
            left, right: numpy arrays, torch tensors or :class:`rlk.Resident`; ``right`` may be the
                digest that ``left`` should have. Large ones go to the server for the call.
            judgment: "PARITY" (two implementations), "INVARIANCE" (the same one in another layout:
                bitwise), or "ACCURACY" (``right`` is a reference, of a wider dtype if need be).
            op_class: the row of the tolerance contract: "ELEMENTWISE", "REDUCTION", "LOGPROB",
                "ATTENTION". Needed for ACCURACY; with PARITY the declared contract.
            gradient: its gradient row.
            axes: names of the axes, for the coordinates of the first mismatch.
            relative_floor: of relative errors; 0 takes 1e-12.
            rows_max: rows to list; 0 takes 8.
            digests: False leaves the digests out, which read both tensors once more.

        Returns:
            The fields of rlk.v1.Comparison: ``passed``, ``difference``, ``counts``,
            ``first_mismatch``, ``rows``, ``ulp``, ``magnitude``, ``rule``, ``triage``.
        """
        request = parity_pb2.CompareRequest()
        fields = request.options
        number: Any = call_options.parse_enum(
            "judgment", judgment, comparison_pb2.Judgment.DESCRIPTOR
        )
        fields.judgment = number
        if op_class is not None:
            number = call_options.parse_enum("op_class", op_class, contract_pb2.OpClass.DESCRIPTOR)
            fields.tolerance.op_class = number
            fields.tolerance.gradient = gradient
        elif gradient:
            raise InvalidArgumentError(
                "gradient needs op_class", reason="UNKNOWN_OPTION", field="gradient"
            )
        fields.axes.extend(axes)
        fields.relative_floor = relative_floor
        fields.rows_max = rows_max
        fields.without_digests = not digests
        tensors = {"left": left}
        if isinstance(right, str):
            request.right_digest = right
        else:
            tensors["right"] = right
        reply = self._parity_call("Compare", request, parity_pb2.CompareResponse, tensors)
        return record_from_proto(reply.comparison)

    def compare_policy(
        self,
        rollout: Any,
        trainer: Any,
        *,
        mask: Any = None,
        cu_seqlens: Any = None,
        rollout_logits: Any = None,
        trainer_logits: Any = None,
        execution_dtype: Any = None,
        ratio_cap: float = 0.0,
        tokens_max: int = 0,
        rollout_support: Optional[Dict[str, Any]] = None,
        trainer_support: Optional[Dict[str, Any]] = None,
    ) -> Record:
        """Log-probabilities of sampled tokens, by the rollout engine and by the trainer.

        Args:
            rollout, trainer: of one shape: [tokens], [sequences, tokens], or any with
                ``cu_seqlens``. Tensors are given as to :meth:`compare`.
            mask: bool or integers of that shape; 0 leaves a token out.
            cu_seqlens: where sequences begin, and the end of the last.
            rollout_logits, trainer_logits: with the vocabulary as one more dimension: adds the KL
                of whole distributions and greedy flips.
            execution_dtype: picks the thresholds; by default the narrower of the two tensors'.
            ratio_cap: ratios above it are counted; 0 takes 2.
            tokens_max: tokens to list; 0 takes 16.
            rollout_support, trainer_support: what the log-probabilities are of: ``temperature``,
                ``top_p``, ``top_k``, ``after_processors``, ``softcap_applications``.

        Returns:
            The fields of rlk.v1.PolicyComparison; ``metrics`` has the names that verl, slime and
            TRL log.
        """
        request = policy_pb2.ComparePolicyRequest()
        fields = request.options
        if execution_dtype is not None:
            number: Any = _codec.dtype_number("execution_dtype", execution_dtype)
            fields.execution_dtype = number
        fields.ratio_cap = ratio_cap
        fields.tokens_max = tokens_max
        for name, given, support in (
            ("rollout_support", rollout_support, fields.rollout_support),
            ("trainer_support", trainer_support, fields.trainer_support),
        ):
            _fill_support(name, given or {}, support)
        tensors = {
            "rollout": rollout,
            "trainer": trainer,
            "mask": mask,
            "cu_seqlens": cu_seqlens,
            "rollout_logits": rollout_logits,
            "trainer_logits": trainer_logits,
        }
        given = {name: value for name, value in tensors.items() if value is not None}
        reply = self._parity_call("ComparePolicy", request, policy_pb2.ComparePolicyResponse, given)
        return record_from_proto(reply.comparison)

    def digest(self, tensor: Any, *, rows: bool = False) -> TensorDigests:
        """The digest of a tensor as the server computes it, with ``rows`` also that of each row
        along the last dimension: what another server needs to say whether it has the same."""
        sent = _Sent(self, {"tensor": tensor})
        request = parity_pb2.DigestTensorRequest(rows_max=_DIGEST_ROWS_MAX if rows else 0)
        found: List[bytes] = []
        try:
            sent.fill(request)
            first = self._digest_page(request)
            found.append(first.row_digests)
            while rows and request.first_row + _DIGEST_ROWS_MAX < first.rows:
                request.first_row += _DIGEST_ROWS_MAX
                request.without_tensor_digest = True
                found.append(self._digest_page(request).row_digests)
        finally:
            sent.release()
        joined = b"".join(found)
        return TensorDigests(
            first.digest,
            tensor_pb2.DataType.Name(first.dtype).replace("DATA_TYPE_", ""),
            tuple(first.shape),
            tuple(_digest.format_digest(joined[i : i + 16]) for i in range(0, len(joined), 16)),
        )

    def _digest_page(self, request: Any) -> Any:
        return self._message_call(
            SERVICE + "DigestTensor", request, parity_pb2.DigestTensorResponse
        )

    def _parity_call(self, rpc: str, request: Any, reply: Any, tensors: Dict[str, Any]) -> Any:
        sent = _Sent(self, tensors)
        try:
            sent.fill(request)
            return self._message_call(SERVICE + rpc, request, reply)
        finally:
            sent.release()


def _fill_support(name: str, given: Dict[str, Any], support: Any) -> None:
    known = support.DESCRIPTOR.fields_by_name
    for key, value in given.items():
        if key not in known:
            raise InvalidArgumentError(
                f"{name} has no field {key!r}; allowed: {', '.join(known)}",
                reason="UNKNOWN_FIELD",
                field=name,
                value=key,
                allowed=", ".join(known),
            )
        setattr(support, key, value)


class _Sent:
    """Tensors on their way into a message; large ones lie on the server until the release."""

    def __init__(self, client: Any, tensors: Dict[str, Any]) -> None:
        self._client = client
        self._uploaded: List[resident.Resident] = []
        self._tensors: Dict[str, Any] = {}
        for name, value in tensors.items():
            if isinstance(value, resident.Resident):
                resident.check_owner(value, client)
                self._tensors[name] = value
            else:
                self._tensors[name] = _tensors.as_source(name, value)

    def fill(self, request: Any) -> None:
        inline = [s for s in self._tensors.values() if isinstance(s, _tensors.Source)]
        total = _FRAMING_BYTES + sum(_tensors.payload_bytes(source) for source in inline)
        for name, value in self._tensors.items():
            target = getattr(request, name)
            if isinstance(value, resident.Resident):
                resident.encode(value, target)
            elif (
                total > self._client.inline_bytes_max
                and _tensors.payload_bytes(value) >= _UPLOAD_FROM
            ):
                held = self._client.put(value.array, label="tensor of a comparison", verify=False)
                self._uploaded.append(held)
                resident.encode(held, target)
            else:
                _tensors.encode(value, target)

    def release(self) -> None:
        if self._uploaded:
            self._client.release(self._uploaded)
