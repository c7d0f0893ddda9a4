"""An engine with the page, and browsers that are clients of HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import h11
import httpx
import trio

import headway
from headway import testing
from headway.access import Access, Authorizer, Rule
from headway.client import Client
from headway.rpc import Channel
from tests.http.kit import NO_CERTIFICATES, Answer, allowing
from tests.page import shop

PATIENCE = 60.0
EVERYTHING = Rule(verbs=["*"], type="*", partition="*", namespace="*")


def rule(*verbs: str, type: str = "shop.v1.Order", namespace: str = "*", name_prefix: str = "") -> Rule:
    """Return a rule for orders, or another type."""
    return Rule(verbs=list(verbs), type=type, partition="*", namespace=namespace, name_prefix=name_prefix)


@dataclass
class Visitor:
    """A browser without a window: its cookies, and the secret of its page.

    Attributes:
        session: the answer to the question who the visitor is.
    """

    http: httpx.AsyncClient
    address: str
    session: dict[str, Any] = field(default_factory=dict)

    async def learn(self) -> httpx.Response:
        """Ask who the visitor is."""
        answer = await self.http.get("/page/session")
        assert answer.status_code == 200
        self.session = answer.json()
        return answer

    async def sign_in(self, token: str) -> httpx.Response:
        """Exchange a token for a session."""
        answer = await self.http.post("/page/session", json={"token": token})
        await self.learn()
        return answer

    async def change(self, method: str, path: str, body: object = None, **headers: str) -> httpx.Response:
        """Send a change as the page does."""
        with_secret = {"x-headway-csrf": self.session.get("csrf", ""), **headers}
        # Headers may have any byte.
        sent = {name: value.encode("latin-1") for name, value in with_secret.items()}
        return await self.http.request(method, path, json=body, headers=sent)

    @asynccontextmanager
    async def events(self, path: str, **headers: str) -> AsyncIterator[Events]:
        """Open a stream of events."""
        host, _, port = self.address.rpartition(":")
        stream = await trio.open_tcp_stream(host, int(port))
        async with stream:
            connection = h11.Connection(h11.CLIENT)
            cookies = "; ".join(f"{name}={value}" for name, value in self.http.cookies.items())
            sent = {"host": self.address, "accept": "text/event-stream", **headers}
            if cookies:
                sent["cookie"] = cookies
            request = h11.Request(method="GET", target=path, headers=list(sent.items()))
            await stream.send_all(connection.send(request) + connection.send(h11.EndOfMessage()))
            answer = Answer(stream, connection)
            await answer.begin()
            yield Events(answer)


class Events:
    """A stream of events."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.code = answer.code

    async def next(self, name: str = "") -> Any:
        """Return the data of the next event, or of the next one of this name."""
        with trio.fail_after(PATIENCE):
            while True:
                line = await self.answer.line()
                assert line is not None, "the stream has ended"
                if line.startswith("event: "):
                    found = line.removeprefix("event: ")
                    data = await self.answer.line()
                    assert data is not None
                    if name in ("", found):
                        return json.loads(data.removeprefix("data: "))

    async def until(self, wanted: Any, name: str = "state") -> Any:
        """Return the first event of this name that a function accepts."""
        while True:
            event = await self.next(name)
            if wanted(event):
                return event

    async def ends(self) -> dict[str, Any] | None:
        """Return the error at the end of the stream, or None if it ends without one."""
        error = None
        with trio.fail_after(PATIENCE):
            while (line := await self.answer.line()) is not None:
                if line == "event: failed":
                    error = json.loads((await self.answer.line() or "").removeprefix("data: "))
        return error


@dataclass
class Shop:
    """A running engine of the shop with its page."""

    engine: headway.Engine
    client: Client
    address: str
    access: Authorizer | None
    tokens: dict[str, str]

    @asynccontextmanager
    async def visitor(self, token: str = "") -> AsyncIterator[Visitor]:
        """Open a browser, and sign in with the token of this name."""
        base = f"http://{self.address}"
        async with httpx.AsyncClient(
            base_url=base, headers={"origin": base}, verify=NO_CERTIFICATES, timeout=PATIENCE
        ) as http:
            visitor = Visitor(http, self.address)
            if token:
                assert (await visitor.sign_in(self.tokens[token])).status_code == 204
            elif self.access is None:
                await visitor.learn()
            yield visitor


@asynccontextmanager
async def open_shop(
    *,
    writes: bool = False,
    store: Any = "memory:",
    rules: Mapping[str, Sequence[Rule]] | None = None,
    app: headway.App = shop.app,
    access: Authorizer | None = None,
    tokens: Mapping[str, str] | None = None,
    report: headway.events.Report = headway.events.ignore,
    wrap_channel: Callable[[Channel], Channel] | None = None,
    **served: Any,
) -> AsyncIterator[Shop]:
    """Run the shop, or another app, with these options of its network.

    With ``rules``, there is a token for each name of theirs.
    """
    if rules is not None:
        access, tokens, _ = allowing(**rules)
    network = headway.Network(http="127.0.0.1:0", http_writes=writes, access=access, insecure=access is None, **served)
    async with testing.open_engine(store, app, network=network, report=report, wrap_channel=wrap_channel) as engine:
        assert engine.http is not None
        yield Shop(engine, engine.client, engine.http, access, dict(tokens or {}))


async def until(true: Callable[[], bool]) -> None:
    """Wait until a function returns True. It is called again and again."""
    with trio.fail_after(PATIENCE):
        while True:
            if true():
                return
            await trio.sleep(0.01)


def revoke_all(access: Authorizer) -> None:
    """Apply an access file without tokens."""
    access.replace(Access())
