"""Merge a writer's change into a stored message with content that the writer could not see. Pure."""

from __future__ import annotations

import copy
import math
import operator
import struct
from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple, TypeVar

import betterproto2

from headway.base import Steps
from headway.protobuf import Payload, codec_of, copy_message, encode, equal, field_units, metadata_of, set_field

P = TypeVar("P", bound=Payload)

# The number of elements in a step.
_AT_ONCE = 16


def merges(before: P, after: P, stored: P) -> Iterator[Steps[P]]:
    """Return candidate results of a change, the best first. The first that reads back as written is correct.

    In the first candidate, lists keep their stored order: the writer's version may sort them, or hold them as maps.
    In the second, each list that the writer reordered has the writer's order. It is left out if it would be the same.

    The steps of a candidate must be finished before the next one is asked for. The messages must not change meanwhile.
    """
    merge = _Merge()
    yield merge.message(before, after, stored)
    if merge.reordered:
        merge.reorders = True
        yield merge.message(before, after, stored)


class _Matches(NamedTuple):
    """The matches between the elements of three lists.

    Attributes:
        found: the index of each written element among those that the writer saw, or None for a new one.
        pairs: the index in the stored list of each element that the writer saw, or None.
        unseen: the indexes of stored elements that the writer never saw.
    """

    found: list[int | None]
    pairs: list[int | None]
    unseen: set[int]


class _Merge:
    """The merges of one change, which share the matches of elements.

    Attributes:
        reorders: True if lists get the order of the writer.
        reordered: True if a list was found that the writer has reordered.
    """

    def __init__(self) -> None:
        self.reorders = False
        self.reordered = False
        # By the identities of the three lists, which the messages hold.
        self._matches: dict[tuple[int, int, int], _Matches] = {}

    def message(self, before: Any, after: Any, stored: Any) -> Steps[Any]:
        """Return ``stored`` with the fields in which ``after`` differs from ``before``.

        - Messages are merged field by field, and maps entry by entry.
        - A oneof is merged if the same field of it is set in all three messages. Otherwise it is taken from ``after``.
        - A list element that the writer didn't change is taken from ``stored``. A changed element is merged with the
          stored element that has the same value in the field with the lowest number. If no element has it, the element
          is new.
        - Elements and entries of ``stored`` that ``before`` lacks are kept.
        - A list keeps its stored order unless the writer reordered it. Without ``reorders`` it always keeps that order.

        The caller must check that the result reads back as written. It does not if the elements of a list cannot be
        distinguished, or if the writer added an entry whose key is stored already: then the stored content is kept.
        """
        yield
        # Its lists and maps are still those of ``stored``. Each field is replaced or copied below.
        result = copy.copy(stored)
        for names in field_units(type(stored)):
            if all(_same(getattr(before, name), getattr(after, name)) for name in names):
                for name in names:
                    setattr(result, name, (yield from _copying(getattr(stored, name))))
                continue
            if len({set_field(message, names) for message in (before, after, stored)}) > 1:
                # If the fields were merged one by one, two fields of the oneof could be set.
                for name in names:
                    setattr(result, name, (yield from _copying(getattr(after, name))))
                continue
            for name in names:
                there = getattr(stored, name)
                setattr(result, name, (yield from self._value(getattr(before, name), getattr(after, name), there)))
        return result

    def _value(self, before: Any, after: Any, stored: Any) -> Steps[Any]:
        if _same(before, after):
            return (yield from _copying(stored))
        return (yield from self._changed(before, after, stored))

    def _changed(self, before: Any, after: Any, stored: Any) -> Steps[Any]:
        kinds = {type(before), type(after), type(stored)}
        if len(kinds) == 1 and _is_message(after):
            return (yield from self.message(before, after, stored))
        if isinstance(after, dict):
            return (yield from self._map(before, after, stored))
        if isinstance(after, list):
            return (yield from self._list(before, after, stored))
        return (yield from _copying(after))

    def _map(self, before: dict[Any, Any], after: dict[Any, Any], stored: dict[Any, Any]) -> Steps[dict[Any, Any]]:
        # Entries that the writer never saw are kept, even if it adds an entry with the same key. The result then does
        # not read back as written, so that nothing is lost silently.
        result: dict[Any, Any] = yield from _copying(
            {key: held for key, held in stored.items() if key in after or key not in before}
        )
        for number, (key, value) in enumerate(after.items()):
            if not number % _AT_ONCE:
                yield
            if key in before and key in stored:
                result[key] = yield from self._value(before[key], value, stored[key])
            elif (key not in before and key not in stored) or (key in before and not _same(before[key], value)):
                result[key] = _copied(value)
        return result

    def _list(self, before: list[Any], after: list[Any], stored: list[Any]) -> Steps[list[Any]]:
        lists = (id(before), id(after), id(stored))
        if lists not in self._matches:
            self._matches[lists] = yield from _matches(before, after, stored)
        found, pairs, unseen = self._matches[lists]
        # Each written element, with its index in ``stored`` if it was stored.
        made: list[tuple[Any, int | None]] = []
        for number, (each, at) in enumerate(zip(after, found, strict=True)):
            if not number % _AT_ONCE:
                yield
            there = None if at is None else pairs[at]
            if at is None or there is None:
                made.append((_copied(each), None))
            elif _same(before[at], each):
                made.append((_copied(stored[there]), there))
            else:
                made.append(((yield from self._changed(before[at], each, stored[there])), there))
        again = [at for at in found if at is not None]
        in_order = all(map(operator.lt, again, again[1:]))
        self.reordered = self.reordered or not in_order
        if not self.reorders or in_order:
            made = yield from _in_stored_order(made, len(stored))
        yield
        if not unseen:
            return [each for each, _ in made]
        kept = {there: place for place, (_, there) in enumerate(made) if there is not None}
        yield
        return (yield from _with_unseen([each for each, _ in made], kept, stored, unseen))


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


def _is_message(value: object) -> bool:
    return isinstance(value, betterproto2.Message)


def _same(left: Any, right: Any) -> bool:
    if _is_message(left) and _is_message(right):
        return type(left) is type(right) and equal(left, right)
    if isinstance(left, list) and isinstance(right, list):
        if len(left) != len(right) or not left:
            return len(left) == len(right)
        if _is_message(left[0]):
            return all(map(codec_of(type(left[0])).equal, left, right))
        return all(map(_same, left, right)) if isinstance(left[0], float) else left == right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(value, right[key]) for key, value in left.items())
    if isinstance(left, float) and isinstance(right, float):
        return _bits(left) == _bits(right)
    return bool(left == right)


def _matches(before: list[Any], after: list[Any], stored: list[Any]) -> Steps[_Matches]:
    keys = yield from _contents(before)
    pairs, unseen = yield from _pairs(before, keys, stored)
    written = yield from _contents(after)
    found: list[int | None] = [None] * len(after)
    unused = set(range(len(before)))
    for place, (was, now) in enumerate(zip(keys, written, strict=False)):
        if not place % _AT_ONCE:
            yield
        # First compare at the same index, so that equal elements are not swapped.
        if was == now or _same(before[place], after[place]):
            found[place] = place
            unused.discard(place)
    yield from _match(keys, written, found, unused)
    if unused and None in found:
        yield from _match((yield from _identities(before)), (yield from _identities(after)), found, unused)
    return _Matches(found, pairs, unseen)


def _in_stored_order(made: list[tuple[Any, int | None]], count: int) -> Steps[list[tuple[Any, int | None]]]:
    """Return the written elements in their stored order. A new element follows the one that it was written after."""
    groups: dict[int, list[tuple[Any, int | None]]] = {}
    at = -1
    for number, each in enumerate(made):
        if not number % _AT_ONCE:
            yield
        if each[1] is not None:
            at = each[1]
        groups.setdefault(at, []).append(each)
    result: list[tuple[Any, int | None]] = []
    for at in range(-1, count):
        if not at % _AT_ONCE:
            yield
        result += groups.get(at, ())
    return result


def _pairs(before: list[Any], keys: list[Hashable], stored: list[Any]) -> Steps[tuple[list[int | None], set[int]]]:
    """Return the index in ``stored`` of each element that the writer saw, and the indexes of those it never saw.

    Equal content is matched before an equal first field, which several elements may share. The same index is tried
    first, since most converters keep the order. Others sort a list, omit elements or add some.
    A stored element without a counterpart is assumed to be one that the writer never saw, and is kept. If that is
    wrong, the result does not read back as written.

    Args:
        before: the elements that the writer saw.
        keys: their contents.
        stored: the stored elements.
    """
    pairs: list[int | None] = [None] * len(before)
    unseen = set(range(len(stored)))
    others = yield from _contents(stored)
    for by_identity in (False, True):
        if by_identity:
            if not unseen or None not in pairs:
                break
            keys, others = (yield from _identities(before)), (yield from _identities(stored))
        if len(before) == len(stored):
            for place, (seen, other) in enumerate(zip(keys, others, strict=True)):
                if not place % _AT_ONCE:
                    yield
                if pairs[place] is None and place in unseen and seen is not None and seen == other:
                    pairs[place] = place
                    unseen.discard(place)
        yield from _match(others, keys, pairs, unseen)
    if len(before) == len(stored):
        # Match the remaining elements, whose identity has changed or is missing, in order.
        for place, there in zip([place for place, at in enumerate(pairs) if at is None], sorted(unseen), strict=True):
            pairs[place] = there
        unseen = set()
    return pairs, unseen


def _with_unseen(made: list[Any], kept: dict[int, int], stored: list[Any], unseen: set[int]) -> Steps[list[Any]]:
    """Return the written elements, with the elements that the writer never saw inserted.

    Each of them follows the same element as in ``stored``. If that one was removed, the inserted element follows as
    many written elements as it did before.
    """
    behind: list[list[Any]] = [[] for _ in range(len(made) + 1)]
    slot = seen = 0
    for there, each in enumerate(stored):
        if not there % _AT_ONCE:
            yield
        if there in unseen:
            behind[slot].append(_copied(each))
        else:
            seen += 1
            slot = kept[there] + 1 if there in kept else min(seen, len(made))
    result = behind[0]
    for number, (each, others) in enumerate(zip(made, behind[1:], strict=True)):
        if not number % _AT_ONCE:
            yield
        result += [each, *others]
    return result


def _match(before: list[Hashable], after: list[Hashable], found: list[int | None], unused: set[int]) -> Steps[None]:
    """Match each unmatched element with the first unused one that has the same key.

    An element whose key is None has no match.
    """
    places: dict[Hashable, list[int]] = {}
    for number, at in enumerate(sorted(unused, reverse=True)):
        if not number % _AT_ONCE:
            yield
        if (of := before[at]) is not None:
            places.setdefault(of, []).append(at)
    for place, key in enumerate(after):
        if not place % _AT_ONCE:
            yield
        if found[place] is None and (left := places.get(key)):
            found[place] = at = left.pop()
            unused.discard(at)


def _contents(elements: list[Any]) -> Steps[list[Hashable]]:
    """Return a key of the content of each element."""
    made: list[Hashable] = []
    for begin in range(0, len(elements), _AT_ONCE):
        yield
        made += map(_content, elements[begin : begin + _AT_ONCE])
    return made


def _identities(elements: list[Any]) -> Steps[list[Hashable]]:
    made: list[Hashable] = []
    for begin in range(0, len(elements), _AT_ONCE):
        yield
        made += map(_identity, elements[begin : begin + _AT_ONCE])
    return made


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


def _copying(value: Any) -> Steps[Any]:
    if isinstance(value, list):
        made: list[Any] = []
        for begin in range(0, len(value), _AT_ONCE):
            yield
            made += map(_copied, value[begin : begin + _AT_ONCE])
        return made
    if isinstance(value, dict):
        entries: dict[Any, Any] = {}
        for number, (key, held) in enumerate(value.items()):
            if not number % _AT_ONCE:
                yield
            entries[key] = _copied(held)
        return entries
    if not _is_message(value):
        return value
    message = copy.copy(value)
    for name in metadata_of(type(value)).sorted_field_names:
        setattr(message, name, (yield from _copying(getattr(value, name))))
    return message


def _copied(value: Any) -> Any:
    """Return a copy of an element of a list, or of the value of an entry in a map."""
    return copy_message(value) if _is_message(value) else value
