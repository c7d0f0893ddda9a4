"""The way to a server: its address, its types, and a client for them."""

from __future__ import annotations

import functools
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Concatenate, ParamSpec

import click
from grpclib import GRPCError
from grpclib.const import Status

from headway.cli._exits import Exit, Usage, fail
from headway.cli._running import run
from headway.client import Client
from headway.errors import InvalidArgument, Unavailable
from headway.resource import Registry, rebuild, types_pb
from headway.rpc import Channel, client_tls, open_channel
from headway.service import WATCH_LIST, WatchDecoder

Given = ParamSpec("Given")

_LIST = "/headway.types.v1.TypesService/List"


@dataclass(frozen=True)
class Target:
    """Which server is meant, and how it is spoken to."""

    server: str
    tls: bool
    authority: str | None
    certificate: str | None
    key: str | None
    timeout: float

    def context(self) -> ssl.SSLContext | None:
        """The TLS context, if there is to be one."""
        if not self.tls:
            return None
        try:
            return client_tls(self.authority, certificate=self.certificate, key=self.key)
        except OSError as error:
            raise Usage(f"the TLS options can't be used: {error}") from error


@dataclass(frozen=True)
class Connection:
    """A server's types, and a client that knows them."""

    registry: Registry
    client: Client


@asynccontextmanager
async def open_connection(target: Target) -> AsyncIterator[Connection]:
    """Ask the server for its types. Raises Unavailable when there is no server that can be asked."""
    try:
        opened = open_channel(
            target.server, tls=target.context(), decoders={WATCH_LIST: WatchDecoder}, timeout=target.timeout
        )
        async with opened as channel:
            registry = rebuild(await _described(channel, target))
            yield Connection(registry, Client(channel, registry))
    except InvalidArgument as error:
        if "is no address" in str(error):
            raise Usage(f"--server: {error}") from error
        raise


async def _described(channel: Channel, target: Target) -> types_pb.ListResponse:
    try:
        return await channel.unary(_LIST, types_pb.ListRequest(), types_pb.ListResponse)
    except GRPCError as error:
        if error.status is Status.UNIMPLEMENTED:
            fail(Exit.REFUSED, f"Error: {target.server} doesn't say what its types are: it is no Headway server")
        hint = "" if target.tls else "; is it running there (`headway serve`), and without TLS?"
        raise Unavailable(f"no answer from {target.server}: {error.message}{hint}") from error


def connected(
    function: Callable[Concatenate[Connection, Given], Awaitable[None]],
) -> Callable[Given, None]:
    """Make a command of an async function: it is run with a connection to the server that is meant."""

    @functools.wraps(function)
    def command(*args: Given.args, **kwargs: Given.kwargs) -> None:
        target: Target = click.get_current_context().find_root().obj

        async def call() -> None:
            async with open_connection(target) as connection:
                await function(connection, *args, **kwargs)

        run(call)

    return command
