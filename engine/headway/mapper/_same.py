"""The comparison of two watches, to recognize a watch that is added again. No I/O.

A program may create a watch anew in every reconcile, with new lambdas and new ready-made mappers. Two functions are the
same if they come from the same code, with the same defaults and the same captured values. Captured values are the same
if they are one object, or equal and hashable: mutable values may differ later.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

from headway.mapper._mappers import ChangeMapper, ReadyMapper
from headway.mapper._predicates import Predicate, Watch

_Pairs = set[tuple[int, int]]


def same_watch(one: Watch[Any], other: Watch[Any]) -> bool:
    """Return True if two watches have the same type, mapper and predicate."""
    pairs: _Pairs = set()
    return one.type is other.type and _same(one.mapper, other.mapper, pairs) and _same(one.when, other.when, pairs)


def changed_captures(one: Watch[Any], other: Watch[Any]) -> list[str]:
    """Return the names of captured variables that differ between two watches, in functions with the same code."""
    pairs: _Pairs = set()
    return list(dict.fromkeys([*_changed(one.mapper, other.mapper, pairs), *_changed(one.when, other.when, pairs)]))


def _changed(one: object, other: object, pairs: _Pairs) -> Iterator[str]:
    parts = _PARTS.get(type(one))
    if parts is None or type(one) is not type(other) or _same(one, other, set()):
        return
    if not isinstance(one, types.FunctionType):
        for ours, theirs in zip(parts(one), parts(other), strict=False):
            yield from _changed(ours, theirs, pairs)
    elif isinstance(other, types.FunctionType) and one.__code__ is other.__code__:
        pairs.add((id(one), id(other)))
        for name, ours, theirs in zip(one.__code__.co_freevars, _captured(one), _captured(other), strict=True):
            if (id(ours), id(theirs)) not in pairs and not _same(ours, theirs, set()):
                yield from list(_changed(ours, theirs, pairs)) or [name]


def _same(one: object, other: object, pairs: _Pairs) -> bool:
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    parts = _PARTS.get(type(one))
    if parts is None:
        return _equal(one, other)
    if isinstance(one, types.FunctionType):
        # A function may capture itself.
        pair = (id(one), id(other))
        if pair in pairs:
            return True
        pairs.add(pair)
    ours, theirs = parts(one), parts(other)
    return len(ours) == len(theirs) and all(map(lambda a, b: _same(a, b, pairs), ours, theirs))


def _equal(one: object, other: object) -> bool:
    try:
        hash(one)
        return bool(one == other)
    except Exception:  # noqa: BLE001  # a value of the program may refuse both; then it is only the same as itself
        return False


def _of_function(function: Any) -> list[object]:
    # A nested function has the same code object each time that the outer function creates it.
    keywords = tuple(sorted((function.__kwdefaults__ or {}).items()))
    return [_One(function.__code__), _One(function.__globals__), function.__defaults__, keywords, *_captured(function)]


def _captured(function: Any) -> list[object]:
    return [_content(cell) for cell in function.__closure__ or ()]


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return _EMPTY


class _One:
    """A value that equals only itself, compared by identity."""

    def __init__(self, part: object) -> None:
        self._part = part

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _One) and self._part is other._part

    def __hash__(self) -> int:
        return id(self._part)


_EMPTY = object()
_PARTS: dict[type, Callable[[Any], list[object]]] = {
    types.FunctionType: _of_function,
    types.MethodType: lambda method: [method.__func__, _One(method.__self__)],
    functools.partial: lambda call: [call.func, call.args, tuple(sorted(call.keywords.items()))],
    tuple: list,
    ReadyMapper: lambda mapper: [mapper.name, mapper.towards, mapper.needs],
    ChangeMapper: lambda mapper: [mapper.name, mapper.function, mapper.needs],
    Predicate: lambda predicate: [predicate.name, predicate.updates_only, predicate._passes],
}
