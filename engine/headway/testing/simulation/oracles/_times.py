"""The comparison of times in the results of two runs. Pure.

Faults take time, so values that a program computes from the clock, such as ``expires_at = now + 3600``, differ between
runs. Two times count as equal if they differ by no more than the time that has passed in the two runs.

A program may also make things for a time of the clock, such as a mail for each full hour. If a clock jumps forward, no
program can make the things that were due in between on time. It may skip them, make all of them late, or make only the
last one. So things that differ only by such a time count as one. A thing that is made twice for the same time still
counts twice. If the clock has jumped back, it shows some times twice. Then only a thing that is made twice for the same
full minute counts twice.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from headway.testing.simulation.oracles._oracles import Contents, Place, Result

_NUMBER = r"\d+(?:\.\d+)?(?:e[+-]?\d+)?"
_OF_DAY = r"\d\d:\d\d(?::\d\d(?:\.\d+)?)?"
_TOKEN = re.compile(
    r"datetime\.date(?:time)?\(\d+(?:, \d+)+"
    r"|\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
    r"|\d{8}T\d{4}(?:\d\d)?Z?"
    rf"|{_OF_DAY}|{_NUMBER}"
)
_CLOCK = re.compile(_OF_DAY)
_A_TIME = "(time)"
_SERIES = re.compile(r"(['\"]?\(time\)['\"]?)(?:, \1)+")
_NEAR = 3600.0
"""The number of seconds before and after a run within which a time is one of the run's."""
_DAY = 86_400.0
_YEAR = 365 * _DAY
_UNITS = ((1.0, 20 * _YEAR), (1e3, 20 * _YEAR), (1e6, 20 * _YEAR), (1e9, 20 * _YEAR), (1 / 60, _YEAR))
"""For each unit: its number per second, and the distance from the run, in seconds, within which a number is a time."""
_COMPACT = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}


def all_aligned(
    result: Result, references: Sequence[Result], patient: Sequence[Result] = (), slow: Result | None = None
) -> tuple[Result, list[Result]]:
    """Return a result and the right results. Where they differ only by times, use those times of the first right one.

    Args:
        slow: a run without faults whose looks at a clock take longer.
    """
    first, *others = references
    rights = [first, *(aligned(each, [first]) for each in others), *(aligned(each, [first], slow) for each in patient)]
    return aligned(result, rights, slow), rights


def aligned(result: Result, rights: Sequence[Result], other: Result | None = None) -> Result:
    """Return a result. Where it differs from a similar right result only by times, replace them by that result's times.

    Args:
        other: a run without faults whose looks at a clock take longer. If a number differs between that run and
            the first right result, it comes from a clock, too. An example is a duration.
    """
    first = rights[0]
    if not result.wall[1]:  # no clock was used
        return result
    if (result.end, result.contents, result.outside) == (first.end, first.contents, first.outside):
        return result
    places = {place for each in rights for place in each.end}
    names = _renamed(result, rights, set(result.end) - places, places - set(result.end))
    end: dict[Any, Any] = {}
    contents: dict[Any, Any] = {}
    for place, text in result.end.items():
        there = names.get(place, place)
        end[there] = _text_of(text, there, result.wall, rights, other)
        contents[there] = _fields_of(result, place, there, rights, other)
    counts = {(*names.get(key[:2], key[:2]), key[2]): count for key, count in result.counts.items()}
    outside = result.outside
    for each in (*rights, first):
        told = None if other is None else other.outside
        outside = Aligner(result.wall, each.wall).aligned(result.outside, each.outside, told)
        if outside == each.outside:
            break
    return dataclasses.replace(result, end=end, contents=contents, counts=counts, outside=outside)


def masked(text: str, span: tuple[float, float], *, twice: bool = False) -> str:
    """Return a text with one word for each series of different times near a span of the wall clock.

    If ``twice``, the clock has shown some times twice, so only full minutes must be different.
    """
    aligner = Aligner(span, span)
    times = [token for token in _TOKEN.findall(text) if aligner.is_near(token)]
    if not times:
        return text
    made = _TOKEN.sub(lambda found: _A_TIME if found[0] in times else found[0], text)
    once = [each for each in times if not twice or aligner.is_full_minute(each)]
    return _SERIES.sub(r"\1", made) if len(set(once)) == len(once) else made


def has_full_minute(text: str, span: tuple[float, float]) -> bool:
    """Return True if a text has a full minute near a span of the wall clock."""
    aligner = Aligner(span, span)
    return any(aligner.is_near(token) and aligner.is_full_minute(token) for token in _TOKEN.findall(text))


def _text_of(text: str, place: Place, wall: tuple[float, float], rights: Sequence[Result], other: Result | None) -> str:
    told = None if other is None else other.end.get(place)
    for each in rights:
        if place in each.end and Aligner(wall, each.wall).aligned(text, each.end[place], told) == each.end[place]:
            return each.end[place]
    return text


def _fields_of(result: Result, place: Place, there: Place, rights: Sequence[Result], other: Result | None) -> Contents:
    """Return the fields of a resource with the times of a right run: of one whose resource then is equal, if there is
    one, and otherwise of the first that can be compared.
    """
    mine = result.contents.get(place, {})
    told = None if other is None else other.contents.get(there)
    nearest: Contents | None = None
    for each in rights:
        theirs = each.contents.get(there)
        if mine == theirs:
            return mine
        aligner = Aligner(result.wall, each.wall)
        # A time that occurs again may be in another field.
        if theirs is None or aligner.repeats(result.end[place], each.end[there]):
            continue
        made = aligner.aligned(mine, theirs, told)
        if made == theirs:
            return theirs
        nearest = made if nearest is None else nearest
    return mine if nearest is None else nearest


def _renamed(result: Result, rights: Sequence[Result], extra: set[Any], missing: set[Any]) -> dict[Any, Any]:
    """Return the right places of resources whose names differ only by a time."""
    names: dict[Any, Any] = {}
    spare = sorted(missing)
    for place in sorted(extra):
        for right in spare:
            aligner = Aligner(result.wall, rights[0].wall)
            if place[0] == right[0] and aligner.aligned(place[1], right[1]) == right[1]:
                names[place] = right
                spare.remove(right)
                break
    return names


class Aligner:
    """Replaces the times in one run's values by another run's, if they differ by no more than the time of the runs.

    Args:
        mine, theirs: the lowest and the highest time of each run's wall clock.
    """

    def __init__(self, mine: tuple[float, float], theirs: tuple[float, float]) -> None:
        self._low, self._high = min(mine[0], theirs[0]), max(mine[1], theirs[1])
        self._tolerance = self._high - self._low

    def aligned(self, got: Any, right: Any, other: Any = None) -> Any:
        """Return ``got`` with the times of ``right``, and with its numbers where ``other`` has different ones."""
        if isinstance(got, bool) or isinstance(right, bool):
            return got
        if isinstance(got, str) and isinstance(right, str):
            return self._text(got, right, other)
        if isinstance(got, Mapping) and isinstance(right, Mapping):
            return self._mapping(got, right, other)
        if isinstance(got, list | tuple) and isinstance(right, list | tuple) and type(got) is type(right):
            return self._sequence(got, right, other)
        if isinstance(got, set | frozenset) and isinstance(right, set | frozenset) and len(got) == len(right):
            mine, theirs = sorted(got, key=repr), sorted(right, key=repr)
            return type(got)(self._sequence(mine, theirs, None))
        if dataclasses.is_dataclass(got) and type(got) is type(right):
            made: Any = copy.copy(got)
            for field in dataclasses.fields(got):
                values = (getattr(each, field.name, None) for each in (got, right, other))
                object.__setattr__(made, field.name, self.aligned(*values))
            return made
        if isinstance(got, _SCALARS) and isinstance(right, _SCALARS):
            return right if self._same(_shown(got), _shown(right), _shown(other)) else got
        return got

    def _mapping(self, got: Mapping[Any, Any], right: Mapping[Any, Any], other: Any) -> dict[Any, Any]:
        spare = [key for key in right if key not in got]
        others = other if isinstance(other, Mapping) else {}
        made: dict[Any, Any] = {}
        for key, value in got.items():
            if key not in right:
                found = next((each for each in spare if self.aligned(key, each) == each), key)
                if found in spare:
                    spare.remove(found)
                key = found
            made[key] = self.aligned(value, right[key], others.get(key)) if key in right else value
        return made

    def _sequence(self, got: Sequence[Any], right: Sequence[Any], other: Any) -> Any:
        if len(got) != len(right) or self._is_repeated([*map(str, got)], [*map(str, right)]):
            return got
        others = other if isinstance(other, list | tuple) and len(other) == len(right) else [None] * len(right)
        made = [self.aligned(*each) for each in zip(got, right, others, strict=True)]
        return tuple(made) if type(got) is tuple else made

    def _text(self, got: str, right: str, other: Any) -> str:
        if got == right or _TOKEN.sub("#", got) != _TOKEN.sub("#", right):
            return got
        mine, theirs = _TOKEN.findall(got), _TOKEN.findall(right)
        others: list[str | None] = [None] * len(theirs)
        if isinstance(other, str) and _TOKEN.sub("#", other) == _TOKEN.sub("#", right):
            others = [*_TOKEN.findall(other)]
        if self._is_repeated(mine, theirs):
            return got
        made = [
            right if self._same(mine, right, other) else mine
            for mine, right, other in zip(mine, theirs, others, strict=True)
        ]
        tokens = iter(made)
        return _TOKEN.sub(lambda _: next(tokens), got)

    def repeats(self, got: str, right: str) -> bool:
        """Return True if a text repeats a full minute where the right text has two different times."""
        mine, theirs = _TOKEN.findall(got), _TOKEN.findall(right)
        return len(mine) == len(theirs) and self._is_repeated(mine, theirs)

    def _is_repeated(self, got: Sequence[str], right: Sequence[str]) -> bool:
        """Return True if a full minute is repeated where the right run has two different times: an action was repeated.

        Other times are not compared, because two actions may happen within the same second.
        """
        seen: dict[str, str] = {}
        for mine, theirs in zip(got, right, strict=True):
            time = self._time(mine)
            if time is not None and time % 60 == 0 and seen.setdefault(mine, theirs) != theirs:
                return True
        return False

    def _same(self, got: str | None, right: str | None, other: str | None) -> bool:
        """Return True if two tokens are equal, are times of the two runs, or are numbers that come from a clock."""
        if got == right:
            return True
        if got is None or right is None:
            return False
        mine, theirs = self._time(got), self._time(right)
        if mine is not None and theirs is not None:
            return abs(mine - theirs) <= self._tolerance + _granularity(mine, theirs)
        if _CLOCK.fullmatch(got) and _CLOCK.fullmatch(right):
            return self._is_of_day(got) and self._is_of_day(right)
        if other is None or other == right:
            return False
        numbers = [_number(each) for each in (got, right, other)]
        return None not in numbers and self._are_near(numbers[0] or 0.0, numbers[1] or 0.0)

    def is_near(self, token: str) -> bool:
        """Return True if a token is a time of the runs, or of the hour before or after them."""
        time = self._time(token)
        if time is not None:
            return self._low - _NEAR <= time <= self._high + _NEAR
        return _CLOCK.fullmatch(token) is not None and self._is_of_day(token)

    def is_full_minute(self, token: str) -> bool:
        """Return True if a time is a full minute, so that something done twice for it was repeated."""
        time = self._time(token)
        return time % 60 == 0 if time is not None else token.count(":") == 1 or float(token.split(":")[-1]) == 0

    def _is_of_day(self, token: str) -> bool:
        """Return True if a time of the day is within the run, with a tolerance of one minute."""
        parts = [float(each) for each in token.split(":")]
        seconds = sum(part * unit for part, unit in zip(parts, (3600, 60, 1), strict=False))
        return (seconds - self._low + 60) % _DAY <= self._tolerance + 120

    def _are_near(self, got: float, right: float) -> bool:
        return (got < 0) == (right < 0) and any(
            abs(got - right) / unit <= self._tolerance + 1 for unit in (1.0, 1e3, 1e6, 1e9)
        )

    def _time(self, token: str) -> float | None:
        """Return a token as seconds since 1970 if it can be a time of a run, or else None."""
        if "-" in token[1:] or "T" in token or "(" in token:
            return _moment(token)
        number = _number(token)
        if number is None:
            return None
        for per_second, far in _UNITS:
            seconds = number / per_second
            if self._low - far <= seconds <= self._high + far:
                return seconds
        if len(token) in _COMPACT and token.isdecimal():
            return _moment(token)
        return None


_SCALARS = (int, float, datetime.date)


def _shown(value: Any) -> str | None:
    if isinstance(value, datetime.date):
        return value.isoformat()
    return repr(value) if isinstance(value, int | float) else None


def _number(token: str) -> float | None:
    try:
        return float(token)
    except ValueError:
        return None


def _moment(token: str) -> float | None:
    """Return a written time as seconds since 1970. A time without a zone is UTC."""
    try:
        if token.startswith("datetime."):
            parts = [int(each) for each in token.partition("(")[2].split(",")]
            made = datetime.datetime(*parts, tzinfo=datetime.UTC)  # type: ignore[arg-type, misc]
        elif (digits := token.replace("T", "").rstrip("Z")).isdecimal():
            made = datetime.datetime.strptime(digits, _COMPACT[len(digits)])  # noqa: DTZ007  # set below
        else:
            made = datetime.datetime.fromisoformat(token.replace(",", "."))
    except (ValueError, KeyError, TypeError):
        return None
    return made.timestamp() if made.tzinfo is not None else made.replace(tzinfo=datetime.UTC).timestamp()


def _granularity(one: float, other: float) -> float:
    """Return the unit of rounding of both times in seconds: a day, an hour, a minute, or else one."""
    return next((unit for unit in (_DAY, 3600.0, 60.0) if one % unit == other % unit == 0), 1.0)


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
