"""A server over HTTP without an engine: the services over a memory store, with limits and access of the test."""

from __future__ import annotations

import datetime
import enum
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import h11
import httpx
import trio

import headway
from headway import field
from headway.access import Access, Audit, Authorizer, Guarded, Policy, Rule, Token, TokenSet, new_token
from headway.api import Call
from headway.client import Client
from headway.errors import HeadwayError
from headway.events import Report, ignore
from headway.http import Bounds, Offered, RequestLimits, open_http
from headway.resource import PARTITION, Registry, ResourceType, Scope
from headway.rpc import InProcessChannel, Services
from headway.service import ResourceService, StoreService, TypesService
from headway.storage import Backend, open_store
from tests.helpers.wrapped_services import Wrap, WrappedServices, admitting

NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients without TLS. By default httpx reads all certificates of the system for each client, which takes 20 ms."""


class Rank(enum.IntEnum):
    JUNIOR = 0
    SENIOR = 1


@headway.message
class Member:
    login: str = field(1)
    rank: Rank = field(2)


@headway.message
class Team:
    members: list[Member] = field(1)
    note: str | None = field(2)
    budget: int = field(3)
    labels: dict[str, str] = field(4)
    on_call: Member | None = field(5)
    since: datetime.datetime | None = field(6)
    share: float = field(7)
    shifts: dict[int, str] = field(8)
    open: dict[bool, Member] = field(9)


@headway.message(name="tests.Site")
class Site:
    city: str = field(1)


def _refuse_root(site: headway.Resource[Site]) -> None:
    if site.data.city == "nowhere":
        raise ValueError("city 'nowhere' does not exist")
    if site.data.city == "broken":
        raise RuntimeError("the hook is broken")


TEAM: ResourceType[Team] = ResourceType("staff", "v1", "Team", Team)
SITE: ResourceType[Site] = ResourceType(
    "staff", "v1", "Site", Site, scope=Scope.CLUSTER, hooks=headway.Hooks(validate=_refuse_root)
)
SECRET: ResourceType[Site] = ResourceType("vault", "v1", "Secret", Site, scope=Scope.PARTITION)
BOUNDS = Bounds(connections=64, peer_connections=64, patience=20.0, stall=20.0)
TEAMS, CORE = "/api/staff/v1/team", "/api/staff/v1/team/core"


@dataclass
class Api:
    """A running server.

    Attributes:
        http: a client of it.
        client: the client of the store, in the process.
        failures: the unexpected errors of its handlers.
    """

    address: str
    http: httpx.AsyncClient
    client: Client
    backend: Backend
    failures: list[tuple[str, BaseException]]


def registry(*more: ResourceType[Any]) -> Registry:
    """Return a registry of the types above, and of more."""
    made = Registry()
    types: list[ResourceType[Any]] = [TEAM, SITE, SECRET, *more]
    for type in types:
        made.register(type)
    return made


@asynccontextmanager
async def serving(
    access: Authorizer | None = None,
    limits: RequestLimits | None = None,
    bounds: Bounds = BOUNDS,
    store: str = "memory:",
    fails: HeadwayError | None = None,
    more: Sequence[ResourceType[Any]] = (),
    report: Report = ignore,
) -> AsyncIterator[Api]:
    """Serve a store while the block runs. ``fails`` is the error that every method raises instead of its answer.

    ``more`` are types beside those above. ``report`` receives what the guard reports.
    """
    types, failures = registry(*more), list[tuple[str, BaseException]]()
    async with open_store(store) as backend:
        plain = [ResourceService(backend, types), StoreService(backend, types), TypesService(types)]
        services = Services(*plain)
        if access is not None:
            guarded = (
                lambda caller: ResourceService(backend, types, caller),
                lambda caller: StoreService(backend, types, caller),
                lambda caller: TypesService(types, None, caller.may_know),
            )
            services = Services(*(Guarded(each, access, types, Audit(report)) for each in guarded))
        if fails is not None:
            services = Services(WrappedServices(_failing(fails), *plain))
        offered = Offered(services, types, access, lambda *failed: failures.append(failed), limits or RequestLimits())
        async with (
            open_http("127.0.0.1:0", offered, bounds) as address,
            httpx.AsyncClient(base_url=f"http://{address}", timeout=30, verify=NO_CERTIFICATES) as http,
        ):
            yield Api(address, http, Client(InProcessChannel(*plain), types), backend, failures)


def _failing(error: HeadwayError) -> Wrap:
    async def fail(_: Call) -> None:
        raise error

    return lambda _, handler: handler._replace(admit=admitting(fail))


def allowing(**rules: Sequence[Rule]) -> tuple[Authorizer, dict[str, str], dict[str, Token]]:
    """Return an authorizer with a policy of each name, and the texts and the tokens of one caller for each."""
    made = {name: new_token([name]) for name in rules if name != "anonymous"}
    tokens = TokenSet(token for _, token in made.values())
    access = Access([Policy(name, list(each)) for name, each in rules.items()], tokens)
    return (
        Authorizer(access),
        {name: text for name, (text, _) in made.items()},
        {name: token for name, (_, token) in made.items()},
    )


def bearing(text: str) -> dict[str, str]:
    """Return the headers of a caller with a token."""
    return {"authorization": f"Bearer {text}"}


ALL_TEAMS = Rule(verbs=["*"], type="staff.v1.Team", partition="*", namespace="*")
PARTITION_PATH = f"/api/{PARTITION.name.group}/{PARTITION.name.version}/{PARTITION.name.kind.lower()}"


class Answer:
    """An answer that is still arriving. (httpx reads one by generators, which Trio wants closed one by one.)"""

    def __init__(self, stream: trio.SocketStream, connection: h11.Connection) -> None:
        self._stream = stream
        self._connection = connection
        self._text = b""
        self._ended = False
        self.code = 0
        self.headers: dict[str, str] = {}

    async def begin(self) -> None:
        """Wait for the head."""
        event = await self._event()
        assert isinstance(event, h11.Response)
        self.code = event.status_code
        self.headers = {name.decode(): value.decode() for name, value in event.headers}

    async def line(self) -> str | None:
        """Return the next line, or None at the end."""
        while b"\n" not in self._text and not self._ended:
            event = await self._event()
            if isinstance(event, h11.Data):
                self._text += event.data
            else:
                self._ended = True
        if not self._text and self._ended:
            return None
        line, _, self._text = self._text.partition(b"\n")
        return line.decode()

    async def text(self) -> str:
        """Return everything up to the end."""
        lines = []
        while (line := await self.line()) is not None:
            lines.append(line)
        return "\n".join(lines)

    async def _event(self) -> Any:
        while True:
            event = self._connection.next_event()
            if event is not h11.NEED_DATA:
                return event
            self._connection.receive_data(await self._stream.receive_some())


@asynccontextmanager
async def asked(
    address: str, path: str, headers: Mapping[str, str] | None = None, method: str = "GET"
) -> AsyncIterator[Answer]:
    """Send a request without a body, and read its answer while the block runs."""
    host, _, port = address.rpartition(":")
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        connection = h11.Connection(h11.CLIENT)
        request = h11.Request(method=method, target=path, headers=[("host", "localhost"), *(headers or {}).items()])
        for event in (request, h11.EndOfMessage()):
            data = connection.send(event)
            if data:
                await stream.send_all(data)
        answer = Answer(stream, connection)
        await answer.begin()
        yield answer
