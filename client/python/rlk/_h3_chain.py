"""The chain of MiniMax-H3's timestep conditioning: stages, weights, runs. ``rlk.h3`` is its front."""

from __future__ import annotations

import os
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np
from google.protobuf import json_format

from rlk import _dtypes
from rlk._proto import weights_pb2
from rlk._random import random_tensor
from rlk.errors import InvalidArgumentError
from rlk.report import CallReport
from rlk.resident import Resident

VIEWS = ("shift_msa", "scale_msa", "gate_msa", "shift_mlp", "scale_mlp", "gate_mlp")
_FORMAT = "rlk-weights-v1"
_MODEL = "minimax-h3"
ROLES = ("w1", "b1", "w2", "b2", "weight", "bias")
_SIZES = (256, 5376, 2688, 5376)  # of the model: channels, hidden, embedding, width
_UPLOAD_FROM = 64 << 10


class Stage(NamedTuple):
    """One call of the chain.

    Attributes:
        method: "operator.method".
        op_class: its row of the tolerance contract.
        inputs: by input of the method, what it is given: "timestep", a role of the weights,
            "grad_X" of a view X, or an output of an earlier stage.
        outputs: by output of the method, its name in the chain.
    """

    name: str
    method: str
    op_class: str
    inputs: Dict[str, str]
    outputs: Dict[str, str]

    @property
    def backward(self) -> bool:
        return self.method.endswith(".backward")


def _same(*names: str) -> Dict[str, str]:
    return {name: name for name in names}


STAGES: Tuple[Stage, ...] = (
    Stage(
        "sinusoid",
        "timestep_sinusoid_h3.forward",
        "elementwise",
        _same("timestep"),
        _same("embedding"),
    ),
    Stage(
        "mlp",
        "timestep_mlp_fp32.forward",
        "reduction",
        {"x": "embedding", **_same("w1", "b1", "w2", "b2")},
        {"y": "temb", "pre": "pre"},
    ),
    Stage(
        "projection",
        "adaln_projection_3mod.forward",
        "reduction",
        _same("temb", "weight", "bias"),
        _same(*VIEWS),
    ),
    Stage(
        "projection_backward",
        "adaln_projection_3mod.backward",
        "reduction",
        _same("temb", "weight", *("grad_" + view for view in VIEWS)),
        _same("grad_temb", "grad_weight", "grad_bias"),
    ),
    Stage(
        "mlp_backward",
        "timestep_mlp_fp32.backward",
        "reduction",
        {"x": "embedding", "grad_y": "grad_temb", **_same("w1", "b1", "w2", "pre")},
        {"grad_x": "grad_embedding", **_same("grad_w1", "grad_b1", "grad_w2", "grad_b2")},
    ),
    Stage(
        "sinusoid_backward",
        "timestep_sinusoid_h3.backward",
        "elementwise",
        _same("grad_embedding", "embedding"),
        _same("grad_timestep"),
    ),
)
FORWARD_STAGES = 3


class Weights(NamedTuple):
    """Weights on one device. ``synthetic`` is "" for those of the model, else how they were made."""

    tensors: Dict[str, Resident]
    synthetic: str

    @property
    def device_uuid(self) -> str:
        return self.tensors["w1"].device_uuid

    def release(self, client: Any) -> None:
        """Frees them."""
        client.release(list(self.tensors.values()))


class Run(NamedTuple):
    """A chain that ran. ``tensors`` stay on the server, by the names of the chain: "embedding",
    "pre", "temb", "shift_msa", ..., "grad_timestep". The caller releases them."""

    tensors: Dict[str, Resident]
    reports: Dict[str, CallReport]


def load_manifest(path: Union[str, "os.PathLike[str]"]) -> weights_pb2.WeightsManifest:
    """The manifest of a file that ``rlk weights prepare`` wrote. InvalidArgumentError where it is
    none, does not name each role once, or gives one another dtype or shape than the model (of
    made-up weights, than the others) has."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    try:
        manifest = json_format.Parse(text, weights_pb2.WeightsManifest())
    except json_format.ParseError as error:
        raise InvalidArgumentError(
            f"{os.fspath(path)} is no weights manifest: {error}",
            reason="MALFORMED_MESSAGE",
            field="manifest",
        ) from None
    _check_manifest(manifest)
    return manifest


def _check_manifest(manifest: weights_pb2.WeightsManifest) -> None:
    roles = tuple(sorted(entry.role for entry in manifest.tensors))
    for field, value, allowed in (
        ("format", manifest.format, _FORMAT),
        ("model", manifest.model, _MODEL),
        ("tensors", ", ".join(roles), ", ".join(sorted(ROLES))),
    ):
        if value != allowed:
            raise _mismatch(field, value, allowed)
    by_role = {entry.role: entry.tensor for entry in manifest.tensors}
    for role, (dtype, shape) in _expected(manifest).items():
        tensor = by_role[role]
        for what, found, wanted in (
            ("dtype", _dtypes.NAMES.get(tensor.dtype, "none"), dtype),
            ("shape", str(list(tensor.shape)), str(shape)),
        ):
            if found != wanted:
                raise _mismatch(f"{role}.{what} ({tensor.key})", found, wanted)


def _mismatch(field: str, value: str, allowed: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{field}: {value!r} is not allowed; allowed: {allowed}",
        reason="FILE_MISMATCH",
        field=field,
        value=value,
        allowed=allowed,
    )


def _expected(manifest: weights_pb2.WeightsManifest) -> Dict[str, Tuple[str, List[int]]]:
    """Dtype and shape of each role: those of the model, or, of made-up weights, those that fit
    w1 [hidden, channels], w2 [embedding, hidden] and weight [18 width, embedding]."""
    shapes = {entry.role: [*entry.tensor.shape, 0, 0] for entry in manifest.tensors}
    channels, hidden, embedding, width = _SIZES
    if manifest.synthetic:
        hidden, channels = shapes["w1"][:2]
        embedding, width = shapes["w2"][0], shapes["weight"][0] // 18
    return {
        "w1": ("F32", [hidden, channels]),
        "b1": ("F32", [hidden]),
        "w2": ("F32", [embedding, hidden]),
        "b2": ("F32", [embedding]),
        "weight": ("BF16", [18 * width, embedding]),
        "bias": ("BF16", [18 * width]),
    }


def load_weights(
    client: Any,
    manifest: weights_pb2.WeightsManifest,
    *,
    folder: str = "",
    device_uuid: Optional[str] = None,
) -> Weights:
    """Loads the six tensors, all of them or none, from files under the server's ``--weights-root``.

    Args:
        folder: that the manifest is of, relative to that root.
        device_uuid: by default the server's first GPU, or its host.
    """
    _check_manifest(manifest)
    prefix = folder + "/" if folder else ""
    expected = {
        entry.tensor.key: {
            "dtype": _dtypes.NAMES[entry.tensor.dtype],
            "shape": tuple(entry.tensor.shape),
            "sha256": entry.tensor.sha256,
            "path": prefix + entry.tensor.path,
        }
        for entry in manifest.tensors
    }
    loaded = client.load("", expected, device_uuid=device_uuid, synthetic=manifest.synthetic)
    by_role = {entry.role: loaded[entry.tensor.key] for entry in manifest.tensors}
    return Weights(by_role, manifest.synthetic)


def select_stages(stages: Sequence[str] = (), backward: bool = False) -> Tuple[Stage, ...]:
    """The stages of these names, or the forward's, or all. InvalidArgumentError for a stage without
    all those before it."""
    names = [stage.name for stage in STAGES]
    for name in stages:
        if name not in names:
            raise _refused(stages, names, f"{name!r} is no stage")
    if not stages:
        return STAGES if backward else STAGES[:FORWARD_STAGES]
    for at, stage in enumerate(STAGES):
        missing = [name for name in names[:at] if name not in stages]
        if stage.name in stages and missing:
            raise _refused(
                stages, names[: at + 1], f"stage {stage.name} is chosen without those before it"
            )
    return tuple(stage for stage in STAGES if stage.name in stages)


def _refused(stages: Sequence[str], allowed: Iterable[str], why: str) -> InvalidArgumentError:
    text = ", ".join(allowed)
    return InvalidArgumentError(
        f"{why}; allowed: {text}",
        reason="UNKNOWN_OPTION",
        field="stages",
        value=", ".join(stages),
        allowed=text,
    )


class Side:
    """Runs stages on one backend with one copy of the weights; releases what it kept."""

    def __init__(self, client: Any, weights: Weights, settings: Dict[str, Any]) -> None:
        self.client = client
        self.weights = weights
        self._settings = settings
        self._kept: List[Resident] = []

    def start(self, timesteps: np.ndarray, gradients: bool) -> Dict[str, Any]:
        """The weights, the timesteps, and the gradients of the views."""
        values: Dict[str, Any] = {"timestep": timesteps, **self.weights.tensors}
        shape = (3 * len(timesteps), self.weights.tensors["bias"].shape[0] // 18)
        for i, view in enumerate(VIEWS if gradients else ()):
            seed = self._settings["gradient_seed"] + i
            values["grad_" + view] = self.place(random_tensor(shape, "bf16", seed))
        return values

    def place(self, array: np.ndarray) -> Any:
        """An array as an input of a call on this side's device."""
        if array.nbytes < _UPLOAD_FROM:
            return array
        held = self.client.put(array, device_uuid=self.weights.device_uuid)
        self._kept.append(held)
        return held

    def run(
        self, stage: Stage, values: Dict[str, Any], inline: Sequence[str] = ()
    ) -> Tuple[Dict[str, Any], CallReport]:
        """One stage: what it made, by the names of the chain."""
        arguments = {name: values[source] for name, source in stage.inputs.items()}
        if stage.name.startswith("sinusoid"):
            arguments["max_period"] = self._settings["max_period"]
        if stage.name == "sinusoid":
            arguments["num_channels"] = self.weights.tensors["w1"].shape[1]
        operator = stage.method.split(".")[0]
        contracts = [c for c in self._settings["contracts"] if c.split("/")[0] == operator]
        result = self.client.call(
            stage.method,
            backend=self._settings["backend"],
            contract=contracts[0] if contracts else None,
            digests="tensor",
            wanted=list(stage.outputs),
            keep=[name for name, made in stage.outputs.items() if made not in inline],
            **arguments,
        )
        made = {name: result[output] for output, name in stage.outputs.items()}
        self._kept.extend(value for value in made.values() if isinstance(value, Resident))
        return made, result.report

    def drop(self, values: Iterable[Any]) -> None:
        """Releases what no later stage takes."""
        gone = [value for value in values if isinstance(value, Resident)]
        self._kept = [kept for kept in self._kept if kept not in gone]
        if gone:
            self.client.release(gone)

    def forget(self) -> None:
        self._kept = []

    def close(self) -> None:
        if self._kept:
            self.client.release(self._kept)
            self._kept = []


def taken_later(stages: Sequence[Stage], name: str) -> bool:
    return any(name in stage.inputs.values() for stage in stages)


def check_contracts(contracts: Sequence[str]) -> None:
    """InvalidArgumentError for one that is of no operator of the chain."""
    operators = {stage.method.split(".")[0] for stage in STAGES}
    for contract in contracts:
        if contract.split("/")[0] not in operators:
            raise InvalidArgumentError(
                "no stage of the chain has this contract",
                reason="UNKNOWN_CONTRACT",
                field="contracts",
                value=contract,
                allowed="contracts of the operators of the chain",
            )


def run_chain(
    client: Any,
    weights: Weights,
    timesteps: Any,
    *,
    backward: bool = False,
    stages: Sequence[str] = (),
    backend: Optional[str] = None,
    contracts: Sequence[str] = (),
    max_period: float = 10000.0,
    gradient_seed: int = 123,
    through_client: bool = False,
) -> Run:
    """Runs the chain. Where a stage fails nothing stays on the server.

    Args:
        timesteps: [T], each in [0, 1].
        backward: all six stages.
        stages: these instead; a stage without those before it is refused.
        contracts: each method takes the one that it has, or else its default.
        gradient_seed: view i has the gradient ``rlk.random_tensor((3 T, H), "bf16", seed + i)``.
        through_client: intermediates come here after each stage and are sent again.
    """
    chosen = select_stages(stages, backward)
    check_contracts(contracts)
    settings = {
        "backend": backend,
        "contracts": contracts,
        "max_period": max_period,
        "gradient_seed": gradient_seed,
    }
    array = np.asarray(timesteps, np.float32)
    inputs, side = Side(client, weights, settings), Side(client, weights, settings)
    reports: Dict[str, CallReport] = {}
    tensors: Dict[str, Resident] = {}
    try:
        values = inputs.start(array, len(chosen) > FORWARD_STAGES)
        for at, stage in enumerate(chosen):
            sent_again = [
                name
                for name in stage.outputs.values()
                if through_client and taken_later(chosen[at + 1 :], name)
            ]
            made, reports[stage.name] = side.run(stage, values, sent_again)
            tensors.update({n: value for n, value in made.items() if isinstance(value, Resident)})
            values.update(made)
        side.forget()
    finally:
        inputs.close()
        side.close()
    return Run(tensors, reports)
