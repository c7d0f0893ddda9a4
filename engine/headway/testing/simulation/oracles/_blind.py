"""Writes that destroyed a change which their controller had not read: candidates, found in the trace of a run. Pure.

A controller may own what it has overwritten. Only a run where it reads the change first can show that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from headway.resource import FINALIZERS, Key, Kind, pb
from headway.testing.simulation import faults
from headway.testing.simulation._trace import Committed, Step, Trace, named
from headway.testing.simulation.oracles._oracles import Contents, Finding, Place, Result

_NOT_JUDGED = ("status", f"metadata.{FINALIZERS}", "metadata.another-writer")
"""The fields that each writer has its own part of, and the entry of a `conflict`, which is judged by itself."""
_LATE = (faults.CommitLate, faults.CommitLast, faults.DoneAgain)
_Reader = tuple[str, str, Kind, Key]


@dataclasses.dataclass(frozen=True, slots=True)
class Overwrite:
    """A write that has destroyed a change by another writer.

    Attributes:
        path: the field.
        value: the value that the other writer has set; None if the writer removed the field.
        change: the other writer's change.
        write: the write that destroyed it.
        step: the call that made the write.
        end: the field at the end of the run.
        contents_of: returns the fields of a resource.
    """

    path: str
    value: str | None
    change: Committed
    write: Committed
    step: Step
    end: str | None
    contents_of: Callable[[Kind, pb.Resource], Contents] = dataclasses.field(repr=False)

    @property
    def place(self) -> Place:
        """The resource."""
        return self.write.kind, self.write.key

    @property
    def owner(self) -> tuple[str, Kind, str]:
        """The controller and the field that it may own."""
        return self.step.by.controller, self.write.kind, self.path

    def finding(self) -> Finding:
        """Return the finding about it."""
        who = self.change.by or "a user"
        text = (
            f"{self.write.by} has destroyed a change of {named(*self.place)} that it had not read: {who} changed "
            f"{self.path} to {self.value or 'nothing'} at {self.change.revision}, and {self.write.by} wrote "
            f"{self.end or 'nothing'} at {self.write.revision}; the change is kept if {self.write.by} reads it first"
        )
        return Finding("overwritten", text, self.place, (self.change, self.step, self.write))


def overwrites(result: Result) -> Iterator[Overwrite]:
    """Yield the writes of reconcilers that destroyed a change made since they last read the resource.

    The change is missing at the end, and no other writer has changed the field since.
    """
    late = {each.step for each in result.struck if isinstance(each, _LATE)}
    writers = {step.revision: step for step in result.trace.steps if step.revision and step.number not in late}
    for write, base in _writes(result.trace, writers):
        changes = [each for each in result.trace.commits if (each.kind, each.key) == (write.kind, write.key)]
        before = [each for each in changes if base < each.revision < write.revision and _is_foreign(each, write)]
        after = [each for each in changes if each.revision > write.revision]
        end = result.contents.get((write.kind, write.key))
        if not before or end is None or any(each.new is None for each in after):
            continue
        for change in before:
            for path, value in _lost(result, change, write):
                changed_since = any(_is_foreign(each, write) and path in _changed(result, each) for each in after)
                if end.get(path) != value and not changed_since:
                    step = writers[write.revision]
                    yield Overwrite(path, value, change, write, step, end.get(path), result.contents_of)


def _writes(trace: Trace, writers: dict[int, Step]) -> Iterator[tuple[Committed, int]]:
    """Yield the changes that reconciles made, each with the version that their controller had last read or written."""
    reads = sorted(
        (
            (seen.at, each.process, each.controller, seen.kind, seen.key, seen.version)
            for each in {id(step.by): step.by for step in writers.values()}.values()
            for seen in each.seen
        ),
        key=lambda read: read[0],
    )
    known: dict[_Reader, int] = {}
    next_read = 0
    for at, entry in enumerate(trace.entries):
        while next_read < len(reads) and reads[next_read][0] <= at:
            _, process, controller, kind, key, version = reads[next_read]
            known[process, controller, kind, key] = version
            next_read += 1
        if isinstance(entry, Committed) and entry.by and entry.old is not None and entry.new is not None:
            step = writers.get(entry.revision)
            if step is not None and not step.by.function and (step.kind, step.key) == (entry.kind, entry.key):
                base = known.get((step.by.process, step.by.controller, entry.kind, entry.key), 0)
                if base:
                    yield entry, base


def _is_foreign(change: Committed, write: Committed) -> bool:
    """Return True for a change by another controller or a user. Headway's own controllers write in a term."""
    return change.by != write.by and bool(change.by or not change.term)


def _lost(result: Result, change: Committed, write: Committed) -> Iterator[tuple[str, str | None]]:
    assert write.old is not None
    assert write.new is not None
    old, new = (result.contents_of(write.kind, each) for each in (write.old, write.new))
    for path, value in _changed(result, change).items():
        is_judged = not path.replace("(", "").replace(")", "").startswith(_NOT_JUDGED)
        if is_judged and old.get(path) == value != new.get(path):
            yield path, value


def _changed(result: Result, change: Committed) -> dict[str, str | None]:
    """Return the fields that a change of an existing resource has changed, with their new values."""
    if change.old is None or change.new is None:
        return {}
    old: Contents = result.contents_of(change.kind, change.old)
    new: Contents = result.contents_of(change.kind, change.new)
    return {path: new.get(path) for path in sorted({*old, *new}) if old.get(path) != new.get(path)}
