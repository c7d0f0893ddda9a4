"""The managers of an object's fields, as the API server records them (``metadata.managedFields``). No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

_DEFAULTS = {"protocol": "TCP"}
"""The only default of a key that is known here: the one of a port."""


def taken_over(
    managed: Iterable[Mapping[str, Any]], manager: str, object: Mapping[str, Any] | None
) -> list[dict[str, Any]] | None:
    """Return the entries after a manager owns by apply what it owns by other writes; None if it owns nothing so.

    An object is created by a plain write, which fails if its name is taken, and changed by applies. An apply removes
    the fields that it leaves out only if they were owned by an apply.

    Args:
        object: what the manager has created. It does not own the defaults that the server has filled in. None: all.
    """
    others: list[dict[str, Any]] = []
    mine: list[dict[str, Any]] = []
    for each in managed:
        same = each.get("manager") == manager and not each.get("subresource")
        (mine if same else others).append(dict(each))
    if all(each.get("operation") == "Apply" for each in mine):
        return None
    fields: dict[str, Any] = {}
    for each in mine:
        _add(fields, each.get("fieldsV1") or {})
    return [
        *others,
        {**mine[-1], "operation": "Apply", "fieldsV1": fields if object is None else _given(fields, object)},
    ]


def applied_by(managed: Iterable[Mapping[str, Any]], api_version: str, beside: str = "") -> dict[str, Any]:
    """Return the fields that each controller owns by apply, of those that own none by other writes.

    Args:
        beside: a manager that need not be a controller.
    """
    found: dict[str, list[Mapping[str, Any]]] = {}
    for each in managed:
        # A controller is called APP/NAME.
        manager = each.get("manager") or ""
        if ("/" in manager or manager == beside != "") and not each.get("subresource"):
            found.setdefault(manager, []).append(each)
    return {
        manager: each["fieldsV1"]
        for manager, (each, *others) in found.items()
        if not others and each.get("operation") == "Apply" and each.get("apiVersion") == api_version
    }


def changes_nothing(fields: Mapping[str, Any], wanted: object, there: object) -> bool:
    """Return True if an apply of a value would change neither the value that is there nor the owned fields.

    Return False in doubt, as for a quantity in another form.

    Args:
        fields: the set of fields that the manager owns by apply.
    """
    inner = {key: each for key, each in fields.items() if key != "."}
    if not inner:
        return json_text(wanted) == json_text(there)
    if isinstance(wanted, Mapping) and isinstance(there, Mapping):
        # An empty mapping that is not stored is still owned.
        return inner.keys() == {f"f:{name}" for name in wanted} and all(
            changes_nothing(inner[f"f:{name}"], each, there.get(name, {})) for name, each in wanted.items()
        )
    if not isinstance(wanted, list) or not isinstance(there, list) or len(inner) != len(wanted):
        return False
    last = -1
    for each in wanted:
        key = _only([key for key in inner if _names(key, each, _DEFAULTS)])
        at = None if key is None else _only([n for n, other in enumerate(there) if _names(key, other, {})])
        # An apply keeps the order of its items.
        if key is None or at is None or at <= last:
            return False
        # An item is owned itself, as a whole or beside its fields.
        owned = not inner[key] or "." in inner[key]
        if key.startswith("k:") and not (owned and changes_nothing(inner[key], each, there[at])):
            return False
        last = at
    return True


def _only(found: list[T]) -> T | None:
    return found[0] if len(found) == 1 else None


def _names(key: str, item: object, defaults: Mapping[str, Any]) -> bool:
    """Return True if a key of a set of fields stands for an item of a list: by its keys, or its value."""
    what, _, text = key.partition(":")
    if what == "k" and isinstance(item, Mapping):
        return all(
            json_text(item.get(name, defaults.get(name))) == json_text(each) for name, each in json.loads(text).items()
        )
    return what == "v" and json_text(json.loads(text)) == json_text(item)


def json_text(value: object) -> str:
    """Return a text for comparisons. In Python, 1 is True and 1.0."""
    return json.dumps(value, sort_keys=True)


def _add(to: dict[str, Any], more: Mapping[str, Any]) -> None:
    for key, value in more.items():
        _add(to.setdefault(key, {}), value)


def _given(fields: Mapping[str, Any], value: object) -> dict[str, Any]:
    """Return the part of a set of fields that a value has.

    ``f:NAME`` is a field, ``k:{...}`` the item of a list with these keys, ``v:VALUE`` an item of a set, and ``.`` the
    item itself.
    """
    found: dict[str, Any] = {}
    for key, inner in fields.items():
        what, _, name = key.partition(":")
        if what == "f" and isinstance(value, Mapping) and name in value:
            found[key] = _given(inner, value[name])
        elif what == "k" and isinstance(value, list):
            wanted = json.loads(name)
            item = next((each for each in value if _is_item(each, wanted)), None)
            if item is not None:
                found[key] = {".": {}, **_given(inner, item)}
        elif what == "v" and isinstance(value, list) and json.loads(name) in value:
            found[key] = inner
    if isinstance(value, Mapping):
        # An empty mapping may not be stored, but an apply owns it. Without this, the next apply would be a change.
        for name, each in value.items():
            if f"f:{name}" not in found and isinstance(each, Mapping):
                empty = _given({}, each)
                if empty or not each:
                    found[f"f:{name}"] = empty
    return found


def _is_item(item: object, keys: Mapping[str, Any]) -> bool:
    # A key that the item leaves out has its default.
    return isinstance(item, Mapping) and all(item.get(name, value) == value for name, value in keys.items())
