"""replace: the operators of somebody else's model, computed on a server."""

from __future__ import annotations

import fnmatch
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple, Union

import torch
from torch.nn.utils import parametrize

from rlk import _torch_convention, _torch_logits, _torch_modules
from rlk._torch_convention import Found, Mismatch
from rlk.client import Client
from rlk.errors import InvalidArgumentError


class Replacement(NamedTuple):
    """One operator of a model that now runs on a server."""

    name: str  # of the module, as in named_modules
    module: str  # its class
    operator: str
    contract: str
    attributes: Dict[str, Any]  # of every call: eps, weight_offset, activation, softcap
    differing: Optional[float]  # share of a 16-bit probe in which it differs from the module's own


class Replaced:
    """What :func:`replace` did to a model. As a context manager it undoes that at the end.

    Attributes:
        replacements: one a module, in the model's order.
        kept: modules that are norms by name and compute something else, with the reason.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        replacements: Sequence[Replacement],
        kept: Sequence[Tuple[str, str]],
    ) -> None:
        self._model = model
        self.replacements = tuple(replacements)
        self.kept = tuple(kept)

    def undo(self) -> None:
        """:func:`restore` of the model. Idempotent."""
        restore(self._model)

    def __enter__(self) -> Replaced:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.undo()

    def __str__(self) -> str:
        lines = []
        for one in self.replacements:
            given = " ".join(f"{name}={value}" for name, value in one.attributes.items())
            lines.append(f"{one.name}  {one.module}  {one.contract}  {given}")
        lines += [f"{name}  kept: {reason}" for name, reason in self.kept]
        return "\n".join(lines)


def replace(
    model: torch.nn.Module,
    client: Client,
    *,
    contract: Union[None, str, Sequence[str]] = None,
    backend: Optional[str] = None,
    softcap_dtype: Optional[torch.dtype] = None,
    skip: Sequence[str] = (),
) -> Replaced:
    """Makes the RMSNorms and the final softcap of a model run on a server, forward and backward.

    Every norm is compared with the server's conventions on small inputs (offset of the weight, eps,
    casts, gate), and its gradients with the contract's; one that follows none of them is refused by
    name. Either all is replaced or, on an error, nothing. Modules stay the objects that they are,
    with their parameters, hooks and names: optimizers, state_dict and copies know no difference.

    A later call raises rather than computes something else: of a dtype in which the module would
    give another result, after an attribute such as eps was changed, or where the model's forward
    does not apply its softcap once.

    Args:
        model: a transformers model, or any module that holds norms.
        client: whom to call; it lives as long as the modules do.
        contract: contract ids; each norm takes the first that its convention has, else the default
            of its convention. One that no module can take is refused.
        backend: a backend's name, for all; by default the server selects.
        softcap_dtype: of capped logits. Must be given where logits have 16 bits, which transformers
            rounds three times and the contract once.
        skip: names of modules to leave alone, or patterns such as ``"model.layers.*.q_norm"``;
            of a module with several names, any; of the model's softcap, ``"softcap"``.

    Raises:
        InvalidArgumentError: a module follows no convention, there is nothing to replace, or an
            argument fits nothing. ``violations`` has every module and its reason.
        RlkError: the server cannot be reached, or has not this backend.
    """
    asked = [contract] if isinstance(contract, str) else list(contract or ())
    plan = _Plan(client, asked, backend, softcap_dtype, list(skip))
    with _torch_convention.undisturbed():
        plan.look(model)
    plan.check()
    try:
        for module, binding in plan.norms:
            _torch_modules.serve(module, binding)
        for causal, hooks in plan.softcaps:
            hooks.attach(causal, causal.lm_head)
    except BaseException:  # of a class that takes no other, or of a user who interrupts
        for module, binding in plan.norms:
            if vars(module).get("_rlk") is binding:
                _torch_modules.unserve(module)
        for causal, _ in plan.softcaps:
            _torch_logits.detach(causal)
            _torch_logits.detach(causal.lm_head)
        raise
    return Replaced(model, plan.replacements, plan.kept)


def restore(model: torch.nn.Module) -> int:
    """Undoes :func:`replace` on a model or a copy of one; returns how many operators came back.

    Raises:
        FailedPreconditionError: a module got another class since, which must be undone first.
    """
    restored = 0
    for module in model.modules():
        if isinstance(module, _torch_modules.Served):
            _torch_modules.unserve(module)
            restored += 1
        elif _torch_logits.detach(module) and hasattr(module, "lm_head"):
            restored += 1
    return restored


class _Plan:
    """What is to be done; nothing is done before all of it is known to be right."""

    def __init__(
        self,
        client: Client,
        contracts: Sequence[str],
        backend: Optional[str],
        softcap_dtype: Optional[torch.dtype],
        skip: Sequence[str],
    ) -> None:
        self._client = client
        self._contracts = contracts
        self._backend = backend
        self._softcap_dtype = softcap_dtype
        self._skip = {pattern: False for pattern in skip}
        self._known: Dict[Any, Union[Found, Mismatch]] = {}
        self._problems: List[Tuple[str, str]] = []
        self.norms: List[Tuple[torch.nn.Module, _torch_modules.Binding]] = []
        self.softcaps: List[Tuple[Any, _torch_logits.LogitSoftcap]] = []
        self.replacements: List[Replacement] = []
        self.kept: List[Tuple[str, str]] = []

    def look(self, model: torch.nn.Module) -> None:
        """Looks at every module."""
        names: Dict[int, List[str]] = {}
        for name, module in model.named_modules(remove_duplicate=False):
            names.setdefault(id(module), []).append(name)
        for name, module in model.named_modules():
            if not _is_called_norm(module) or self._skipped(*names[id(module)]):
                continue
            if list(module.children()) and not parametrize.is_parametrized(module):
                self.kept.append((name, f"{type(module).__name__}: it is made of other modules"))
            else:
                self._norm(name, module)
        for name, causal, cap in _softcaps(model):
            if not self._skipped("softcap"):
                self._softcap(name, causal, cap)

    def _skipped(self, *names: str) -> bool:
        matching = [
            pattern
            for pattern in self._skip
            if any(fnmatch.fnmatchcase(name, pattern) for name in names)
        ]
        for pattern in matching:
            self._skip[pattern] = True
        return bool(matching)

    def _norm(self, name: str, module: torch.nn.Module) -> None:
        kind = type(module).__name__
        try:
            found = self._find(module)
        except Mismatch as problem:
            if "rms" in kind.lower():
                self._problems.append((name, f"{kind}: {problem}"))
            else:  # some other norm, such as a LayerNorm without a bias
                self.kept.append((name, f"{kind}: {problem}"))
            return
        one = found.convention
        attributes: Dict[str, Any] = {"eps": found.eps, "weight_offset": one.weight_offset}
        if one.gated:
            attributes["activation"] = one.activation
        self.replacements.append(
            Replacement(name, kind, one.operator, found.contract, attributes, found.differing)
        )
        binding = _torch_modules.Binding(
            found, _torch_convention.watched(module), self._backend, self._client
        )
        self.norms.append((module, binding))

    def _find(self, module: Any) -> Found:
        if isinstance(module, _torch_modules.Served):
            raise Mismatch("it runs on a server already; rlk.torch.restore gives it back")
        if parametrize.is_parametrized(module):
            raise Mismatch("its weight is parametrized")
        if "forward" in vars(module):
            raise Mismatch("its forward was replaced on the instance (kernels, accelerate)")
        names = [name for name, _ in module.named_parameters()]
        if names != ["weight"] or module.weight.dim() != 1 or list(module.buffers()):
            raise Mismatch(
                "it must have one weight of one dimension and nothing else; it has "
                + (", ".join(names + [name for name, _ in module.named_buffers()]) or "none")
            )
        try:
            _torch_modules.served_class(type(module))
        except Exception as error:  # whatever somebody else's class raises
            raise Mismatch(f"its class takes no class that derives from it: {error}") from error
        key = _torch_convention.kind(module)
        if key not in self._known:
            try:
                self._known[key] = _torch_convention.find(
                    module, self._client, self._contracts, self._backend
                )
            except Mismatch as problem:
                self._known[key] = problem
        known = self._known[key]
        if isinstance(known, Mismatch):
            raise known
        return known

    def _softcap(self, name: str, causal: Any, cap: float) -> None:
        hooks = [*causal._forward_pre_hooks.values(), *causal._forward_hooks.values()]
        if any(isinstance(getattr(h, "__self__", None), _torch_logits.LogitSoftcap) for h in hooks):
            self._problems.append((name, "its softcap runs on a server already"))
            return
        if not _torch_logits.HAS_HOOKS:
            self._problems.append(
                (name, f"its softcap needs a newer torch than {torch.__version__}")
            )
            return
        weight = getattr(causal.lm_head, "weight", None)
        if self._softcap_dtype is None and weight is not None and weight.dtype != torch.float32:
            self._problems.append((name, _torch_logits.dtype_error(weight.dtype).message))
            return
        taken = [c for c in self._contracts if c.startswith("final_logit_softcap/")]
        module = _torch_modules.FinalLogitSoftcap(
            cap,
            output_dtype=self._softcap_dtype,
            contract=taken[0] if taken else "final_logit_softcap/portable-v1",
            backend=self._backend,
            client=self._client,
        )
        problem = _torch_logits.check(cap, module)
        if problem is not None:
            self._problems.append((name, problem))
            return
        used = str(module._server.contract)
        self.replacements.append(
            Replacement(
                name, type(causal).__name__, "final_logit_softcap", used, {"softcap": cap}, None
            )
        )
        self.softcaps.append((causal, _torch_logits.LogitSoftcap(cap, module)))

    def check(self) -> None:
        """Raises for all that is not right."""
        if self._problems:
            raise InvalidArgumentError(
                "not replaced, and nothing else either:\n"
                + "\n".join(f"  {name or 'the model'}: {text}" for name, text in self._problems)
                + "\nskip= leaves modules alone by name",
                field=self._problems[0][0],
                violations=tuple(self._problems),
            )
        unused = [pattern for pattern, used in self._skip.items() if not used]
        if unused:
            raise _unused("skip", unused, "names of norms of the model, or patterns of them")
        used: Set[str] = {one.contract for one in self.replacements}
        unused = [contract for contract in self._contracts if contract not in used]
        if unused:
            raise _unused("contract", unused, ", ".join(sorted(used)) or "none")
        if not self.replacements:
            raise InvalidArgumentError(
                "the model has no RMSNorm and no softcap to replace", field="model"
            )


def _unused(field: str, unused: Sequence[str], allowed: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{field}: nothing in the model takes {', '.join(unused)}; allowed: {allowed}",
        reason="UNKNOWN_OPTION",
        field=field,
        value=unused[0],
        allowed=allowed,
    )


def _is_called_norm(module: torch.nn.Module) -> bool:
    ours = isinstance(module, (_torch_modules.RMSNorm, _torch_modules.FinalLogitSoftcap))
    return "norm" in type(module).__name__.lower() and not ours


def _softcaps(model: torch.nn.Module) -> Iterator[Tuple[str, torch.nn.Module, float]]:
    """Modules with an output head whose config has a cap."""
    for name, module in model.named_modules():
        config = getattr(module, "config", None)
        if config is None or not isinstance(getattr(module, "lm_head", None), torch.nn.Module):
            continue
        get_text_config = getattr(config, "get_text_config", None)
        for one in (config, get_text_config() if callable(get_text_config) else None):
            cap = getattr(one, "final_logit_softcapping", None)
            if cap is not None:
                yield name, module, float(cap)
                break
