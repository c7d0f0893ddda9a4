"""Merge a change of a message into a message that holds more than the writer could see. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, TypeVar

import betterproto2

from headway.resource._payload import Payload, copy_message, encode, equal
from headway.resource._payload_plan import metadata_of

P = TypeVar("P", bound=Payload)


def merged(before: P, after: P, stored: P) -> P:
    """Return ``stored`` with the fields in which ``after`` differs from ``before``.

    Fields that are messages are merged field by field, maps entry by entry. The fields of a oneof are taken together.
    An element of a list is the stored one if the writer left it as it was. A changed element is merged with the stored
    one whose field with the lowest number is the same; an element without such a one is new.
    """
    result = copy_message(stored)
    for names in _units(type(stored)):
        if all(_same(getattr(before, name), getattr(after, name)) for name in names):
            continue
        for name in names:
            there = getattr(stored, name)
            setattr(result, name, _merged_value(getattr(before, name), getattr(after, name), there))
    return result


def different_fields(left: Payload, right: Payload) -> list[str]:
    """Return the names of the fields in which two messages of one class differ."""
    names = metadata_of(type(left)).sorted_field_names
    return [name for name in names if not _same(getattr(left, name), getattr(right, name))]


def has_unknown_fields(message: Payload) -> bool:
    """Return True if a message, or a message in it, has fields that its class does not know."""
    if getattr(message, "_unknown_fields", b""):
        return True
    return any(
        has_unknown_fields(each)
        for name in metadata_of(type(message)).sorted_field_names
        for each in _elements(getattr(message, name))
        if _is_message(each)
    )


def _is_message(value: object) -> bool:
    return isinstance(value, betterproto2.Message)


def _units(cls: type[Any]) -> Iterator[tuple[str, ...]]:
    """The names of the fields, those of a oneof together: setting one of them clears the others."""
    metadata = metadata_of(cls)
    for name in metadata.sorted_field_names:
        if not metadata.meta_by_field_name[name].group:
            yield (name,)
    for arms in metadata.oneof_field_by_group.values():
        yield tuple(sorted(arm.name for arm in arms))


def _elements(value: Any) -> Sequence[Any]:
    if isinstance(value, dict):
        return [*value.values()]
    return value if isinstance(value, list) else [value]


def _same(left: Any, right: Any) -> bool:
    if _is_message(left) and _is_message(right):
        return type(left) is type(right) and equal(left, right)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(value, right[key]) for key, value in left.items())
    return bool(left == right or (left != left and right != right))  # NaN equals itself here


def _merged_value(before: Any, after: Any, stored: Any) -> Any:
    if _same(before, after):
        return _copied(stored)
    kinds = {type(before), type(after), type(stored)}
    if len(kinds) == 1 and _is_message(after):
        return merged(before, after, stored)
    if isinstance(after, dict):
        return _merged_map(before, after, stored)
    if isinstance(after, list):
        return _merged_list(before, after, stored)
    return _copied(after)


def _merged_map(before: dict[Any, Any], after: dict[Any, Any], stored: dict[Any, Any]) -> dict[Any, Any]:
    result = {key: _copied(value) for key, value in stored.items() if key in after or key not in before}
    for key, value in after.items():
        if key in before and key in stored:
            result[key] = _merged_value(before[key], value, stored[key])
        elif key not in before or not _same(before[key], value):
            result[key] = _copied(value)
    return result


def _merged_list(before: list[Any], after: list[Any], stored: list[Any]) -> list[Any]:
    if len(before) != len(stored):
        # The converter makes more elements, or fewer: nothing says which is which.
        return [_copied(each) for each in after]
    found: list[int | None] = [None] * len(after)
    unused = set(range(len(before)))
    for place, each in enumerate(after):
        # First in its own place, so that of two alike ones each stays what it is.
        if place in unused and _same(before[place], each):
            found[place] = place
            unused.discard(place)
    _match(before, after, found, unused, _content)
    _match(before, after, found, unused, _identity)
    return [
        _copied(each) if at is None else _merged_value(before[at], each, stored[at])
        for each, at in zip(after, found, strict=True)
    ]


def _match(
    before: list[Any],
    after: list[Any],
    found: list[int | None],
    unused: set[int],
    key: Callable[[Any], Hashable],
) -> None:
    """For each element that has none yet, find the first unused one with the same key; None is the key of nothing."""
    places: dict[Hashable, list[int]] = {}
    for at in sorted(unused, reverse=True):
        if (of := key(before[at])) is not None:
            places.setdefault(of, []).append(at)
    for place, each in enumerate(after):
        if found[place] is None and (left := places.get(key(each))):
            found[place] = at = left.pop()
            unused.discard(at)


def _content(element: Any) -> Hashable:
    return encode(element) if _is_message(element) else (type(element), element)


def _identity(element: Any) -> Hashable:
    """The value of a message's field with the lowest number, if it is set and says which element this is."""
    if not _is_message(element):
        return None
    names = metadata_of(type(element)).sorted_field_names
    value = getattr(element, names[0]) if names else None
    return value if isinstance(value, str | int | bytes) and not isinstance(value, bool) and value else None


def _copied(value: Any) -> Any:
    if _is_message(value):
        return copy_message(value)
    if isinstance(value, list):
        return [_copied(each) for each in value]
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    return value
