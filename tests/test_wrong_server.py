"""Clients, leases and workers of a server that is not Headway's end with one error that names the server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import grpc
import pytest
import trio
import trio.testing

import headway
from headway import events, rpc
from headway.errors import NotHeadway, Unavailable
from headway.service import ConsulService, ResourceService, watch_encoders
from headway.storage import MemoryBackend
from tests.helpers.declared import NOTE, registry
from tests.rpc.rpc_kit import certificates

PATIENCE = 20.0
Served = AbstractAsyncContextManager[str]


def types() -> headway.App:
    made = headway.App("tests")
    made.registry.register(NOTE)
    return made


def app(controllers: int = 1) -> headway.App:
    made = types()

    async def reconcile(rt: headway.Runtime, request: headway.Request) -> None:
        """Do nothing."""

    for number in range(controllers):
        made.controller(name=f"notes-{number}", manages=NOTE)(reconcile)
    return made


@asynccontextmanager
async def answering(handle: Callable[[trio.SocketStream], Awaitable[object]]) -> AsyncIterator[str]:
    """Serve TCP with this handler, and yield the address."""

    async def connected(stream: trio.SocketStream) -> None:
        async with stream:
            with suppress(trio.BrokenResourceError):
                await handle(stream)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, connected, 0, host="127.0.0.1"))
        yield f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


def answering_with(answer: bytes) -> Served:
    """Serve an address that answers everything with these bytes."""

    async def handle(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        await stream.send_all(answer)
        async for _ in stream:
            pass

    return answering(handle)


def echoing() -> Served:
    async def handle(stream: trio.SocketStream) -> None:
        async for data in stream:
            await stream.send_all(data)

    return answering(handle)


@asynccontextmanager
async def foreign_grpc_server() -> AsyncIterator[str]:
    """Run a server of grpcio's, which has none of our services."""
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.stop(None)


@asynccontextmanager
async def serving_only(
    *services: type[ResourceService | ConsulService], listen: str = "127.0.0.1:0"
) -> AsyncIterator[str]:
    """Run a Headway server that has only these services."""
    offered = rpc.Services(*(each(MemoryBackend(), registry()) for each in services), encoders=watch_encoders())
    async with rpc.open_server(offered, [listen]) as server:
        yield server.addresses[0]


WRONG: dict[str, tuple[Callable[[], Served], str]] = {
    "web server": (
        lambda: answering_with(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"),
        "it answers in HTTP/1",
    ),
    "echo": (echoing, "its answer is not HTTP/2 (b'PRI * HTTP/2.0"),
    "TLS alert": (lambda: answering_with(b"\x15\x03\x03\x00\x02\x02\x46"), "it expects TLS: give tls="),
    "another gRPC server": (foreign_grpc_server, "is not a Headway engine"),
    "Consul's API alone": (lambda: serving_only(ConsulService), "is not a Headway engine"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_client_of_another_server_raises_not_headway(name: str) -> None:
    """Every kind of call fails at once, names the answer, and reports that a write has not happened."""
    serve, message = WRONG[name]
    with trio.fail_after(PATIENCE):
        async with serve() as where, headway.connect(where, app()) as client:
            await _refused(client.get(NOTE, "one"), where, message)
            await _refused(client.write(NOTE.new("one")), where, message)
            await _refused(client.apply(NOTE.new("one")), where, message)
            with pytest.raises(NotHeadway, match="give the address of a Headway engine"):
                async with client.watch(NOTE) as items:
                    await anext(aiter(items))
            with pytest.raises(NotHeadway, match="give the address of a Headway engine"):
                async with headway.hold_lease(client.leases, "mine", holder="me"):
                    raise AssertionError("a lease was held")


async def _refused(call: Awaitable[object], where: str, message: str) -> None:
    with pytest.raises(NotHeadway) as caught:
        await call
    assert where in str(caught.value)
    assert message in str(caught.value)
    assert "give the address of a Headway engine" in str(caught.value)


@pytest.mark.parametrize("name", WRONG)
async def test_workers_of_another_server_end_with_not_headway(name: str) -> None:
    """The block is canceled, and the error leaves it without a group."""
    serve, message = WRONG[name]
    with trio.fail_after(PATIENCE):
        async with serve() as where:
            with pytest.raises(NotHeadway) as caught:
                async with headway.open_workers(where, app(), process="web-1", report=lambda _: None):
                    await trio.sleep_forever()
            assert message in str(caught.value)


async def test_workers_of_a_server_without_leases_end_with_not_headway() -> None:
    """Workers need leases."""
    with trio.fail_after(PATIENCE):
        async with serving_only(ResourceService) as where:
            with pytest.raises(NotHeadway, match="is not a Headway engine"):
                async with headway.open_workers(where, app(), process="web-1", report=lambda _: None):
                    await trio.sleep_forever()


async def test_tls_on_one_side_only_is_named_in_the_error(tmp_path: Path) -> None:
    """Without TLS on both sides, neither understands the other's first bytes."""
    made = certificates(tmp_path)
    with trio.fail_after(PATIENCE):
        async with (
            headway.open_engine("memory:", types(), network=headway.Network(["127.0.0.1:0"], insecure=True)) as plain,
            headway.connect(plain.addresses, app(), tls=made.client) as client,
        ):
            await _refused(client.get(NOTE, "one"), plain.addresses[0], "it does not speak TLS: leave tls out")
        async with (
            headway.open_engine(
                "memory:", types(), network=headway.Network(["127.0.0.1:0"], insecure=True, tls=made.server)
            ) as secure,
            headway.connect(secure.addresses, app()) as client,
        ):
            await _refused(client.get(NOTE, "one"), secure.addresses[0], "it expects TLS: give tls=")


STARTING = {
    "nobody listens": None,
    "closed at once": b"",
    "proxy of a server that starts": b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("answer", STARTING.values(), ids=STARTING)
async def test_server_that_may_be_starting_is_retried(answer: bytes | None) -> None:
    """A call raises Unavailable, and workers retry until an engine answers."""
    delayed, taken = trio.Event(), trio.Event()

    def report(event: object) -> None:
        if isinstance(event, events.LeaseDelayed):
            delayed.set()
        elif isinstance(event, events.LeaseTaken):
            taken.set()

    with trio.fail_after(PATIENCE):
        with trio.socket.socket() as free:
            await free.bind(("127.0.0.1", 0))
            where = f"127.0.0.1:{free.getsockname()[1]}"
        async with trio.open_nursery() as nursery:
            starting = _Starting(answer, where)
            await nursery.start(starting.serve)
            async with headway.connect(where, app()) as client:
                with pytest.raises(Unavailable):
                    await client.get(NOTE, "one")
            async with headway.open_workers(where, app(), process="web-1", report=report) as workers:
                await delayed.wait()
                starting.scope.cancel()
                await starting.ended.wait()
                async with headway.open_engine("memory:", types(), network=headway.Network([where], insecure=True)):
                    await taken.wait()
                    await workers.wait_idle()
                    assert [each.restarts for each in workers.status()] == [0]


class _Starting:
    """A server that is at an address before its engine."""

    def __init__(self, answer: bytes | None, where: str) -> None:
        self.answer = answer
        self.port = int(where.rpartition(":")[2])
        self.scope = trio.CancelScope()
        self.ended = trio.Event()

    async def serve(self, task_status: trio.TaskStatus[None]) -> None:
        with self.scope:
            if self.answer is None:
                task_status.started()
            else:
                async with trio.open_nursery() as nursery:
                    await nursery.start(partial(trio.serve_tcp, self._answer, self.port, host="127.0.0.1"))
                    task_status.started()
        self.ended.set()

    async def _answer(self, stream: trio.SocketStream) -> None:
        async with stream:
            if self.answer:
                await stream.receive_some()
                await stream.send_all(self.answer)


async def _engine(scope: trio.CancelScope, stopped: trio.Event, task_status: trio.TaskStatus[str]) -> None:
    with scope:
        async with headway.open_engine(
            "memory:", types(), network=headway.Network(["127.0.0.1:0"], insecure=True)
        ) as it:
            task_status.started(it.addresses[0])
            await trio.sleep_forever()
    stopped.set()


async def test_standby_worker_survives_a_wrong_server_in_the_place_of_its_engine() -> None:
    """The worker has never run, but an engine has answered it before."""
    awaited, ended = trio.Event(), trio.Event()

    def report(event: object) -> None:
        if isinstance(event, events.LeaseAwaited):
            awaited.set()
        elif isinstance(event, events.RunEnded) and isinstance(event.error, NotHeadway):
            ended.set()

    stopped, serving = trio.Event(), trio.CancelScope()
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            where = await nursery.start(_engine, serving, stopped)
            async with headway.open_workers(where, app(), process="web-1", report=lambda _: None) as first:
                await first.wait_idle()
                async with headway.open_workers(where, app(), process="web-2", report=report):
                    await awaited.wait()
                    serving.cancel()
                    await stopped.wait()
                    async with serving_only(ConsulService, listen=where):
                        await ended.wait()
                        # Long enough for a wrong error to end the block.
                        await trio.testing.wait_all_tasks_blocked()
