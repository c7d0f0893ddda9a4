"""Merge a writer's change into a stored message with content that the writer could not see. Pure."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Hashable, Iterator
from typing import Any, TypeVar

import betterproto2

from headway.protobuf._codec import Payload, copy_message, encode, equal
from headway.protobuf._plan import metadata_of

P = TypeVar("P", bound=Payload)


def merges(before: P, after: P, stored: P) -> Iterator[P]:
    """Return candidate results of a change, the best first. The first that reads back as written is correct.

    In the first candidate, lists keep their stored order: the writer's version may sort them, or hold them as maps.
    In the second, each list that the writer reordered has the writer's order.
    """
    yield _merged(before, after, stored, reorders=False)
    yield _merged(before, after, stored, reorders=True)


def _merged(before: P, after: P, stored: P, *, reorders: bool) -> P:
    """Return ``stored`` with the fields in which ``after`` differs from ``before``.

    - Messages are merged field by field, and maps entry by entry.
    - A oneof is merged if the same field of it is set in all three messages. Otherwise it is taken from ``after``.
    - A list element that the writer didn't change is taken from ``stored``. A changed element is merged with the stored
      element that has the same value in the field with the lowest number. If no element has it, the element is new.
    - Elements and entries of ``stored`` that ``before`` lacks are kept.
    - A list keeps its stored order unless the writer reordered it. Without ``reorders`` it always keeps that order.

    The caller must check that the result reads back as written. It does not if the elements of a list cannot be
    distinguished, or if the writer added an entry whose key is stored already: then the stored content is kept.
    """
    result = copy_message(stored)
    for names in _units(type(stored)):
        if all(_same(getattr(before, name), getattr(after, name)) for name in names):
            continue
        if len({_arm(message, names) for message in (before, after, stored)}) > 1:
            # If the fields were merged one by one, two fields of the oneof could be set.
            for name in names:
                setattr(result, name, _copied(getattr(after, name)))
            continue
        for name in names:
            there = getattr(stored, name)
            setattr(result, name, _merged_value(getattr(before, name), getattr(after, name), there, reorders))
    return result


def different_fields(left: Payload, right: Payload) -> list[str]:
    """Return the fields that differ between two messages of one class, such as ``room`` and ``needs.memory``."""
    return list(_different("", left, right))


def _different(path: str, left: Payload, right: Payload) -> Iterator[str]:
    count = 0
    for name in metadata_of(type(left)).sorted_field_names:
        was, now = getattr(left, name), getattr(right, name)
        if _same(was, now):
            continue
        count += 1
        if _is_message(was) and type(was) is type(now):
            yield from _different(f"{path}{name}.", was, now)
        else:
            yield f"{path}{name}"
    if not count and path:
        # They differ only in fields that the class does not know.
        yield path.rstrip(".")


def keep_unknown_fields(message: Any, stored: Any) -> None:
    """Give a message, in place, the unknown fields of the stored message of its class that it replaces.

    A message with unknown fields of its own keeps those, because its writer has read them. The messages in fields, and
    the values of a map under the same key, are treated in the same way. List elements have no identity, so an element
    gets the unknown fields of the stored element at its index only if the two are then equal.

    A message that sets a oneof, of which the stored message has no known field, gets no unknown fields: one of them may
    be the field of that oneof which is stored, and would count instead of the new one.
    """
    begun = any(_arm(message, names) and not _arm(stored, names) for names in _units(type(message)))
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


def _units(cls: type[Any]) -> Iterator[tuple[str, ...]]:
    """Yield the names of the fields. Those of a oneof are grouped, since setting one clears the others."""
    metadata = metadata_of(cls)
    for name in metadata.sorted_field_names:
        if not metadata.meta_by_field_name[name].group:
            yield (name,)
    for arms in metadata.oneof_field_by_group.values():
        yield tuple(sorted(arm.name for arm in arms))


def _arm(message: Payload, names: tuple[str, ...]) -> str | None:
    """Return the name of the field of a oneof that is set, or None. For a single field it is always None."""
    return next((name for name in names if getattr(message, name) is not None), None) if len(names) > 1 else None


def _same(left: Any, right: Any) -> bool:
    if _is_message(left) and _is_message(right):
        return type(left) is type(right) and equal(left, right)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(value, right[key]) for key, value in left.items())
    if isinstance(left, float) and isinstance(right, float):
        return _bits(left) == _bits(right)
    return bool(left == right)


def _merged_value(before: Any, after: Any, stored: Any, reorders: bool) -> Any:
    if _same(before, after):
        return _copied(stored)
    kinds = {type(before), type(after), type(stored)}
    if len(kinds) == 1 and _is_message(after):
        return _merged(before, after, stored, reorders=reorders)
    if isinstance(after, dict):
        return _merged_map(before, after, stored, reorders)
    if isinstance(after, list):
        return _merged_list(before, after, stored, reorders)
    return _copied(after)


def _merged_map(
    before: dict[Any, Any], after: dict[Any, Any], stored: dict[Any, Any], reorders: bool
) -> dict[Any, Any]:
    # Entries that the writer never saw are kept, even if it adds an entry with the same key. The result then does not
    # read back as written, so that nothing is lost silently.
    result = {key: _copied(value) for key, value in stored.items() if key in after or key not in before}
    for key, value in after.items():
        if key in before and key in stored:
            result[key] = _merged_value(before[key], value, stored[key], reorders)
        elif (key not in before and key not in stored) or (key in before and not _same(before[key], value)):
            result[key] = _copied(value)
    return result


def _merged_list(before: list[Any], after: list[Any], stored: list[Any], reorders: bool) -> list[Any]:
    pairs, unseen = _pairs(before, stored)
    found: list[int | None] = [None] * len(after)
    unused = set(range(len(before)))
    for place, each in enumerate(after):
        # First compare at the same index, so that equal elements are not swapped.
        if place in unused and _same(before[place], each):
            found[place] = place
            unused.discard(place)
    _match(before, after, found, unused, _content)
    _match(before, after, found, unused, _identity)
    # Each written element, with its index in ``stored`` if it was stored.
    made: list[tuple[Any, int | None]] = []
    for each, at in zip(after, found, strict=True):
        there = None if at is None else pairs[at]
        if at is None or there is None:
            made.append((_copied(each), None))
        else:
            made.append((_merged_value(before[at], each, stored[there], reorders), there))
    again = [at for at in found if at is not None]
    if not reorders or again == sorted(again):
        made = _in_stored_order(made)
    if not unseen:
        return [each for each, _ in made]
    kept = {there: place for place, (_, there) in enumerate(made) if there is not None}
    return _with_unseen([each for each, _ in made], kept, stored, unseen)


def _in_stored_order(made: list[tuple[Any, int | None]]) -> list[tuple[Any, int | None]]:
    """Return the written elements in their stored order. A new element follows the one that it was written after."""
    groups: list[tuple[int, list[tuple[Any, int | None]]]] = [(-1, [])]
    for each, there in made:
        if there is not None:
            groups.append((there, []))
        groups[-1][1].append((each, there))
    groups.sort(key=lambda group: group[0])
    return [each for _, group in groups for each in group]


def _pairs(before: list[Any], stored: list[Any]) -> tuple[list[int | None], set[int]]:
    """Return the index in ``stored`` of each element that the writer saw, and the indexes of those it never saw.

    Equal content is matched before an equal first field, which several elements may share. The same index is tried
    first, since most converters keep the order. Others sort a list, omit elements or add some.
    A stored element without a counterpart is assumed to be one that the writer never saw, and is kept. If that is
    wrong, the result does not read back as written.
    """
    pairs: list[int | None] = [None] * len(before)
    unseen = set(range(len(stored)))
    for key in (_content, _identity):
        if len(before) == len(stored):
            for place, (seen, there) in enumerate(zip(before, stored, strict=True)):
                if pairs[place] is None and place in unseen and (of := key(seen)) is not None and of == key(there):
                    pairs[place] = place
                    unseen.discard(place)
        _match(stored, before, pairs, unseen, key)
    if len(before) == len(stored):
        # Match the remaining elements, whose identity has changed or is missing, in order.
        for place, there in zip([place for place, at in enumerate(pairs) if at is None], sorted(unseen), strict=True):
            pairs[place] = there
        unseen = set()
    return pairs, unseen


def _with_unseen(made: list[Any], kept: dict[int, int], stored: list[Any], unseen: set[int]) -> list[Any]:
    """Return the written elements, with the elements that the writer never saw inserted.

    Each of them follows the same element as in ``stored``. If that one was removed, the inserted element follows as
    many written elements as it did before.
    """
    behind: list[list[Any]] = [[] for _ in range(len(made) + 1)]
    slot = seen = 0
    for there, each in enumerate(stored):
        if there in unseen:
            behind[slot].append(_copied(each))
        else:
            seen += 1
            slot = kept[there] + 1 if there in kept else min(seen, len(made))
    result = behind[0]
    for each, others in zip(made, behind[1:], strict=True):
        result += [each, *others]
    return result


def _match(
    before: list[Any],
    after: list[Any],
    found: list[int | None],
    unused: set[int],
    key: Callable[[Any], Hashable],
) -> None:
    """Match each unmatched element with the first unused one that has the same key.

    An element whose key is None has no match.
    """
    places: dict[Hashable, list[int]] = {}
    for at in sorted(unused, reverse=True):
        if (of := key(before[at])) is not None:
            places.setdefault(of, []).append(at)
    for place, each in enumerate(after):
        if found[place] is None and (left := places.get(key(each))):
            found[place] = at = left.pop()
            unused.discard(at)


def _content(element: Any) -> Hashable:
    if isinstance(element, float):
        return _bits(element)
    return encode(element) if _is_message(element) else (type(element), element)


def _bits(number: float) -> bytes:
    """Return a form of a number that can be compared. NaN equals itself, and the two zeros differ."""
    return struct.pack("<d", math.nan if number != number else number)


def _identity(element: Any) -> Hashable:
    """Return the value of the field with the lowest number if it can identify a message, else None."""
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
