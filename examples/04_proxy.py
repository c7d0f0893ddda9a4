"""An HTTP proxy that routes by a cache, so it keeps serving while the Headway server is away.

Serve the resources, start the proxy, declare a route and a backend, and ask the proxy:

    headway serve examples.04_proxy:app --store sqlite:proxy.db
    python examples/04_proxy.py 127.0.0.1:7070 127.0.0.1:8080
    python -m http.server 8001 --bind 127.0.0.1
    headway apply -f - <<END
    {type: proxy.v1.Route, name: files, data: {prefix: /, service: files}}
    ---
    {type: proxy.v1.Backend, name: files-1, data: {service: files, address: "127.0.0.1:8001"}}
    END
    curl http://127.0.0.1:8080/

Kill the server, and the proxy goes on. It speaks HTTP with h11, which `pip install h11` installs.
"""

import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from itertools import count

import h11
import trio

import headway
from headway import field


@headway.message
class Route:
    """The service that answers the paths below a prefix."""

    prefix: str = field(1)
    service: str = field(2)


@headway.message
class Backend:
    """A process of a service, by its host and port."""

    service: str = field(1)
    address: str = field(2)


app = headway.App("proxy")
ROUTE = app.type("proxy", "v1", "Route", Route)
BACKEND = app.type("proxy", "v1", "Backend", Backend)

PIECE, LARGEST_BODY = 65_536, 1 << 20
CLIENTS, CLIENT_SECONDS, CONNECT_SECONDS, ANSWER_SECONDS = 1_000, 30, 3, 60
# These headers describe one connection and are not passed on (RFC 9110, section 7.6.1).
ONE_HOP = {b"connection", b"keep-alive", b"proxy-connection", b"te", b"transfer-encoding", b"upgrade", b"expect"}


class Table:
    """The addresses of each route's backends, at one revision of the store."""

    def __init__(self) -> None:
        self._routes: list[tuple[str, list[str]]] = []
        self._turns = count()

    def replace(self, routes: list[headway.Resource[Route]], backends: list[headway.Resource[Backend]]) -> None:
        """Replace the routes and backends."""
        addresses: dict[str, list[str]] = {}
        for backend in backends:
            addresses.setdefault(backend.data.service, []).append(backend.data.address)
        found = [(route.data.prefix, addresses.get(route.data.service, [])) for route in routes]
        self._routes = sorted(found, key=lambda route: len(route[0]), reverse=True)

    def find(self, path: str) -> list[str] | None:
        """Return the backends of the longest prefix of a path, a different one first each time; None without one."""
        for prefix, addresses in self._routes:
            if path.startswith(prefix):
                turn = next(self._turns) % max(1, len(addresses))
                return addresses[turn:] + addresses[:turn]
        return None


class Peer:
    """One HTTP connection, in either role."""

    def __init__(self, stream: trio.abc.Stream, role: type[h11.CLIENT] | type[h11.SERVER]) -> None:
        self._stream = stream
        self.http = h11.Connection(role)
        self._method = b""

    async def send(self, *events: h11.Event) -> None:
        """Send events."""
        await self._stream.send_all(b"".join(self.http.send(event) or b"" for event in events))

    async def receive(self) -> h11.Event | None:
        """Return the next event, or None if the other side has closed or waits for this one."""
        # A piece may have thousands of events, such as chunks of a byte. Other clients go on between two of them.
        await trio.lowlevel.checkpoint()
        while True:
            event = self.http.next_event()
            if event is h11.NEED_DATA:
                if self.http.they_are_waiting_for_100_continue:
                    await self.send(h11.InformationalResponse(status_code=100, headers=[]))
                self.http.receive_data(bytes(await self._stream.receive_some(PIECE)))
            elif event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
                return None
            else:
                assert isinstance(event, h11.Event)
                if isinstance(event, h11.Request):
                    self._method = event.method
                return event

    async def answer(self, status: int, text: str) -> None:
        """Answer a request with a line of text."""
        body = f"{text}\n".encode()
        head = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))]
        data = [h11.Data(body)] if self._method != b"HEAD" else []
        await self.send(h11.Response(status_code=status, headers=head), *data, h11.EndOfMessage())


async def serve_client(table: Table, clients: trio.CapacityLimiter, stream: trio.SocketStream) -> None:
    """Pass on the requests of one connection, one after the other."""
    client = Peer(stream, h11.SERVER)
    # Either side may break off, or take too long. The client sees a closed connection.
    with suppress(trio.BrokenResourceError, trio.TooSlowError, h11.ProtocolError):
        async with stream, clients:
            try:
                while await serve_request(table, client):
                    client.http.start_next_cycle()
            except h11.RemoteProtocolError as error:
                await client.answer(error.error_status_hint, str(error))


async def serve_request(table: Table, client: Peer) -> bool:
    """Pass on one request. Return True if the connection may have another one."""
    with trio.fail_after(CLIENT_SECONDS):
        request, body = await client.receive(), bytearray()
        if not isinstance(request, h11.Request):
            return False
        while isinstance(part := await client.receive(), h11.Data) and len(body) <= LARGEST_BODY:
            body += part.data
    path = request.target.decode()
    backends = table.find(path)
    with trio.fail_after(ANSWER_SECONDS):
        if len(body) > LARGEST_BODY:
            await client.answer(413, f"a body may have up to {LARGEST_BODY} bytes")
        elif not path.startswith("/"):
            await client.answer(400, f"{path} must be a path, such as /users")
        elif backends is None:
            await client.answer(404, f"{path} has no route")
        elif not backends:
            await client.answer(503, f"{path} has no backend")
        else:
            await pass_on(client, request, bytes(body), backends)
    return client.http.our_state is client.http.their_state is h11.DONE


async def pass_on(client: Peer, request: h11.Request, body: bytes, backends: list[str]) -> None:
    """Pass a request to the first backend that can be reached, and its answer to the client."""
    head = [*passed(request.headers), (b"Connection", b"close"), (b"Content-Length", b"%d" % len(body))]
    for address in backends:
        connected = False
        try:
            async with await connect(address) as stream:
                connected = True
                backend = Peer(stream, h11.CLIENT)
                sent = h11.Request(method=request.method, target=request.target, headers=head)
                await backend.send(sent, h11.Data(body), h11.EndOfMessage())
                await copy_answer(backend, client)
                return
        except (OSError, ValueError, trio.BrokenResourceError, h11.RemoteProtocolError) as error:
            if client.http.our_state is not h11.SEND_RESPONSE:
                raise trio.BrokenResourceError(f"{address} has broken off its answer") from error
            if connected and request.method not in (b"GET", b"HEAD"):
                break  # The backend may have acted on the request, so no other one gets it.
    await client.answer(502, "no backend has answered")


async def connect(address: str) -> trio.SocketStream:
    """Connect to a backend. Raises OSError if it cannot be reached, and ValueError if the address has no port."""
    host, _, port = address.rpartition(":")
    with trio.move_on_after(CONNECT_SECONDS):
        return await trio.open_tcp_stream(host, int(port))
    raise OSError(f"{address} has not answered within {CONNECT_SECONDS} s")


async def copy_answer(backend: Peer, client: Peer) -> None:
    """Copy the answer of a backend, as it arrives."""
    while True:
        event = await backend.receive()
        if event is None:
            raise trio.BrokenResourceError("the backend has closed before the end of its answer")
        if isinstance(event, h11.Response):
            event = h11.Response(status_code=event.status_code, headers=passed(event.headers), reason=event.reason)
        if not isinstance(event, h11.InformationalResponse):
            await client.send(event)
        if isinstance(event, h11.EndOfMessage):
            return


def passed(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers that are passed on."""
    named = {part.strip().lower() for name, value in headers if name == b"connection" for part in value.split(b",")}
    return [(name, value) for name, value in headers if name not in ONE_HOP | named]


async def proxy(
    server: str, host: str, port: int, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED
) -> None:
    """Route requests by the resources of a server, until canceled."""
    async with (
        headway.open_cache(server, app, watches=[ROUTE, BACKEND]) as cache,
        cache.notify() as updates,
        trio.open_nursery() as nursery,
    ):
        routes, backends = updates.list(ROUTE), updates.list(BACKEND)
        await updates.primed()
        table = Table()
        table.replace(routes.value, backends.value)
        # The cache is primed, so clients may connect. It keeps its values while the server is away.
        serve = partial(serve_client, table, trio.CapacityLimiter(CLIENTS))
        listeners = await nursery.start(partial(trio.serve_tcp, serve, port, host=host))
        task_status.started(listeners[0].socket.getsockname()[1])
        async for changed in updates:
            table.replace(routes.value, backends.value)
            if changed is routes and routes.error is not None:
                print(f"routing by what was known {routes.age:.0f} s ago: {routes.error}", flush=True)


async def main(server: str, listen: str) -> None:
    host, _, port = listen.rpartition(":")
    async with trio.open_nursery() as nursery:
        print("listening on port", await nursery.start(proxy, server, host, int(port)), flush=True)


if __name__ == "__main__":
    # Ctrl-C ends it.
    try:
        trio.run(main, sys.argv[1], sys.argv[2])
    except* KeyboardInterrupt:
        pass
