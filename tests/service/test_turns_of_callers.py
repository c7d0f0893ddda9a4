"""A caller with many lists or snapshots does not delay those of another caller by more than a few parts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

import headway
from headway.access import Access, Authorizer, Policy, Rule, new_token
from headway.client import Client
from tests.storage.sqlite_kit import count_pages

MANY = 40
"""The number of calls of the other caller that are being read all the time."""
A_FEW = 35
"""The number of their parts that may be read meanwhile: eight that have begun, one for each part of the caller, and
those for which there is time while its request and its answer travel. Without turns there are at least seventy.
"""


@headway.message(name="staff.v1.Payload")
class Payload:
    members: list[str] = headway.field(1)


app = headway.App("staff")
TEAM = app.type("staff", "v1", "Team", Payload)
ACCOUNT = app.type("staff", "v1", "Account", Payload)

Call = Callable[[Client], Awaitable[object]]


@asynccontextmanager
async def two_callers(folder: Path) -> AsyncIterator[tuple[Client, Client]]:
    """Serve a store with a hundred teams and one account to two callers, each with a token."""
    tokens = [new_token(["readers"]) for _ in range(2)]
    rules = [Rule(verbs=("read", "list", "watch"), type="staff.*.*", partition="*", namespace="*")]
    access = Authorizer(Access([Policy("readers", rules)], [token for _, token in tokens]))
    async with (
        headway.open_engine(
            f"sqlite:{folder / 'a.db'}", app, network=headway.Network(["127.0.0.1:0"], access=access)
        ) as engine,
        headway.connect(engine.addresses, app, token=tokens[0][0]) as many,
        headway.connect(engine.addresses, app, token=tokens[1][0]) as few,
    ):
        for number in range(100):
            await engine.client.apply(TEAM.new(f"t{number:03}", Payload()))
        await engine.client.apply(ACCOUNT.new("a", Payload()))
        yield many, few


async def watch_teams(client: Client) -> object:
    async with client.watch(TEAM) as watch:
        return await anext(aiter(watch))


async def list_teams(client: Client) -> object:
    return await client.list(TEAM)


@pytest.mark.parametrize("call", [pytest.param(watch_teams, marks=pytest.mark.wide), list_teams])
async def test_neighbor_waits_for_a_few_parts_of_many_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    async def repeat() -> None:
        while True:
            await call(many)

    async with two_callers(tmp_path) as (many, few):
        monkeypatch.setattr("headway.storage.sqlite._reader.SNAPSHOT_CHUNK", 5)
        parts = count_pages(monkeypatch)
        await few.list(ACCOUNT)
        async with trio.open_nursery() as nursery:
            for _ in range(MANY):
                nursery.start_soon(repeat)
            with trio.fail_after(60):
                while len(parts) < 5 * MANY:
                    await trio.lowlevel.checkpoint()
                waited = []
                for _ in range(5):
                    before = len(parts)
                    await few.list(ACCOUNT)
                    waited.append(len(parts) - before)
            nursery.cancel_scope.cancel()
    assert max(waited) <= A_FEW
