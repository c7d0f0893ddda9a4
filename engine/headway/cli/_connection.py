"""Connect to a server, get its types, and make a client for them."""

from __future__ import annotations

import functools
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Concatenate, ParamSpec

import click
from grpclib import GRPCError
from grpclib.const import Status

from headway.cli._exits import Exit, Usage, fail
from headway.cli._running import run
from headway.cli._tls_files import check_key
from headway.client import Client
from headway.errors import InvalidArgument, PermissionDenied, Unavailable
from headway.resource import Registry, rebuild, types_pb
from headway.rpc import Channel, addresses, client_tls, open_channel, plain_text_host, readable
from headway.service import WATCH_LIST, WatchDecoder

Given = ParamSpec("Given")

NO_TOKEN = "you have no token; give one with --token-file, HEADWAY_TOKEN or --token"
"""The advice for a user who was denied access without a token."""

_LIST = "/headway.types.v1.TypesService/List"


@dataclass(frozen=True)
class Target:
    """The address of a server, and the options for connecting to it."""

    server: str
    tls: bool
    authority: str | None
    certificate: str | None
    key: str | None
    timeout: float
    token: str = field(default="", repr=False)
    insecure: bool = False

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context, or None for a connection without TLS."""
        if not self.tls:
            return None
        check_key(self.certificate, self.key, "--tls-key")
        try:
            return client_tls(self.authority, certificate=self.certificate, key=self.key)
        except OSError as error:
            raise Usage(f"invalid TLS options: {error}") from error


@dataclass(frozen=True)
class Connection:
    """A connection to a server: its types and their description, a client, and the channel for other calls."""

    registry: Registry
    client: Client
    description: types_pb.ListResponse
    channel: Channel
    metadata: dict[str, str]


@asynccontextmanager
async def open_connection(target: Target) -> AsyncIterator[Connection]:
    """Connect to the server and get its types. Raises Unavailable if it cannot be reached."""
    try:
        where = addresses(target.server)
    except InvalidArgument as error:
        raise Usage(f"--server: {error}") from error
    tls = target.context()
    if target.token and not target.insecure and (host := plain_text_host(where, tls)):
        raise Usage(f"--server {readable('a token', host, 'say --tls, or --insecure')}")
    opened = open_channel(
        target.server,
        tls=tls,
        decoders={WATCH_LIST: WatchDecoder},
        timeout=target.timeout,
        insecure=target.insecure,
    )
    async with opened as channel:
        metadata = {"x-consul-token": target.token} if target.token else {}
        description = await _described(channel, target, metadata)
        registry = rebuild(description)
        client = Client(channel, registry, token=target.token)
        yield Connection(registry, client, description, channel, metadata)


async def _described(channel: Channel, target: Target, metadata: dict[str, str]) -> types_pb.ListResponse:
    try:
        described = await channel.unary(_LIST, types_pb.ListRequest(), types_pb.ListResponse, metadata=metadata)
    except GRPCError as error:
        if error.status is Status.UNAUTHENTICATED:
            fail(Exit.REFUSED, f"Error: {target.server} rejected this token: {error.message}")
        if error.status is Status.UNIMPLEMENTED:
            fail(Exit.REFUSED, f"Error: {target.server} doesn't describe its types: it is not a Headway server")
        raise Unavailable(f"no answer from {target.server}: {_reason(error.message or '', target)}") from error
    if not described.types:
        why = "this token has no permissions there" if target.token else NO_TOKEN
        fail(Exit.REFUSED, f"Error: {target.server} shows you no types: {why}")
    return described


_OR_AN_OPTION = re.compile(r"tls=headway\.rpc\.client_tls\([^)]*\), or ")


def _reason(said: str, target: Target) -> str:
    """Return why the server did not answer. Advice by `headway.rpc` is reworded in terms of command-line options."""
    in_options = said.replace("give tls=headway.rpc.client_tls(...)", "say --tls").replace(
        "leave tls out", "leave --tls out"
    )
    in_options = _OR_AN_OPTION.sub("", in_options)
    if in_options != said:
        return in_options
    return said if target.tls else f"{said}; is it running there (`headway serve`), and without TLS?"


def connected(
    function: Callable[Concatenate[Connection, Given], Awaitable[None]],
) -> Callable[Given, None]:
    """Turn an async function into a command that runs it with a connection to the chosen server."""

    @functools.wraps(function)
    def command(*args: Given.args, **kwargs: Given.kwargs) -> None:
        target: Target = click.get_current_context().find_root().obj

        async def call() -> None:
            async with open_connection(target) as connection:
                try:
                    await function(connection, *args, **kwargs)
                except PermissionDenied as error:
                    if target.token:
                        raise
                    raise PermissionDenied(f"{error}: {NO_TOKEN}") from error

        run(call)

    return command
