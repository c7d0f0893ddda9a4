"""Streams and workers under limits: a stream that is refused is opened again when the server accepts it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import trio
from trio.testing import MockClock
from typing_extensions import override

import headway
from headway import testing
from headway.access import Access, Authorizer, Limit, Policy, Rule, new_token
from headway.api import of_call
from headway.client import Client
from headway.errors import RateLimited
from headway.events import CallLimited, LeaseDelayed, LeaseEnded, Reconciled, StreamEnded
from headway.rpc import Channel, PassingChannel
from headway.run import deletions_since
from headway.service import WATCH_LIST
from headway.storage import MemoryBackend
from headway.subscribing import SUBSCRIBE
from tests.helpers.plain_types import Team

SECONDS = 40.0


def made() -> tuple[headway.App, headway.ResourceType[Team]]:
    app = headway.App("staff")
    return app, app.type("staff", "v1", "Team", Team)


class Refusing(PassingChannel):
    """A channel whose first streams of a method are refused by a limit, after which they work."""

    def __init__(self, inner: Channel, path: str, count: int) -> None:
        super().__init__(inner)
        self._path, self._count = path, count
        self.opened: list[float] = []

    @override
    def stream(self, path: str, request: Any, **options: Any) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        if path == self._path:
            self.opened.append(trio.current_time())
            if len(self.opened) <= self._count:
                raise of_call(RateLimited("too many calls", SECONDS))
        return super().stream(path, request, **options)

    def check_waits(self) -> None:
        """Fail if a stream was opened before the time that the refusal before it said."""
        assert len(self.opened) > self._count
        pauses = [after - before for before, after in zip(self.opened, self.opened[1:], strict=False)]
        assert all(pause >= SECONDS for pause in pauses[: self._count])


async def test_n7_cache_of_a_controller_waits_before_it_opens_a_refused_stream_again(autojump_clock: MockClock) -> None:
    app, type = made()
    channels: list[Refusing] = []
    ended: list[str] = []

    @app.controller(manages=type)
    async def teams(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        pass

    def through(channel: Channel) -> Channel:
        channels.append(Refusing(channel, WATCH_LIST, 2))
        return channels[0]

    def report(event: object) -> None:
        if isinstance(event, StreamEnded):
            ended.append(event.why)

    async with testing.open_engine("memory:", app, wrap_channel=through, report=report) as engine:
        await engine.wait_idle()
    channels[0].check_waits()
    assert ended[:2] == ["RESOURCE_EXHAUSTED: too many calls"] * 2
    assert round(autojump_clock.current_time(), 6) >= 2 * SECONDS


async def test_n7_subscription_waits_before_it_opens_a_refused_stream_again(autojump_clock: MockClock) -> None:
    app, type = made()
    async with headway.open_engine("memory:", app) as engine:
        await engine.client.write(type.new("core"))
        channel = Refusing(engine.client._channel, SUBSCRIBE, 2)
        async with Client(channel, app.registry).subscribe([type]) as batches:
            batch = await anext(batches)
    assert [each.resource.name for each in batch.events if isinstance(each, headway.client.Upserted)] == ["core"]
    channel.check_waits()
    assert round(autojump_clock.current_time(), 6) >= 2 * SECONDS


async def test_n7_read_of_missed_deletions_waits_before_it_opens_a_refused_stream_again(
    autojump_clock: MockClock,
) -> None:
    """The error would end the run, and so its lease. The next run would be refused again."""
    app, type = made()
    backend = MemoryBackend()
    async with headway.open_engine(backend, app) as engine:
        docs = await engine.client.write(type.new("docs"))
        _, since = await backend.read(type.kind, docs.id.key)
        await engine.client.delete(docs.id)
        _, until = await backend.read(type.kind, docs.id.key)
        channel = Refusing(engine.client._channel, WATCH_LIST, 2)
        deleted = await deletions_since(channel, type, since, until.revision, lambda _: None, "staff/teams")
    assert [each.key[2] for each in deleted or ()] == ["docs"]
    channel.check_waits()
    assert round(autojump_clock.current_time(), 6) >= 2 * SECONDS


async def test_n7_worker_under_strict_limits_keeps_its_lease_and_does_its_work(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    """Its reads, writes and streams wait for their turn, far longer than its lease lasts. Its renewals do not."""
    app, type = made()
    server = headway.App("types")
    server.registry.register(type)
    done = trio.Event()

    @app.controller(manages=type)
    async def teams(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        team = rt.cache.get(type, request.id)
        if team is not None and not team.data.note:
            team.data.note = "seen"
            await rt.client.write(team)
        if all(each.data.note for each in rt.cache.list(type)):
            done.set()

    text, token = new_token(["workers"])
    rules = [Rule(verbs=["*"], type="*", partition="*", namespace="*")]
    # The streams also wait until the types are compared, which is a read. So their own limit is stricter.
    rates = {"read": 0.2, "write": 0.2, "watch": 0.1}
    limits = [Limit(name=each, categories=[each], per=["caller"], per_second=rates[each], burst=1) for each in rates]
    access = Authorizer(Access([Policy("workers", rules)], [token], limits=limits))
    limited: set[str] = set()
    events: list[object] = []

    def report(event: object) -> None:
        if isinstance(event, CallLimited):
            limited.add(event.category)

    async with headway.open_engine(
        "memory:", server, network=headway.Network([f"unix:{tmp_path}/socket"], access=access), report=report
    ) as engine:
        for number in range(3):
            await engine.client.write(type.new(f"team-{number}"))
        async with headway.open_workers(
            engine.addresses,
            app,
            process="web-1",
            token=text,
            report=events.append,
            timing=headway.Timing(lease_ttl=3.0),
        ):
            with trio.fail_after(600):
                await done.wait()
            # No failure: what was refused has been repeated.
            assert {each.outcome for each in events if isinstance(each, Reconciled)} <= {"done"}
            assert not [each for each in events if isinstance(each, LeaseEnded | LeaseDelayed)]
    assert limited >= {"write", "watch"}
    assert autojump_clock.current_time() > 10
