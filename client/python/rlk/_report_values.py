"""Results of the package, or of ``rlk ... --json``, as the plain values of a report.

What is not known is None, whatever the message's field would say: a comparison of which nothing was
compared has no count of mismatches, and a server that does not say whether its tree was dirty says
neither yes nor no.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from google.protobuf.descriptor import FieldDescriptor

from rlk import _methods
from rlk._proto import call_pb2, comparison_pb2, parity_check_pb2, policy_pb2, server_pb2
from rlk.errors import InvalidArgumentError
from rlk.report import enum_text

# Chapters of a report, and how each is told: by keys that no other result has.
KINDS: Dict[str, Tuple[str, ...]] = {
    "comparison": ("judgment", "counts", "ulp"),
    "policy": ("chain", "kl", "ratios"),
    "parity": ("first_difference", "outputs", "left", "right"),
    "invariance": ("axes", "side"),
    "chain": ("rows_that_differ", "through_client_differs"),
    "call": ("contract", "kernel", "device"),
    "digests": ("equal", "left", "right"),
}
VERDICTS = ("passed", "injected", "inherited")  # of a chain's stages
NON_FINITE = ("NaN", "Infinity", "-Infinity")
_INTEGERS = (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64)
# A message without these says nothing.
NEEDED = {
    "rlk.v1.Comparison": ("judgment", "passed", "difference"),
    "rlk.v1.ChainJudgment": ("passed",),
    "rlk.v1.PolicyComparison": ("chain",),
    "rlk.v1.CheckParityResponse": ("passed",),
    "rlk.v1.OutputVerdict": ("passed",),
    "rlk.v1.CheckInvarianceResponse": ("passed",),
    # Of lists, whose elements are whole.
    "rlk.v1.UlpBucket": ("*",),
    "rlk.v1.RowCount": ("*",),
    "rlk.v1.PolicyToken": ("*",),
    "rlk.v1.AxisCoordinate": ("*",),
}
# Numbers and texts whose default means that nobody has said it.
_UNSAID = {
    "rlk.v1.Provenance": (
        "id",
        "version",
        "compiler",
        "compile_flags",
        "tolerance_contract_version",
        "tolerance_contract_sha256",
        "cpu_isa",
    ),
    "rlk.v1.DeviceInfo": ("compute_capability", "multiprocessor_count", "memory_bytes"),
    "rlk.v1.DeviceRef": ("kind", "name", "uuid"),
    "rlk.v1.GetInfoResponse": ("server_id",),
    "rlk.v1.SideReport": ("server_id",),
    "rlk.v1.ComparedTensor": ("digest", "canonical_nan_digest"),
    "rlk.v1.Comparison": ("compared_on",),
}


def refuse(path: str, value: Any, allowed: str) -> InvalidArgumentError:
    """The error of a value that no result has at this place."""
    shown = repr(value)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return InvalidArgumentError(
        f"{path}: not a value of a report; allowed: {allowed}",
        reason="UNKNOWN_FIELD",
        field=path,
        value=shown,
        allowed=allowed,
    )


def mapping(value: Any, path: str) -> Mapping[str, Any]:
    """The value, which must be an object of JSON."""
    if not isinstance(value, Mapping):
        raise refuse(path, value, "an object")
    return value


def items(value: Any, path: str) -> List[Any]:
    """The value, which must be a list, or absent."""
    if value is None:
        return []
    if not isinstance(value, (list, tuple)):
        raise refuse(path, value, "a list")
    return list(value)


def text(value: Any, path: str) -> Optional[str]:
    """The value, which must be a text, or absent."""
    if value is not None and not isinstance(value, str):
        raise refuse(path, value, "a text")
    return value


def number(value: Any, path: str) -> Any:
    """A number; one that JSON has no digits for is "NaN", "Infinity" or "-Infinity"."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise refuse(path, value, "a number") from None
        if math.isfinite(value):
            raise refuse(path, value, "a number that is no text")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise refuse(path, value, "a number")
    if isinstance(value, int):
        return integer(value, path)
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def integer(value: Any, path: str) -> int:
    """An integer of the API."""
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise refuse(path, value, "an integer of 64 bits")
    return value


def _scalar(field: Any, value: Any, path: str) -> Any:
    if value is None:
        return None
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_MESSAGE:
        return message(field.message_type, value, path)
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return _enumerator(field.enum_type, value, path)
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        if not isinstance(value, bool):
            raise refuse(path, value, "true, false")
        return value
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return text(value, path)
    if kind in _INTEGERS:
        return integer(value, path)
    return number(value, path)


def enumerators(enum: Any) -> List[str]:
    """The short names of an enum, as ``client.compare`` gives them; the unspecified one is None."""
    names = [enum_text(enum, value.number) for value in enum.values]
    return [name for name in names if name is not None]


def _enumerator(enum: Any, value: Any, path: str) -> Optional[str]:
    name = (text(value, path) or "").upper()
    if name in ("", "UNSPECIFIED", "NONE") and name not in enumerators(enum):
        return None
    # One that this version does not know has its number for a name.
    if name not in enumerators(enum) and not name.isdigit():
        raise refuse(path, value, ", ".join(enumerators(enum)))
    return name


def _field(field: Any, value: Any, path: str) -> Any:
    entry = field.message_type
    if entry and entry.GetOptions().map_entry:
        scalar = entry.fields_by_name["value"]
        found = mapping(value or {}, path)
        return {key: _scalar(scalar, found[key], f"{path}.{key}") for key in sorted(found)}
    if _methods.is_repeated(field):
        return [_scalar(field, item, f"{path}[{at}]") for at, item in enumerate(items(value, path))]
    return _scalar(field, value, path)


def needed(descriptor: Any) -> Tuple[str, ...]:
    """The fields that a message is nothing without."""
    found = NEEDED.get(descriptor.full_name, ())
    return tuple(field.name for field in descriptor.fields) if found == ("*",) else found


def message(descriptor: Any, value: Any, path: str) -> Dict[str, Any]:
    """The fields of a message, each as its type wants it. Fields of a newer server are left out."""
    special = _SPECIAL.get(descriptor.full_name)
    if special is not None:
        return special(value, path)
    found = mapping(value, path)
    for name in needed(descriptor):
        if found.get(name) is None:
            raise refuse(f"{path}.{name}", None, "a value; without it nothing is known")
    plain = {
        field.name: _field(field, found.get(field.name), f"{path}.{field.name}")
        for field in descriptor.fields
    }
    for name in _UNSAID.get(descriptor.full_name, ()):
        plain[name] = plain[name] or None
    rule = _RULES.get(descriptor.full_name)
    if rule is not None:
        rule(plain)
    return plain


def _forget(values: Optional[Dict[str, Any]], *names: str) -> None:
    """These are not known; without names, none is."""
    for name in names or tuple(values or ()):
        if values is not None:
            values[name] = None


def _tensor_rule(tensor: Dict[str, Any]) -> None:
    if tensor["canonical_nan_digest"] is None:
        tensor["nan_payloads"] = None
    if tensor["dtype"] is None:
        tensor["shape"] = None


def _comparison_rule(comparison: Dict[str, Any]) -> None:
    shape = (comparison["left"] or {}).get("shape")
    compared = (comparison["counts"] or {}).get("compared")
    empty = shape is not None and 0 in shape
    if not compared and not empty:
        if comparison["counts"]:
            _forget(comparison["counts"], *(n for n in comparison["counts"] if n != "compared"))
        comparison["ulp"] = comparison["magnitude"] = None
        _forget(comparison["rows"], "mismatched", "worst", "counted")
        _forget(comparison["rule"], "outside", "worst_excess", "worst_index")
    rows = comparison["rows"]
    if rows and not rows["counted"]:
        _forget(rows, "mismatched", "worst")
    if rows and not rows["mismatched"]:
        _forget(rows, "first", "last", "first_column", "last_column")
    if comparison["ulp"] and not comparison["ulp"]["buckets"]:
        comparison["ulp"] = None  # no floating-point dtype
    if comparison["ulp"] is None or not (comparison["magnitude"] or {}).get("elements"):
        comparison["magnitude"] = None
    rule = comparison["rule"]
    if rule and rule["bitwise"]:
        _forget(rule, *(name for name in rule if name != "bitwise"))


def _side_rule(side: Dict[str, Any]) -> None:
    side["methods"] = side["methods"] or []


def _parity_rule(parity: Dict[str, Any]) -> None:
    parity["first_difference"] = parity["first_difference"] or None
    for name in ("left", "right"):
        where = (parity[name] or {}).get("where")
        for output in parity["outputs"]:
            # Memory of other servers is not looked at; a tensor that is given has no inputs.
            if where != "this server":
                _forget(output, f"unwritten_{name}")
            if where in (None, "provided"):
                _forget(output, f"nan_created_{name}")


def _axis_rule(axis: Dict[str, Any]) -> None:
    if not axis["applicable"]:
        _forget(axis, "passed")


def _layout_rule(difference: Dict[str, Any]) -> None:
    if difference["row"] == -1:
        _forget(difference, "row")


def _policy_rule(policy: Dict[str, Any]) -> None:
    if not (policy["tokens"] or 0) - (policy["not_finite"] or 0):
        for name in ("difference", "kl", "perplexity", "ratios"):
            policy[name] = None
        policy["metrics"] = dict.fromkeys(policy["metrics"])
    for name in ("rollout_support", "trainer_support"):
        support = policy[name]
        if support and all(value in (None, 0, False) for value in support.values()):
            if support["softcap_applications"] is None:
                support = policy[name] = None  # nobody has declared it
        if support:
            support["temperature"] = support["temperature"] or None
            support["top_p"] = support["top_p"] or None
    distribution = policy["distribution"]
    if distribution and not distribution["greedy_flips"]:
        _forget(distribution, "flip_margin")
    if distribution and not distribution["tokens"]:
        _forget(distribution, "kl")


def _attribute(value: Any, path: str) -> Any:
    if isinstance(value, Mapping):
        said = [item for item in value.values() if item is not None]
        value = said[0] if len(said) == 1 else None
    if value is None or isinstance(value, (str, bool)):
        return value
    return number(value, path)


def _digests(value: Any, path: str) -> Dict[str, Optional[str]]:
    if isinstance(value, Mapping):
        return {name: text(value[name], f"{path}.{name}") or None for name in value}
    found = [mapping(item, path) for item in items(value, path)]
    return {str(item.get("name")): text(item.get("digest"), path) or None for item in found}


def _verification(value: Any, path: str) -> Optional[Dict[str, Any]]:
    if value is None:
        return None
    found = dict(mapping(value, path))
    found["verification"] = found.get("verification", found.get("kind"))
    descriptor = call_pb2.VerificationResult.DESCRIPTOR
    plain = {
        field.name: _field(field, found.get(field.name), f"{path}.{field.name}")
        for field in descriptor.fields
    }
    return plain if plain["verification"] is not None else None


def call(value: Any, path: str) -> Dict[str, Any]:
    """A call's report: of a reply, of a check, or of the command, which differ in form."""
    found = dict(mapping(value, path))
    digests = {n: _digests(found.pop(n, None), f"{path}.{n}") for n in _DIGESTS}
    attributes = mapping(found.pop("attributes", None) or {}, f"{path}.attributes")
    verification = _verification(found.pop("verification", None), f"{path}.verification")
    plain: Dict[str, Any] = {}
    for field in call_pb2.CallReport.DESCRIPTOR.fields:
        if field.name in digests:
            plain[field.name] = digests[field.name]
        elif field.name == "attributes":
            plain[field.name] = {
                name: _attribute(attributes[name], f"{path}.attributes.{name}")
                for name in sorted(attributes)
            }
        elif field.name == "verification":
            plain[field.name] = verification
        else:
            plain[field.name] = _field(field, found.get(field.name), f"{path}.{field.name}")
    for name in ("contract", "backend", "kernel", "provenance_id"):
        plain[name] = plain[name] or None
    return plain


_DIGESTS = ("input_digests", "output_digests")
_SPECIAL: Dict[str, Callable[[Any, str], Dict[str, Any]]] = {"rlk.v1.CallReport": call}
_RULES: Dict[str, Callable[[Dict[str, Any]], None]] = {
    "rlk.v1.ComparedTensor": _tensor_rule,
    "rlk.v1.Comparison": _comparison_rule,
    "rlk.v1.SideReport": _side_rule,
    "rlk.v1.CheckParityResponse": _parity_rule,
    "rlk.v1.AxisVerdict": _axis_rule,
    "rlk.v1.LayoutDifference": _layout_rule,
    "rlk.v1.PolicyComparison": _policy_rule,
}
MESSAGES = {
    "comparison": comparison_pb2.Comparison.DESCRIPTOR,
    "policy": policy_pb2.PolicyComparison.DESCRIPTOR,
    "parity": parity_check_pb2.CheckParityResponse.DESCRIPTOR,
    "invariance": parity_check_pb2.CheckInvarianceResponse.DESCRIPTOR,
    "call": call_pb2.CallReport.DESCRIPTOR,
}


def plain(value: Any) -> Any:
    """Records, named tuples and dataclasses as dicts and lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: plain(getattr(value, name)) for name in value._fields}
    return [plain(item) for item in value] if isinstance(value, (tuple, list)) else value


def kind_of(value: Any) -> Optional[str]:
    """What result these values are, or None."""
    for kind, keys in KINDS.items():
        if isinstance(value, Mapping) and all(key in value for key in keys):
            return kind
    return None


def server(value: Any, path: str = "server") -> Dict[str, Any]:
    """Of ``client.info()`` or ``rlk info --json`` what says which server it was."""
    found = mapping(plain(value), path)
    kept = {name: found.get(name) for name in ("server_id", "provenance", "devices")}
    whole = message(server_pb2.GetInfoResponse.DESCRIPTOR, kept, path)
    return {name: whole[name] for name in kept}
