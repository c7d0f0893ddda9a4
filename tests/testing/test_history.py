"""The checker of histories finds violations of each of its rules, and none in a good history."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from headway.resource import Key, Kind
from headway.testing import (
    HISTORY_RULES,
    BookmarkDelivered,
    CacheSeen,
    ChangesDelivered,
    DeletionsMissed,
    DeliveredResource,
    Fact,
    History,
    ReadAnswered,
    ReconcileDone,
    SnapshotDelivered,
    SnapshotEnded,
    TermHeld,
    WatchOpened,
    WriteAnswered,
    WriteSent,
    fact_line,
    read_fact,
)

JOB: Kind = ("staff", "Job")
COPY: Kind = ("staff", "Copy")
EVERYTHING = ("*", "*", "")
CONTROLLER = "staff/copier"


def key(name: str) -> Key:
    return ("default", "default", name)


def up(revision: int, name: str = "a", more: bool = False) -> DeliveredResource:
    return DeliveredResource(revision, key(name), f"uid-{name}", f"content-{revision}-{name}", more=more)


def tiered(revision: int, tier: str, name: str = "a") -> DeliveredResource:
    return up(revision, name)._replace(metadata=(("tier", tier),))


def gone(revision: int, name: str = "a", more: bool = False) -> DeliveredResource:
    return DeliveredResource(revision, key(name), f"uid-{name}", "", deleted=True, more=more)


def opened(watch: str, after: int | None = None, kind: Kind = JOB) -> Fact:
    return WatchOpened(watch, kind, EVERYTHING, after)


def changes(watch: str, *deliveries: DeliveredResource) -> Fact:
    return ChangesDelivered(watch, deliveries)


def snapshot(watch: str, at: int, *deliveries: DeliveredResource, kind: Kind = JOB, store: str = "store") -> list[Fact]:
    parts = [SnapshotDelivered(watch, deliveries)] if deliveries else []
    return [opened(watch, kind=kind), *parts, SnapshotEnded(watch, store, at)]


def bookmark(watch: str, at: int, resumed: bool = False) -> Fact:
    return BookmarkDelivered(watch, "store", at, resumed)


def wrote(
    delivery: DeliveredResource,
    *,
    who: str = "web-1",
    term: int = 0,
    sent: float | None = None,
    outcome: str = "acknowledged",
    revision: int | None = None,
    expected: int = 0,
) -> WriteAnswered:
    """Return a write that took a second and was sent at the second of its revision, unless given."""
    began = float(delivery.revision) if sent is None else sent
    fence = (CONTROLLER, "", term) if term else None
    write = WriteAnswered(
        who, JOB, delivery.key, (began, began + 0.9), fence, outcome, delivery.digest, expected=expected
    )
    if outcome != "acknowledged":
        return write
    return write._replace(
        revision=delivery.revision if revision is None else revision, stored=None if delivery.deleted else delivery
    )


def read(at: int, version: int, sent: float, name: str = "a") -> Fact:
    return ReadAnswered("web-1", JOB, key(name), (sent, sent + 0.1), at, version)


def cache(at: int, **held: int) -> Fact:
    return CacheSeen("web-1", JOB, at, tuple((key(name), version) for name, version in held.items()))


def reconciled(name: str, at: int, who: str = "web-1", began: float = 100.0) -> Fact:
    return ReconcileDone(who, CONTROLLER, key(name), began, ((JOB, at),))


# The commits: a at 2, 4 and 8; b at 3, and its deletion at 5; c and d together at 6.
LIVE = [changes("w", up(2)), changes("w", up(3, "b"), up(4)), changes("w", gone(5, "b")), bookmark("w", 5)]
LATER = [changes("w", up(6, "c", more=True), up(6, "d")), bookmark("w", 7), changes("w", up(8))]
WITNESS: list[Fact] = [*snapshot("w", 1), *LIVE, *LATER]
GOOD: list[Fact] = [
    *WITNESS,
    *snapshot("late", 4, up(3, "b"), up(4)),
    changes("late", gone(5, "b"), up(6, "c", more=True), up(6, "d"), up(8)),
    opened("resumed", after=5),
    bookmark("resumed", 5, resumed=True),
    changes("resumed", up(6, "c", more=True)),
    changes("resumed", up(6, "d")),
    bookmark("resumed", 7),
    wrote(up(2), term=1),
    wrote(gone(5, "b"), term=1),
    wrote(up(8), who="web-2", term=2, expected=4),
    # A write without effect: its content was already stored.
    wrote(up(8), who="web-2", term=2, sent=9.0, expected=8),
    wrote(up(7, "e"), outcome="refused"),
    wrote(up(8, "never"), outcome="unknown"),
    TermHeld("web-1", CONTROLLER, 1),
    TermHeld("web-2", CONTROLLER, 2),
    read(4, 4, sent=3.5),
    read(5, 0, sent=6.0, name="b"),
    cache(3, a=2, b=3),
    cache(3, a=8),
    cache(5, a=8),
    cache(7, a=8, c=6, d=6),
    reconciled("a", 8),
    reconciled("b", 5),
    reconciled("c", 7),
    reconciled("d", 3),
    reconciled("d", 6),
]


def owes(kinds: Iterable[Kind] = (JOB,)) -> dict[str, dict[Kind, Callable[[Key], list[Key]]]]:
    return {CONTROLLER: {kind: lambda key: [key] for kind in kinds}}


def swapped(old: Fact, *new: Fact) -> list[Fact]:
    """Return the good history with one fact replaced."""
    at = GOOD.index(old)
    return [*GOOD[:at], *new, *GOOD[at + 1 :]]


LATE = next(each for each in GOOD if isinstance(each, ChangesDelivered) and each.watch == "late")

# A witness of the metadata: a is gold at 2 and free at 4; b is free at 3, gold at 5, and deleted at 6.
TIERS: list[Fact] = [
    *snapshot("all", 1),
    changes("all", tiered(2, "gold"), tiered(3, "free", "b"), tiered(4, "free"), tiered(5, "gold", "b"), gone(6, "b")),
]


def golden(*delivered: DeliveredResource, at: int = 1) -> list[Fact]:
    """Return the facts of a watch of the golden ones, which has a snapshot and is complete up to 7."""
    began = [each for each in delivered if each.revision <= at]
    return [
        WatchOpened("golden", JOB, EVERYTHING, None, (("tier", "gold"),)),
        *([SnapshotDelivered("golden", tuple(began))] if began else []),
        SnapshotEnded("golden", "store", at),
        *([changes("golden", *later)] if (later := [each for each in delivered if each.revision > at]) else []),
        bookmark("golden", 7),
    ]


BAD: dict[str, list[list[Fact]]] = {
    "ordered": [
        swapped(LIVE[1], changes("w", up(4), up(3, "b"))),
        # A change at or below the snapshot's revision.
        swapped(LATE, changes("late", up(2)), LATE),
    ],
    "unique": [
        swapped(LIVE[0], LIVE[0], LIVE[0]),
        [*GOOD, *snapshot("twice", 2, up(2), up(2))],
    ],
    "reliable": [swapped(LIVE[1], changes("w", up(4)))],
    "atomic": [
        swapped(LATER[0], changes("w", up(6, "c"))),
        swapped(LATER[0], changes("w", up(6, "c"), up(6, "d"))),
        swapped(LATER[0], changes("w", up(6, "c", more=True)), LATER[1], changes("w", up(6, "d"))),
        [*snapshot("w", 1), *LIVE, changes("w", up(6, "c", more=True), up(8))],
    ],
    "resumable": [
        [*GOOD, opened("r", after=4), bookmark("r", 4, resumed=True), changes("r", up(8))],
        [*GOOD, opened("r", after=4), bookmark("r", 5, resumed=True), bookmark("r", 9)],
        [*GOOD, opened("r", after=5), bookmark("r", 4, resumed=True), changes("r", gone(5, "b"))],
        [*GOOD, opened("r", after=5), bookmark("r", 5, resumed=True), changes("r", gone(5, "b"))],
    ],
    "bookmarkable": [
        [*GOOD, opened("r", after=5), bookmark("r", 5, resumed=True), bookmark("r", 7)],
        swapped(LATER[0], bookmark("w", 6), LATER[0]),
        swapped(LATER[1], bookmark("w", 4)),
    ],
    "snapshot": [
        [*GOOD, *snapshot("s", 4, up(4))],
        [*WITNESS, *snapshot("s", 6, up(4), up(3, "b"), up(6, "c"), up(6, "d"))],
        [*GOOD, *snapshot("s", 7, up(8), up(6, "c"), up(6, "d"))],
        [*GOOD, opened("s"), bookmark("s", 3)],
        [*GOOD, opened("s"), changes("s", up(2))],
        [*GOOD, *snapshot("s", 2, up(2)), SnapshotEnded("s", "store", 2)],
        [*GOOD, *snapshot("s", 2, up(2)), SnapshotDelivered("s", (up(3, "b"),))],
        [*GOOD, *snapshot("s", 2, up(2)), SnapshotDelivered("s", ())],
    ],
    "gapless": [[*GOOD, *snapshot("g", 3, up(2), up(3, "b")), changes("g", gone(5, "b"))]],
    "agreed": [
        swapped(LATE, changes("late", gone(5, "b"), up(6, "c", more=True), up(6, "d"), up(8)._replace(digest="other"))),
        [*GOOD, wrote(up(4)._replace(uid="another"), who="web-3")],
    ],
    "one store": [[*GOOD, *snapshot("copy", 3, up(2), up(3, "b"), store="another store")]],
    "witnessed": [[*GOOD, wrote(up(11, "z"), sent=20.0)]],
    "durable": [
        # No watch delivers an acknowledged write.
        [*GOOD, wrote(up(7, "z"), sent=7.0)],
        # A snapshot lacks a delivered change, and in the second case has the state before it.
        [*GOOD, *snapshot("s", 9, up(6, "c"), up(6, "d"))],
        [*GOOD, *snapshot("s", 9, up(4), up(6, "c"), up(6, "d"))],
        # An acknowledged deletion did not happen.
        [*snapshot("w", 1), changes("w", up(2)), bookmark("w", 9), wrote(gone(5)), *snapshot("s", 8, up(2))],
    ],
    "refused": [[*WITNESS, wrote(up(8), outcome="refused")]],
    "replaced": [
        [*WITNESS, wrote(up(8), expected=2)],
        [*WITNESS, changes("w", up(10, "b")), wrote(up(10, "b"), expected=3)],
    ],
    "once": [[*GOOD, wrote(up(8, "z"), who="web-2", term=2)]],
    "in order": [[*WITNESS, wrote(up(4), sent=1.0), wrote(up(2), who="web-2", sent=3.0)]],
    "linearizable": [[*GOOD, read(1, 0, sent=9.5)], [*GOOD, read(8, 4, sent=9.5)], [*GOOD, read(8, 9, 9.5, "n")]],
    "monotonic": [
        [*GOOD, cache(6, a=8, c=6, d=6)],
        [*WITNESS, cache(5, a=8), cache(5, a=4)],
        # A deleted resource comes back.
        [*WITNESS, cache(4, a=4, b=3), cache(4, a=4), cache(4, a=4, b=3)],
    ],
    "one cut": [
        [*WITNESS, cache(5, a=2)],
        [*WITNESS, cache(7, a=4, c=6)],
        [*WITNESS, cache(7, a=4, c=6, d=6, never=6)],
        [*WITNESS, cache(8, a=8, b=3, c=6, d=6)],
    ],
    "one holder": [
        [*GOOD, TermHeld("web-2", CONTROLLER, 1)],
        [*WITNESS, wrote(up(2), term=1), wrote(up(4), who="web-2", term=1)],
    ],
    "selected": [
        [*TIERS, *golden(tiered(2, "gold"), tiered(3, "free", "b"), gone(4), tiered(5, "gold", "b"), gone(6, "b"))],
        [*TIERS, *golden(tiered(2, "gold"), gone(3, "b"), gone(4), tiered(5, "gold", "b"), gone(6, "b"))],
    ],
    "fenced": [[*WITNESS, wrote(up(4), term=2), wrote(up(8), who="web-2", term=1)]],
    "reconciled": [
        [each for each in GOOD if each != reconciled("a", 8)],
        swapped(reconciled("b", 5), reconciled("b", 4, who="web-3")),
        # The reconcile began before the reply to its process's own write.
        swapped(reconciled("a", 8), reconciled("a", 7, who="web-2", began=8.5)),
    ],
}


# Other rules that the same histories necessarily break.
ALSO = {
    "atomic": {"bookmarkable", "unique"},
    "resumable": {"bookmarkable"},
    "durable": {"one cut"},
    "once": {"durable"},
}


def rules(facts: Iterable[Fact]) -> set[str]:
    return {rule for rule, _ in History(facts).violations()}


def test_good_history_breaks_no_rule() -> None:
    """The same holds after it was written and read again with a truncated last line."""
    History(GOOD).check(owes())
    again = History()
    again.read([*(fact_line(fact) + "\n" for fact in GOOD), '["WatchOp'])
    assert again.facts == GOOD
    again.check(owes())


def test_every_rule_has_a_history_that_breaks_it() -> None:
    """A rule without such a history might never fail."""
    assert set(BAD) == set(HISTORY_RULES)


@pytest.mark.parametrize(
    ("rule", "facts"),
    [pytest.param(rule, facts, id=f"{rule} {number}") for rule, all in BAD.items() for number, facts in enumerate(all)],
)
def test_history_that_breaks_a_rule_is_found(rule: str, facts: list[Fact]) -> None:
    """The report names that rule, and no unrelated one."""
    found = {each.rule for each in History(facts).violations(owes() if rule == "reconciled" else None)}
    assert rule in found
    assert found - {rule} <= ALSO.get(rule, set())
    with pytest.raises(AssertionError, match=f"(?m)^{rule}: "):
        History(facts).check(owes() if rule == "reconciled" else None)


def test_watch_is_judged_by_its_own_filter() -> None:
    """A watch need not deliver resources with other tenancies or names."""
    facts = [*WITNESS, WatchOpened("part", JOB, ("*", "*", "c"), None), SnapshotEnded("part", "store", 1)]
    History([*facts, changes("part", up(6, "c")), bookmark("part", 9)]).check()
    assert rules([*facts, bookmark("part", 9)]) == {"bookmarkable"}
    other = [*WITNESS, WatchOpened("part", JOB, ("default", "other", ""), None), SnapshotEnded("part", "store", 9)]
    History(other).check()


def test_watch_by_metadata_is_judged_by_what_enters_and_leaves() -> None:
    """Leaving is a deletion to it, and an update to the others. Without it, its reader keeps what has left."""
    entered, left, other, deleted = tiered(2, "gold"), gone(4), tiered(5, "gold", "b"), gone(6, "b")
    History([*TIERS, *golden(entered, left, other, deleted)]).check()
    History([*TIERS, *golden(tiered(2, "gold"), left, other, deleted, at=3)]).check()
    assert rules([*TIERS, *golden(entered, other, deleted)]) == {"reliable"}
    assert rules([*TIERS, *golden(entered, left, other)]) == {"bookmarkable"}
    assert rules([*TIERS, *golden(entered, left, deleted)]) == {"reliable", "selected"}
    assert rules([*TIERS, *golden(left, other, deleted, at=3)]) == {"snapshot", "selected"}
    assert rules([*TIERS, *golden(entered, tiered(3, "free", "b"), left, other, deleted, at=3)]) >= {"snapshot"}
    assert rules([*TIERS, *golden(entered, left, other, gone(5, "b"), deleted)]) >= {"agreed"}
    # It is recorded and read again with what it selects.
    again = History()
    again.read([fact_line(fact) + "\n" for fact in golden(entered, other, deleted)])
    assert again.facts == golden(entered, other, deleted)


def test_reconcile_sees_own_writes_above_its_frontier() -> None:
    """The frontier of its cache may be lower: a process sees its own writes first."""
    History(swapped(reconciled("a", 8), reconciled("a", 7, who="web-2", began=9.0))).check(owes())


def test_deletion_that_a_run_could_not_know_of_need_not_be_reconciled() -> None:
    """The run has recorded such deletions. Every other change and every earlier deletion must still be reconciled."""
    facts = swapped(reconciled("b", 5), reconciled("b", 4, who="web-3"))
    History([*facts, DeletionsMissed("web-3", CONTROLLER, JOB, 4, 5)]).check(owes())
    for missed in (
        DeletionsMissed("web-3", CONTROLLER, JOB, 5, 9),
        DeletionsMissed("web-3", CONTROLLER, JOB, 2, 4),
        DeletionsMissed("web-3", CONTROLLER, COPY, 4, 9),
        DeletionsMissed("web-3", "staff/other", JOB, 4, 9),
    ):
        assert [rule for rule, _ in History([*facts, missed]).violations(owes())] == ["reconciled"]
    unseen = [each for each in GOOD if each != reconciled("a", 8)]
    missed = DeletionsMissed("web-3", CONTROLLER, JOB, 1, 9)
    assert [rule for rule, _ in History([*unseen, missed]).violations(owes())] == ["reconciled"]


def test_refused_write_may_be_stored_by_a_later_attempt_that_has_no_answer() -> None:
    """Its process was killed meanwhile."""
    sent, refused = WriteSent("web-1", JOB, key("a"), up(8).digest), wrote(up(8), outcome="refused")
    History([*WITNESS, sent, refused, sent]).check()
    assert rules([*WITNESS, sent, refused]) == {"refused"}


def test_invalid_fact_is_refused_with_the_valid_form() -> None:
    """A line of another file is not ignored."""
    with pytest.raises(
        ValueError, match="'\\[\"Other\",1\\]' is not a fact of a history: its first value must be one of Wat"
    ):
        read_fact('["Other",1]')
