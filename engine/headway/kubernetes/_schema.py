"""Make the structural OpenAPI schema of a message class, which the API server checks objects by. Pure."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headway.base import did_you_mean
from headway.errors import DeclarationError, PayloadError
from headway.kubernetes._json import json_name, payload_of
from headway.kubernetes._json_kinds import enum_texts, kind_of
from headway.manifest import Field, fields_of
from headway.resource import quoted

Schema = dict[str, Any]
Rules = Sequence[str] | Mapping[str, str]
"""Rules in CEL, or the message of each rule by the rule."""

ITEMS = "[*]"
"""What the path of a list or a map has at its end as the path of its items."""
PRESERVE = "x-kubernetes-preserve-unknown-fields"
_RULES = "x-kubernetes-validations"
_WORDS_OF_CEL = (
    *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import"),
    *("let", "loop", "package", "namespace", "return", "var", "void", "while"),
)
_LIMITS = (
    *("description", "exclusiveMaximum", "exclusiveMinimum", "format", "maxItems", "maxLength", "maxProperties"),
    *("maximum", "minItems", "minLength", "minProperties", "minimum", "multipleOf", "pattern", "title"),
)
_DURATION = r"^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$"
_DURATION_RULE = {
    "rule": "duration(self) == duration(self)",
    "message": 'must be a duration such as "1h30m" or "1.5s"',
}
_INT32: Schema = {"type": "integer", "format": "int32", "minimum": -(1 << 31), "maximum": (1 << 31) - 1}
_UINT32: Schema = {"type": "integer", "minimum": 0, "maximum": (1 << 32) - 1}
_INT64: Schema = {"type": "integer", "format": "int64"}
_TIME: Schema = {"type": "string", "format": "date-time"}
_KINDS: Mapping[str, Schema] = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), _INT32),
    **dict.fromkeys(("uint32", "fixed32"), _UINT32),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), _INT64),
    **dict.fromkeys(("uint64", "fixed64"), _INT64 | {"minimum": 0}),
    "float": {"type": "number", "format": "float"},
    "double": {"type": "number", "format": "double"},
    "string": {"type": "string"},
    "bytes": {"type": "string", "format": "byte"},
    "bool": {"type": "boolean"},
    "timestamp": _TIME,
}


def _text(**limits: Any) -> Schema:
    return {"type": "string", **limits}


_DOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
CONDITIONS: Schema = {
    "description": "The conditions of the object, at most one of each type.",
    "type": "array",
    "items": {
        "type": "object",
        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        "properties": {
            "lastTransitionTime": _TIME,
            "message": _text(maxLength=32768),
            "observedGeneration": _INT64 | {"minimum": 0},
            "reason": _text(minLength=1, maxLength=1024, pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
            "status": _text(enum=["True", "False", "Unknown"]),
            "type": _text(maxLength=316, pattern=rf"^({_DOMAIN}/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"),
        },
    },
    "x-kubernetes-list-map-keys": ["type"],
    "x-kubernetes-list-type": "map",
}
"""The schema of ``status.conditions``, as of Kubernetes' own types."""


@dataclass(frozen=True)
class Hints:
    """What a schema has beyond its class. Paths are of the object's JSON, such as ``spec.minSize``.

    The items of a list or a map have paths such as ``spec.ports[*]`` and ``spec.ports[*].name``. The empty path is the
    object.

    Attributes:
        rules: rules in CEL that an object must fulfil, by the path of ``self``, with their messages or without:
            ``{"spec": {"self.minSize <= self.maxSize": "minSize must not be above maxSize"}}``.
        list_keys: the fields that identify an item of a list: ``{"spec.ports": ["name"]}``. Appliers then own single
            items instead of the whole list.
        required: the paths of required fields. A field of a number or a boolean must be ``X | None``.
        defaults: what the server fills in for absent fields: ``{"spec.replicas": 1}``.
        limits: more keywords of the schema: ``{"spec.host": {"maxLength": 253}}``.
    """

    rules: Mapping[str, Rules] = field(default_factory=dict)
    list_keys: Mapping[str, Sequence[str]] = field(default_factory=dict)
    required: Sequence[str] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def schema_of(cls: type[Any], hints: Hints | None = None) -> Schema:
    """Return the schema of the objects whose payload a class is. They always have ``status.conditions``.

    Where a class contains itself, its schema ends: the fields of the inner message are kept without a check.

    Raises:
        DeclarationError: A hint is invalid. The message shows the correct form.
    """
    made = _Maker(cls, hints or Hints())
    schema = made.message(cls, "", ())
    made.check_paths()
    own = schema["properties"]
    if taken := own.keys() & {"apiVersion", "kind", "metadata"}:
        raise DeclarationError(f"{cls.__qualname__}: every object has a field {sorted(taken)[0]}; choose another name")
    place = own.setdefault("status", {"type": "object"})
    if place["type"] != "object":
        raise DeclarationError(f"{cls.__qualname__}.status must be a message, because the cluster adds conditions")
    place.setdefault("properties", {}).setdefault("conditions", CONDITIONS)
    common: Schema = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
    return schema | {"properties": common | own}


class _Maker:
    def __init__(self, cls: type[Any], hints: Hints) -> None:
        self._cls = cls
        self._hints = hints
        self._paths = {""}
        self._required = set(hints.required)
        # A required field is required in the whole object if each message around it always exists.
        for path in hints.required:
            while "." in path and _is_always_there(cls, parent := path.rpartition(".")[0]):
                self._required.add(parent)
                path = parent

    def check_paths(self) -> None:
        """Raise DeclarationError if a hint names a field that does not exist."""
        for name, given in vars(self._hints).items():
            for path in given:
                if path not in self._paths:
                    near = did_you_mean(path, sorted(self._paths - {""}))
                    raise self._wrong(name, path, f"no such field{near}; use its names in JSON, such as 'spec.minSize'")

    def message(self, cls: Any, path: str, around: tuple[Any, ...], many: bool = False) -> Schema:
        """Return the schema of a message at a path, within messages of the classes around it."""
        if cls in around:
            return {"type": "object", "description": f"A {cls.__name__}, not checked further.", PRESERVE: True}
        made: Schema = {"type": "object"}
        text, of_fields = _documented(cls)
        if text:
            made["description"] = text
        properties: Schema = {}
        required: list[str] = []
        groups: dict[str, list[str]] = {}
        for name, each in fields_of(cls).by_name.items():
            in_json = json_name(cls, name)
            own = f"{path}.{in_json}" if path else in_json
            self._paths.add(own)
            found = self._field(each, own, (*around, cls), many)
            if name in of_fields:
                found = {"description": of_fields[name]} | {k: v for k, v in found.items() if k != "description"}
            if own in self._hints.defaults:
                found["default"] = self._default(cls, each, in_json, own)
            if own in self._required or in_json in self._hints.list_keys.get(path.removesuffix(ITEMS), ()):
                self._check_required(each, own)
                required.append(in_json)
            properties[in_json] = found
            if each.group:
                groups.setdefault(each.group, []).append(in_json)
        made["properties"] = properties
        if required:
            made["required"] = sorted(required)
        several = [arms for arms in groups.values() if len(arms) > 1]
        # The server bounds the estimated cost of rules, and the items of a list have no bound.
        costly = [arms for arms in several if many and len(arms) > 2]
        if costly:
            made["allOf"] = [_one_of(arms) for arms in costly]
        return self._hinted(made, path, [_one_of_rule(arms) for arms in several if arms not in costly])

    def _field(self, each: Field, path: str, around: tuple[Any, ...], many: bool) -> Schema:
        keys = self._hints.list_keys.get(path)
        if keys is not None and each.shape != "repeated":
            raise self._wrong("list_keys", path, "only a list has keys")
        if each.key is None and each.shape != "repeated":
            return self._element(each, path, around, many)
        self._paths.add(path + ITEMS)
        inner = self._element(each, path + ITEMS, around, many=True)
        if each.key is not None:
            return self._hinted({"type": "object", "additionalProperties": inner}, path)
        made: Schema = {"type": "array", "items": inner}
        if keys is None and path == "status.conditions" and "type" in inner.get("properties", {}):
            keys = ["type"]
            inner["required"] = sorted({*inner.get("required", ()), "type"})
        if keys is not None:
            self._check_keys(path, keys, inner)
            made |= {"x-kubernetes-list-map-keys": list(keys), "x-kubernetes-list-type": "map"}
        return self._hinted(made, path)

    def _element(self, each: Field, path: str, around: tuple[Any, ...], many: bool) -> Schema:
        if each.element.message is not None:
            return self.message(each.element.message, path, around, many)
        made = _scalar(each, many)
        return self._hinted(made, path, made.pop(_RULES, []))

    def _hinted(self, made: Schema, path: str, rules: Sequence[Schema] = ()) -> Schema:
        limits = self._hints.limits.get(path, {})
        if wrong := sorted(limits.keys() - _LIMITS):
            raise self._wrong("limits", path, f"unknown keyword {wrong[0]!r}{did_you_mean(wrong[0], sorted(_LIMITS))}")
        made |= limits
        given = self._hints.rules.get(path, ())
        if isinstance(given, str):
            raise self._wrong("rules", path, f"{given!r} must be a list of rules, or a dict of their messages")
        own = given.items() if isinstance(given, Mapping) else ((rule, "") for rule in given)
        rules = [*rules, *({"rule": rule, "message": text} if text else {"rule": rule} for rule, text in own)]
        return made | {_RULES: rules} if rules else made

    def _default(self, cls: Any, each: Field, in_json: str, path: str) -> Any:
        value = self._hints.defaults[path]
        try:
            payload_of(cls, {in_json: value})
        except PayloadError as error:
            raise self._wrong("defaults", path, str(error)) from None
        scalar = each.shape == "single" and each.element.message is None
        if scalar and kind_of(each.element).wire(value) != kind_of(each.element).zero:
            raise self._wrong("defaults", path, f"{_optional(each)} and become {value!r}")
        return value

    def _check_required(self, each: Field, path: str) -> None:
        texts = ("string", "bytes", "timestamp", "duration", "message")
        if path in self._hints.required and each.shape == "single" and each.element.kind not in texts:
            raise self._wrong("required", path, _optional(each))

    def _check_keys(self, path: str, keys: Sequence[str], items: Schema) -> None:
        right = f"use such as {{{path!r}: ['name']}}"
        if isinstance(keys, str) or not keys:
            raise self._wrong("list_keys", path, f"{keys!r} must be a list of names of fields; {right}")
        for key in keys:
            if items.get("properties", {}).get(key, {}).get("type") not in ("string", "integer", "boolean", "number"):
                raise self._wrong("list_keys", path, f"{key!r} is not a text or a number in the items of the list")

    def _wrong(self, hint: str, path: str, problem: str) -> DeclarationError:
        return DeclarationError(f"{self._cls.__qualname__}: {hint}: {quoted(path)}: {problem}")


def _optional(each: Field) -> str:
    return f"declare the field as `{each.name}: X | None`, because a zero would be left out"


def _scalar(each: Field, many: bool) -> Schema:
    kind = each.element.kind
    if kind == "enum":
        return _text(enum=enum_texts(each.element.enum))
    if kind == "duration":
        # The server bounds the cost of rules, and a list has no bound.
        return _text(maxLength=64) | ({"pattern": _DURATION} if many else {_RULES: [_DURATION_RULE]})
    return _text(format="password") if each.secret and kind == "string" else dict(_KINDS[kind])


def _one_of_rule(arms: list[str]) -> Schema:
    """Return the rule that at most one field of a oneof is set."""
    given = [f"has(self.{f'__{arm}__' if arm in _WORDS_OF_CEL else arm})" for arm in arms]
    total = " + ".join(f"({each} ? 1 : 0)" for each in given)
    rule = f"!({given[0]} && {given[1]})" if len(arms) == 2 else f"{total} <= 1"
    return {"rule": rule, "message": f"at most one of {', '.join(arms)} may be set"}


def _one_of(arms: list[str]) -> Schema:
    """Return the same as a schema, whose violation the server reports in less clear words."""
    each: list[Schema] = [{"required": [arm]} for arm in arms]
    return {"oneOf": [*each, {"not": {"anyOf": each}}]}


def _is_always_there(cls: Any, path: str) -> bool:
    """Return True if the field at a path is a message that is always there."""
    name, _, rest = path.partition(".")
    found = next((each for each in fields_of(cls).by_name.values() if json_name(cls, each.name) == name), None)
    if found is None or found.element.message is None:
        return False
    return _is_always_there(found.element.message, rest) if rest else found.shape == "single"


def _documented(cls: Any) -> tuple[str, dict[str, str]]:
    """Return the docstring of a class, and what its section of attributes says about each field."""
    text = inspect.cleandoc(cls.__doc__ or "")
    if text.startswith(f"{cls.__name__}("):
        # The one that a dataclass gets from its fields.
        return "", {}
    text, _, attributes = text.partition("\nAttributes:\n")
    found: dict[str, str] = {}
    for line in re.split(r"\n {4}(?=\w+:)", f"\n{attributes.rstrip()}"):
        name, colon, said = line.strip().partition(":")
        if colon:
            found[name] = " ".join(said.split())
    return text.strip(), found
