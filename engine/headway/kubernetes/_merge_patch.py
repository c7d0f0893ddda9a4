"""Merge patches of JSON (RFC 7396). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the patch that makes one object of another one."""
    made: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            if inner := merge_patch(old, value):
                made[key] = inner
        elif key not in before or value != old:
            made[key] = value
    return made


def patched(value: Any, patch: Any) -> Any:
    """Return a value after a merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    found = dict(value) if isinstance(value, dict) else {}
    for key, each in patch.items():
        if each is None:
            found.pop(key, None)
        else:
            found[key] = patched(found.get(key), each)
    return found
