"""Traces over gRPC: a client, an engine and a worker process, and what a client receives that does not ask."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest
import trio

import headway
from headway import events
from headway.errors import InvalidArgument, StoreRolledBack
from headway.protobuf import decode, encode
from headway.resource import TypeName, pb
from headway.rpc import open_channel
from headway.service import WATCH_LIST
from headway.tracing._wire import TRACES_HEADER
from tests.helpers.restorable import RestorableBackend
from tests.http.kit import NO_CERTIFICATES
from tests.tracing.spans import CHAIN, Spans, Told, chain, named
from tests.tracing.staff import Staff, Team, types_alone

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0
TEAM = TypeName("staff", "v1", "Team")
WRITE = "/headway.resource.v1.ResourceService/Write"


class Worker:
    """A worker process, and what it has printed."""

    def __init__(self) -> None:
        self.spans: list[Told] = []
        self.running = False
        self._changed = trio.Event()

    async def read(self, output: AsyncIterator[bytes | bytearray]) -> None:
        rest = b""
        async for part in output:
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                if line == b"running":
                    self.running = True
                else:
                    self.spans.append(Told(*json.loads(line)))
            self._changed.set()
            self._changed = trio.Event()

    async def until(self, condition: Callable[[], object]) -> None:
        with trio.fail_after(PATIENCE):
            while not condition():
                await self._changed.wait()


@asynccontextmanager
async def worker(address: str) -> AsyncIterator[Worker]:
    """Run the worker program until the end of the block."""
    command = [sys.executable, "-m", "tests.tracing.worker_program", address]
    start = partial(trio.run_process, command, cwd=ROOT, stdout=subprocess.PIPE, check=False)
    async with trio.open_nursery() as nursery:
        process = await nursery.start(start)
        made = Worker()
        nursery.start_soon(made.read, process.stdout)
        await made.until(lambda: made.running)
        yield made
        process.kill()


@asynccontextmanager
async def workers(address: str) -> AsyncIterator[Worker]:
    """Run the same controllers in this process, with a tracer provider of their own."""
    made, spans = Worker(), Spans()
    async with headway.open_workers(
        address, Staff().app, process="web-1", report=events.ignore, tracing=spans.provider
    ) as engine:
        await engine.wait_idle()

        async def until(condition: Callable[[], object]) -> None:
            made.spans = spans.all()
            while not condition():
                await trio.sleep(0.01)
                made.spans = spans.all()

        made.until = until  # type: ignore[method-assign]  # its spans are read here
        yield made


@pytest.mark.parametrize("working", [workers, pytest.param(worker, marks=pytest.mark.wide)])
async def test_one_trace_spans_client_engine_and_workers(
    tmp_path: Path, working: Callable[[str], AbstractAsyncContextManager[Worker]]
) -> None:
    """Each has a provider of its own. The reconcile's own write returns to the engine, and comes back."""
    client_spans, engine_spans = Spans(), Spans()
    address = f"unix:{tmp_path}/engine.sock"
    async with (
        headway.open_engine(
            "memory:",
            types_alone(),
            report=events.ignore,
            network=headway.Network([address], insecure=True),
            tracing=engine_spans.provider,
        ),
        working(address) as work,
    ):
        team = types_alone().registry.resolve(TEAM)
        async with headway.connect(address, types_alone(), tracing=client_spans.provider) as client:
            with client_spans.root() as root:
                await client.write(team.new("core", Team(size=1)))
        with trio.fail_after(PATIENCE):
            await work.until(lambda: len(named(work.spans, "reconcile")) == 2)
    everything = [*client_spans.all(), *engine_spans.all(), *work.spans]
    first, second = named(work.spans, "reconcile")
    assert chain(first, everything) == CHAIN
    assert chain(second, everything) == [*CHAIN, *CHAIN]
    assert {each.trace for each in everything} == {root.get_span_context().trace_id}
    assert [each.name for each in client_spans.all()] == ["write"]
    assert [each.name for each in engine_spans.all()] == ["commit", "commit"]
    assert named(work.spans, "write")[0].parent == first.id


@pytest.mark.wide
@pytest.mark.parametrize("new_id", [True, False], ids=["another store", "accepted after a rollback"])
async def test_traces_of_a_lost_history_end_with_it(tmp_path: Path, new_id: bool) -> None:
    """The commits of the next history have the same revisions, and only their own traces."""
    app, address, spans, staff = types_alone(), f"unix:{tmp_path}/engine.sock", Spans(), Staff()
    team, store = app.registry.resolve(TEAM), RestorableBackend()
    stopped, begun_anew = trio.Event(), trio.Event()

    def report(event: object) -> None:
        if isinstance(event, events.RunEnded) and isinstance(event.error, StoreRolledBack):
            stopped.set()

    async def note(_: headway.Runtime, request: headway.Request[Team]) -> None:
        if request.id.name == "marker":
            begun_anew.set()

    staff.before = note

    def serving(life: Spans) -> AbstractAsyncContextManager[headway.Engine]:
        return headway.open_engine(
            store, app, report=events.ignore, network=headway.Network([address], insecure=True), tracing=life.provider
        )

    backup = store.back_up()
    async with headway.open_workers(
        address, staff.app, process="web-1", report=report, tracing=spans.provider
    ) as workers:
        first = Spans()
        async with serving(first) as engine:
            await workers.wait_idle()
            for number in range(40):
                with first.root():
                    await engine.client.write(team.new(f"old-{number}", Team(size=1)))
            await workers.wait_idle()
        assert len(spans.named("reconcile")) >= 40
        traced = {int(each.attributes["revision"]) for each in first.named("commit")}
        store.restore(backup, new_id=new_id)
        second = Spans()
        async with serving(second) as engine:
            with trio.fail_after(PATIENCE):
                if not new_id:
                    await stopped.wait()
                    assert workers.accept_store()
                await engine.client.write(team.new("marker", Team(size=1)))
                await begun_anew.wait()
                await workers.wait_idle()
            begun = len(spans.all())
            untraced = 0
            for number in range(10):
                written = await engine.client.write(team.new(f"untraced-{number}", Team(size=1)))
                untraced += int(written.version) in traced
            await workers.wait_idle()
            assert untraced, "no revision had a trace in the lost history"
            assert spans.all()[begun:] == []
            with second.root() as root:
                written = await engine.client.write(team.new("new", Team(size=1)))
            assert int(written.version) in traced
            await workers.wait_idle()
    assert {each.trace for each in spans.all()[begun:]} == {root.get_span_context().trace_id}
    assert len(named(spans.all()[begun:], "reconcile")) == 2


async def events_of(address: str, metadata: dict[str, str] | None, live: trio.Event) -> list[bytes]:
    """Return the bodies of the events of a watch, up to the first change. Set ``live`` at the end of the snapshot."""
    request = pb.WatchListRequest(type=pb.Type(group="staff", group_version="v1", kind="Team"), bookmarks=True)
    bodies: list[bytes] = []
    async with (
        open_channel(address, decoders={WATCH_LIST: lambda: list}) as channel,
        channel.stream(WATCH_LIST, request, metadata=metadata) as items,
    ):
        async for body in items:
            bodies.append(body)
            event = decode(pb.WatchEvent, body)
            if event.end_of_snapshot is not None:
                live.set()
            elif event.revision:
                return bodies
    raise AssertionError("the stream has ended")


async def test_client_that_does_not_ask_receives_the_same_bytes_as_without_tracing(tmp_path: Path) -> None:
    """The client that asks receives exactly one field more, in the first event of the traced commit."""
    spans, address = Spans(), f"unix:{tmp_path}/engine.sock"
    received: dict[bool, list[bytes]] = {}
    async with headway.open_engine(
        "memory:",
        types_alone(),
        report=events.ignore,
        network=headway.Network([address], insecure=True),
        tracing=spans.provider,
    ) as engine:
        team = headway.App("staff").type("staff", "v1", "Team", Team)

        live = {True: trio.Event(), False: trio.Event()}

        async def watch(asks: bool) -> None:
            received[asks] = await events_of(address, {TRACES_HEADER: "1"} if asks else None, live[asks])

        with trio.fail_after(PATIENCE):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(watch, True)
                nursery.start_soon(watch, False)
                for each in live.values():
                    await each.wait()
                with spans.root():
                    await engine.client.write(team.new("core", Team(size=1)))
    *asked_before, asked = received[True]
    *unasked_before, unasked = received[False]
    assert asked_before == unasked_before
    event = decode(pb.WatchEvent, asked)
    assert event.trace is not None
    assert asked == unasked + encode(pb.WatchEvent(trace=event.trace))
    [commit] = spans.named("commit")
    assert event.trace.traceparent == f"00-{commit.trace:032x}-{commit.id:016x}-01"
    assert f"{commit.trace:032x}".encode() not in b"".join(received[False])


HOSTILE = [
    "x",
    "00",
    "00-" + "g" * 32 + "-" + "1" * 16 + "-01",
    "00-" + "0" * 32 + "-" + "1" * 16 + "-01",
    "00-" + "1" * 32 + "-" + "0" * 16 + "-01",
    "ff-" + "1" * 32 + "-" + "1" * 16 + "-01",
    "00-" + "1" * 32 + "-" + "1" * 16 + "-01-more",
    "00-" + "A" * 32 + "-" + "1" * 16 + "-01",
    "01-" + "1" * 32 + "-" + "1" * 16 + "-01-" + "x" * 4000,
    "00-" + "1" * 32 + "-" + "1" * 16 + "-00",
]


async def write_with(address: str, metadata: dict[str, str], name: str) -> None:
    """Write a team with this metadata, as a foreign client does."""
    team = types_alone().registry.resolve(TEAM)
    request = pb.WriteRequest(resource=team.new(name, Team(size=1)).message())
    async with open_channel(address) as channel:
        await channel.unary(WRITE, request, pb.WriteResponse, metadata=metadata)


async def test_hostile_contexts_are_ignored_and_bounded(tmp_path: Path) -> None:
    """The write is stored. Without a valid context it makes no span, and a hostile tracestate is left out."""
    spans, address, good = Spans(), f"unix:{tmp_path}/engine.sock", "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
    states = ["a=b," * 40, "x" * 513, "=", "a=" + "y" * 511, "key=with=equals"]
    async with headway.open_engine(
        "memory:",
        types_alone(),
        report=events.ignore,
        network=headway.Network([address], insecure=True),
        tracing=spans.provider,
    ) as engine:
        for number, each in enumerate(HOSTILE):
            await write_with(address, {"traceparent": each, "tracestate": "a=b"}, f"bad-{number}")
        assert spans.all() == []
        for number, each in enumerate(states):
            await write_with(address, {"traceparent": good, "tracestate": each}, f"state-{number}")
        await write_with(address, {"traceparent": good, "tracestate": "vendor=one,t@x=two"}, "good")
        teams = await engine.client.list(types_alone().registry.resolve(TEAM))
    assert len(teams) == len(HOSTILE) + len(states) + 1
    commits = spans.named("commit")
    assert {(each.trace, each.parent) for each in commits} == {(int("1" * 32, 16), int("2" * 16, 16))}
    assert [each.state for each in commits] == [*([""] * len(states)), "vendor=one,t@x=two"]


def test_tracing_must_be_a_provider() -> None:
    async def main() -> None:
        async with headway.open_engine("memory:", types_alone(), tracing="yes"):  # type: ignore[arg-type]  # that is the test
            raise AssertionError

    with pytest.raises(InvalidArgument, match="tracing must be a TracerProvider of OpenTelemetry, not 'yes'"):
        trio.run(main)


async def test_write_over_http_continues_the_trace_of_its_headers() -> None:
    spans, trace = Spans(), "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
    async with (
        headway.open_engine(
            "memory:",
            types_alone(),
            report=events.ignore,
            network=headway.Network(http="127.0.0.1:0", insecure=True),
            tracing=spans.provider,
        ) as engine,
        httpx.AsyncClient(base_url=f"http://{engine.http}", verify=NO_CERTIFICATES, timeout=PATIENCE) as http,
    ):
        body = {"data": {"size": "1"}}
        for name, headers in (("untraced", {}), ("core", {"traceparent": trace, "tracestate": "vendor=one"})):
            answer = await http.put(f"/api/staff/v1/team/{name}", json=body, headers=headers)
            assert answer.status_code == 200, answer.text
    [commit] = spans.all()
    assert (commit.name, commit.trace, commit.parent) == ("commit", int("1" * 32, 16), int("2" * 16, 16))
    assert commit.state == "vendor=one"
