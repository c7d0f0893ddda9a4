"""Random values that a controller has replaced by others while their resource lived, such as a password. Pure.

The end looks as it does without faults, because the value is new in each run. But users of the first value have lost
it. Only a value that no run without faults replaces counts, since a program may also renew its values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headway.resource import Kind
from headway.testing.simulation._trace import Committed, Reconcile, Trace, named
from headway.testing.simulation.oracles._allowed import Allowed
from headway.testing.simulation.oracles._oracles import Finding, Place, Result

_WORDS = re.compile(r"""[^\s'",{}\[\]()]+""")
# A time is another one in each run, if it depends on a random delay.
_TIME = re.compile(r"^[\d.:-]+$|\d\d:\d\d")


class Replaced(NamedTuple):
    """A part of a field that a controller has replaced.

    Attributes:
        change: the change that did so.
        path: the field.
        at: the number of the word in the field's text.
        words: the word before the change and after it.
    """

    change: Committed
    path: str
    at: int
    words: tuple[str, str]

    @property
    def field(self) -> tuple[Kind, str]:
        """The type and the path of the field."""
        return self.change.kind, self.path

    def is_random(self, again: Sequence[Replaced]) -> bool:
        """Return True if another run of the same plan, with other random values, has replaced other words there."""
        return any(
            (each.change.kind, each.change.key, each.path, each.at)
            == (self.change.kind, self.change.key, self.path, self.at)
            and not {*each.words} & {*self.words}
            for each in again
        )

    def finding(self) -> Finding:
        """Return the finding about it."""
        change, (before, after) = self.change, self.words
        text = (
            f"{named(change.kind, change.key)}.{self.path}: {change.by} has replaced the random value {before} by "
            f"{after}; without faults, a stored one stays\n"
            f'    if either is right: may_differ=["{change.kind[1]}.{self.path}"]'
        )
        return Finding("replaced", text, (change.kind, change.key), (change,))


def replaced(result: Result, rights: Sequence[Result], allowed: Allowed) -> list[Replaced]:
    """Return what controllers have replaced in fields whose parts no right run replaces."""
    found = [each for each in all_replaced(result) if not allowed.field(*each.field) and not allowed.order(*each.field)]
    if not found:
        return []
    usual = {each.field for right in rights for each in all_replaced(right)}
    return [
        each for each in found if each.field not in usual and not allowed.resource(each.change.kind, each.change.key[2])
    ]


def all_replaced(result: Result) -> Iterator[Replaced]:
    """Yield the words in payloads and metadata that controllers have replaced by others."""
    late = _written_late(result.trace)
    for each in result.trace.commits:
        if not each.by or each.old is None or each.new is None or (each.kind, each.key) in late:
            continue
        if (each.old.data, each.old.metadata) == (each.new.data, each.new.metadata):
            continue
        was, made = (result.contents_of(each.kind, of) for of in (each.old, each.new))
        for path in sorted(was.keys() & made.keys()):
            if was[path] == made[path] or path.startswith(("status.", "(status).")):
                continue
            before, after = (_WORDS.findall(of[path]) for of in (was, made))
            if len(before) != len(after):
                continue
            for at, words in enumerate(zip(before, after, strict=True)):
                if words[0] != words[1] and not any(map(_TIME.search, words)):
                    yield Replaced(each, path, at, words)


def _written_late(trace: Trace) -> set[Place]:
    """Return the resources that a leader wrote when the next one had begun, which Kubernetes cannot always refuse."""
    found: set[Place] = set()
    latest: dict[str, int] = {}
    for each in trace.entries:
        if isinstance(each, Reconcile):
            latest[each.controller] = max(each.term, latest.get(each.controller, 0))
        elif isinstance(each, Committed) and each.by and 0 < each.term < latest.get(each.by, 0):
            found.add((each.kind, each.key))
    return found
