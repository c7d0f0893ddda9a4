"""The journal in memory: its bounds, and that no part takes memory from another."""

from __future__ import annotations

import dataclasses
import gc
import tracemalloc
from typing import NamedTuple

import pytest

from headway.events import Reconciled, RunEnded
from headway.journal import ControllerJournal, Journal, Ran
from headway.reconcile import Reason
from headway.resource import TypeName
from headway.storage import Fence

TEAM = TypeName("staff", "v1", "Team")
BIG = 1 << 20


def clock() -> float:
    return 7.0


def ran(number: int, parts: int = 0, error: str = "") -> Ran:
    """Return a reconcile whose texts are all its own, so that none is shared with another entry."""
    key = ("p" * 60 + str(number), "n" * 57 + str(number), "a" * 57 + str(number))

    def named(part: int) -> tuple[str, str, str]:
        return (f"{'p' * 50}{number}-{part}", f"{'n' * 50}{number}-{part}", f"{'a' * 50}{number}-{part}")

    reasons = tuple(Reason("changed", TEAM, named(part), number * 1000 + part) for part in range(parts))
    reads = tuple((TEAM, named(part)) for part in range(parts))
    return Ran(
        number + 0.5, key, "done", 0.1, 0.2, number, reasons, reads, (), error + str(number), error + str(number)
    )


def add(part: ControllerJournal, entry: Ran) -> None:
    flat = [field for read in entry.reads for field in read]
    part.ran(*entry[:6], entry.reasons, flat, entry.writes, entry.error, entry.traceback, entry.retry_after)


@pytest.mark.parametrize(("parts", "error"), [(0, ""), (8, ""), (0, "é" * 2000)], ids=["small", "parts", "errors"])
def test_journal_takes_no_more_memory_than_it_may(parts: int, error: str) -> None:
    """The oldest entries go, whatever the entries consist of."""
    journal = Journal(BIG, clock)
    part = journal.of("staff/teams")
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(4000 // (1 + parts)):
        add(part, ran(number, parts, error))
        journal.writes.add(
            number, TEAM, (str(number) * 10, "n" * 60 + str(number), "a" * 60 + str(number)), "written", None, "w"
        )
        part.turn_away(TEAM, (str(number) * 10, "n" * 60, "a" * 60), number, "p")
        part.note(RunEnded("teams", None, float(number)))
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert BIG / 10 < taken < BIG
    last = 4000 // (1 + parts) - 1
    assert [each.attempt for each in part.runs_of(ran(last).key)] == [last]
    assert not list(part.runs_of(ran(0).key))
    assert not part.complete


def test_entry_is_given_back_as_it_was_added() -> None:
    part = Journal(BIG, clock).of("staff/teams")
    entry = ran(3, 2, "error")._replace(writes=("a write",), retry_after=2.5)
    add(part, entry)
    [found] = part.runs_of(entry.key)
    assert found == entry._replace(reasons=tuple(map(tuple, entry.reasons)))


def test_busy_controller_drops_nothing_of_another() -> None:
    """Nor do its events, its turned-away changes and the writes drop its runs."""
    journal = Journal(100_000, clock)
    quiet, busy = journal.of("quiet"), journal.of("busy")
    add(quiet, ran(1))
    quiet.note(RunEnded("quiet", None, None))
    for number in range(1000):
        add(busy, ran(number))
        busy.note(RunEnded("busy", None, None))
        quiet.turn_away(TEAM, ran(number).key, number, "p")
        journal.writes.add(number, TEAM, ran(1).key, "written", None, "")
    assert [each.attempt for each in quiet.runs_of(ran(1).key)] == [1]
    assert [each.what for each in quiet.events("RunEnded")] == ["RunEnded"]
    assert 0 < len(list(busy.events("RunEnded"))) < 1000


def test_journal_without_memory_keeps_nothing() -> None:
    journal = Journal(0, clock)
    part = journal.of("staff/teams")
    add(part, ran(1))
    part.turn_away(TEAM, ran(1).key, 1, "p")
    journal.writes.add(1, TEAM, ran(1).key, "written", None, "")
    assert not list(part.runs_of(ran(1).key))
    assert not part.turned_away
    assert not journal.writes.at({1})


def test_event_is_kept_without_its_exception() -> None:
    """An exception would keep all objects of its frames alive. Its text and the program's own frames remain."""

    def fail() -> None:
        raise ValueError("no lead")

    part = Journal(BIG, clock).of("staff/teams")
    try:
        fail()
    except ValueError as error:
        part.note(RunEnded("teams", error, 1.0))
    [entry] = part.events("RunEnded")
    assert entry.fields["error"] == "ValueError: no lead"
    assert 'raise ValueError("no lead")' in entry.fields["traceback"]
    assert not any(isinstance(each, BaseException) for each in entry.fields.values())


def test_report_around_the_journal_passes_every_event_on() -> None:
    """Reconciles are recorded elsewhere, with what they have read. The wish for successes stays as it is."""
    seen: list[object] = []
    part = Journal(BIG, clock).of("staff/teams")
    report = part.around(seen.append)
    ended = RunEnded("teams", None, 1.0)
    reconciled = Reconciled("teams", None, "done", 0.1, None, None, ())
    report(ended)
    report(reconciled)
    assert seen == [ended, reconciled]
    assert [each.what for each in part.events("RunEnded", "Reconciled")] == ["RunEnded"]
    assert report.failures_only is False  # type: ignore[attr-defined]


def test_writes_are_found_by_resource_and_by_revision() -> None:
    """Another version of the same kind is the same resource."""
    writes = Journal(BIG, clock).writes
    writes.add(3, TEAM, ("", "", "core"), "created", None, "token ada")
    writes.add(4, TEAM, ("", "", "docs"), "created", None, "token ada")
    writes.add(5, TeamV2, ("", "", "core"), "written", Fence("staff/teams", "web-1", 1, 1), "token ops")
    assert [each.revision for each in writes.of(TEAM.unversioned, ("", "", "core"))] == [5, 3]
    assert {at: each.writer for at, each in writes.at({4, 5, 6}).items()} == {
        4: "token ada",
        5: "controller staff/teams (web-1)",
    }


TeamV2 = TypeName("staff", "v2", "Team")


@dataclasses.dataclass(frozen=True, slots=True)
class Cut:
    branch: str


class Sown(NamedTuple):
    seed: str


@pytest.mark.parametrize(
    ("event", "fields"),
    [(Cut("oak"), {"branch": "oak"}), (Sown("rye"), {"seed": "rye"}), ("rain", {"value": "rain"})],
)
def test_event_of_a_program_may_be_any_value(event: object, fields: dict[str, str]) -> None:
    part = Journal(BIG, clock).of("staff/teams")
    part.note(event)
    (entry,) = part.events(type(event).__name__)
    assert entry.fields == fields
