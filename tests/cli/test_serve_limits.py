"""The options of `headway serve` that set limits."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest
import trio

from tests.cli.terminal import Terminal, address
from tests.rpc.hostile_bytes import PREFACE
from tests.rpc.raw_kit import until_closed
from tests.rpc.serving_kit import serving
from tests.rpc.test_strangers import SETTINGS, silent


async def _serving(terminal: Terminal, *options: str) -> str:
    return await address(terminal.start("serve", "tests.cli.served:app", "--listen", "127.0.0.1:0", *options))


@pytest.mark.parametrize(
    ("option", "number"),
    [
        ("--max-connections", 4),
        ("--max-peer-connections", 3),
        ("--max-handshakes", 3),
        ("--max-peer-handshakes", 3),
    ],
)
async def test_each_limit_of_connections_has_an_option(terminal: Terminal, option: str, number: int) -> None:
    """The first of four connections is closed for the last. One peer may have three quarters of four."""
    where = await _serving(terminal, option, str(number))
    data = SETTINGS if "connections" in option else PREFACE
    async with AsyncExitStack() as stack:
        first, *_ = [await stack.enter_async_context(silent(where, data)) for _ in range(4)]
        with trio.fail_after(8):
            await until_closed(first)


async def test_message_size_has_an_option(terminal: Terminal) -> None:
    """A larger request is refused, and the error has the limit."""
    where = await _serving(terminal, "--max-message-size", "1")
    manifest = f"type: staff.v1.Team\nname: core\ndata:\n  note: {'x' * (1 << 20)}\n"
    done = await terminal("apply", "-f", "-", stdin=manifest, server=where)
    assert done.returncode == 1
    assert str(1 << 20) in done.stderr


async def test_invalid_limit_is_wrong_usage(terminal: Terminal) -> None:
    """A limit of 0 is refused, and so is a message size for a forwarder, whose upstream limits it."""
    for options, text in (
        (["tests.cli.served:app", "--max-connections", "0"], "--max-connections"),
        (["--forward", "127.0.0.1:1", "--max-message-size", "8"], "requires an APP"),
    ):
        done = await terminal("serve", *options)
        assert done.returncode == 2
        assert text in done.stderr


async def test_server_that_can_open_no_connection_says_so() -> None:
    """Its descriptors suffice for its own files alone."""
    async with serving(descriptors=24) as it:
        assert await it.line("Warning: every connection is refused")
