"""Keep the fields of a stored message that its class does not know, when another message replaces it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import betterproto2

from headway.protobuf._codec import Payload, copy_message, equal
from headway.protobuf._plan import metadata_of


def keep_unknown_fields(message: Any, stored: Any) -> None:
    """Give a message, in place, the unknown fields of the stored message of its class that it replaces.

    A message with unknown fields of its own keeps those, because its writer has read them. The messages in fields, and
    the values of a map under the same key, are treated in the same way. List elements have no identity, so an element
    gets the unknown fields of the stored element at its index only if the two are then equal.

    A message that sets a oneof, of which the stored message has no known field, gets no unknown fields: one of them may
    be the field of that oneof which is stored, and would count instead of the new one.
    """
    begun = any(set_field(message, names) and not set_field(stored, names) for names in field_units(type(message)))
    if not message._unknown_fields and not begun:
        message._unknown_fields = stored._unknown_fields
    for name in metadata_of(type(message)).sorted_field_names:
        held, there = getattr(message, name), getattr(stored, name)
        if isinstance(held, list):
            for place, (each, other) in enumerate(zip(held, there, strict=False)):
                if _is_message(each):
                    copied = copy_message(each)
                    keep_unknown_fields(copied, other)
                    if equal(copied, other):
                        held[place] = copied
        elif isinstance(held, dict):
            for key in held.keys() & there.keys():
                if _is_message(held[key]):
                    keep_unknown_fields(held[key], there[key])
        elif _is_message(held) and _is_message(there):
            keep_unknown_fields(held, there)


def _is_message(value: object) -> bool:
    return isinstance(value, betterproto2.Message)


def field_units(cls: type[Any]) -> Iterator[tuple[str, ...]]:
    """Yield the names of the fields. Those of a oneof are grouped, since setting one clears the others."""
    metadata = metadata_of(cls)
    for name in metadata.sorted_field_names:
        if not metadata.meta_by_field_name[name].group:
            yield (name,)
    for arms in metadata.oneof_field_by_group.values():
        yield tuple(sorted(arm.name for arm in arms))


def set_field(message: Payload, names: tuple[str, ...]) -> str | None:
    """Return the name of the field of a oneof that is set, or None. For a single field it is always None."""
    return next((name for name in names if getattr(message, name) is not None), None) if len(names) > 1 else None
