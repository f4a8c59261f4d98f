"""What each method takes and gives, read from the descriptors: nothing is listed by hand."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, Dict, Iterable, List, NamedTuple, Tuple

from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor

import rlk._proto
from rlk._proto import call_pb2, contract_pb2, tensor_pb2
from rlk.errors import InvalidArgumentError

_TENSOR = tensor_pb2.Tensor.DESCRIPTOR.full_name
_OPTIONS = call_pb2.CallOptions.DESCRIPTOR.full_name
_REPORT = call_pb2.CallReport.DESCRIPTOR.full_name


class Field(NamedTuple):
    """A tensor or attribute of a request, or a tensor of a reply."""

    name: str
    descriptor: Any
    repeated: bool


class Method(NamedTuple):
    """One RPC of an operator."""

    name: str  # "final_logit_softcap.forward"
    path: str  # "/rlk.v1.ActivationService/FinalLogitSoftcapForward"
    request: Any
    response: Any
    tensors: Dict[str, Field]
    attributes: Dict[str, Field]
    outputs: Dict[str, Field]

    def argument_names(self) -> List[str]:
        return [*self.tensors, *self.attributes]


def message_class(descriptor: Any) -> Any:
    """The message class of a descriptor, for every supported protobuf."""
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    factory: Any = message_factory.MessageFactory(descriptor.file.pool)
    return factory.GetPrototype(descriptor)


def _camel(snake: str) -> str:
    return "".join(word[:1].upper() + word[1:] for word in snake.split("_"))


def _snake(camel: str) -> str:
    text = "".join("_" + c.lower() if c.isupper() else c for c in camel)
    return text.lstrip("_")


def is_repeated(field: Any) -> bool:
    """Whether a field descriptor is repeated, for every supported protobuf."""
    repeated = getattr(field, "is_repeated", None)
    return field.label == FieldDescriptor.LABEL_REPEATED if repeated is None else repeated


def compile_method(descriptor: Any, operator: str) -> Method:
    """Compiles a method descriptor that has the rlk.v1.method option."""
    prefix = _camel(operator)
    if not descriptor.name.startswith(prefix) or descriptor.name == prefix:
        raise AssertionError(f"{descriptor.full_name} does not begin with {prefix}")
    tensors: Dict[str, Field] = {}
    attributes: Dict[str, Field] = {}
    for field in descriptor.input_type.fields:
        kind = field.message_type.full_name if field.message_type else None
        if kind == _OPTIONS:
            continue
        target = tensors if kind == _TENSOR else attributes
        target[field.name] = Field(field.name, field, is_repeated(field))
    outputs = {
        field.name: Field(field.name, field, is_repeated(field))
        for field in descriptor.output_type.fields
        if field.message_type and field.message_type.full_name == _TENSOR
    }
    return Method(
        name=f"{operator}.{_snake(descriptor.name[len(prefix) :])}",
        path=f"/{descriptor.containing_service.full_name}/{descriptor.name}",
        request=message_class(descriptor.input_type),
        response=message_class(descriptor.output_type),
        tensors=tensors,
        attributes=attributes,
        outputs=outputs,
    )


def compile_files(files: Iterable[Any]) -> Dict[str, Method]:
    """Every operator method of the services in these file descriptors, by name."""
    methods: Dict[str, Method] = {}
    for file in files:
        for service in file.services_by_name.values():
            for descriptor in service.methods:
                options = descriptor.GetOptions().Extensions[contract_pb2.method]
                if options.operator:
                    method = compile_method(descriptor, options.operator)
                    methods[method.name] = method
    return methods


def _load() -> Dict[str, Method]:
    names = sorted(m.name for m in pkgutil.iter_modules(rlk._proto.__path__))
    modules = [importlib.import_module(f"rlk._proto.{name}") for name in names]
    return compile_files(module.DESCRIPTOR for module in modules)


_METHODS = _load()


def all_methods() -> Dict[str, Method]:
    """The methods that this client knows, by name."""
    return dict(_METHODS)


def find(name: str) -> Method:
    """The method called ``name``; InvalidArgumentError with the known names otherwise."""
    method = _METHODS.get(name) if isinstance(name, str) else None
    if method is not None:
        return method
    allowed = ", ".join(_METHODS)
    raise InvalidArgumentError(
        f"{name!r} is no method; allowed: {allowed}",
        reason="UNKNOWN_OPERATOR",
        field="method",
        value=str(name),
        allowed=allowed,
    )


def enumerators(enum: Any) -> Tuple[Tuple[str, int], ...]:
    """(name without the enum's prefix in lower case, number), the unspecified one left out."""
    prefix = _upper_snake(enum.name) + "_"
    return tuple(
        (value.name[len(prefix) :].lower(), value.number)
        for value in enum.values
        if value.name.startswith(prefix) and not value.name.endswith("_UNSPECIFIED")
    )


def _upper_snake(camel: str) -> str:
    return _snake(camel).upper()
