"""Random values that stand in several places, such as a password in a resource and in the world outside. Pure.

The values themselves are new in each run, so that they cannot be compared with those of other runs. But if two places
have the same one in every run without faults, then they must have the same one in any other run.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from headway.testing.simulation._trace import named
from headway.testing.simulation.oracles._allowed import Allowed
from headway.testing.simulation.oracles._oracles import Finding, Place, Result
from headway.testing.simulation.oracles._shown import shown

# What waits for a random time has another time in each run.
_TIME = re.compile(r"^[\d.]+$|\d\d:\d\d")
# A place in a result: a resource and the path of a field, or None and a path in the world outside.
_Spot = tuple[Place | None, str]


def disagreements(got: Result, rights: Sequence[Result], allowed: Allowed) -> list[Finding]:
    """Return the random values that are no longer the same in two places where all right runs have the same one.

    Args:
        got: the result to judge.
        rights: the runs without faults. The first two have the same schedule, and differ only in what is random.
        allowed: what may differ.
    """
    mine, *others = [_spots(each, allowed) for each in (got, *rights)]
    first, again = others[:2]
    together: defaultdict[str, list[_Spot]] = defaultdict(list)
    for spot, text in first.items():
        if text != again.get(spot, text) and not _TIME.search(text):
            together[text].append(spot)
    found: list[Finding] = []
    for one, other in (pair for spots in together.values() for pair in combinations(spots, 2)):
        same = all(one in each and other in each and each[one] == each[other] for each in others)
        if same and one in mine and other in mine and mine[one] != mine[other]:
            text = f"{_name(one)} is {mine[one]} and {_name(other)} is {mine[other]}"
            found.append(Finding("end state", f"{text}; without faults, they are the same", one[0] or other[0]))
    return found


def _spots(result: Result, allowed: Allowed) -> dict[_Spot, str]:
    """Return the texts of a result that may be compared with each other."""
    found: dict[_Spot, str] = {
        (place, path): text
        for place, fields in result.contents.items()
        if not allowed.resource(place[0], place[1][2])
        for path, text in fields.items()
        if not allowed.field(place[0], path)
    }
    found.update(((None, path), text) for path, text in _outside(result.outside, "") if not allowed.outside(path))
    return found


def _outside(state: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(state, Mapping):
        for key, value in state.items():
            yield from _outside(value, f"{path}.{key}" if path else str(key))
    elif not isinstance(state, list | tuple | set | frozenset):
        yield path, shown(state)


def _name(spot: _Spot) -> str:
    place, path = spot
    return f"{named(*place)}.{path}" if place is not None else f"outside.{path}"
