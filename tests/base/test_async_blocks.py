"""Async blocks of the public API that are opened by another word, or not at all, say what to write."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import headway
from headway.base import async_block
from headway.errors import InvalidArgument
from headway.rpc import open_forwarder

OPENERS: dict[str, Callable[[], Any]] = {
    "headway.open_engine(": lambda: headway.open_engine("memory:"),
    "headway.open_workers(": lambda: headway.open_workers("127.0.0.1:1"),
    "headway.open_cache(": lambda: headway.open_cache("127.0.0.1:1", watches=[]),
    "headway.connect(": lambda: headway.connect("127.0.0.1:1"),
    "hold_lease(": lambda: headway.hold_lease(None, "a", holder="b"),  # type: ignore[arg-type]  # never used
    "open_forwarder(": lambda: open_forwarder("127.0.0.1:1", ["127.0.0.1:0"]),
}


@pytest.mark.parametrize("name", OPENERS)
async def test_block_opened_by_another_word_says_what_to_write(name: str) -> None:
    written = re.escape(f"cannot open an async block: write `async with {name}") + ".+:`$"
    with pytest.raises(InvalidArgument, match=f"^`with` {written}"), OPENERS[name]():
        pass
    with pytest.raises(InvalidArgument, match=f"^`await` {written}"):
        await OPENERS[name]()


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
