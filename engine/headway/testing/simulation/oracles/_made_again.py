"""Things in the world outside that a program has removed and made again. Pure.

A program that has removed a thing by mistake may create it again, so that the end state looks right: the disk exists
again, but it is empty. A run with faults must not do this more often than a run without.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from headway.testing.simulation._trace import Trace
from headway.testing.simulation.oracles._allowed import OUTSIDE, Allowed
from headway.testing.simulation.oracles._oracles import Finding, Result
from headway.testing.simulation.oracles._shown import shown

Thing = tuple[str, Hashable]
"""A part of the world outside, and the key or the value of a thing in it."""


def things_in(state: Any) -> frozenset[Thing]:
    """Return the contents of the parts of a state: the keys of mappings, and the values of lists and sets.

    A mapping without such parts is one itself.
    """
    if not isinstance(state, Mapping):
        return frozenset()
    if not any(map(_is_many, state.values())):
        state = {"": state}
    found: set[Thing] = set()
    for part, value in state.items():
        if _is_many(value):
            found |= {(str(part), each if isinstance(each, str | int) else shown(each)) for each in value}
    return frozenset(found)


def _is_many(value: Any) -> bool:
    return isinstance(value, Mapping | list | tuple | set | frozenset)


def made_again(result: Result, rights: Sequence[Result], allowed: Allowed) -> list[Finding]:
    """Return a finding for each part where more things were made again than in any run without faults."""
    if allowed.random_outside:
        return []
    mine = _again(result.trace)
    most = Counter[str]()
    for each in rights:
        most |= _by_part(_again(each.trace))
    findings: list[Finding] = []
    for part, count in _by_part(mine).items():
        if count > most[part] and not allowed.outside(part) and not allowed.order_outside(part):
            what = ", ".join(sorted({str(thing) for of, thing in mine if of == part}))
            cases = f" ({_said(count)})" if most[part] else ""
            where = f"{OUTSIDE}.{part}" if part else OUTSIDE
            text = f"{where}: {what} was removed and made again{cases}; without faults: {_said(most[part])}"
            findings.append(Finding("outside", text))
    return findings


def _said(count: int) -> str:
    return f"{count} such {'case' if count == 1 else 'cases'}" if count else "never"


def _by_part(things: Iterable[Thing]) -> Counter[str]:
    return Counter(part for part, _ in things)


def _again(trace: Trace) -> list[Thing]:
    """Return the things that came back, once for each time.

    Those that existed at the start are not the program's. What others have taken away is not removed by the program.
    """
    if not trace.outside:
        return []
    seen: set[Thing] = set()
    back: list[Thing] = []
    before = trace.outside[0]
    for at, now in enumerate(trace.outside[1:], 1):
        new = now - before
        if at in trace.drifted:
            seen -= before - now
        else:
            back += sorted((each for each in new if each in seen), key=repr)
            seen |= new
        before = now
    return back
