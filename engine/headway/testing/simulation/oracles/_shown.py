"""Values of programs as texts that are the same in every process: sets are sorted, and no text has an address. Pure."""

from __future__ import annotations

import copy
import dataclasses
import reprlib
from typing import Any


def shown(state: object) -> str:
    """Return a state as text that is the same in every process."""
    if type(state) is dict:
        return f"{{{', '.join(f'{shown(key)}: {shown(value)}' for key, value in state.items())}}}"
    if type(state) is list:
        return f"[{', '.join(map(shown, state))}]"
    if type(state) is tuple:
        return f"({', '.join(map(shown, state))}{',' if len(state) == 1 else ''})"
    if type(state) is set and state:
        return f"{{{', '.join(sorted(map(shown, state)))}}}"
    if type(state) is frozenset and state:
        return f"frozenset({{{', '.join(sorted(map(shown, state)))}}})"
    return _attributes_shown(state) if type(state).__repr__ is object.__repr__ else repr(state)


def with_sorted_maps(payload: Any) -> Any:
    """Return a payload whose maps are in the order of their keys, because the service knows no other order."""
    if isinstance(getattr(type(payload), "body", None), property):
        # A manifest of Kubernetes is shown as its mapping.
        payload = payload.body
    if isinstance(payload, dict):
        return {key: with_sorted_maps(payload[key]) for key in sorted(payload)}
    if isinstance(payload, list):
        return [with_sorted_maps(each) for each in payload]
    if not dataclasses.is_dataclass(payload) or isinstance(payload, type):
        return payload
    made: Any = copy.copy(payload)
    for field in dataclasses.fields(payload):
        value = getattr(payload, field.name)
        if isinstance(value, dict | list) or dataclasses.is_dataclass(value):
            setattr(made, field.name, with_sorted_maps(value))
    return made


@reprlib.recursive_repr("...")
def _attributes_shown(state: object) -> str:
    """Return the class and the attributes of an object, whose own text has its address."""
    attributes = attributes_of(state) or {}
    return f"{type(state).__qualname__}({', '.join(f'{name}={shown(each)}' for name, each in attributes.items())})"


def attributes_of(value: object) -> dict[str, Any] | None:
    """Return the attributes of an object, those in ``__slots__`` included, or None if it cannot have any."""
    found: dict[str, Any] = {}
    kept = False
    for cls in reversed(type(value).__mro__):
        slots = vars(cls).get("__slots__")
        kept |= slots is not None and cls.__module__ != "builtins"
        for name in (slots,) if isinstance(slots, str) else sorted(slots or ()):
            stored = f"_{cls.__name__.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name
            if name not in ("__dict__", "__weakref__") and hasattr(value, stored):
                found[stored] = getattr(value, stored)
    own = getattr(value, "__dict__", None)
    return {**found, **(own or {})} if kept or own is not None else None
