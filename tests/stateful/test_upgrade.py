"""Two servers on one store are upgraded and downgraded while users of both versions write and watch.

This machine tests the order of the steps and writes. The simulation tests controllers and faults during an upgrade.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
from grpclib.const import Status
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headway.errors import HeadwayError
from headway.resource import Bookmark, Changes, EndOfSnapshot, Position, Registry, ResourceType, SnapshotChunk, pb
from headway.storage import MemoryBackend, Within, version_of
from headway.versions import migrate
from tests.helpers.calls import Calls
from tests.helpers.declared import a_type, an_id
from tests.helpers.service_errors import status_of
from tests.helpers.versions import V1, V2, Crew, a_team, crew, data_of, roster, versions, without_converters

FORMER, FIRST, SECOND = range(3)
PROGRAMS: dict[int, Callable[[], Registry]] = {
    FORMER: without_converters,
    FIRST: lambda: versions(V1, newest=V2),
    SECOND: lambda: versions(newest=V2),
}
TEAMS = st.sampled_from(["core", "west"])
APART = "apart"
"""A team that existed in the newer version before there was a converter. It is never written in the older version."""
SERVERS = st.integers(0, 1)
MEMBERS = st.lists(st.sampled_from(["ada", "bea", "cyd"]), unique=True)
ROLES = st.sampled_from(["", "lead", "bass"])


class Watcher:
    """A user that follows one version, from any server, and the teams that it holds."""

    def __init__(self, type: ResourceType[Any]) -> None:
        self.type = type
        self.held: dict[str, Any] = {}
        self.position: Position | None = None

    async def follow(self, calls: Calls) -> None:
        """Follow the stream to its end. Begin again with a snapshot if the server cannot resume."""
        try:
            await self._hear(calls, self.position)
        except HeadwayError as error:
            if status_of(error) is not Status.OUT_OF_RANGE:
                raise
            self.held = {}
            await self._hear(calls, None)

    async def _hear(self, calls: Calls, after: Position | None) -> None:
        resume_after = None if after is None else after.message()
        async with calls.watch(a_type(self.type), resume_after=resume_after) as items:
            # Every server sends a first item. It shows whether the server resumes here.
            resumed = False
            while not resumed or after is None or self.position is None or self.position.revision < calls.revision:
                item = await anext(items)
                resumed = True
                if isinstance(item, SnapshotChunk):
                    self.held |= {name(each): data_of(each, self.type) for each in item.resources}
                elif isinstance(item, Changes):
                    for change in item.changes:
                        if change.deleted:
                            del self.held[name(change.resource)]
                        else:
                            self.held[name(change.resource)] = data_of(change.resource, self.type)
                    if self.position is not None:
                        self.position = self.position._replace(revision=item.changes[-1].revision)
                else:
                    assert isinstance(item, Bookmark | EndOfSnapshot)
                    self.position = after = item.position


def name(resource: pb.Resource) -> str:
    assert resource.id is not None
    return resource.id.name


class UpgradeMachine(RuleBasedStateMachine):
    """No step of an upgrade loses a write, and every watcher holds the stored teams."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryBackend()
        self.steps = [FORMER, FORMER]
        self.teams: dict[str, Crew] = {}
        self.watchers = {V1: Watcher(V1), V2: Watcher(V2)}

    @initialize(steps=st.sampled_from([(FORMER, FORMER), (FIRST, FIRST), (FIRST, SECOND)]))
    def begin(self, steps: tuple[int, int]) -> None:
        self.steps = [*steps]

    def run(self, call: Callable[[], Awaitable[Any]]) -> Any:
        async def within() -> Any:
            with trio.fail_after(60):
                return await call()

        return trio.run(within)

    def at(self, server: int) -> Calls:
        return Calls(self.store, PROGRAMS[self.steps[server]]())

    def stored(self) -> dict[str, str]:
        """Return the version in which each team is stored."""
        found, _ = self.run(lambda: self.store.list(V1.kind, Within()))
        return {name(each): version_of(each) for each in found}

    @rule(server=SERVERS, step=st.sampled_from(list(PROGRAMS)))
    def restart(self, server: int, step: int) -> None:
        """Restart a server with the program of another step, if the guide allows that step."""
        apart = abs(step - self.steps[1 - server]) > 1
        newer = {team for team, version in self.stored().items() if version == "v2"}
        if apart or (step == FORMER and newer - {APART}):
            return
        self.steps[server] = step

    @rule(server=SERVERS, team=TEAMS, names=MEMBERS)
    def write_older(self, server: int, team: str, names: list[str]) -> None:
        """Write in the older version. The write is always accepted, and keeps roles and the room."""
        self.run(lambda: self.at(server).write(a_team(V1, roster(*names), team)))
        was = self.teams.get(team, crew())
        roles = {each.name: each.role for each in was.members}
        self.teams[team] = crew(*((each, roles.get(each, "")) for each in names), room=was.room)

    @rule(
        server=SERVERS,
        team=TEAMS | st.just(APART),
        members=st.dictionaries(st.sampled_from(["ada", "bea"]), ROLES),
        room=ROLES,
    )
    def write_newer(self, server: int, team: str, members: dict[str, str], room: str) -> None:
        """Write in the newer version.

        The write is rejected only if the storage version is the older one and cannot hold the data, and no newer data
        is stored.
        """
        if self.steps[server] == FORMER and (team != APART or self.stored().get(team) == "v1"):
            return
        payload, before = crew(*members.items(), room=room), self.stored().get(team)
        try:
            self.run(lambda: self.at(server).write(a_team(V2, payload, team)))
        except HeadwayError as error:
            cannot_hold = before != "v2" and (room or any(members.values()))
            if status_of(error) is not Status.INVALID_ARGUMENT or self.steps[server] != FIRST or not cannot_hold:
                raise
        else:
            self.teams[team] = payload

    @rule(server=SERVERS, team=TEAMS)
    def delete(self, server: int, team: str) -> None:
        self.run(lambda: self.at(server).delete(an_id(team, V1)))
        self.teams.pop(team, None)

    @rule(server=SERVERS)
    def migrate(self, server: int) -> None:
        """Migrate to the storage version of the server's program. Data that it cannot hold stays as it is."""
        if self.steps[server] == FORMER:
            return
        self.run(lambda: migrate(self.store, PROGRAMS[self.steps[server]]()))
        for team, version in self.stored().items():
            data = self.teams[team]
            plain = not data.room and not any(each.role for each in data.members)
            assert version == ("v1" if self.steps[server] == FIRST and plain else "v2")

    @rule(server=SERVERS, type=st.sampled_from([V1, V2]))
    def watch(self, server: int, type: ResourceType[Any]) -> None:
        watcher = self.watchers[type]
        self.run(lambda: watcher.follow(self.at(server)))
        stored = self.stored()
        assert watcher.held == {
            team: data if type is V2 else roster(*(each.name for each in data.members))
            for team, data in self.teams.items()
            if self.steps[server] != FORMER or stored[team] == type.name.version
        }

    @invariant()
    def nothing_is_lost(self) -> None:
        judge = Calls(self.store, PROGRAMS[SECOND]())
        for team, data in self.teams.items():
            found = self.run(partial(judge.read, an_id(team, V2)))
            assert data_of(found.resource, V2) == data
        assert self.stored().keys() == self.teams.keys()


TestUpgrade = pytest.mark.timeout(400)(UpgradeMachine.TestCase)
BOUND: Any = settings.default
TestUpgrade.settings = settings(BOUND, max_examples=BOUND.max_examples // 2)
