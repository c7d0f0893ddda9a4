"""An app of teams and accounts for tests of declarations and of the engine's reports."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import trio

import headway
from headway import events, testing
from headway.rpc import Channel
from tests.helpers.resources import Account, Team

E = TypeVar("E")


class Staff:
    """An app and its engine. Tests declare controllers on ``app`` before `open` runs it."""

    engine: headway.Engine

    def __init__(self) -> None:
        self.app = headway.App("staff")
        self.team: headway.ResourceType[Team] = self.app.type("staff", "v1", "Team", Team)
        self.account: headway.ResourceType[Account] = self.app.type("staff", "v1", "Account", Account)
        self.events: list[object] = []

    @asynccontextmanager
    async def open(
        self, store: Any = "memory:", wrap_channel: Callable[[Channel], Channel] | None = None
    ) -> AsyncIterator[headway.Engine]:
        """Run the engine."""
        async with testing.open_engine(
            store, self.app, report=self.events.append, wrap_channel=wrap_channel
        ) as self.engine:
            yield self.engine

    def events_of(self, kind: type[E]) -> list[E]:
        """Return the events of a type so far."""
        return [event for event in self.events if isinstance(event, kind)]

    def errors(self) -> list[str]:
        """Return the errors that reconciles have raised so far."""
        return [repr(event.error) for event in self.events_of(events.Reconciled) if event.error is not None]

    async def write_team(self, name: str, *members: str) -> headway.Resource[Team]:
        """Write a team with these members."""
        return await self.engine.client.apply(self.team.new(name, Team(members=list(members))))

    async def wait_idle(self, seconds: float = 300.0) -> None:
        """Wait until no controller has pending work."""
        with trio.fail_after(seconds):
            await self.engine.wait_idle()
