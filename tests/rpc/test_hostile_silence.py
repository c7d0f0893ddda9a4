"""A client that falls silent holds little, disturbs no other client, and is disconnected after its timeout."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trio
from grpclib.const import Status
from h2.settings import SettingCodes
from hpack import Encoder
from hyperframe.frame import ContinuationFrame, DataFrame, HeadersFrame, SettingsFrame

from headway.protobuf import encode
from headway.resource import pb
from headway.rpc import Limits, WireLimits, framed
from headway.rpc.http2 import _protocol
from tests.rpc.hostile_bytes import PREFACE, REQUEST, request
from tests.rpc.hostile_caller import Shot, calling, shoot
from tests.rpc.hostile_kit import PATIENCE, ServerTasks, Target, attacked, resident, until_closed
from tests.rpc.hostile_messages import WATCH
from tests.rpc.rpc_kit import FLOOD, THING, served

OPENING = PREFACE + SettingsFrame(0).serialize()
NO_WINDOW = PREFACE + SettingsFrame(0, settings={SettingCodes.INITIAL_WINDOW_SIZE: 0}).serialize()


def _to(path: str) -> list[tuple[str, str]]:
    return [(name, path if name == ":path" else value) for name, value in REQUEST]


def _headers_broken_off() -> bytes:
    return HeadersFrame(1, Encoder().encode(REQUEST)).serialize()


def _watches_without_window() -> bytes:
    body = framed(encode(pb.WatchListRequest(type=THING.name.message())))
    return NO_WINDOW + b"".join(request(id, body, headers=_to(WATCH)) for id in range(1, 40, 2))


SILENT: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "half a preface": lambda: PREFACE[:11],
    "a preface alone": lambda: PREFACE,
    "half a frame": lambda: OPENING + b"\0\0\x08\x06",
    "headers without end": lambda: OPENING + _headers_broken_off(),
    "headers without end, continued": lambda: (
        OPENING + _headers_broken_off() + ContinuationFrame(1, b"").serialize() * 5
    ),
    "a request without body": lambda: OPENING + request(1, framed(b""))[:-14],
    "half a message": lambda: OPENING + request(1, framed(b"abc")[:-1])[:-1],
    "watches without window": _watches_without_window,
}


async def _hold(
    target: Target, kind: str, data: bytes, held: trio.Event, *, task_status: trio.TaskStatus[None]
) -> None:
    """Send the beginning, stay silent until all others have begun, and drop the connection."""
    target.inputs[kind] += 1
    stream = await target.open()
    try:
        await stream.send_all(data)
        task_status.started()
        await held.wait()
    finally:
        await trio.aclose_forcefully(stream)


async def test_silent_connections_do_not_disturb_other_clients() -> None:
    """The bystander is served while they are open. After they are closed, they leave nothing behind."""
    async with attacked() as target, trio.open_nursery() as nursery:
        held = trio.Event()
        for kind, data in SILENT.items():
            for _ in range(5):
                await nursery.start(_hold, target, kind, data(), held)
        done = target.bystander.written
        with trio.fail_after(PATIENCE):
            await target.bystander.until_written(done + 5)
        held.set()
    assert target.inputs.total() == 5 * len(SILENT)


def _impatient(handshake: float, keepalive: float) -> Limits:
    return Limits(
        handshake_timeout=handshake,
        request_timeout=0.1,
        wire=WireLimits(stall_timeout=0.1, keepalive_interval=keepalive, keepalive_timeout=keepalive),
    )


@asynccontextmanager
async def _impatient_server(handshake: float = 0.1, keepalive: float = 0.1) -> AsyncIterator[tuple[str, ServerTasks]]:
    tasks = ServerTasks()
    trio.lowlevel.add_instrument(tasks)
    reported: list[object] = []
    try:
        async with served(limits=_impatient(handshake, keepalive), report=lambda *said: reported.append(said)) as it:
            yield it.where, tasks
    finally:
        trio.lowlevel.remove_instrument(tasks)
    assert not reported


@pytest.mark.parametrize("kind", SILENT)
async def test_silent_client_is_disconnected_by_the_server(kind: str) -> None:
    async with _impatient_server() as (where, tasks):
        before = tasks.living.copy()
        host, port = where.split(":")
        streams = [await trio.open_tcp_stream(host, int(port)) for _ in range(10)]
        for stream in streams:
            await stream.send_all(SILENT[kind]())
        with trio.fail_after(PATIENCE):
            for stream in streams:
                await until_closed(stream)
                await trio.aclose_forcefully(stream)
            await tasks.until(before)


async def test_slow_preface_times_out() -> None:
    """The time limit holds for the whole preface, even if single bytes keep arriving."""
    async with _impatient_server() as (where, tasks):
        before = tasks.living.copy()
        host, port = where.split(":")
        stream = await trio.open_tcp_stream(host, int(port))
        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_drip, stream, PREFACE[:-1])
                await until_closed(stream)
                nursery.cancel_scope.cancel()
            await trio.aclose_forcefully(stream)
            await tasks.until(before)


async def _drip(stream: trio.SocketStream, data: bytes) -> None:
    for byte in data:
        try:
            await stream.send_all(bytes([byte]))
        except trio.BrokenResourceError:
            return
        # This sleep replaces no condition: a slow loris sends its bytes at this pace.
        await trio.sleep(0.05)


async def test_client_that_reads_nothing_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its windows are wide open and its socket is not read. The waiting bytes are bounded until it is disconnected."""
    # A machine that is busy between two frames of the call would otherwise begin it in a task of its own.
    monkeypatch.setattr(_protocol, "_SLICE", math.inf)
    # The socket must be full before the client is disconnected, which takes a quarter of a second on a busy machine.
    async with _impatient_server(handshake=5, keepalive=1) as (where, tasks):
        before, started, memory = tasks.living.copy(), tasks.started.copy(), resident()
        host, port = where.split(":")
        wide = SettingsFrame(0, settings={SettingCodes.INITIAL_WINDOW_SIZE: (1 << 31) - 1}).serialize()
        window = b"\0\0\x04\x08\0\0\0\0\0\x7f\xff\0\0"
        stream = await trio.open_tcp_stream(host, int(port))
        await stream.send_all(PREFACE + wide + window + request(1, framed(b""), headers=_to(FLOOD)))
        with trio.fail_after(PATIENCE):
            # Another task reads while the call waits.
            await tasks.until_started(started + Counter({"rpc socket": 2, "rpc connection": 1, "rpc sender": 1}))
            await tasks.until(before)
        assert resident() - memory < 64 << 20
        await trio.aclose_forcefully(stream)


async def test_one_byte_frames_to_a_watch_are_bounded_by_its_window() -> None:
    """A watch reads nothing after its request."""
    body = framed(encode(pb.WatchListRequest(type=THING.name.message())))
    head = HeadersFrame(1, Encoder().encode(_to(WATCH)), flags=["END_HEADERS"]).serialize()
    drops = DataFrame(1, b"x").serialize() * 20_000
    async with attacked() as target:
        await target.throw("bytes", OPENING + head + DataFrame(1, body).serialize() + drops)


async def test_calls_with_an_expired_deadline_leave_nothing() -> None:
    """Many watches with almost no time run at once."""
    chance = random.Random(3)
    body = framed(encode(pb.WatchListRequest(type=THING.name.message())))
    async with attacked() as target:
        timeouts = [chance.choice(("0n", "1n", "1u", "1m", "5m")) for _ in range(100)]
        shots = [Shot([*calling(WATCH), ("grpc-timeout", timeout)], body) for timeout in timeouts]
        answers = await shoot(target, "deadlines", shots)
        assert all(answer.over for answer in answers)
        assert {answer.status for answer in answers} <= {Status.DEADLINE_EXCEEDED.value, None}
