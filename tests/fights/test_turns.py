"""Turns of writers: which changes of a resource are part of a fight, and what is remembered of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headway.cache import Applied
from headway.client import Acknowledged
from headway.engine._placing import Placing
from headway.fights import Fight, Turns, _turns
from headway.fights._turns import COUNTED, FREE, GAP, LATE, MORE
from headway.journal import WriteJournal
from headway.reconcile import RECONCILING, Reconciling
from headway.resource import pb, resource_key
from headway.run import OwnWrites
from tests.helpers.resources import ACCOUNT, TEAM, at, key, stored

SOON = 0.001
ENOUGH = 4 * (FREE + MORE + LATE)


class Changes:
    """The changes of resources by reconciles of a run, and by other writers."""

    def __init__(self) -> None:
        self.own = OwnWrites()
        self.turns = Turns(self.own)
        self.revision, self.now = 9, 0.0
        self.stored: dict[str, pb.Resource] = {}

    def change(
        self, name: str = "ada", by: str | None = None, *, late: bool = False, pace: float = SOON, **metadata: str
    ) -> Fight | None:
        """Change the metadata of a resource after ``pace`` seconds. Return the fight that this is part of."""
        self.revision, self.now = self.revision + 1, self.now + pace
        old = self.stored.get(name)
        new = stored(name, self.revision, metadata={**({} if old is None else old.metadata), **metadata})
        self.stored[name] = new
        applied = Applied(key(name), old, new, self.revision)
        if by is not None and not late:
            self.note(by, new)
        fight = self.turns.compare(ACCOUNT.name, applied, self.now)
        if by is not None and late:
            self.note(by, new)
        return fight

    def note(self, by: str, new: pb.Resource) -> None:
        token = RECONCILING.set(Reconciling(key(by)))
        self.own.note(Acknowledged(ACCOUNT, resource_key(new), new, at(int(new.version))))
        RECONCILING.reset(token)

    def fight(self, name: str = "ada", **options: Any) -> Fight | None:
        """Let a key and another writer undo each other. Return the fight that the last change is part of."""
        found = None
        for _ in range(ENOUGH):
            self.change(name, by=name, color="red", **options)
            found = self.change(name, color="blue", **options)
        return found


def test_quick_turns_are_a_fight_and_slow_ones_are_not() -> None:
    assert Changes().fight() is not None
    assert Changes().fight(pace=0.1) is None


def test_fight_whose_turns_have_become_slow_is_none() -> None:
    changes = Changes()
    assert changes.fight() is not None
    found = None
    for _ in range(LATE):
        changes.change(by="ada", color="red")
        found = changes.change(color="blue", pace=20.0)
    assert found is None


def test_delay_of_the_own_part_of_a_turn_does_not_count() -> None:
    changes = Changes()
    assert changes.fight() is not None
    for _ in range(10):
        changes.change(by="ada", color="red", pace=60.0)
        assert changes.change(color="blue") is not None


def test_turns_may_take_longer_while_many_resources_have_them_and_keys_wait() -> None:
    for wait, of in ((0.0, 100), (1.0, 100), (1.0, 2)):
        changes = Changes()
        changes.turns.wait = wait
        found = None
        for _ in range(ENOUGH):
            for number in range(of):
                changes.change(f"n{number}", by="x", color="red", pace=0.5 / of)
            for number in range(of):
                found = changes.change(f"n{number}", color="blue", pace=0.5 / of)
        assert (found is not None) == (wait > 0 and of > 2)


def test_writers_of_different_fields_do_not_fight() -> None:
    changes = Changes()
    for number in range(ENOUGH):
        changes.change(by="ada", color=str(number % 2))
        assert changes.change(size=str(number % 2)) is None
        assert changes.change(by="ada", color=str(number % 2), other=str(number % 2)) is None


def test_writer_whose_answers_come_late_does_not_fight_with_itself() -> None:
    changes = Changes()
    for number in range(ENOUGH):
        assert changes.change(by="ada", late=True, color=str(number % 2)) is None


def test_fight_over_many_values_is_found() -> None:
    changes, found = Changes(), None
    for number in range(100 * 20):
        found = changes.change(by=f"n{number % 100}", color=str(number % 100))
    assert found is not None
    assert len(found.undone) == 100


def test_new_value_is_no_part_of_a_fight() -> None:
    """A field that nobody fights over may return to an old value, and the fight begins from nothing."""
    changes = Changes()
    changes.change(size="small")
    for size in ("large", "small", "large", "small"):
        fight = changes.fight()
        assert fight is not None
        assert changes.change(size=size) is None
        assert not fight.is_on
    assert changes.fight() is not None
    assert changes.change(color="green") is None
    assert changes.change(by="ada", color="red") is None


def test_known_value_of_a_part_that_nobody_fights_over_is_no_part_of_a_fight_unless_turns_cause_it() -> None:
    changes = Changes()
    for size in ("large", "small") * COUNTED:
        changes.change(by="ada", color="red")
        changes.change(color="blue", size=size)
    for size in ("large", "small", "large"):
        fight = changes.fight()
        assert fight is not None
        assert changes.change(size=size, pace=1.0) is None
        assert fight.is_on
        assert changes.change(size="small" if size == "large" else "large") is fight


def test_changes_are_not_kept_while_there_is_no_fight() -> None:
    """Their payloads may be large."""
    changes = Changes()
    for number in range(ENOUGH):
        changes.change(by="ada", color=str(number))
        changes.change(color="blue")
    (fight,) = changes.turns._observed.values()
    assert len(fight.recent) == LATE
    assert not any(isinstance(each, Applied) for kept in fight.recent for each in kept)


def test_change_that_comes_late_is_no_part_of_a_fight() -> None:
    """Its reply has overtaken it, or a mapper has failed with it: it was not compared with the others."""
    changes = Changes()
    assert changes.fight() is not None
    new = changes.stored["ada"]
    assert (
        changes.turns.compare(ACCOUNT.name, Applied(key("ada"), None, new, changes.revision - 1), changes.now) is None
    )
    assert changes.turns.compare(ACCOUNT.name, Applied(key("ada"), new, new, changes.revision), changes.now) is not None


def test_number_of_resources_that_are_observed_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of those without a turn are forgotten after some time, also if the oldest was not the first."""
    monkeypatch.setattr(_turns, "MOST_RESOURCES", 3)
    changes = Changes()
    for name in ("a", "b", "c", "d", "a"):
        changes.change(name, by="x", color="red")
        changes.change(name, color="blue")
    assert [name for _, (*_, name) in changes.turns._observed] == ["b", "c", "a"]
    changes.now += GAP
    changes.change("e", by="x", color="red")
    changes.change("e", color="blue")
    assert [name for _, (*_, name) in changes.turns._observed] == ["e"]
    assert changes.turns._values == 0


@pytest.mark.parametrize(("limit", "most"), [("MOST_OF_ONE", 50), ("MOST_VALUES", 50)])
def test_number_of_values_is_bounded(monkeypatch: pytest.MonkeyPatch, limit: str, most: int) -> None:
    monkeypatch.setattr(_turns, limit, most)
    changes = Changes()
    for number in range(500):
        changes.change(by="ada", color=f"red {number}")
        assert changes.change(color=f"blue {number}") is None
        kept = sum(len(each.known) for each in changes.turns._observed.values())
        assert changes.turns._values == kept <= most
    assert changes.fight() is not None


def test_writer_of_a_change_wrote_the_same_type() -> None:
    """Several resources may have been written at one revision."""
    writes = WriteJournal(100_000, lambda: 0.0, None)
    writes.add(7, TEAM.name, key("core"), "write", None, "ada")
    host: Any = SimpleNamespace(host=SimpleNamespace(supervisors=(), journal=SimpleNamespace(writes=writes)))
    assert Placing._writer_of(host, TEAM.name, key("core"), 7) == "ada"
    assert Placing._writer_of(host, ACCOUNT.name, key("core"), 7) == ""
