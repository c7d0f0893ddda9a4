"""The options of `headway serve` set limits."""

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
async def test_each_number_of_connections_has_an_option(terminal: Terminal, option: str, number: int) -> None:
    """The first of four goes for the last; one peer may have three quarters of four."""
    where = await _serving(terminal, option, str(number))
    data = SETTINGS if "connections" in option else PREFACE
    async with AsyncExitStack() as stack:
        first, *_ = [await stack.enter_async_context(silent(where, data)) for _ in range(4)]
        with trio.fail_after(8):
            await until_closed(first)


async def test_the_time_of_a_handshake_has_an_option(terminal: Terminal) -> None:
    """A connection that says nothing is closed after it."""
    where = await _serving(terminal, "--handshake-timeout", "0.2")
    async with silent(where, PREFACE) as stream:
        with trio.fail_after(8):
            await until_closed(stream)


async def test_the_size_of_a_message_has_an_option(terminal: Terminal) -> None:
    """A request over it is refused, and the error names the size."""
    where = await _serving(terminal, "--max-message-size", "1")
    manifest = f"type: staff.v1.Team\nname: core\ndata:\n  note: {'x' * (1 << 20)}\n"
    done = await terminal("apply", "-f", "-", stdin=manifest, server=where)
    assert done.returncode == 1
    assert str(1 << 20) in done.stderr


async def test_a_limit_that_cannot_be_is_wrong_usage(terminal: Terminal) -> None:
    """A limit of 0 is refused, and so is a message size for a forwarder, which has none of its own."""
    for options, text in (
        (["tests.cli.served:app", "--max-connections", "0"], "--max-connections"),
        (["--forward", "127.0.0.1:1", "--max-message-size", "8"], "goes with an APP"),
    ):
        done = await terminal("serve", *options)
        assert done.returncode == 2
        assert text in done.stderr


async def test_more_connections_than_the_process_may_open_files_are_warned_of() -> None:
    """The operator hears at the start what `ulimit -n` leaves of the number."""
    async with serving("--max-connections", "5000", descriptors=256) as it:
        assert "--max-connections 5000: the limit is 224" in await it.line("Warning")
