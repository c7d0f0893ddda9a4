"""Connect to a server, get its types, and make a client for them."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Concatenate, ParamSpec

from headway.api import Call, Code, TypesApi, call_of, code_of
from headway.cli._exits import Exit, Usage, fail
from headway.cli._running import run
from headway.cli._target import Target, current_target
from headway.client import Client
from headway.errors import HeadwayError, InvalidArgument, PermissionDenied, Unauthenticated, Unavailable
from headway.login import kept_fresh
from headway.resource import DescribedTopic, Registry, rebuild, types_pb
from headway.rpc import (
    Channel,
    Metadata,
    NotReached,
    Remedy,
    StreamDecoder,
    addresses,
    open_channel,
    plain_text_host,
    readable,
    token_metadata,
)

Given = ParamSpec("Given")

NO_TOKEN = "you have no token; give one with --token-file, HEADWAY_TOKEN or --token, or use headway login"
"""The advice for a user who was denied access without a token."""

_REMEDIES = {
    Remedy.USE_TLS: "use --tls",
    Remedy.LEAVE_OUT_TLS: "leave --tls out",
    Remedy.NAME_AUTHORITY: "give the authority's file with --tls-authority",
    Remedy.GIVE_CERTIFICATE: "if it asks for a client's certificate, give one with --tls-certificate",
}


def _watch_decoder() -> StreamDecoder:
    from headway.service import WatchDecoder

    return WatchDecoder()


def _subscribe_decoder() -> StreamDecoder:
    from headway.subscribing import SubscribeDecoder

    return SubscribeDecoder()


# By path. Most commands open no stream.
_DECODERS = {
    "/headway.resource.v1.ResourceService/WatchList": _watch_decoder,
    "/headway.subscribe.v1.SubscribeService/Subscribe": _subscribe_decoder,
}


@dataclass(frozen=True)
class Connection:
    """A connection to a server: its types and topics, their description, a client, and the channel for other calls."""

    registry: Registry
    topics: list[DescribedTopic]
    client: Client
    description: types_pb.ListResponse
    channel: Channel
    metadata: Metadata


@asynccontextmanager
async def open_connection(target: Target) -> AsyncIterator[Connection]:
    """Connect to the server and get its types. Raises Unavailable if it cannot be reached."""
    tls = target.context()
    try:
        where = addresses(target.server)
    except InvalidArgument as error:
        raise Usage(f"--server: {error}") from error
    if target.token and not target.insecure and (host := plain_text_host(where, tls)):
        raise Usage(f"--server {readable('a token', host, 'use --tls, or --insecure')}")
    opened = open_channel(
        target.server,
        tls=tls,
        decoders=_DECODERS,
        timeout=target.timeout,
        insecure=target.insecure,
    )
    async with kept_fresh(target.token), opened as channel:
        metadata = token_metadata(target.token) or {}
        description = await _described(channel, target, metadata)
        registry, topics = rebuild(description)
        client = Client(channel, registry, token=target.token)
        yield Connection(registry, topics, client, description, channel, metadata)


async def _described(channel: Channel, target: Target, metadata: Metadata) -> types_pb.ListResponse:
    try:
        described: types_pb.ListResponse = await TypesApi.over(channel).list(Call(metadata), types_pb.ListRequest())
    except HeadwayError as error:
        if isinstance(error, Unauthenticated):
            fail(Exit.REFUSED, f"Error: {target.server} rejected this token: {error}")
        if code_of(error) is Code.UNIMPLEMENTED:
            fail(Exit.REFUSED, f"Error: {target.server} doesn't describe its types: it is not a Headway server")
        raise Unavailable(f"no answer from {target.server}: {_reason(error, target)}") from error
    if not described.types and not described.topics:
        why = "this token has no permissions there" if target.token else NO_TOKEN
        fail(Exit.REFUSED, f"Error: {target.server} shows you no types: {why}")
    return described


def _reason(error: HeadwayError, target: Target) -> str:
    """Return why the server did not answer, with advice in terms of command-line options."""
    call = call_of(error)
    reached = None if call is None else call.obstacles
    if isinstance(reached, NotReached) and any(obstacle.remedy for _, obstacle in reached.obstacles):
        return reached.text(_REMEDIES)
    message = str(error) if call is None else call.message
    return message if target.tls else f"{message}; is it running there (`headway serve`), and without TLS?"


def connected(
    function: Callable[Concatenate[Connection, Given], Awaitable[None]],
) -> Callable[Given, None]:
    """Turn an async function into a command that runs it with a connection to the chosen server."""

    @functools.wraps(function)
    def command(*args: Given.args, **kwargs: Given.kwargs) -> None:
        target = current_target()

        async def call() -> None:
            async with open_connection(target) as connection:
                try:
                    await function(connection, *args, **kwargs)
                except PermissionDenied as error:
                    from headway.access import NO_TOKEN_SENT

                    if target.token:
                        raise
                    raise PermissionDenied(f"{str(error).removesuffix(f': {NO_TOKEN_SENT}')}: {NO_TOKEN}") from error

        run(call)

    return command
