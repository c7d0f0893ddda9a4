"""Connect to a server, get its types, and make a client for them."""

from __future__ import annotations

import functools
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Concatenate, ParamSpec

import click
from click.core import ParameterSource

from headway.access import NO_TOKEN_SENT
from headway.api import Call, Code, TypesApi, call_of, code_of
from headway.base import check_token
from headway.cli._running import Exit, Usage, fail, run
from headway.client import Client
from headway.errors import HeadwayError, InvalidArgument, PermissionDenied, Unauthenticated, Unavailable
from headway.resource import DescribedTopic, Registry, rebuild, types_pb
from headway.rpc import (
    Channel,
    Metadata,
    NotReached,
    Remedy,
    Token,
    addresses,
    client_tls,
    open_channel,
    plain_text_host,
    readable,
    token_file,
    token_metadata,
)
from headway.service import WATCH_LIST, WatchDecoder
from headway.subscribing import SUBSCRIBE, SubscribeDecoder

Given = ParamSpec("Given")

NO_TOKEN = "you have no token; give one with --token-file, HEADWAY_TOKEN or --token"
"""The advice for a user who was denied access without a token."""

_REMEDIES = {
    Remedy.USE_TLS: "use --tls",
    Remedy.LEAVE_OUT_TLS: "leave --tls out",
    Remedy.NAME_AUTHORITY: "give the authority's file with --tls-authority",
    Remedy.GIVE_CERTIFICATE: "if it asks for a client's certificate, give one with --tls-certificate",
}

_LIST = "/headway.types.v1.TypesService/List"


@dataclass(frozen=True)
class Target:
    """The address of a server, and the options for connecting to it.

    Files are read only when they are needed, because a command may need no server.

    Attributes:
        given: the context of `headway`, which knows whether an option or a variable has given a value.
    """

    server: str
    tls: bool
    authority: str | None
    certificate: str | None
    key: str | None
    timeout: float
    token_text: str | None = field(repr=False)
    token_path: str | None
    insecure: bool
    given: click.Context = field(repr=False)

    @functools.cached_property
    def token(self) -> Token:
        """The token, or an empty string if there is none. Raises Usage."""
        return given_token(self.given, self.token_text, self.token_path)

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context, or None for a connection without TLS. Raises Usage."""
        if not self.tls:
            return None
        files = {"tls_authority": self.authority, "tls_certificate": self.certificate, "tls_key": self.key}
        for name, path in files.items():
            _check_file(self.given, name, path)
        return tls_context(self.authority, self.certificate, self.key)


def current_target() -> Target:
    """Return the server that the options of `headway` give."""
    target: Target = click.get_current_context().find_root().obj
    return target


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
        decoders={WATCH_LIST: WatchDecoder, SUBSCRIBE: SubscribeDecoder},
        timeout=target.timeout,
        insecure=target.insecure,
    )
    async with opened as channel:
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
                    if target.token:
                        raise
                    raise PermissionDenied(f"{str(error).removesuffix(f': {NO_TOKEN_SENT}')}: {NO_TOKEN}") from error

        run(call)

    return command


def _check_file(context: click.Context, name: str, path: str | None) -> None:
    """Raise Usage if there is no file at the path that the option ``name``, or its variable, gives."""
    if path is not None and not Path(path).exists():
        by_variable = context.get_parameter_source(name) is ParameterSource.ENVIRONMENT
        option = f"HEADWAY_{name.upper()}" if by_variable else f"--{name.replace('_', '-')}"
        raise Usage(f"{option} {path}: file not found; correct the path, or leave {option} out")


def given_token(context: click.Context, token: str | None, path: str | None) -> Token:
    """Return the token, or an empty string if there is none. Options take precedence over the environment.

    A file is read again when it changes, because a command such as `work` may outlive its first token.
    """
    if token and path:
        names = ("token", "token_file")
        by_option = [name for name in names if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
        if len(by_option) != 1:
            raise Usage("--token and --token-file (HEADWAY_TOKEN and HEADWAY_TOKEN_FILE) exclude each other: give one")
        if by_option == ["token"]:
            path = None
    if path:
        _check_file(context, "token_file", path)
        try:
            return token_file(path)
        except PermissionError as error:
            raise Usage(f"--token-file: {error}") from error
        except (OSError, UnicodeDecodeError) as error:
            raise Usage(f"--token-file {path} cannot be read: {error}") from error
        except InvalidArgument as error:
            raise Usage(f"--token-file: {error}") from error
        except ValueError as error:
            raise Usage(f"--token-file {error}") from error
    token = token or ""
    try:
        check_token(token)
    except InvalidArgument as error:
        raise Usage(str(error)) from error
    return token


def tls_context(
    authority: str | None, certificate: str | None, key: str | None, *, forward: bool = False
) -> ssl.SSLContext:
    """Return the TLS context that the options --tls-… define or, with ``forward``, the options --forward-tls-…."""
    check_key(certificate, key, "--forward-tls-key" if forward else "--tls-key")
    try:
        return client_tls(authority, certificate=certificate, key=key)
    except OSError as error:
        raise Usage(f"invalid TLS options{' of --forward' if forward else ''}: {error}") from error


def check_key(certificate: str | None, key: str | None, option: str) -> None:
    """Raise Usage if a certificate file contains no private key and ``option``, which gives one, is missing."""
    # Don't read pipes: they can be read only once.
    if certificate is None or key is not None or not Path(certificate).is_file():
        return
    try:
        content = Path(certificate).read_bytes()
    except OSError:
        # The code that uses the file reports this.
        return
    if b"-----BEGIN CERTIFICATE" in content and b"PRIVATE KEY-----" not in content:
        raise Usage(f"no key in {certificate}: give {option}")
