"""The JSON schema of a report, from the descriptors of the results.

``python -m rlk._report_schema`` prints what ``report.schema.json`` holds.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List

from google.protobuf.descriptor import FieldDescriptor

from rlk import _methods
from rlk import _report_values as values
from rlk._proto import call_pb2, server_pb2
from rlk.reporting import FORMAT

_NUMBER = {"$ref": "#/$defs/number"}
_TEXT = {"type": ["string", "null"]}
_INTEGER = {"type": ["integer", "null"]}
_FLAG = {"type": ["boolean", "null"]}


def _object(properties: Dict[str, Any], **more: Any) -> Dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
        **more,
    }


def _list(item: Any) -> Dict[str, Any]:
    return {"type": "array", "items": item}


def _or_null(schema: Dict[str, Any]) -> Dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


class _Schema:
    """Collects the definitions of messages."""

    def __init__(self) -> None:
        self.definitions: Dict[str, Any] = {
            "number": {
                "description": "JSON has no digits for the texts.",
                "anyOf": [
                    {"type": ["number", "null"]},
                    {"enum": list(values.NON_FINITE)},
                ],
            }
        }

    def message(self, descriptor: Any) -> Dict[str, Any]:
        """A reference to the definition of a message."""
        name = descriptor.name
        if name not in self.definitions:
            self.definitions[name] = {}
            if descriptor is call_pb2.CallReport.DESCRIPTOR:
                self.definitions[name] = self._call()
            else:
                needed = values.needed(descriptor)
                self.definitions[name] = _object(
                    {f.name: self._field(f, f.name in needed) for f in descriptor.fields}
                )
        return {"$ref": f"#/$defs/{name}"}

    def _call(self) -> Dict[str, Any]:
        digests = {"type": "object", "additionalProperties": _TEXT}
        attribute = {"type": ["string", "number", "boolean", "null"]}
        special = {
            "input_digests": digests,
            "output_digests": digests,
            "attributes": {"type": "object", "additionalProperties": attribute},
        }
        fields = call_pb2.CallReport.DESCRIPTOR.fields
        return _object({f.name: special.get(f.name) or self._field(f, False) for f in fields})

    def _field(self, field: Any, needed: bool) -> Dict[str, Any]:
        entry = field.message_type
        if entry and entry.GetOptions().map_entry:
            scalar = self._scalar(entry.fields_by_name["value"], False)
            return {"type": "object", "additionalProperties": scalar}
        if _methods.is_repeated(field):
            items = _list(self._scalar(field, True))
            # Both are lists of which nothing may be known.
            return _or_null(items) if field.name in ("shape", "worst") else items
        return self._scalar(field, needed)

    def _scalar(self, field: Any, needed: bool) -> Dict[str, Any]:
        kind = field.cpp_type
        if kind == FieldDescriptor.CPPTYPE_MESSAGE:
            found = self.message(field.message_type)
            return found if needed else _or_null(found)
        if kind == FieldDescriptor.CPPTYPE_ENUM:
            names: List[Any] = values.enumerators(field.enum_type)
            known = {"anyOf": [{"enum": names}, {"type": "string", "pattern": "^[0-9]+$"}]}
            return known if needed else _or_null(known)
        if kind == FieldDescriptor.CPPTYPE_BOOL:
            return {"type": "boolean"} if needed else _FLAG
        if kind == FieldDescriptor.CPPTYPE_STRING:
            return {"type": "string"} if needed else _TEXT
        if kind in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
            return _NUMBER
        return {"type": "integer"} if needed else _INTEGER

    def digests(self) -> Dict[str, Any]:
        side = {name: _TEXT for name in ("address", "dtype", "digest")}
        shape = _or_null(_list({"type": "integer"}))
        rows = {name: _INTEGER for name in ("rows", "different_rows", "first_different_row")}
        return _object(
            {
                "passed": {"type": "boolean"},
                "left": _object({**side, "shape": shape}),
                "right": _object({**side, "shape": shape}),
                **rows,
                "comparison": _or_null(self.message(values.MESSAGES["comparison"])),
            }
        )

    def chain(self) -> Dict[str, Any]:
        comparison = self.message(values.MESSAGES["comparison"])
        call = _object({"seconds": _NUMBER, "report": self.message(call_pb2.CallReport.DESCRIPTOR)})
        output = _object({"output": _TEXT, "chain": comparison, "on_reference_inputs": comparison})
        stage = _object(
            {
                "stage": _TEXT,
                "verdict": {"enum": [*values.VERDICTS, None]},
                "same_inputs": _FLAG,
                "outputs": _list(output),
                "checked": call,
                "reference": call,
            }
        )
        sizes = ("channels", "hidden", "embedding", "width")
        weights = {name: _TEXT for name in ("manifest", "manifest_sha256", "synthetic")}
        first = {name: _TEXT for name in ("stage", "output", "verdict")}
        return _object(
            {
                "passed": {"type": "boolean"},
                "weights": _object({**weights, **{name: _INTEGER for name in sizes}}),
                **{n: _TEXT for n in ("server", "version", "provenance_id", "reference")},
                "values": _list(_NUMBER),
                "first_difference": _or_null(_object({**first, "timesteps": _INTEGER})),
                "rows_compared": _INTEGER,
                "rows_that_differ": _list({"type": "string"}),
                "digests_compared": _INTEGER,
                "through_client_differs": _list({"type": "string"}),
                "runs": _list(_object({"timesteps": _INTEGER, "stages": _list(stage)})),
            }
        )


def _profile() -> Dict[str, Any]:
    names = {"first": {"type": "integer"}, "last": {"type": "integer"}}
    found = {"max_abs": _NUMBER, "root_mean_square": _NUMBER, "mismatched": _INTEGER}
    bins = _list(_object({**names, "elements": {"type": "integer"}, **found}))
    return _object({"rows": bins, "columns": bins})


def _positions() -> Dict[str, Any]:
    whole = {name: {"type": "integer"} for name in ("first", "last", "tokens")}
    return _list(_object({**whole, "mean_abs": _NUMBER, "max_abs": _NUMBER}))


def build() -> Dict[str, Any]:
    """The schema."""
    made = _Schema()
    results = {kind: made.message(message) for kind, message in values.MESSAGES.items()}
    made.definitions["Chain"] = made.chain()
    made.definitions["Digests"] = made.digests()
    results.update({kind: {"$ref": f"#/$defs/{kind.title()}"} for kind in ("chain", "digests")})
    chapters = []
    for kind in values.KINDS:
        chapters.append(
            _object(
                {
                    "kind": {"const": kind},
                    "label": {"type": "string"},
                    "passed": _FLAG,
                    "result": results[kind],
                    "profile": _or_null(_profile()) if kind == "comparison" else {"type": "null"},
                    "positions": _or_null(_positions()) if kind == "policy" else {"type": "null"},
                }
            )
        )
    info = server_pb2.GetInfoResponse.DESCRIPTOR.fields_by_name
    server = _object(
        {
            "server_id": _TEXT,
            "provenance": _or_null(made.message(info["provenance"].message_type)),
            "devices": _list(made.message(info["devices"].message_type)),
        }
    )
    body = _object(
        {
            "format": {"const": FORMAT},
            "title": {"type": "string"},
            "created": _TEXT,
            "passed": _FLAG,
            "client": _object({"version": _TEXT, "python": {"type": "string"}}),
            "server": _or_null(server),
            "chapters": _list({"oneOf": chapters}),
        }
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A report of rlk.reporting; what is not known is null",
        **body,
        "$defs": dict(sorted(made.definitions.items())),
    }


def text() -> str:
    """The schema as its file holds it."""
    return json.dumps(build(), indent=1) + "\n"


if __name__ == "__main__":
    print(text(), end="")
