"""The timestep conditioning of MiniMax-H3 as a chain of calls, and its comparison with a reference.

Example::

    manifest = rlk.h3.load_manifest("h3.json")  # of `rlk weights prepare`
    with rlk.connect("127.0.0.1:50051") as client:
        report = rlk.h3.check_chain(client, manifest, backward=True)
        print(report.passed, report.first)

The stages are sinusoid, mlp, projection, projection_backward, mlp_backward, sinusoid_backward: each
takes what those before it made. Weights and intermediates stay on the server.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from rlk._h3_chain import (
    FORWARD_STAGES,
    ROLES,
    STAGES,
    VIEWS,
    Run,
    Side,
    Stage,
    Weights,
    check_contracts,
    load_manifest,
    load_weights,
    run_chain,
    select_stages,
    taken_later,
)
from rlk._proto import weights_pb2
from rlk._random import _bits
from rlk.errors import FailedPreconditionError, InvalidArgumentError
from rlk.report import CallReport, Record
from rlk.resident import Resident

__all__ = [
    "STAGES",
    "VIEWS",
    "ChainReport",
    "Finding",
    "OutputReport",
    "Run",
    "Stage",
    "StageReport",
    "Weights",
    "check_chain",
    "load_manifest",
    "load_weights",
    "random_timesteps",
    "run_chain",
    "select_stages",
]

_USUAL_COUNT = 4


class OutputReport(NamedTuple):
    """One output: against the reference's chain, and on the reference's own inputs."""

    name: str
    chain: Record
    alone: Record


class StageReport(NamedTuple):
    """``verdict``: "passed"; "injected": the stage differs on the reference's inputs; "inherited":
    it differs in the chain alone."""

    stage: str
    verdict: str
    same_inputs: bool
    outputs: Tuple[OutputReport, ...]
    checked: CallReport
    reference: CallReport


class Finding(NamedTuple):
    """The first stage of the chain that differs, and the T of that run."""

    stage: str
    output: str
    verdict: str
    timestep_count: int


class ChainReport(NamedTuple):
    """What :func:`check_chain` found.

    Attributes:
        synthetic: "" for weights of the model, else how they were made up.
        timesteps: the values.
        counts: for each T the stages, in order.
        first: None where no stage differs.
        rows_that_differ: rows whose bits depend on T.
        through_client_differs: outputs that differ when the client runs the chain stage by stage.
    """

    synthetic: str
    timesteps: Tuple[float, ...]
    counts: Dict[int, Tuple[StageReport, ...]]
    first: Optional[Finding]
    rows_that_differ: Tuple[str, ...]
    through_client_differs: Tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not (self.first or self.rows_that_differ or self.through_client_differs)


def random_timesteps(count: int, seed: int) -> np.ndarray:
    """Fractions of 24 random bits: F32, [count]."""
    return ((_bits(count, seed) >> np.uint64(40)).astype(np.float64) * 2.0**-24).astype(np.float32)


def check_chain(
    client: Any,
    manifest: weights_pb2.WeightsManifest,
    *,
    folder: str = "",
    reference: str = "golden",
    timesteps: Sequence[float] = (),
    seed: int = 1,
    counts: Sequence[int] = (),
    real_weights: bool = False,
    **options: Any,
) -> ChainReport:
    """Runs the chain beside a reference and says which stage differs first, and whether by its own
    fault. That something differs is no error. Everything is released at the end.

    Args:
        folder: as in :func:`load_weights`.
        reference: "golden" (judged by the tolerance contract), or another backend (every bit).
        timesteps: in [0, 1]; by default four random ones of ``seed``.
        counts: the chain runs on the first T of them, for each T; by default 1 to 4, and all.
        real_weights: refuse made-up weights, with FailedPreconditionError.
        options: as of :func:`run_chain`, but ``through_client``, which is tried by itself.
    """
    if real_weights and manifest.synthetic:
        raise FailedPreconditionError(
            "the manifest is of made-up weights: they say nothing about the model",
            reason="SYNTHETIC_WEIGHTS",
            field="synthetic",
            value=manifest.synthetic,
            allowed="weights of the model",
        )
    return _Check(client, manifest, folder, reference, options).run(timesteps, seed, counts)


class _Check:
    """The state of one :func:`check_chain`."""

    def __init__(
        self,
        client: Any,
        manifest: weights_pb2.WeightsManifest,
        folder: str,
        reference: str,
        options: Dict[str, Any],
    ) -> None:
        self._client = client
        self._manifest = manifest
        self._folder = folder
        self._reference = reference
        self._options = options
        self._stages = select_stages(options.get("stages", ()), options.get("backward", False))
        self._settings = {
            "backend": options.get("backend"),
            "contracts": options.get("contracts", ()),
            "max_period": options.get("max_period", 10000.0),
            "gradient_seed": options.get("gradient_seed", 123),
        }
        check_contracts(self._settings["contracts"])
        self._rows: Dict[int, Dict[str, List[Any]]] = {}

    def run(self, given: Sequence[float], seed: int, counts: Sequence[int]) -> ChainReport:
        values = np.asarray(given, np.float32)
        if not len(values):
            values = random_timesteps(_USUAL_COUNT, seed)
        usual = sorted({*range(1, min(len(values), _USUAL_COUNT) + 1), len(values)})
        for count in counts:
            if not 1 <= count <= len(values):
                raise InvalidArgumentError(
                    "there are not so many timesteps",
                    reason="LIMIT_EXCEEDED",
                    field="counts",
                    value=str(count),
                    allowed=f"1 to {len(values)}",
                )
        host = next(d.device.uuid for d in self._client.info().devices if d.device.kind == "cpu")
        on_host = self._settings["backend"] in ("cpu", "golden")
        checked = self._load(host if on_host else None)
        reference = checked
        try:
            if self._reference in ("cpu", "golden") and checked.device_uuid != host:
                reference = self._load(host)
            stages, differs = {}, []
            for count in counts or usual:
                stages[count] = self._count(count, values[:count], checked, reference)
                differs += self._through_client(count, values[:count], checked, stages[count])
        finally:
            for weights in [checked] + ([reference] if reference is not checked else []):
                weights.release(self._client)
        return ChainReport(
            synthetic=self._manifest.synthetic,
            timesteps=tuple(float(value) for value in values),
            counts=stages,
            first=self._first(stages),
            rows_that_differ=tuple(self._compare_rows()),
            through_client_differs=tuple(differs),
        )

    def _load(self, device_uuid: Optional[str]) -> Weights:
        return load_weights(
            self._client, self._manifest, folder=self._folder, device_uuid=device_uuid
        )

    def _count(
        self, count: int, timesteps: np.ndarray, checked: Weights, reference: Weights
    ) -> Tuple[StageReport, ...]:
        theirs_settings = {**self._settings, "backend": self._reference}
        if self._reference == "golden":
            theirs_settings["contracts"] = ()
        ours = Side(self._client, checked, self._settings)
        theirs = Side(self._client, reference, theirs_settings)
        gradients = len(self._stages) > FORWARD_STAGES
        try:
            # Digests say whether two sides' tensors are the same; what both start with has none.
            values = (ours.start(timesteps, gradients), theirs.start(timesteps, gradients))
            digests: Tuple[Dict[str, str], Dict[str, str]] = ({}, {})
            return tuple(
                self._stage(at, count, (ours, theirs), values, digests)
                for at in range(len(self._stages))
            )
        finally:
            ours.close()
            theirs.close()

    def _stage(
        self,
        at: int,
        count: int,
        sides: Tuple[Side, Side],
        values: Tuple[Dict[str, Any], Dict[str, Any]],
        digests: Tuple[Dict[str, str], Dict[str, str]],
    ) -> StageReport:
        stage = self._stages[at]
        ours, theirs = sides
        same = all(digests[0].get(n) == digests[1].get(n) for n in stage.inputs.values())
        expected, reference = theirs.run(stage, values[1])
        made, report = ours.run(stage, values[0])
        alone: Dict[str, Any] = {}
        if not same:
            # The weights of the chain under check, and what the reference's stages made.
            inputs = {name: values[name in digests[1]][name] for name in stage.inputs.values()}
            alone, _ = ours.run(stage, inputs)
        outputs = []
        for name in stage.outputs.values():
            chain = self._compare(stage, made[name], expected[name])
            other = chain if same else self._compare(stage, alone[name], expected[name])
            outputs.append(OutputReport(name, chain, other))
            self._add_rows(count, name, made[name])
        for side, found, kept in ((0, made, ours), (1, expected, theirs)):
            values[side].update(found)
            said = (report, reference)[side].output_digests
            digests[side].update({stage.outputs[output]: said[output] for output in said})
            later = self._stages[at + 1 :]
            kept.drop(value for name, value in found.items() if not taken_later(later, name))
        ours.drop(alone.values())
        verdict = "passed"
        if not all(output.alone.passed for output in outputs):
            verdict = "injected"
        elif not all(output.chain.passed for output in outputs):
            verdict = "inherited"
        return StageReport(stage.name, verdict, same, tuple(outputs), report, reference)

    def _compare(self, stage: Stage, left: Resident, right: Resident) -> Record:
        if self._reference != "golden":
            return self._client.compare(left, right, judgment="parity", digests=False)
        return self._client.compare(
            left,
            right,
            judgment="accuracy",
            op_class=stage.op_class,
            gradient=stage.backward,
            digests=False,
        )

    def _add_rows(self, count: int, name: str, value: Resident) -> None:
        if name.replace("grad_", "", 1) in ROLES:
            return
        rows = self._rows.setdefault(count, {})
        if len(value.shape) == 1:
            rows[name] = [element.tobytes() for element in value.get()]
        else:
            rows[name] = list(self._client.digest(value, rows=True).rows)

    def _compare_rows(self) -> List[str]:
        differs: List[str] = []
        most = max(self._rows, default=0)
        for count, rows in self._rows.items():
            for name, found in rows.items():
                part = len(found) // count
                widest = self._rows[most][name]
                for t in range(count):
                    if found[t * part : (t + 1) * part] != widest[t * part : (t + 1) * part]:
                        differs.append(
                            f"{name}, T = {count}: timestep {t} has other bits than with T = {most}"
                        )
                        break
        return differs

    def _through_client(
        self, count: int, timesteps: np.ndarray, weights: Weights, stages: Tuple[StageReport, ...]
    ) -> List[str]:
        run = run_chain(self._client, weights, timesteps, through_client=True, **self._options)
        self._client.release(list(run.tensors.values()))
        return [
            f"{stage.stage} {name}, T = {count}"
            for stage in stages
            for name, digest in stage.checked.output_digests.items()
            if run.reports[stage.stage].output_digests[name] != digest
        ]

    def _first(self, stages: Dict[int, Tuple[StageReport, ...]]) -> Optional[Finding]:
        for at in range(len(self._stages)):
            for count, found in stages.items():
                stage = found[at]
                for output in stage.outputs:
                    judged = output.alone if stage.verdict == "injected" else output.chain
                    if stage.verdict != "passed" and not judged.passed:
                        return Finding(stage.stage, output.name, stage.verdict, count)
        return None
