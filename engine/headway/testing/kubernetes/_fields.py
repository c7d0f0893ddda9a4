"""Sets of an object's fields, and their managers, as an API server computes them for ``metadata.managedFields``.

A path is a tuple of ``f:NAME`` (a field), ``k:{KEYS}`` (an item of a list with keys) and ``v:VALUE`` (an item of a
set), as in ``fieldsV1``. A field of a structure is *named*; an entry of a mapping, such as a label, is not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

Path: TypeAlias = tuple[str, ...]
Fields: TypeAlias = frozenset[Path]

MAPPINGS = frozenset(
    ["labels", "annotations", "data", "binaryData", "stringData", "limits", "requests", "matchLabels", "nodeSelector"]
)
"""The fields of built-in types whose entries have names that the user chooses."""

_ATOMIC = frozenset(
    ["selector", "nodeSelector", "labelSelector", "namespaceSelector", "podSelector", "fieldRef", "roleRef"]
)
_KEYS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("containers", "initContainers", "volumes", "env", "imagePullSecrets", "secrets"), ("name",)),
    "conditions": ("type",),
    "hostAliases": ("ip",),
    "ownerReferences": ("uid",),
    "ports": ("containerPort", "port", "protocol"),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "volumeMounts": ("mountPath",),
}
_SETS = frozenset(["finalizers"])
_KEY_DEFAULTS = {"protocol": "TCP"}
_ABSENT: Any = object()


class Shape:
    """The type of a value: from a structural schema, or from its name for built-in types."""

    def __init__(self, schema: Mapping[str, Any] | None, name: str = "", *, root: bool = False) -> None:
        self._schema = schema
        self._name = name
        self._root = root
        if schema is None:
            self.keys = _KEYS.get(name, ())
            self.is_set = name in _SETS
            self.atomic = name in _ATOMIC
        else:
            kind = schema.get("x-kubernetes-list-type")
            self.keys = tuple(schema.get("x-kubernetes-list-map-keys") or ()) if kind == "map" else ()
            self.is_set = kind == "set"
            self.atomic = schema.get("x-kubernetes-map-type") == "atomic"

    def named(self, key: str) -> bool:
        """Return True if a key is a field of a structure."""
        if self._schema is None:
            return self._name not in MAPPINGS
        return self._root or key in self._schema.get("properties", {})

    def child(self, key: str) -> Shape:
        """Return the shape of a field, or of an entry of a mapping."""
        if self._schema is None or (self._root and key == "metadata"):
            return Shape(None, key)
        found = self._schema.get("properties", {}).get(key, self._schema.get("additionalProperties"))
        return Shape(found if isinstance(found, Mapping) else {})

    @property
    def item(self) -> Shape:
        """The shape of the items of a list."""
        return Shape(None if self._schema is None else self._schema.get("items") or {})

    def element(self, item: Any) -> str:
        """Return the part of a path for an item of a list with keys, or of a set."""
        if self.is_set:
            return f"v:{_text(item)}"
        values = {key: item.get(key, _KEY_DEFAULTS.get(key)) for key in self.keys}
        return f"k:{_text({key: each for key, each in values.items() if each is not None})}"

    def granular(self, value: Any) -> bool:
        """Return True if parts of a value have managers of their own."""
        if isinstance(value, list):
            return bool(self.keys or self.is_set)
        return isinstance(value, dict) and not self.atomic


def copied(value: Any) -> Any:
    """Return a copy of a JSON value, at a fraction of the time of `copy.deepcopy`."""
    if value.__class__ is dict:
        return {key: copied(each) for key, each in value.items()}
    return [copied(each) for each in value] if value.__class__ is list else value


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def _parts(value: Any, shape: Shape) -> dict[str, tuple[Any, Shape, bool]]:
    """Return the parts of a granular value: each with its shape, and whether it is a named field."""
    if isinstance(value, dict):
        return {f"f:{key}": (each, shape.child(key), shape.named(key)) for key, each in value.items()}
    return {shape.element(each): (each, shape.item, False) for each in value}


def fields_of(value: Any, shape: Shape, at: Path = ()) -> set[Path]:
    """Return the fields that a value sets."""
    if not shape.granular(value):
        return {at}
    found: set[Path] = set()
    for element, (each, inner, named) in _parts(value, shape).items():
        path = (*at, element)
        found |= fields_of(each, inner, path)
        if each is None or each == {} or not named:
            found.add(path)
    return found


class Difference(NamedTuple):
    """The fields in which two values differ."""

    added: set[Path]
    modified: set[Path]
    removed: set[Path]


def compare(old: Any, new: Any, shape: Shape) -> Difference:
    """Return the fields in which a value differs from an older one."""
    found = Difference(set(), set(), set())
    _compare(old, new, shape, (), found)
    return found


def _compare(old: Any, new: Any, shape: Shape, at: Path, found: Difference) -> None:
    empty = all(each is _ABSENT or each is None or each in ({}, []) for each in (old, new))
    if empty or not shape.granular(old if new is _ABSENT or new is None else new):
        if old is not _ABSENT and new is not _ABSENT and old != new:
            found.modified.add(at)
    else:
        before = _parts(old, shape) if shape.granular(old) else {}
        after = _parts(new, shape) if shape.granular(new) else {}
        for element in {**before, **after}:
            inner = (after.get(element) or before[element])[1]
            values = [each[element][0] if element in each else _ABSENT for each in (before, after)]
            _compare(values[0], values[1], inner, (*at, element), found)
    if old is _ABSENT:
        found.added.add(at)
    elif new is _ABSENT:
        found.removed.add(at)


def merge(live: Any, config: Any, shape: Shape) -> Any:
    """Return a value with what an applied one sets."""
    if isinstance(live, dict) and isinstance(config, dict) and shape.granular(config):
        merged = {
            key: merge(live[key], each, shape.child(key)) if key in live else each for key, each in config.items()
        }
        return {**live, **merged}
    if isinstance(live, list) and isinstance(config, list) and shape.granular(config):
        return _merge_lists(_parts(live, shape), _parts(config, shape), shape.item)
    return config


def _merge_lists(live: dict[str, Any], config: dict[str, Any], item: Shape) -> list[Any]:
    """Merge two lists in the applied order. Items that are only in the live one stay before what they stood before."""
    found: dict[str, Any] = {}
    left, right = list(live), list(config)
    shared = [each for each in right if each in live]
    while left or right:
        if left and right and left[0] != right[0] and left[0] in config and shared and shared[0] != left[0]:
            del left[0]
            continue
        if left and left[0] not in config:
            element = left.pop(0)
            found[element] = live[element][0]
            continue
        if left and (left[0] in found or (right and left[0] == right[0])):
            del left[0]
        if right:
            element = right.pop(0)
            applied = config[element][0]
            found[element] = merge(live[element][0], applied, item) if element in live else applied
            if shared and shared[0] == element:
                del shared[0]
    return list(found.values())


def remove(value: Any, paths: Iterable[Path], shape: Shape) -> Any:
    """Return a value without the given fields. A mapping or list that becomes empty is None."""
    inner: dict[str, set[Path]] = {}
    for path in paths:
        inner.setdefault(path[0], set()).add(path[1:])
    if not inner or not shape.granular(value) or not value:
        return value if not inner else None
    kept: dict[str, Any] = {}
    for element, (each, part, _) in _parts(value, shape).items():
        here = inner.get(element, set())
        if () not in here:
            kept[element] = remove(each, here, part)
    if isinstance(value, dict):
        return {element[2:]: each for element, each in kept.items()} or None
    return list(kept.values()) or None


def with_named(fields: Iterable[Path], shape: Shape) -> set[Path]:
    """Return fields with the named fields that lead to them."""
    found = set(fields)
    for path in list(found):
        inner = shape
        for index, element in enumerate(path):
            if not element.startswith("f:"):
                inner = inner.item
                continue
            if inner.named(element[2:]):
                found.add(path[: index + 1])
            inner = inner.child(element[2:])
    return found


# Managers.

_OF_SERVER = ("name", "namespace", "creationTimestamp", "uid", "generation", "managedFields", "resourceVersion")
_UNMANAGED = frozenset(
    [("f:apiVersion",), ("f:kind",), ("f:metadata",), *(("f:metadata", f"f:{name}") for name in _OF_SERVER)]
)


class Manager(NamedTuple):
    """A manager of fields. An apply counts as the same in all versions."""

    name: str
    operation: str
    version: str = ""
    subresource: str = ""


class FieldConflicts(Exception):
    """Fields that an apply would take from other managers."""

    def __init__(self, causes: list[tuple[Manager, str]]) -> None:
        self.causes = causes


class Managed:
    """The managers of an object."""

    def __init__(self, entries: Iterable[Mapping[str, Any]] = ()) -> None:
        self.sets: dict[Manager, set[Path]] = {}
        self._about: dict[Manager, tuple[str, str]] = {}
        for each in entries:
            applied = each["operation"] == "Apply"
            version = "" if applied else each["apiVersion"]
            manager = Manager(each.get("manager", ""), each["operation"], version, each.get("subresource", ""))
            self.sets[manager] = _parsed(each.get("fieldsV1") or {})
            self._about[manager] = each["apiVersion"], each.get("time", "")

    def entries(self) -> list[dict[str, Any]]:
        """Return the value of ``metadata.managedFields``."""
        made: list[dict[str, Any]] = []
        for manager, fields in self.sets.items():
            version, time = self._about[manager]
            entry: dict[str, Any] = {
                "manager": manager.name,
                "operation": manager.operation,
                "apiVersion": version,
                "time": time,
            }
            entry |= {"fieldsType": "FieldsV1", "fieldsV1": _written(fields)}
            made.append({**entry, "subresource": manager.subresource} if manager.subresource else entry)
        return sorted(made, key=lambda each: (each["operation"], each["time"], each["manager"]))

    def update(self, difference: Difference, manager: Manager, version: str, time: str, reset: Fields) -> None:
        """Give a manager the fields that its write has changed."""
        changed = _without(difference.added | difference.modified, reset)
        removed = _without(difference.removed, reset)
        for fields in self.sets.values():
            fields -= changed | removed
        changed -= _UNMANAGED
        if changed:
            self.sets[manager] = self.sets.get(manager, set()) | changed
            self._about[manager] = version, time
        self._drop_empty()

    def apply(
        self,
        live: Any,
        config: Any,
        shape: Shape,
        manager: Manager,
        version: str,
        time: str,
        reset: Fields,
        force: bool,
    ) -> Any:
        """Return an object after an apply, and give its manager the fields. Raises FieldConflicts."""
        merged = merge(live, config, shape)
        last = self.sets.get(manager)
        self.sets[manager] = _without(fields_of(config, shape), reset)
        if last:
            merged = self._pruned(merged, last, shape)
        self.sets[manager] -= _UNMANAGED
        difference = compare(live, merged, shape)
        changed = _without(difference.added | difference.modified, reset) - _UNMANAGED
        removed = _without(difference.removed, reset)
        others = {each: fields for each, fields in self.sets.items() if each != manager}
        causes = [(each, text_of(path)) for each, fields in others.items() for path in sorted(fields & changed)]
        if causes and not force:
            raise FieldConflicts(causes)
        for fields in others.values():
            fields -= changed | removed
        if merged != live or self.sets[manager] != last:
            self._about[manager] = version, time
        self._drop_empty()
        return merged

    def _pruned(self, merged: Any, last: set[Path], shape: Shape) -> Any:
        """Remove the fields that the manager applied before, does not apply now, and no other manager has."""
        before = with_named(last, shape)
        everything = with_named(fields_of(merged, shape), shape)
        pruned = remove(merged, before, shape) or {}
        managed = with_named(set().union(*self.sets.values()), shape)
        kept = with_named(fields_of(pruned, shape), shape) | managed
        pruned = remove(merged, everything - kept, shape) or {}
        return remove(merged, (everything - with_named(fields_of(pruned, shape), shape)) & before, shape)

    def _drop_empty(self) -> None:
        self.sets = {manager: fields for manager, fields in self.sets.items() if fields}


def _without(fields: Iterable[Path], reset: Fields) -> set[Path]:
    """Return fields without those at or below the ones that a write cannot change."""
    return {path for path in fields if not any(path[: len(each)] == each for each in reset)}


def _parsed(fields: Mapping[str, Any], at: Path = ()) -> set[Path]:
    found: set[Path] = set()
    for key, inner in fields.items():
        path = at if key == "." else (*at, _normal(key))
        if key == "." or not inner:
            found.add(path)
        else:
            found |= _parsed(inner, path)
    return found


def _normal(key: str) -> str:
    return f"{key[:2]}{_text(json.loads(key[2:]))}" if key[0] in "kv" else key


def _written(fields: Iterable[Path]) -> dict[str, Any]:
    members = set(fields)
    found: dict[str, Any] = {}
    for path in sorted(members):
        node = found
        for index, element in enumerate(path):
            node = node.setdefault(element, {".": {}} if path[: index + 1] in members else {})
    return _trimmed(found)


def _trimmed(node: dict[str, Any]) -> dict[str, Any]:
    """Return a tree in which a member without parts is written as an empty mapping."""
    return {} if node == {".": {}} else {key: _trimmed(each) for key, each in node.items()}


def text_of(path: Path) -> str:
    """Return a path as conflicts name it, such as ``.spec.containers[name="web"].image``."""
    text = ""
    for element in path:
        what, _, rest = element.partition(":")
        if what == "f":
            text += f".{rest}"
        elif what == "k":
            text += "[" + ",".join(f"{key}={_text(value)}" for key, value in json.loads(rest).items()) + "]"
        else:
            text += f"[={rest}]"
    return text
