"""Helpers of the network tests: a small service of its own, and the resource service on a server."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trio
import trustme
from grpclib import GRPCError
from grpclib.const import Status

import headway
from headway import rpc
from headway.api import Call, Cardinality, Handler, stream
from headway.protobuf import decode, field, message
from headway.service import (
    WATCH_LIST,
    ConsulService,
    LeaseService,
    ResourceEncodings,
    ResourceService,
    StoreService,
    WatchDecoder,
    watch_encoders,
)
from headway.storage import Backend, open_store
from tests.helpers.secret_files import write_secret
from tests.helpers.wrapped_services import WrappedServices, unchanged

_METHODS = ("Echo", "Fail", "Wait", "Count", "Flood", "Meta")
ECHO, FAIL, WAIT, COUNT, FLOOD, META = (f"/test.Echo/{name}" for name in _METHODS)
DECODERS = {WATCH_LIST: WatchDecoder}
app = headway.App("rpc")


@message(name="test.Text")
class Text:
    text: str = field(1)


THING = app.type("test", "v1", "Thing", Text)


class Echo:
    """A service with every kind of answer. Its events let a test wait for its progress."""

    def __init__(self) -> None:
        self.waiting = 0
        self.changed = trio.Event()
        self.release = trio.Event()
        self.cancelled = 0
        self.sent = 0
        self.flood_ended = trio.Event()

    def __mapping__(self) -> dict[str, Handler]:
        one, many = Cardinality.UNARY_UNARY, Cardinality.UNARY_STREAM
        functions: dict[str, tuple[Any, Cardinality]] = {
            ECHO: (self._echo, one),
            FAIL: (self._fail, one),
            WAIT: (self._wait, one),
            META: (self._meta, one),
            COUNT: (self._count, many),
            FLOOD: (self._flood, many),
        }
        return {path: Handler(function, kind, Text, Text) for path, (function, kind) in functions.items()}

    async def _echo(self, _: Call, request: Text) -> Text:
        return Text(text=request.text)

    async def _fail(self, _: Call, request: Text) -> Text:
        if request.text == "known":
            raise GRPCError(Status.ABORTED, "não — 100 %")
        if request.text == "half a character":
            raise GRPCError(Status.ABORTED, "caf\udce9")
        if request.text == "with details":
            raise GRPCError(Status.ABORTED, "its own", [object()])
        raise RuntimeError("a secret of the server")

    async def _wait(self, _: Call, request: Text) -> Text:
        self._wake(1)
        try:
            await self.release.wait()
        except trio.Cancelled:
            self.cancelled += 1
            raise
        finally:
            self._wake(-1)
        return Text(text=request.text)

    async def _meta(self, call: Call, _: Text) -> Text:
        return Text(text=str(call.metadata.get("x-consul-token")))

    @stream
    async def _count(self, _: Call, request: Text) -> AsyncGenerator[Text, None]:
        """Count up to the requested number. Then end, unless the number is 0."""
        for number in range(int(request.text)):
            yield Text(text=str(number))
        if int(request.text):
            return
        yield Text(text="waiting")
        self._wake(1)
        try:
            await self.release.wait()
        except trio.Cancelled:
            self.cancelled += 1
            raise
        finally:
            self._wake(-1)

    @stream
    async def _flood(self, _: Call, __: Text) -> AsyncGenerator[Text, None]:
        """Send messages of 16 KiB forever."""
        try:
            while True:
                yield Text(text="x" * (16 << 10))
                self.sent += 1
        finally:
            self.flood_ended.set()

    def _wake(self, by: int) -> None:
        self.waiting += by
        self.changed.set()
        self.changed = trio.Event()

    async def until_waiting(self, count: int) -> None:
        while self.waiting != count:
            await self.changed.wait()


class TextDecoder:
    """The stream decoder of Echo's methods."""

    def __call__(self, bodies: list[bytes]) -> list[Any]:
        return [decode(Text, body) for body in bodies]


TEXTS = {COUNT: TextDecoder, FLOOD: TextDecoder}


@dataclass
class Served:
    """A server with the resource service on a store in memory."""

    server: Any
    backend: Backend
    services: rpc.Services
    echo: Echo
    health: Any
    encodings: ResourceEncodings

    @property
    def where(self) -> str:
        address: str = self.server.addresses[0]
        return address


@asynccontextmanager
async def served(listen: Iterable[str] = ("127.0.0.1:0",), **options: Any) -> AsyncIterator[Served]:
    """A server with all services that the tests call."""
    encodings = ResourceEncodings()
    (registry,) = [each.registry for each in options.pop("apps", [app])]
    patience = options.pop("patience", 40.0)
    wrap = options.pop("wrap", unchanged)
    echo, health = Echo(), rpc.Health("headway.resource.v1.ResourceService")
    async with open_store("memory:") as backend:
        offered = (
            ResourceService(backend, registry, encodings=encodings),
            ConsulService(backend, registry, encodings=encodings),
            LeaseService(backend),
            StoreService(backend, registry),
            echo,
            health,
        )
        services = rpc.Services(WrappedServices(wrap, *offered), encoders=watch_encoders(encodings))
        with trio.fail_after(patience):
            async with rpc.open_server(services, list(listen), **options) as server:
                yield Served(server, backend, services, echo, health, encodings)


@dataclass
class Certificates:
    """Files and contexts of one certificate authority."""

    ca: Path
    server: ssl.SSLContext
    server_mutual: ssl.SSLContext
    client: ssl.SSLContext
    client_mutual: ssl.SSLContext
    stranger: ssl.SSLContext


def certificates(folder: Path) -> Certificates:
    """Issue certificates for 127.0.0.1."""
    authority, stranger = trustme.CA(), trustme.CA()
    ca, server_file, client_file = folder / "ca.pem", folder / "server.pem", folder / "client.pem"
    other = folder / "other.pem"
    authority.cert_pem.write_to_path(str(ca))
    stranger.cert_pem.write_to_path(str(other))
    write_secret(server_file, authority.issue_cert("127.0.0.1", "localhost").private_key_and_cert_chain_pem.bytes())
    write_secret(client_file, authority.issue_cert("a-client").private_key_and_cert_chain_pem.bytes())
    return Certificates(
        ca,
        rpc.server_tls(server_file),
        rpc.server_tls(server_file, client_ca=ca),
        rpc.client_tls(ca),
        rpc.client_tls(ca, certificate=client_file),
        rpc.client_tls(other),
    )
