"""The things that a program makes for a time of the clock, such as a mail for each full hour. Pure.

If a clock jumps forward, no program can make the things that were due in between on time. It may skip them, make all of
them late, or make only the last one. So things that differ only by such a time count as one. A thing that is made twice
for the same time still counts twice. If the clock has jumped back, it shows some times twice. Then only a thing that is
made twice for the same full minute counts twice.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from headway.testing.simulation.oracles._oracles import Contents, Place, Result
from headway.testing.simulation.oracles._times import has_full_minute, masked


def without_slots(result: Result, rights: Sequence[Result], *, twice: bool = False) -> tuple[Result, list[Result]]:
    """Return a result and the right results. In each, things that differ only by a time of the clock become one.

    If ``twice``, the result's clock has shown some times twice.
    """
    walls = [each.wall for each in (result, *rights) if each.wall[1]]
    if not walls:
        return result, [*rights]
    span = min(low for low, _ in walls), max(high for _, high in walls)
    made = [_Slots(span, twice=twice).of_result(each) for each in (result, *rights)]
    return made[0], made[1:]


class _Slots:
    """Makes things that differ only by a time near a span of the wall clock one."""

    def __init__(self, span: tuple[float, float], *, twice: bool) -> None:
        self._span = span
        self._twice = twice

    def of_result(self, result: Result) -> Result:
        """Return a result whose things are made one."""
        places = {place: (place[0], (*place[1][:2], self._masked(place[1][2]))) for place in result.contents}
        contents: dict[Place, Contents] = {}
        end: dict[Place, str] = {}
        for place, fields in result.contents.items():
            contents[places[place]] = {path: self._masked(text) for path, text in fields.items()}
            end[places[place]] = self._masked(result.end[place])
        counts: Counter[Any] = Counter()
        for (kind, key, what), count in result.counts.items():
            counted = (kind, (*key[:2], self._masked(key[2])), what)
            counts[counted] = max(count, counts[counted])
        return dataclasses.replace(
            result, contents=contents, end=end, counts=counts, outside=self._of_value(result.outside)
        )

    def _masked(self, text: str) -> str:
        return masked(text, self._span, twice=self._twice)

    def _of_value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._masked(value)
        if isinstance(value, Mapping):
            return {self._of_value(key): self._of_value(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return self._one_for_each_time(value)
        if isinstance(value, set | frozenset):
            return frozenset(map(self._of_value, value))
        if isinstance(value, int | float) and not isinstance(value, bool):
            text = self._masked(repr(value))
            return value if text == repr(value) else text
        return value

    def _one_for_each_time(self, values: Sequence[Any]) -> list[Any]:
        """Return the values of a list, without those that another one stands for because it differs only by a time."""
        found: list[Any] = []
        told: Counter[str] = Counter()
        most: Counter[str] = Counter()
        for value in values:
            made = self._of_value(value)
            # An equal value is a repetition, and stays.
            told[repr(value)] = told[repr(value)] + 1 if self._counts(value) else 1
            if made == value or told[repr(value)] > most[repr(made)]:
                most[repr(made)] = max(most[repr(made)], told[repr(value)])
                found.append(made)
        return found

    def _counts(self, value: Any) -> bool:
        """Return True if a repetition of a value means that something was done twice."""
        return not self._twice or has_full_minute(repr(value), self._span)
