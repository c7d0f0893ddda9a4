"""The indexes of a run are built in turns with other tasks, from entries that change meanwhile."""

from __future__ import annotations

import random

import pytest
import trio
from trio.testing import MockClock

import headway
from headway import events, field
from headway.cache import IndexTable
from headway.resource import Key
from headway.storage import MemoryBackend

MANY = 1000


@headway.message
class Member:
    """A payload."""

    pool: str = field(1)
    tags: list[str] = field(2)


def drawn(draw: random.Random) -> Member:
    return Member(pool=f"p{draw.randrange(5)}", tags=[f"t{draw.randrange(5)}", f"t{draw.randrange(5)}"])


@pytest.mark.parametrize("seed", range(2))
async def test_changes_during_the_build_are_indexed(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Resources that are indexed already, those that are not, and new ones are changed, deleted and made anew."""

    def search(_: IndexTable, key: Key) -> None:
        raise AssertionError(f"{key} is not where its state says, so all values are searched")

    monkeypatch.setattr(IndexTable, "_sweep", search)
    draw, store, calls = random.Random(seed), MemoryBackend(), 0
    bare, app = headway.App("bare"), headway.App("members")
    type = bare.type("members", "v1", "Member", Member)
    app.registry = bare.registry

    def pool_of(member: headway.Resource[Member]) -> str:
        nonlocal calls
        calls += 1
        autojump_clock.jump(0.006)
        return member.data.pool

    by_pool = headway.indexes.by(type, "pool", pool_of)
    by_tag = headway.indexes.by_many(type, "tag", lambda member: member.data.tags)
    seen: list[headway.Runtime] = []

    @app.controller(manages=type, indexes=[by_pool, by_tag])
    async def members(rt: headway.Runtime, _: headway.Request[Member]) -> None:
        seen.append(rt)

    heard, before = list[object](), list[int]()
    async with headway.open_engine(store, bare, report=headway.events.ignore) as engine:
        for n in range(MANY):
            await engine.client.create(type.new(f"m{n}", drawn(draw)))

        async def write(n: int) -> None:
            await engine.client.write(type.new(f"m{n}", drawn(draw)))

        async def delete(n: int) -> None:
            await engine.client.delete(type.id(f"m{n}"))
            if n % 2:
                await write(n)

        async def change() -> None:
            while calls < MANY // 20:
                await trio.lowlevel.checkpoint()
            before.append(store.position.revision)
            async with trio.open_nursery() as changes:
                for n in draw.sample(range(MANY + 20), 150):
                    changes.start_soon(write, n)
                for n in draw.sample(range(MANY), 100):
                    changes.start_soon(delete, n)
            assert calls < MANY, "the changes came too late"

        async with trio.open_nursery() as nursery:
            nursery.start_soon(change)
            async with headway.open_engine(store, app, report=heard.append) as other:
                await other.wait_idle()
                cache = seen[-1].cache
                stored = cache.list(type)
                assert stored
                for n in range(5):
                    found = {each.name for each in cache.index(by_pool, f"p{n}")}
                    assert found == {each.name for each in stored if each.data.pool == f"p{n}"}
                    found = {each.name for each in cache.index(by_tag, f"t{n}")}
                    assert found == {each.name for each in stored if f"t{n}" in each.data.tags}
    # The two engines fence each other's built-in controllers.
    (primed,) = [each for each in heard if isinstance(each, events.Primed) and each.controller == "members/members"]
    # What it had when the run subscribed, and not after the changes: the first calls see the types at this revision.
    assert primed.count == MANY
    assert primed.revision <= before[0]
    ended = [each.error for each in heard if isinstance(each, events.RunEnded) and each.controller == "members/members"]
    assert ended == []
