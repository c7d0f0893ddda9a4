"""Connections of a channel that carry calls only once they have been admitted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from grpclib.const import Status

from headway.api import NotBegun
from headway.errors import HeadwayError
from headway.rpc import Metadata, UnaryCalls, open_channel
from tests.helpers.service_errors import status_of
from tests.rpc.rpc_kit import COUNT, ECHO, META, TEXTS, WAIT, Text, served


class Refused(Exception):
    """The connection was not admitted."""


class Door:
    """Admits connections after a call on each, and keeps what the calls have returned."""

    def __init__(self, path: str = META) -> None:
        self.path = path
        self.asked: list[str] = []
        self.refuses = False

    def __call__(self, connection: UnaryCalls) -> Visitor:
        return Visitor(self, connection)


class Visitor:
    def __init__(self, door: Door, connection: UnaryCalls) -> None:
        self._door = door
        self._connection = connection
        self.admitted = False

    def admits(self, _: object) -> bool:
        return self.admitted

    async def admit(self, _: object, metadata: Metadata | None) -> None:
        reply = await self._connection.unary(self._door.path, Text(), Text, metadata=metadata)
        self._door.asked.append(reply.text)
        if self._door.refuses:
            raise Refused
        self.admitted = True


async def first(channel: Any, path: str) -> str:
    async with channel.stream(path, Text(text="1"), metadata={"x-consul-token": "theirs"}) as items:
        async for item in items:
            text: str = item.text
            return text
    raise AssertionError("the stream was empty")


async def test_each_connection_is_admitted_once(tmp_path: Path) -> None:
    """Calls and streams have connections of their own. The admission has the metadata of the call that waits for it."""
    where, door = [f"unix:{tmp_path / 'a.sock'}"], Door()
    async with open_channel(where, decoders=TEXTS, admits=door) as channel:
        for round in (1, 2):
            async with served(where):
                for _ in range(3):
                    metadata = {"x-consul-token": "mine"}
                    assert (await channel.unary(ECHO, Text(text="a"), Text, metadata=metadata)).text == "a"
                    assert await first(channel, COUNT) == "0"
            assert door.asked == ["mine", "theirs"] * round


async def test_refused_connection_carries_no_call(tmp_path: Path) -> None:
    where, door = [f"unix:{tmp_path / 'a.sock'}"], Door()
    door.refuses = True
    async with open_channel(where, decoders=TEXTS, admits=door) as channel, served(where) as server:
        with pytest.raises(Refused):
            await channel.unary(WAIT, Text(), Text)
        with pytest.raises(Refused):
            await first(channel, COUNT)
        assert server.echo.waiting == 0
        door.refuses = False
        assert (await channel.unary(ECHO, Text(text="a"), Text)).text == "a"


async def test_call_that_waited_for_an_admission_until_its_timeout_has_not_begun(tmp_path: Path) -> None:
    """So a write is known to have no effect."""
    where, door = [f"unix:{tmp_path / 'a.sock'}"], Door(WAIT)
    async with open_channel(where, decoders=TEXTS, admits=door, timeout=0.05) as channel, served(where):
        with pytest.raises(NotBegun) as caught:
            await channel.unary(ECHO, Text(), Text)
        assert status_of(caught.value) is Status.DEADLINE_EXCEEDED
        with pytest.raises(HeadwayError, match="timed out"):
            await first(channel, COUNT)
