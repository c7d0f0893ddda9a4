"""Blocks and streams of the public API that are used by another statement, or not at all, say what to write."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import headway
from headway.base import async_block
from headway.client import LeaseClient
from headway.errors import InvalidArgument
from headway.rpc import open_forwarder
from headway.testing import one_shot
from tests.helpers.pools import Pool, Summary

# Never used.
_never: Any = None
OPENERS: dict[str, Callable[[], Any]] = {
    "headway.open_engine(": lambda: headway.open_engine("memory:"),
    "headway.open_workers(": lambda: headway.open_workers("127.0.0.1:1"),
    "headway.open_cache(": lambda: headway.open_cache("127.0.0.1:1", watches=[]),
    "headway.connect(": lambda: headway.connect("127.0.0.1:1"),
    "hold_lease(": lambda: headway.hold_lease(LeaseClient(_never), "a", holder="b"),
    "open_forwarder(": lambda: open_forwarder("127.0.0.1:1", ["127.0.0.1:0"]),
}


async def use_with(used: Any) -> None:
    with used:
        pass


async def use_async_with(used: Any) -> None:
    async with used:
        pass


async def use_await(used: Any) -> None:
    await used


async def use_for(used: Any) -> None:
    for _ in used:
        pass


async def use_async_for(used: Any) -> None:
    async for _ in used:
        pass


USES: dict[str, Callable[[Any], Awaitable[None]]] = {
    "with": use_with,
    "async with": use_async_with,
    "await": use_await,
    "for": use_for,
    "async for": use_async_for,
}


async def check_other_words(make: Callable[[], Any], purpose: str, form: str) -> None:
    """Check that every statement but that of ``form`` says what to write."""
    right = next(word for word in ("async with", "async for", "with") if form.startswith(f"{word} "))
    for word, use in USES.items():
        if word != right:
            with pytest.raises(InvalidArgument, match=f"^`{word}` cannot {purpose}: write `{re.escape(form)}.*:`$"):
                await use(make())


@pytest.mark.parametrize("name", OPENERS)
async def test_block_opened_by_another_word_says_what_to_write(name: str) -> None:
    await check_other_words(OPENERS[name], "open an async block", f"async with {name}")


app = headway.App("staff")
POOL = app.type("test", "v1", "Pool", Pool)
SUMMARY = app.type("test", "v1", "Summary", Summary)
checked: list[str] = []


@app.controller(manages=POOL, watches=[headway.watch(SUMMARY, headway.mappers.owner())])
async def pools(rt: headway.Runtime, request: headway.Request[Pool]) -> None:
    pool = rt.resource(request)
    if pool is None or checked:
        return
    plain, an_async = "open a block that is not async", "open an async block"
    await check_other_words(lambda: rt.alive(pool), plain, "with rt.alive(team) as scope")
    await check_other_words(lambda: rt.outputs(SUMMARY, owner=pool), an_async, "async with rt.outputs(")
    await check_other_words(lambda: rt.finalizer(pool), an_async, "async with rt.finalizer(")
    await check_other_words(lambda: rt.conditions(pool), an_async, "async with rt.conditions(")
    await check_other_words(lambda: rt.cache.view(POOL), an_async, "async with cache.view(")
    checked.append(pool.name)


async def test_block_and_stream_used_by_another_word_say_what_to_write() -> None:
    checked.clear()
    block = "open an async block"
    async with headway.open_engine("memory:", app) as engine, engine.open_cache(watches=[POOL]) as cache:
        await engine.client.apply(POOL.new("a"))
        await engine.wait_idle()
        assert checked == ["a"]
        await check_other_words(lambda: engine.open_cache(watches=[POOL]), block, "async with engine.open_cache(")
        await check_other_words(lambda: cache.view(POOL), block, "async with cache.view(")
        await check_other_words(cache.notify, block, "async with cache.notify() as updates")
        subscribe = "async with client.subscribe([TEAM, RATES]) as batches"
        await check_other_words(lambda: engine.client.subscribe([POOL]), block, subscribe)
        await check_other_words(lambda: one_shot(app, "pools"), block, "async with headway.testing.one_shot(")
        async with cache.notify() as updates:
            await check_other_words(lambda: updates, "read updates", "async for changed in updates")
        async with engine.client.subscribe([POOL]) as batches:
            await check_other_words(lambda: batches, "read a subscription", "async for batch in batches")
        async with engine.client.watch(POOL) as events:
            # `async for` before the block has an error of its own.
            for word in ("with", "await", "for"):
                with pytest.raises(InvalidArgument, match=f"^`{word}` cannot {block}: write `async with client.watch"):
                    await USES[word](engine.client.watch(POOL))
                with pytest.raises(InvalidArgument, match=f"^`{word}` cannot read a watch: write `async for event in"):
                    await USES[word](events)


@pytest.mark.parametrize("name", OPENERS)
def test_block_that_is_never_entered_warns(name: str) -> None:
    """As Python does for a coroutine that is never awaited, at the line of the call."""
    with pytest.warns(RuntimeWarning, match=re.escape(f"never entered, and has no effect: write `async with {name}")):
        OPENERS[name]()


async def test_block_passes_on_its_value_and_its_errors() -> None:
    """Like one of `contextlib.asynccontextmanager`."""
    ended: list[object] = []

    @async_block
    async def opened(value: int) -> Any:
        try:
            yield value
        except ValueError as error:
            ended.append(error)
        ended.append(value)

    async with opened(7) as value:
        assert value == 7
    error = ValueError("handled")
    async with opened(8):
        raise error
    assert ended == [7, error, 8]
