"""A scriptable HTTP/2 client for the tests, and connections to a server by hand."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, RemoteSettingsChanged
from h2.frame_buffer import FrameBuffer
from hyperframe.frame import GoAwayFrame

from tests.rpc.rpc_kit import COUNT

HEADERS = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", COUNT),
    (":authority", "x"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
]


class Raw:
    """A scriptable HTTP/2 client."""

    def __init__(self, stream: trio.SocketStream | trio.SSLStream[trio.SocketStream]) -> None:
        self.stream = stream
        self.h2 = H2Connection()
        self.h2.initiate_connection()
        self.events: list[Any] = []

    async def flush(self) -> None:
        await self.stream.send_all(self.h2.data_to_send())

    async def until(self, wanted: Callable[[Any], bool]) -> Any:
        """Return the first event that matches, or None if the server closes the connection."""
        while True:
            for event in self.events:
                if wanted(event):
                    return event
            try:
                data = await self.stream.receive_some(65536)
            except trio.BrokenResourceError:
                return None
            if not data:
                return None
            self.events += self.h2.receive_data(data)

    async def goaway(self) -> Any:
        return await self.until(lambda event: isinstance(event, ConnectionTerminated))

    async def goaway_frame(self) -> Any:
        """Return the server's GOAWAY, or None, without h2: it refuses answers to requests that were sent past it."""
        frames = FrameBuffer()
        frames.max_frame_size = 1 << 14
        with contextlib.suppress(trio.BrokenResourceError):
            while data := await self.stream.receive_some(65536):
                frames.add_data(data)
                for frame in frames:
                    if isinstance(frame, GoAwayFrame):
                        return frame
        return None


@asynccontextmanager
async def tcp(where: str) -> AsyncIterator[trio.SocketStream]:
    host, port = where.split(":")
    stream = await trio.open_tcp_stream(host, int(port))
    try:
        yield stream
    finally:
        await trio.aclose_forcefully(stream)


@asynccontextmanager
async def connected(where: str) -> AsyncIterator[Raw]:
    async with tcp(where) as stream:
        raw = Raw(stream)
        await raw.flush()
        assert await raw.until(lambda event: isinstance(event, RemoteSettingsChanged))
        yield raw


async def until_closed(stream: trio.abc.ReceiveStream) -> None:
    try:
        while await stream.receive_some(65536):
            pass
    except trio.BrokenResourceError:
        pass
