"""The managers of an object's fields, as the API server records them (``metadata.managedFields``). No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any


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
