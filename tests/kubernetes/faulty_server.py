"""A small HTTPS server on Trio that fails as networks do, which a real API server does not do on demand."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import h11
import trio
import trustme

from headway.kubernetes._kubeconfig import ClusterConfig, Content

Answer = Callable[["Connection"], Awaitable[None]]


class Seen(NamedTuple):
    """A request that has arrived."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return dict(self.headers).get(name)


class Connection:
    """A connection of a client, on which an answer is sent."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.http = h11.Connection(h11.SERVER)

    async def send(self, event: h11.Event) -> None:
        await self.stream.send_all(self.http.send(event) or b"")

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        await self.send(h11.Response(status_code=status, headers=list(headers.items())))

    async def piece(self, data: bytes) -> None:
        await self.send(h11.Data(data=data))

    async def request(self) -> Seen | None:
        """Return the next request, or None if the client has closed the connection."""
        head, body = None, b""
        while True:
            event = self.http.next_event()
            if event is h11.NEED_DATA:
                self.http.receive_data(bytes(await self.stream.receive_some()))
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                assert head is not None
                headers = [(name.decode(), value.decode()) for name, value in head.headers]
                return Seen(head.method.decode(), head.target.decode(), headers, body)
            else:
                return None


class FaultyServer:
    """The server. It gives `answers` in turn, and the last one again and again.

    Attributes:
        seen: the requests that have arrived.
        connections: the number of connections that were opened.
        arrived: set when a request has arrived.
        closed: set when a connection was closed.
        tls: the context of TLS for the next connections.
    """

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.seen: list[Seen] = []
        self.connections = 0
        self.arrived, self.closed = trio.Event(), trio.Event()
        self.ca = trustme.CA()
        self.tls = self.context(self.ca)
        self.url = ""

    def context(self, ca: trustme.CA, name: str = "127.0.0.1") -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ca.issue_cert(name).configure_cert(context)
        return context

    def config(self, **fields: Any) -> ClusterConfig:
        own = {
            "ca": Content("the test's CA", text=self.ca.cert_pem.bytes().decode()),
            "token": Content("the test's token", text="secret-token"),
        }
        return ClusterConfig(self.url, "a test", **{**own, **fields})

    def require_certificate(self) -> None:
        """Require a certificate of the CA from each client."""
        self.ca.configure_trust(self.tls)
        self.tls.verify_mode = ssl.CERT_REQUIRED

    async def serve(self, tcp: trio.SocketStream) -> None:
        self.connections += 1
        try:
            await self._answer(tcp)
        except (trio.BrokenResourceError, trio.ClosedResourceError, h11.RemoteProtocolError):
            pass
        finally:
            self.closed.set()

    async def _answer(self, tcp: trio.SocketStream) -> None:
        async with trio.SSLStream(tcp, self.tls, server_side=True, https_compatible=True) as stream:
            connection = Connection(stream)
            while (seen := await connection.request()) is not None:
                self.seen.append(seen)
                self.arrived.set()
                await (self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])(connection)
                if connection.http.our_state is h11.MUST_CLOSE or connection.http.our_state is h11.ERROR:
                    return
                connection.http.start_next_cycle()


@asynccontextmanager
async def listening(serve: Callable[[trio.SocketStream], Awaitable[object]]) -> AsyncIterator[int]:
    """Serve connections on a free port, and yield its number."""
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        yield listener.socket.getsockname()[1]
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def faulty_server(*answers: Answer) -> AsyncIterator[FaultyServer]:
    """Run a server that gives these answers, and end it."""
    server = FaultyServer(*answers)
    async with listening(server.serve) as port:
        server.url = f"https://127.0.0.1:{port}"
        yield server


def answer(status: int = 200, body: object = None, **headers: str) -> Answer:
    """Return an answer with JSON, or with bytes as they are."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def give(connection: Connection) -> None:
        given = {each.replace("_", "-"): value for each, value in headers.items()}
        kind = {} if "content-type" in given else {"content-type": "application/json"}
        await connection.begin(status, {**kind, "content-length": str(len(data)), **given})
        await connection.piece(data)
        await connection.send(h11.EndOfMessage())

    return give


def refusal(code: int, reason: str = "", message: str = "no", **details: object) -> dict[str, object]:
    """Return a Status, as an API server sends it."""
    return {
        "kind": "Status",
        "message": message,
        "reason": reason,
        "details": details,
        "code": code,
    }


def pieces(*sent: bytes, ending: Answer | None = None) -> Answer:
    """Return an answer that sends pieces of a watch and ends cleanly, or as `ending` does."""

    async def give(connection: Connection) -> None:
        await connection.begin(200, {"content-type": "application/json", "transfer-encoding": "chunked"})
        for each in sent:
            await connection.piece(each)
        if ending is None:
            await connection.send(h11.EndOfMessage())
        else:
            await ending(connection)

    return give


async def cut(connection: Connection) -> None:
    """Close the connection without an answer."""
    await connection.stream.aclose()
    raise trio.ClosedResourceError


async def stall(connection: Connection) -> None:
    """Send nothing until the client has closed the connection."""
    await connection.stream.receive_some()
    raise trio.ClosedResourceError
