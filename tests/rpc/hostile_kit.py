"""An engine under attack: a well-behaved client beside the attackers, and the checks after each batch."""

from __future__ import annotations

import random
import socket
import ssl
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import trio
import trio.testing

import headway
from headway import rpc
from headway.access import Access, Authorizer, Policy, Rule, TokenSet, new_token
from headway.client import Client
from headway.events import HandlerFailed
from headway.resource import pb
from headway.service import WATCH_LIST
from tests.rpc.rpc_kit import DECODERS, THING, Text, app, certificates

_PAGE = 4096
# A well-behaved client notices an answer that takes longer than this.
PATIENCE = 40.0
MEMORY_BOUND = 96 << 20


class _Steps(trio.abc.Instrument):
    """A counter of the steps of all tasks."""

    count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002 - Trio's
        self.count += 1


async def steps_while_idle(seconds: float) -> int:
    """Return the number of steps that all tasks take while this one sleeps. A busy machine doesn't add to them."""
    steps = _Steps()
    trio.lowlevel.add_instrument(steps)
    try:
        await trio.sleep(seconds)
    finally:
        trio.lowlevel.remove_instrument(steps)
    return steps.count


def resident(pid: int | str = "self") -> int:
    """Return the bytes of memory that a process, by default this one with its server, occupies now."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE


@dataclass
class Front:
    """A target of attacks: how to reach it, and the server behind it."""

    listen: str = "127.0.0.1:0"
    store: str = "memory:"
    server_tls: ssl.SSLContext | None = None
    client_tls: ssl.SSLContext | None = None
    access: Authorizer | None = None
    token: str = ""


def _over_tls(folder: Path) -> Front:
    made = certificates(folder)
    return Front(server_tls=made.server, client_tls=made.client)


def _with_access(_: Path) -> Front:
    """Allow the bystander and the recorder everything, and a caller without a token nothing."""
    rule = Rule(verbs=["view", "edit"], type="test.v1.Thing", partition="*", namespace="*")
    text, token = new_token(["everything"])
    return Front(access=Authorizer(Access([Policy("everything", [rule])], TokenSet([token]))), token=text)


FRONTS: dict[str, Callable[[Path], Front]] = {
    "tcp": lambda _: Front(),
    "tls": _over_tls,
    "unix": lambda folder: Front(listen=f"unix:{folder}/socket"),
    "access": _with_access,
    "sqlite": lambda folder: Front(store=f"sqlite:{folder}/store.db"),
}


class ServerTasks(trio.abc.Instrument):
    """Counts of the tasks of connections and calls, the running ones and all. A test can wait for a number of them."""

    def __init__(self) -> None:
        self.living: Counter[str] = Counter()
        self.started: Counter[str] = Counter()
        self.changed = trio.Event()

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        if task.name.startswith("rpc "):
            self.living[task.name] += 1
            self.started[task.name] += 1
            self.changed.set()

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        if task.name.startswith("rpc "):
            self.living[task.name] -= 1
            self.changed.set()

    async def until(self, wanted: Counter[str]) -> None:
        """Wait until exactly this many are running. A state that ends within a turn of the loop may be missed."""
        while +self.living != +wanted:
            self.changed = trio.Event()
            await self.changed.wait()

    async def until_started(self, wanted: Counter[str]) -> None:
        """Wait until this many have started, whether they are still running or not."""
        while not wanted <= self.started:
            self.changed = trio.Event()
            await self.changed.wait()


class Bystander:
    """A well-behaved client that writes, reads its writes and watches. Every answer must arrive in time."""

    def __init__(self, channel: rpc.RemoteChannel, token: str = "") -> None:
        self.client = Client(channel, app.registry, token=token)
        self.written = 0
        self.seen: list[str] = []
        self.between = trio.Lock()
        self._more = trio.Event()
        self._wrote = trio.Event()

    async def work(self, *, task_status: trio.TaskStatus[None]) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self._watch)
            task_status.started()
            while True:
                async with self.between:
                    await self._write_and_read()
                # This sleep replaces no condition: it is the pace at which an honest client writes.
                await trio.sleep(0.01)

    async def _write_and_read(self) -> None:
        text = str(self.written)
        with trio.fail_after(PATIENCE):
            await self.client.apply(THING.new("bystander", Text(text=text)))
            assert (await self.client.read(THING, "bystander")).data.text == text
        self.written += 1
        self._wrote.set()

    async def until_written(self, count: int) -> None:
        """Wait until the bystander has written this many times."""
        while self.written < count:
            self._wrote = trio.Event()
            await self._wrote.wait()

    async def _watch(self, *, task_status: trio.TaskStatus[None]) -> None:
        async with self.client.watch(THING) as events:
            async for event in events:
                if isinstance(event, headway.client.SnapshotEnd):
                    task_status.started()
                if isinstance(event, headway.client.Upserted) and event.resource.id.name == "bystander":
                    self.seen.append(event.resource.data.text)
                    self._more.set()

    async def check(self) -> None:
        """Assert that every write was seen once and in order. Hold ``between`` when calling it."""
        with trio.fail_after(PATIENCE):
            while len(self.seen) < self.written:
                self._more = trio.Event()
                await self._more.wait()
        assert self.seen == [str(number) for number in range(self.written)]


class Target:
    """A server on loopback with a bystander, and the number of inputs sent to it."""

    def __init__(
        self, where: str, front: Front, bystander: Bystander, tasks: ServerTasks, failures: list[object]
    ) -> None:
        self._where = where
        self._tls = front.client_tls
        self.token = front.token
        self.bystander = bystander
        self.inputs: Counter[str] = Counter()
        self._tasks = tasks
        self._failures = failures
        self._memory = 0
        self._calm: Counter[str] = Counter()

    async def open(self) -> trio.abc.Stream:
        """Open a connection for raw bytes."""
        if self._where.startswith("unix:"):
            return await trio.open_unix_socket(self._where.removeprefix("unix:"))
        host, port = self._where.split(":")
        stream = await trio.open_tcp_stream(host, int(port))
        if self._tls is None:
            return stream
        # A TLS peer may close the connection without a TLS alert, as a peer without TLS may.
        return trio.SSLStream(stream, self._tls, server_hostname=host, https_compatible=True)

    async def begin(self) -> None:
        """Record the tasks and memory in use before an attack."""
        async with self.bystander.between:
            await trio.testing.wait_all_tasks_blocked(0.01)
            self._calm = self._tasks.living.copy()
        self._memory = resident()

    async def unharmed(self) -> None:
        """Assert that no task or connection is left, memory is bounded, and neither server nor bystander failed."""
        async with self.bystander.between:
            with trio.fail_after(PATIENCE):
                await self._tasks.until(self._calm)
            await self.bystander.check()
        assert not self._failures, self._failures[:3]
        grown = resident() - self._memory
        assert grown < MEMORY_BOUND, f"{grown >> 20} MiB more than before"

    async def throw(self, kind: str, data: bytes, *, abrupt: bool = False) -> None:
        """Send bytes on a connection of their own and end it. Wait until the server has ended it too."""
        self.inputs[kind] += 1
        stream = await self.open()
        with trio.fail_after(PATIENCE):
            try:
                await stream.send_all(data)
                if abrupt:
                    _reset_on_close(stream)
                elif isinstance(stream, trio.SSLStream):
                    # TLS has no half-closed connections.
                    await stream.aclose()
                else:
                    assert isinstance(stream, trio.abc.HalfCloseableStream)
                    await stream.send_eof()
                    await until_closed(stream)
            except trio.BrokenResourceError:
                # The server refused the input before all of it was sent.
                pass
            finally:
                await trio.aclose_forcefully(stream)

    async def throw_all(self, kind: str, inputs: Iterable[bytes], *, seed: int, side_by_side: int = 8) -> None:
        """Send all inputs, some concurrently and some with an abrupt end."""
        chance = random.Random(seed)
        slots = trio.Semaphore(side_by_side)

        async def one(data: bytes, abrupt: bool) -> None:
            try:
                await self.throw(kind, data, abrupt=abrupt)
            finally:
                slots.release()

        async with trio.open_nursery() as nursery:
            for data in inputs:
                await slots.acquire()
                nursery.start_soon(one, data, chance.random() < 0.2)


@contextmanager
def named(kind: str) -> Iterator[None]:
    """Name the input of the block in what it raises, so that several inputs can share a server."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"the input was: {kind}")
        raise


def _reset_on_close(stream: trio.abc.Stream) -> None:
    """Make closing reset the connection. A Unix socket has no reset."""
    beneath = stream.transport_stream if isinstance(stream, trio.SSLStream) else stream
    if isinstance(beneath, trio.SocketStream) and beneath.socket.family != socket.AF_UNIX:
        beneath.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def until_closed(stream: trio.abc.ReceiveStream) -> None:
    """Read until the other end has closed."""
    try:
        while await stream.receive_some(65536):
            pass
    except trio.BrokenResourceError:
        pass


@asynccontextmanager
async def attacked(kind: str = "tcp") -> AsyncIterator[Target]:
    """A listening engine with a bystander at work. The end of the block asserts that all is unharmed."""
    with TemporaryDirectory() as folder:
        async with _attacked(FRONTS[kind](Path(folder))) as target:
            yield target


@asynccontextmanager
async def _attacked(front: Front) -> AsyncIterator[Target]:
    tasks = ServerTasks()
    trio.lowlevel.add_instrument(tasks)
    failures: list[object] = []

    def report(event: object) -> None:
        if isinstance(event, HandlerFailed):
            failures.append(event)

    try:
        async with headway.open_engine(
            front.store,
            app,
            report=report,
            network=headway.Network(
                [front.listen], tls=front.server_tls, access=front.access, insecure=front.access is None
            ),
        ) as engine:
            (where,) = engine.addresses
            async with (
                rpc.open_channel(where, decoders=DECODERS, tls=front.client_tls) as channel,
                trio.open_nursery() as nursery,
            ):
                target = Target(where, front, Bystander(channel, front.token), tasks, failures)
                await nursery.start(target.bystander.work)
                await target.begin()
                yield target
                await target.unharmed()
                nursery.cancel_scope.cancel()
    finally:
        trio.lowlevel.remove_instrument(tasks)
    assert not +tasks.living, tasks.living


class Recorder:
    """A relay between a real client and the server that records the client's bytes."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.sent = bytearray()

    async def relay(self, client: trio.SocketStream) -> None:
        server = await self._target.open()
        async with client, server, trio.open_nursery() as nursery:
            nursery.start_soon(self._copy, server, client, bytearray())
            await self._copy(client, server, self.sent)
            nursery.cancel_scope.cancel()

    async def _copy(self, source: trio.abc.Stream, sink: trio.abc.Stream, kept: bytearray) -> None:
        while data := await source.receive_some(65536):
            kept += data
            await sink.send_all(data)


async def recorded(target: Target) -> bytes:
    """Return the bytes of a real client that writes, reads, lists, watches and deletes."""
    recorder = Recorder(target)
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    host, port = listener.socket.getsockname()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, recorder.relay, [listener])
        async with rpc.open_channel(f"{host}:{port}", decoders=DECODERS) as channel:
            client = Client(channel, app.registry, token=target.token)
            metadata = {"x-consul-token": target.token} if target.token else None
            written = await client.write(THING.new("recorded", Text(text="x" * 100)))
            everything = pb.WatchListRequest(type=THING.name.message())
            async with channel.stream(WATCH_LIST, everything, metadata=metadata) as items:
                await anext(items)
            await client.list(THING)
            await client.read(THING, "recorded")
            await client.delete(written)
        nursery.cancel_scope.cancel()
    return bytes(recorder.sent)
