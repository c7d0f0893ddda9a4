"""The service admits, tells apart and bounds the streams of proxies (XS-1)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from headway.api import Call, Code, Interrupted
from headway.errors import InvalidArgument, PermissionDenied, RateLimited, Unauthenticated
from mesh.xds import AdsService, Answers, Feedback, Kind, Limits, Publish, Snapshot, Snapshots
from mesh.xds import messages as m
from tests.mesh.xds.builders import cluster
from tests.mesh.xds.real_envoy import nobody


class Proxy:
    """A proxy's end of a stream: what it sends, and what it gets."""

    def __init__(self, node: str = "web") -> None:
        self.send, self.requests = trio.open_memory_channel[m.DeltaDiscoveryRequest](10)
        self.got: list[object] = []
        self.answered = trio.Event()
        if node:
            self.send.send_nowait(m.DeltaDiscoveryRequest(node=m.Node(id=node), type_url=Kind.CLUSTER.value))

    async def recv_message(self) -> m.DeltaDiscoveryRequest | None:
        try:
            return await self.requests.receive()
        except trio.EndOfChannel:
            return None

    async def send_message(self, message: object) -> None:
        await trio.lowlevel.checkpoint()
        self.got.append(message)
        self.answered.set()


async def test_stream_without_a_node_is_refused() -> None:
    """The error names the field."""
    for node in (None, m.Node(cluster="headway")):
        proxy = Proxy("")
        proxy.send.send_nowait(m.DeltaDiscoveryRequest(type_url=Kind.CLUSTER.value, node=node))
        with pytest.raises(InvalidArgument, match=r"node\.id: missing"):
            await AdsService(Snapshots(), nobody).delta(Call(), proxy)


async def test_silent_stream_ends(autojump_clock: trio.testing.MockClock) -> None:
    """It would hold a place for nothing."""
    with pytest.raises(InvalidArgument, match="within 15 s"):
        await AdsService(Snapshots(), nobody).delta(Call(), Proxy(""))
    assert trio.current_time() >= 15


async def test_caller_that_may_not_be_the_node_gets_nothing() -> None:
    """Nothing of another's configuration, which may hold keys."""

    async def refuse(_: Call, node: m.Node) -> None:
        await trio.lowlevel.checkpoint()
        raise PermissionDenied(f"identity:write on {node.id}: permission denied")

    source, proxy = Snapshots(), Proxy()
    source["web"] = Snapshot([cluster("a")])
    with pytest.raises(PermissionDenied):
        await AdsService(source, refuse).delta(Call(), proxy)
    assert proxy.got == []
    assert source.streams("web") == 0


async def test_revoked_caller_loses_its_stream(autojump_clock: trio.testing.MockClock) -> None:
    """An idle stream is checked again, too."""
    asked = 0

    async def once(_: Call, __: m.Node) -> None:
        nonlocal asked
        await trio.lowlevel.checkpoint()
        asked += 1
        if asked > 1:
            raise Unauthenticated("the token was deleted")

    with pytest.raises(Unauthenticated):
        await AdsService(Snapshots(), once).delta(Call(), Proxy())
    assert trio.current_time() >= 300


async def test_streams_beyond_the_limit_are_refused() -> None:
    """With a time to try again, elsewhere (XS-4)."""
    service = AdsService(Snapshots(), nobody, Limits(streams=1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(service.delta, Call(), Proxy())
        await trio.testing.wait_all_tasks_blocked()
        assert service.open_streams == 1
        with pytest.raises(RateLimited, match="1 streams are open"):
            await service.delta(Call(), Proxy())
        nursery.cancel_scope.cancel()
    assert service.open_streams == 0


async def test_end_of_an_old_stream_leaves_the_new_one_its_snapshots() -> None:
    """A proxy may connect anew before the end of its last stream is known."""
    source = Snapshots()
    service = AdsService(source, nobody)
    old, new = Proxy(), Proxy()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(service.delta, Call(), old)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(service.delta, Call(), new)
        await trio.testing.wait_all_tasks_blocked()
        old.send.close()
        await trio.testing.wait_all_tasks_blocked()
        source["web"] = Snapshot([cluster("a")])
        await new.answered.wait()
        assert old.got == []
        nursery.cancel_scope.cancel()


async def test_thousands_that_reconnect_are_opened_a_few_at_a_time() -> None:
    """The others wait, and are not refused."""
    most = now = 0

    async def slow(_: Call, __: m.Node) -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await trio.testing.wait_all_tasks_blocked()
        now -= 1

    source = Snapshots()
    proxies = [Proxy(str(each)) for each in range(200)]
    for each in range(200):
        source[str(each)] = Snapshot([cluster("a")])
    service = AdsService(source, slow, Limits(opening=8))
    async with trio.open_nursery() as nursery:
        for proxy in proxies:
            nursery.start_soon(service.delta, Call(), proxy)
        for proxy in proxies:
            await proxy.answered.wait()
        nursery.cancel_scope.cancel()
    assert most == 8


async def test_source_is_told_when_a_proxy_has_everything() -> None:
    """After its last answer, and after a snapshot that changes nothing for it."""
    told = 0

    def synced(_: object) -> None:
        nonlocal told
        told += 1

    published: list[Publish] = []

    class Told:
        @asynccontextmanager
        async def open(self, node: m.Node, publish: Publish) -> AsyncIterator[Feedback]:
            assert node.id == "web"
            published.append(publish)
            publish(Snapshot([cluster("a")]))
            yield Feedback(synced=synced)

    proxy = Proxy()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(AdsService(Told(), nobody).delta, Call(), proxy)
        await trio.testing.wait_all_tasks_blocked()
        assert told == 0
        proxy.send.send_nowait(m.DeltaDiscoveryRequest(type_url=Kind.CLUSTER.value, response_nonce="00000001"))
        await trio.testing.wait_all_tasks_blocked()
        assert told == 1
        published[0](Snapshot([cluster("a")]))
        await trio.testing.wait_all_tasks_blocked()
        assert told == 2
        nursery.cancel_scope.cancel()


async def test_revoked_caller_that_never_reads_loses_its_stream(autojump_clock: trio.testing.MockClock) -> None:
    """It would hold its place, and a response that is not for it any more."""
    asked = 0

    async def once(_: Call, __: m.Node) -> None:
        nonlocal asked
        await trio.lowlevel.checkpoint()
        asked += 1
        if asked > 1:
            raise Unauthenticated("the token was deleted")

    class Deaf(Proxy):
        async def send_message(self, message: object) -> None:
            self.got.append(message)
            await trio.sleep_forever()

    source = Snapshots()
    source["web"] = Snapshot([cluster("a")])
    with trio.fail_after(1000), pytest.raises(Unauthenticated):
        await AdsService(source, once).delta(Call(), Deaf())


async def test_error_in_place_of_a_snapshot_ends_the_stream() -> None:
    """A source may find out later that the caller may not be the node."""

    class Denying(Snapshots):
        @asynccontextmanager
        async def open(self, node: m.Node, publish: Publish) -> AsyncIterator[Feedback]:
            assert node.id == "web"
            publish(PermissionDenied("not yours"))
            yield Feedback()

    proxy = Proxy()
    with pytest.raises(PermissionDenied, match="not yours"):
        await AdsService(Denying(), nobody).delta(Call(), proxy)
    assert proxy.got == []


async def test_proxy_that_goes_away_is_no_error() -> None:
    """Neither while it is read from, nor while it is written to. The server would log each."""

    class Gone(Proxy):
        async def recv_message(self) -> m.DeltaDiscoveryRequest | None:
            if self.got:
                await trio.testing.wait_all_tasks_blocked()
                raise Interrupted(Code.UNAVAILABLE, "gone")
            return await super().recv_message()

        async def send_message(self, message: object) -> None:
            await super().send_message(message)
            raise Interrupted(Code.UNAVAILABLE, "gone")

    source = Snapshots()
    source["web"] = Snapshot([cluster("a")])
    with trio.fail_after(5):
        await AdsService(source, nobody).delta(Call(), Gone())
    assert source.streams("web") == 0


async def test_source_learns_when_the_proxy_has_answered_everything() -> None:
    """And what of it was rejected."""
    synced: list[Answers] = []

    class Listening(Snapshots):
        @asynccontextmanager
        async def open(self, node: m.Node, publish: Publish) -> AsyncIterator[Feedback]:
            assert node.id == "web"
            publish(Snapshot([cluster("a")]))
            yield Feedback(synced=synced.append)

    proxy = Proxy()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(AdsService(Listening(), nobody).delta, Call(), proxy)
        await proxy.answered.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert synced == []
        refused = m.Status(code=3, message="no")
        proxy.send.send_nowait(
            m.DeltaDiscoveryRequest(type_url=Kind.CLUSTER.value, response_nonce="00000001", error_detail=refused)
        )
        await trio.testing.wait_all_tasks_blocked()
        (answers,) = synced
        assert answers.rejected == {Kind.CLUSTER: {"a": cluster("a").version}}
        assert answers.accepted(Kind.CLUSTER, "a") != cluster("a").version
        nursery.cancel_scope.cancel()
