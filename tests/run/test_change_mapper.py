"""The mapping of one change, tested alone: which keys it enqueues, and what it records of the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headway
from headway.cache import Applied, Cache, Informer
from headway.errors import PayloadError
from headway.events import ignore
from headway.journal import ControllerJournal
from headway.queue import BACKLOG, LIVE
from headway.reconcile import Reason
from headway.resource import AnyMessage, Key, ResourceType
from headway.run import ChangeMapper
from headway.run._own_writes import OwnWrites
from headway.run._self_triggers import SelfTriggers
from tests.helpers.resources import ACCOUNT, TEAM, chunk, end, key, stored

When = Callable[[Any, Any], bool]


def not_away(old: Any, new: Any) -> bool:
    """Turn away what is called "away"."""
    return bool((new or old).name != "away")


def reads(old: Any, new: Any) -> bool:
    """Read the payload of the newest state."""
    return (new or old).data is not None


def fails(_: Any, __: Any) -> bool:
    """Raise as an unreadable payload does, although this one can be read."""
    raise PayloadError("of another resource")


class Mapped:
    """The mapper of teams, and of accounts by their names, each with a predicate.

    Attributes:
        added: the name, the reason and the priority of each enqueued key.
        handed: the states that the mapper of accounts was handed.
    """

    def __init__(self, when: When = not_away, of_accounts: When = not_away) -> None:
        app = headway.App("mapped")
        for each in (TEAM, ACCOUNT):
            app.registry.register(each)

        @headway.mappers.change
        def by_name(old: Any, new: Any, _: object) -> list[headway.ResourceId]:
            self.handed.append((old is not None, new is not None))
            return [TEAM.id((new or old).name)] if reads(old, new) else []

        @app.controller(
            manages=TEAM, when=when, watches=[headway.watch(ACCOUNT, by_name, when=of_accounts)], name="teams"
        )
        async def teams(rt: headway.Runtime, request: headway.Request) -> None: ...

        self.added: list[tuple[str, Reason, object]] = []
        self.handed: list[tuple[bool, bool]] = []
        self.journal = ControllerJournal("teams", lambda: 0.0, None)
        self.journal.resize(1 << 20)
        self.teams, accounts = Informer(TEAM, ignore), Informer(ACCOUNT, ignore)
        subscriptions = {each.type.name: each.subscribe([], lambda *_: None) for each in (self.teams, accounts)}
        triggers, cache = SelfTriggers(OwnWrites()), Cache("teams", TEAM, [ACCOUNT])
        self.mapper = ChangeMapper(app.controllers["teams"], cache, subscriptions, triggers, self.journal, self)

    def add(self, key: Key, reason: Reason, *, priority: object = LIVE, due: float = 0.0) -> None:
        """Record a key, as a queue."""
        assert due < 0
        self.added.append((key[2], reason, priority))

    def map(self, type: ResourceType[Any], name: str, *, backlog: bool = False, damaged: bool = False) -> None:
        """Map the creation of a resource."""
        new = stored(name, 7, type=type)
        if damaged:
            new.data = AnyMessage(type_url=type.type_url, value=b"\xff")
        self.mapper.map_change(type.name, Applied(key(name), None, new, 7), backlog=backlog)


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


@pytest.mark.parametrize("type", [TEAM, ACCOUNT])
def test_payload_error_of_a_change_that_can_be_read_is_the_functions_own(type: ResourceType[Any]) -> None:
    """The change is kept for a retry, and nothing is mapped without the predicate."""
    mapped = Mapped(**{"when" if type is TEAM else "of_accounts": fails})
    with pytest.raises(PayloadError, match="of another resource"):
        mapped.map(type, "ada")
    assert (mapped.added, mapped.handed) == ([], [])
    assert (mapped.mapper.calling, mapped.mapper.at_work.key) == ("fails", key("ada"))


def test_unreadable_state_of_a_managed_resource_is_enqueued_without_its_predicate() -> None:
    mapped = Mapped(reads)
    mapped.map(TEAM, "ada", damaged=True)
    assert mapped.added == [("ada", Reason("changed", TEAM.name, key("ada"), 7), LIVE)]


def test_mapper_of_changes_is_handed_no_change_without_states() -> None:
    """It may read the payload, which cannot be read. Nothing else is left of the creation."""
    mapped = Mapped()
    mapped.map(ACCOUNT, "ada", damaged=True)
    assert (mapped.added, mapped.handed) == ([], [(False, True), (False, True)])


def test_every_key_of_the_cache_is_enqueued_after_the_live_ones() -> None:
    mapped = Mapped()
    mapped.teams.feed(chunk(stored("ada", 5), stored("away", 6)))
    mapped.teams.feed(end(10))
    lost = Reason("changed", ACCOUNT.name, key("grace"), 7)
    mapped.mapper.add_every(lost)
    assert mapped.added == [("ada", lost, BACKLOG), ("away", lost, BACKLOG)]
