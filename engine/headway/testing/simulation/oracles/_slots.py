"""The things that a program makes for a time of the clock, such as a mail for each full hour. Pure.

If a clock jumps forward, no program can make the things that were due in between on time. It may skip them, make all of
them late, or make only the last one. So things that differ only by such a time count as one. A thing that is made twice
for the same time still counts twice.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from headway.testing.simulation.oracles._oracles import Contents, Place, Result
from headway.testing.simulation.oracles._times import masked


def without_slots(result: Result, rights: Sequence[Result]) -> tuple[Result, list[Result]]:
    """Return a result and the right results. In each, things that differ only by a time of the clock become one."""
    walls = [each.wall for each in (result, *rights) if each.wall[1]]
    if not walls:
        return result, [*rights]
    span = min(low for low, _ in walls), max(high for _, high in walls)
    made = [_of_result(each, span) for each in (result, *rights)]
    return made[0], made[1:]


def _of_result(result: Result, span: tuple[float, float]) -> Result:
    places = {place: (place[0], (*place[1][:2], masked(place[1][2], span))) for place in result.contents}
    contents: dict[Place, Contents] = {}
    end: dict[Place, str] = {}
    for place, fields in result.contents.items():
        contents[places[place]] = {path: masked(text, span) for path, text in fields.items()}
        end[places[place]] = masked(result.end[place], span)
    counts: Counter[Any] = Counter()
    for (kind, key, what), count in result.counts.items():
        counted = (kind, (*key[:2], masked(key[2], span)), what)
        counts[counted] = max(count, counts[counted])
    return dataclasses.replace(
        result, contents=contents, end=end, counts=counts, outside=_of_value(result.outside, span)
    )


def _of_value(value: Any, span: tuple[float, float]) -> Any:
    if isinstance(value, str):
        return masked(value, span)
    if isinstance(value, Mapping):
        return {_of_value(key, span): _of_value(each, span) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return _one_for_each_time(value, span)
    if isinstance(value, set | frozenset):
        return frozenset(_of_value(each, span) for each in value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        text = masked(repr(value), span)
        return value if text == repr(value) else text
    return value


def _one_for_each_time(values: Sequence[Any], span: tuple[float, float]) -> list[Any]:
    """Return the values of a list, without those that another one stands for because it differs only by a time."""
    found: list[Any] = []
    told: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for value in values:
        made = _of_value(value, span)
        # An equal value is a repetition, and stays.
        told[repr(value)] += 1
        if made == value or told[repr(value)] > most[repr(made)]:
            most[repr(made)] = max(most[repr(made)], told[repr(value)])
            found.append(made)
    return found
