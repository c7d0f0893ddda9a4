"""The comparison of the world outside at the end of a run with its state in the right runs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headway.testing.simulation._trace import Trace
from headway.testing.simulation.oracles._allowed import OUTSIDE, Allowed
from headway.testing.simulation.oracles._oracles import Result
from headway.testing.simulation.oracles._shown import shown


def outside_difference(got: Result, rights: Sequence[Result], allowed: Allowed) -> tuple[str, Any, Any] | None:
    """Return the declaration that would allow the difference, and both states, or None if they agree."""
    if allowed.outside() or got.outside in [each.outside for each in rights]:
        return None
    mine, *theirs = [_without(each.outside, allowed) for each in (got, *rights)]
    several = _by_several(rights[0].trace)
    if mine in theirs or any(_ordered(mine, several, allowed) == _ordered(each, several, allowed) for each in theirs):
        return None
    if allowed.random_outside and _is_like(mine, theirs):
        return None
    parts = _differing_parts(mine, theirs[0], several, allowed)
    return (f"{OUTSIDE}.{parts[0]}" if parts else OUTSIDE, got.outside, rights[0].outside)


def has_more_outside(got: Result, rights: Sequence[Result]) -> bool:
    """Return True if some part of the world outside contains more things than in any of the right runs."""
    mine, *theirs = [_sizes(each.outside) for each in (got, *rights)]
    return any(size > max((each.get(part, 0) for each in theirs), default=0) for part, size in mine.items())


def _sizes(state: Any) -> dict[str, int]:
    parts = state if isinstance(state, Mapping) else {"": state}
    return {str(part): _size(value) for part, value in parts.items() if _is_many(value)}


def _without(state: Any, allowed: Allowed, path: str = "") -> Any:
    """Return a state without its parts that may differ."""
    if not isinstance(state, Mapping):
        return state
    paths = {key: f"{path}.{key}" if path else str(key) for key in state}
    return {key: _without(state[key], allowed, paths[key]) for key in state if not allowed.outside(paths[key])}


def _differing_parts(mine: Any, right: Any, several: bool, allowed: Allowed) -> list[str]:
    if not (isinstance(mine, Mapping) and isinstance(right, Mapping)):
        return []
    if not any(map(_is_many, (*mine.values(), *right.values()))):
        return []
    one, other = _part_by_part(mine, several, allowed), _part_by_part(right, several, allowed)
    return [str(key) for key in {**mine, **right} if one.get(key) != other.get(key)]


def _by_several(trace: Trace) -> bool:
    """Return True if several keys are reconciled outside, so that a list has the order of their arrival."""
    return len({(each.by.controller, each.by.key) for each in trace.steps if not each.kind[1]}) > 1


def _ordered(state: Any, several: bool, allowed: Allowed) -> Any:
    """Return a state without the order of arrival: it makes no difference which key of a part has which value."""
    if isinstance(state, Mapping) and any(map(_is_many, state.values())):
        return _part_by_part(state, several, allowed)
    return _values(state, several or allowed.order_outside(""))


def _part_by_part(state: Mapping[Any, Any], several: bool, allowed: Allowed) -> dict[Any, Any]:
    return {key: _values(value, several or allowed.order_outside(str(key))) for key, value in state.items()}


def _values(value: Any, several: bool) -> Any:
    if isinstance(value, Mapping) and several:
        if value and all(isinstance(each, Mapping) for each in value.values()):
            columns = sorted({str(key) for each in value.values() for key in each})
            rows = [{str(key): _values(of, several) for key, of in each.items()} for each in value.values()]
            return sorted(map(str, value)), [(name, sorted(shown(row.get(name)) for row in rows)) for name in columns]
        return sorted(map(str, value)), sorted(shown(_values(each, several)) for each in value.values())
    if isinstance(value, list | tuple):
        texts = [shown(_values(each, several)) for each in value]
        return sorted(texts) if several else texts
    if isinstance(value, Mapping):
        return {key: _values(each, several) for key, each in value.items()}
    return value


def _is_like(got: Any, right: Sequence[Any]) -> bool:
    """Return True if a state agrees with the runs without faults wherever these agree with each other."""
    if got in right:
        return True
    if all(each == right[0] for each in right):
        return False
    mine, *others = map(_parts, (got, *right))
    if mine and all(set(each) == set(mine) for each in others):
        return all(_is_like(mine[key], [each[key] for each in others]) for key in mine)
    # Random names may still have contents that are not.
    contents, *theirs = [sorted(map(shown, each.values())) for each in (mine, *others)]
    if all(each == theirs[0] for each in theirs):
        return contents == theirs[0]
    return _size(got) in map(_size, right)


def _parts(value: Any) -> Mapping[Any, Any]:
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    return value if isinstance(value, Mapping) else {}


def _size(outside: Any) -> int:
    """Return the number of things in the outside world, for a comparison when their names differ in each run."""
    if isinstance(outside, Mapping):
        return sum(map(_size, outside.values())) if any(map(_is_many, outside.values())) else len(outside)
    return len(outside) if _is_many(outside) else 1


def _is_many(value: Any) -> bool:
    return isinstance(value, Mapping | list | tuple | set | frozenset)
