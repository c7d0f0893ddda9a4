"""The example of a proxy that routes by a cache, in the test's process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
import trio.testing

import headway
from tests.examples.fleet_kit import PATIENCE
from tests.examples.proxy_kit import EXAMPLE, HOST, ask, backends

ROUTE, BACKEND = EXAMPLE.ROUTE, EXAMPLE.BACKEND


@asynccontextmanager
async def proxied() -> AsyncIterator[tuple[headway.Client, int]]:
    """Run an engine and the proxy, and yield a client of the engine and the proxy's port."""
    with trio.fail_after(PATIENCE):
        async with (
            headway.open_engine(
                "memory:", EXAMPLE.app, network=headway.Network([f"{HOST}:0"], insecure=True)
            ) as engine,
            trio.open_nursery() as nursery,
        ):
            for name, prefix in (("all", "/"), ("users", "/users")):
                await engine.client.apply(ROUTE.new(name, EXAMPLE.Route(prefix=prefix, service=name)))
            port = await nursery.start(EXAMPLE.proxy, engine.addresses[0], HOST, 0)
            yield engine.client, port
            nursery.cancel_scope.cancel()


async def add(client: headway.Client, port: int, name: str, address: str, service: str = "users") -> None:
    """Declare a backend, and wait until the proxy routes to it."""
    await client.apply(BACKEND.new(name, EXAMPLE.Backend(service=service, address=address)))
    path = "/users" if service == "users" else "/"
    while name not in {(await ask(port, path))[1] for _ in range(2)}:
        pass


async def test_proxy_routes_by_longest_prefix_to_each_backend_in_turn() -> None:
    """A path without a backend gets 503, and a change of the resources changes the routes."""
    async with backends("one", "two", "rest") as (one, two, rest), proxied() as (client, port):
        assert await ask(port, "/users/ada") == (503, "/users/ada has no backend\n")
        await add(client, port, "one", one.address)
        await add(client, port, "two", two.address)
        await add(client, port, "rest", rest.address, "all")
        assert {await ask(port, "/users/ada") for _ in range(2)} == {(200, "one"), (200, "two")}
        assert await ask(port, "/other") == (200, "rest")
        await client.delete(ROUTE.id("all"))
        while (answer := await ask(port, "/other")) == (200, "rest"):
            pass
        assert answer == (404, "/other has no route\n")


async def test_proxy_takes_another_backend_when_one_cannot_be_reached() -> None:
    """A request whose body was sent to a backend goes to no other. A GET does, before an answer has begun."""
    async with backends("one", "two", "three") as (one, two, three), proxied() as (client, port):
        await add(client, port, "one", one.address)
        await add(client, port, "two", two.address)
        one.stop()
        assert {await ask(port, "/users") for _ in range(4)} == {(200, "two")}
        two.broken, sent = 1, len(two.requests)
        assert await ask(port, "/users", method="POST", body=b"new") == (502, "no backend has answered\n")
        assert len(two.requests) == sent + 1
        assert two.requests[-1].endswith(b"\r\n\r\nnew")
        await add(client, port, "three", three.address)
        two.broken = 1
        while two.broken:
            assert await ask(port, "/users") == (200, "three")


async def test_proxy_refuses_invalid_requests() -> None:
    """Each of them gets an answer, and the proxy keeps serving."""
    async with proxied() as (_, port):
        assert await ask(port, "users") == (400, "users must be a path, such as /users\n")
        assert (await ask(port, "/a b"))[0] == 400
        assert await ask(port, "/other", method="HEAD") == (503, "")
        large = b"x" * (EXAMPLE.LARGEST_BODY + 1)
        assert (await ask(port, "/", method="POST", body=large))[0] == 413
        assert (await ask(port, "/"))[0] == 503
