"""The mapping of one change, tested alone: which keys it enqueues, and what it records of the others."""

from __future__ import annotations

from typing import Any

import pytest

import headway
from headway.cache import Applied, Cache
from headway.journal import ControllerJournal
from headway.queue import BACKLOG, LIVE
from headway.reconcile import Reason
from headway.resource import ResourceType
from headway.run import ChangeMapper
from headway.run._own_writes import OwnWrites, SelfTriggers
from tests.helpers.resources import ACCOUNT, TEAM, key, stored


class Mapped:
    """A mapper of teams and of accounts of the same names. Its predicates turn away what is called "away"."""

    def __init__(self) -> None:
        def not_away(old: headway.Resource[Any] | None, new: headway.Resource[Any] | None) -> bool:
            return (new or old).name != "away"  # type: ignore[union-attr]  # a change has one of them

        app = headway.App("mapped")
        for each in (TEAM, ACCOUNT):
            app.registry.register(each)
        watch = headway.watch(ACCOUNT, headway.mappers.same_name(), when=not_away)

        @app.controller(manages=TEAM, when=not_away, watches=[watch], name="teams")
        async def teams(rt: headway.Runtime, request: headway.Request) -> None: ...

        self.added: list[tuple[str, Reason, object]] = []
        self.journal = ControllerJournal("teams", lambda: 0.0, None)
        self.journal.resize(1 << 20)
        triggers, cache = SelfTriggers(OwnWrites()), Cache("teams", TEAM, [ACCOUNT])
        self._mapper = ChangeMapper(app.controllers["teams"], cache, {}, triggers, self.journal, self)

    def add(self, key: tuple[str, str, str], reason: Reason, *, priority: object = LIVE, due: float = 0.0) -> None:
        """Record a key, as a queue."""
        assert due < 0
        self.added.append((key[2], reason, priority))

    def map(self, type: ResourceType[Any], name: str, *, backlog: bool = False) -> None:
        """Map the creation of a resource."""
        change = Applied(key(name), None, stored(name, 7, type=type), 7)
        self._mapper.map_change(type.name, change, backlog=backlog)


@pytest.mark.parametrize("type", [TEAM, ACCOUNT])
def test_journal_has_the_changes_that_a_predicate_turns_away_but_not_the_backlog(type: ResourceType[Any]) -> None:
    """A resource that existed before the run has not changed."""
    mapped = Mapped()
    mapped.map(type, "away", backlog=True)
    assert mapped.journal.turned_away == {}
    mapped.map(type, "away")
    mapped.map(type, "ada")
    [turned] = mapped.journal.turned_away.values()
    assert (turned.type, turned.key, turned.revision) == (type.name, key("away"), 7)
    assert turned.predicate.endswith("not_away")
    assert [name for name, _, _ in mapped.added] == ["ada"]


@pytest.mark.parametrize("type", [TEAM, ACCOUNT])
def test_keys_of_the_backlog_have_its_priority_and_its_reason(type: ResourceType[Any]) -> None:
    mapped = Mapped()
    mapped.map(type, "ada", backlog=True)
    mapped.map(type, "ada")
    assert mapped.added == [
        ("ada", Reason("started", type.name, key("ada"), 7), BACKLOG),
        ("ada", Reason("changed", type.name, key("ada"), 7), LIVE),
    ]
