"""A program's cache of teams and accounts, in the engine's process or over TCP, with everything that it needs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any

from typing_extensions import override

import headway
from headway import testing
from headway.access import Access, Authorizer, Policy, Rule
from headway.resource import Kind, pb
from headway.storage import Put
from tests.helpers.faulty_channel import FaultyChannel
from tests.helpers.resources import Account, Team
from tests.helpers.restorable import Backup, RestorableBackend
from tests.helpers.stream_beginnings import Unreachable

LAG_LIMIT = 30.0
HOW = ("in process", "TCP")


class CutChannel(FaultyChannel):
    """A `FaultyChannel` on which the streams of a type can be cut off until they are mended."""

    def __init__(self, store: RestorableBackend) -> None:
        super().__init__(store, LAG_LIMIT)
        self._cut: set[Kind] = set()

    def cut(self, *types: headway.ResourceType[Any]) -> None:
        """Break the streams of these types, and refuse all later ones."""
        for type in types:
            self._cut.add(type.kind)
            self.streams(type).drop()

    def mend(self) -> None:
        """Let every stream be opened again."""
        self._cut.clear()

    @override
    def stream(self, path: str, request: object, **options: Any) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        if isinstance(request, pb.WatchListRequest) and request.type is not None:
            kind = (request.type.group, request.type.kind)
            if kind in self._cut:
                self._of_kind(kind).beginnings.appendleft(Unreachable())
        return super().stream(path, request, **options)


class Staff:
    """An engine of teams and accounts. Its store can be restored, and the streams of its process can be harmed."""

    engine: headway.Engine

    def __init__(self) -> None:
        self.app = headway.App("staff")
        self.team: headway.ResourceType[Team] = self.app.type("staff", "v1", "Team", Team)
        self.account: headway.ResourceType[Account] = self.app.type("staff", "v1", "Account", Account)
        self.by_login = headway.indexes.by(self.account, "login", lambda account: account.data.login)
        self.store = RestorableBackend()
        self.channel = CutChannel(self.store)
        self.reported: list[object] = []

    @asynccontextmanager
    async def open(self, *, listen: bool = False, access: Authorizer | None = None) -> AsyncIterator[Staff]:
        """Run the engine."""
        network = headway.Network(["127.0.0.1:0"], access=access, insecure=access is None) if listen else None
        async with (
            self.store as store,
            testing.open_engine(
                nullcontext(store),
                self.app,
                report=self.reported.append,
                wrap_channel=self.channel.over,
                network=network,
                timing=headway.Timing(lag_limit=LAG_LIMIT),
            ) as self.engine,
        ):
            yield self

    @asynccontextmanager
    async def cache(self, how: str = "in process", **options: Any) -> AsyncIterator[headway.notify.PrimedCache]:
        """Open a cache of both types, with the index."""
        options = {"watches": [self.team, self.account], "indexes": [self.by_login], **options}
        if how == "in process":
            async with self.engine.open_cache(**options) as cache:
                yield cache
        else:
            options.setdefault("report", self.reported.append)
            async with headway.open_cache(self.engine.addresses, self.app, **options) as cache:
                yield cache

    async def write_team(self, name: str, *members: str) -> headway.Resource[Team]:
        """Write a team with these members."""
        return await self.engine.client.apply(self.team.new(name, Team(members=list(members))))

    async def write_account(self, name: str, login: str = "") -> headway.Resource[Account]:
        """Write an account with this login."""
        return await self.engine.client.apply(self.account.new(name, Account(login=login)))


async def commit_both(staff: Staff, team: str, account: str) -> None:
    """Create a team and an account in one commit."""
    messages = staff.team.new(team).message(), staff.account.new(account, Account(login="al")).message()
    kinds, names = (staff.team.kind, staff.account.kind), (team, account)
    await staff.store.commit(
        [
            Put(kind, ("default", "default", name), message, "")
            for kind, name, message in zip(kinds, names, messages, strict=True)
        ]
    )


def restore(staff: Staff, backup: Backup, *, new_id: bool) -> None:
    """Put the store back to a backup, as an operator does. Every stream ends."""
    staff.store.restore(backup, new_id=new_id)
    staff.channel.forget()


def names(found: Any) -> list[str]:
    """Return the names of resources."""
    return [each.name for each in found]


def readers(*verbs: str) -> Policy:
    """Return a policy that allows these verbs on both types everywhere."""
    types = ("staff.v1.Team", "staff.v1.Account")
    return Policy("readers", [Rule(verbs=verbs, type=type, partition="*", namespace="*") for type in types])


def authorizer(policy: Policy, *tokens: Any) -> Authorizer:
    """Return an authorizer with one policy and these tokens."""
    return Authorizer(Access([policy], tokens))
