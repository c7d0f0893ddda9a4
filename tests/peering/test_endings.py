"""The end of a peer stream in virtual time: nothing is left of it, nothing is half stored, and the next one waits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked
from typing_extensions import override

from headway import events
from headway._gen.headway.peering.v1 import Ack, Request, Server, Subject, Subscribe
from headway.errors import Unavailable
from headway.peering import PEERING, Peering, PeerLimits, Role
from headway.peering._hub import CLOSED, DELETED, NOT_LEADING, REFUSED, UNREACHABLE, StreamEnded
from headway.peering.links import RARELY, TOLD, Dialer, Importer, open_importer
from headway.peering.stream import Work
from headway.rpc import Channel, PassingChannel
from headway.storage import Operation
from tests.helpers.resources import TEAM
from tests.peering.link_kit import Message, Pair, Side, eventually, exported, open_pair, open_side, raw_peer


async def test_r_ended_stream_leaves_no_task(autojump_clock: MockClock) -> None:
    """The weakness of R.3: Consul's reader may stay behind."""
    async with open_pair() as pair:
        await wait_all_tasks_blocked()
        before = trio.lowlevel.current_statistics().tasks_living
        pair.connect()
        await trio.sleep(1)
        assert trio.lowlevel.current_statistics().tasks_living > before
        pair.a.entry.end(StreamEnded(CLOSED, "for a test"))
        await trio.sleep(1)
        assert trio.lowlevel.current_statistics().tasks_living == before
        assert not pair.a.entry.connected


class Reading(PassingChannel):
    """A channel that lets a test act while a resource is read."""

    def __init__(self, inner: Channel, act: Callable[[], None]) -> None:
        super().__init__(inner)
        self._act = act

    @override
    async def unary(self, path: str, *rest: Any, **options: Any) -> Any:
        if path.endswith("/Read"):
            self._act()
            await wait_all_tasks_blocked()
        return await super().unary(path, *rest, **options)


async def test_deletion_is_sent_at_once_while_a_refused_resource_is_read(autojump_clock: MockClock) -> None:
    """The peering is deleted between the writer's look for what to send and its sleep."""
    async with open_side("west", Role.ACCEPTS, TEAM) as side, trio.open_nursery() as nursery:
        deleted: list[float] = []

        def delete() -> None:
            deleted.append(trio.current_time())
            nursery.start_soon(side.entry.terminate)

        side.host.channel = Reading(side.host.channel, delete)
        async with raw_peer(side, limits=PeerLimits(window=1)) as peer:
            subscribe = Subscribe(exports=exported(TEAM), number=1, again=[TEAM.id("ada").message()])
            requests = [(Subject.EXPORTS, Subscribe()), (Subject.RESOURCES, subscribe)]
            for subject, each in requests:
                await peer.send(Message(request=Request(subject=subject, subscribe=each)))
            while (message := await peer.receive()).terminated is None:
                # The beginning of the feed is not acknowledged, so that the resource cannot be sent once it is read.
                if message.response is not None and message.response.exports is not None:
                    await peer.send(Message(request=Request(subject=Subject.EXPORTS, ack=Ack(nonce=1))))
            assert len(deleted) == 1
            assert trio.current_time() - deleted[0] < 1


async def failing_after(
    pair: Pair, commits: int, write: Callable[[Importer], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Write with an importer of a store that fails after a number of commits."""
    side = pair.b
    importer = await open_importer(side.host, side.entry.peering, PeerLimits())
    real, made = side.host.backend.commit, 0

    async def commit(operations: Sequence[Operation], fence: Any = None) -> Any:
        nonlocal made
        made += 1
        if made > commits:
            raise Unavailable("for a test")
        return await real(operations, fence)

    monkeypatch.setattr(side.host.backend, "commit", commit)
    with pytest.raises(Unavailable):
        await write(importer)
    monkeypatch.undo()


@pytest.mark.parametrize("complete", [True, False])
async def test_crash_between_commits_leaves_no_position_that_is_ahead_of_the_copies(
    complete: bool, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A position after whole commits is stored with the last one; the end of a whole state with the first one."""
    async with open_pair() as pair:
        for name in ("ada", "ben"):
            await pair.a.write(name)
        scope = pair.connect()
        await pair.wait(pair.b, {"ada": [], "ben": []})
        scope.cancel()
        importer = await open_importer(pair.b.host, pair.b.entry.peering, PeerLimits())
        before = importer.state
        assert before is not None
        assert before.complete
        removals = [[each] for each in importer.copies.outside(())]
        after = type(before)(position=before.position, complete=complete, replaced=True)
        work = Work(commits=removals, state=after)
        await failing_after(pair, 1, lambda importer: importer.store(work), monkeypatch)
        again = await open_importer(pair.b.host, pair.b.entry.peering, PeerLimits())
        assert (again.state, len(again.copies)) == (before if complete else after, 1)


@pytest.mark.parametrize("commits", [0, 1, 2])
async def test_crash_while_the_copies_are_cleared_leaves_no_position_without_them(
    commits: int, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peering may be established again before its copies are cleared, and the next stream copies all of them."""
    wanted: dict[str, list[str]] = {f"team{number}": [] for number in range(20)}
    async with open_pair() as pair:
        for name in wanted:
            await pair.a.write(name)
        scope = pair.connect()
        await pair.wait(pair.b, wanted)
        scope.cancel()
        await failing_after(pair, commits, lambda importer: importer.clear(), monkeypatch)
        left = await open_importer(pair.b.host, pair.b.entry.peering, PeerLimits())
        assert (left.state is None) == (commits > 0)
        assert (len(left.copies) < len(wanted)) == (commits > 1)
        pair.connect()
        await pair.wait(pair.b, wanted)


class Counting(Dialer):
    """A dialer whose attempts end at once, or after a while, for the given reasons."""

    def __init__(self, side: Side, ends: list[tuple[str, float]]) -> None:
        super().__init__(side.host, side.entry, PeerLimits())
        self.ends = ends
        self.times: list[float] = []

    async def _attempt(self, secret: str) -> StreamEnded:
        assert secret == "stream"
        self.times.append(trio.current_time())
        if not self.ends:
            self._entry.terminated = True
            return StreamEnded(CLOSED, "the test is over")
        reason, lasted = self.ends.pop(0)
        await trio.sleep(lasted)
        return StreamEnded(reason, "for a test", hostile=False)


async def delays(side: Side, ends: list[tuple[str, float]]) -> list[int]:
    """Return the delays between the end of an attempt and the next one."""
    peering = side.entry.peering
    record = await side.host.secrets.put_dialing(peering, "token")
    await side.host.secrets.put_stream_secret(peering.id.uid, record.attempt, "stream")
    lasted = [each[1] for each in ends]
    dialer = Counting(side, list(ends))
    await dialer.run()
    pairs = zip(dialer.times, dialer.times[1:], lasted, strict=False)
    return [round(after - before - length) for before, after, length in pairs]


async def test_r_dialer_backs_off(autojump_clock: MockClock) -> None:
    """The weakness of R.3: Consul has no back-off."""
    async with open_side("east", Role.DIALS, TEAM) as side:
        assert await delays(side, [(UNREACHABLE, 0)] * 9) == [1, 2, 4, 8, 16, 32, 60, 60, 60]


async def test_dialer_returns_at_once_after_a_long_stream(autojump_clock: MockClock) -> None:
    async with open_side("east", Role.DIALS, TEAM) as side:
        assert await delays(side, [(CLOSED, 0), (CLOSED, 100), (CLOSED, 0)]) == [1, 0, 1]


async def test_dialer_that_was_redirected_begins_with_the_shortest_delay(autojump_clock: MockClock) -> None:
    async with open_side("east", Role.DIALS, TEAM) as side:
        assert await delays(side, [(NOT_LEADING, 0), (CLOSED, 5), (UNREACHABLE, 0)]) == [0, 1, 2]


async def test_refused_dialer_waits_a_minute(autojump_clock: MockClock) -> None:
    async with open_side("east", Role.DIALS, TEAM) as side:
        assert await delays(side, [(REFUSED, 0)] * 2) == [RARELY, RARELY]


async def test_dialer_follows_the_leader_at_once_but_not_in_circles(autojump_clock: MockClock) -> None:
    async with open_side("east", Role.DIALS, TEAM) as side:
        assert await delays(side, [(NOT_LEADING, 0)] * 10) == [0, 0, 0, 0, 1, 0, 0, 0, 0, 2]


async def test_changed_addresses_are_tried_at_once(autojump_clock: MockClock) -> None:
    async with open_side("east", Role.DIALS, TEAM) as side:
        peering = side.entry.peering
        record = await side.host.secrets.put_dialing(peering, "token")
        await side.host.secrets.put_stream_secret(peering.id.uid, record.attempt, "stream")
        dialer = Counting(side, [(UNREACHABLE, 0)] * 7)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(dialer.run)
            await trio.sleep(70)
            tried = len(dialer.times)
            await side.change(addresses=["10.0.0.9:9000"])
            await trio.sleep(0.1)
            assert len(dialer.times) == tried + 1
            nursery.cancel_scope.cancel()


async def test_secret_is_not_sent_to_the_addresses_of_an_earlier_token(autojump_clock: MockClock) -> None:
    """The controller has not seen the new addresses yet. A leader that the earlier ones named is not asked either."""
    opened: list[list[str]] = []

    @asynccontextmanager
    async def open_channel(data: Peering, **_: Any) -> AsyncIterator[Any]:
        opened.append(data.addresses)
        raise Unavailable("for a test")
        yield

    async with open_side("east", Role.DIALS, TEAM) as side:
        await side.change(addresses=["10.0.0.1:9000"])
        dialer = Dialer(side.host, side.entry, PeerLimits())
        dialer._target = ["10.0.0.2:9000"]
        peering = await side.host.client.read(PEERING, "east")
        peering.data.addresses = ["10.0.0.9:9000"]
        await side.host.client.write(peering)
        record = await side.host.secrets.put_dialing(peering, "token")
        await side.host.secrets.put_stream_secret(peering.id.uid, record.attempt, "stream")
        side.host.open_channel = open_channel
        with trio.move_on_after(10):
            await dialer.run()
    assert len(opened) > 1
    assert all(each == ["10.0.0.9:9000"] for each in opened)


async def test_dialer_waits_for_its_secret(autojump_clock: MockClock) -> None:
    async with open_side("east", Role.DIALS, TEAM) as side:
        dialer = Counting(side, [])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(dialer.run)
            await trio.sleep(10)
            assert dialer.times == []
            peering = side.entry.peering
            record = await side.host.secrets.put_dialing(peering, "token")
            await side.host.secrets.put_stream_secret(peering.id.uid, record.attempt, "stream")

            async def tried() -> int:
                return len(dialer.times)

            await eventually(tried, 1)


async def test_invalid_addresses_of_the_peer_are_reported_and_not_stored(autojump_clock: MockClock) -> None:
    async with open_side("east", Role.DIALS, TEAM) as side:
        await side.change(addresses=["10.0.0.1:9000"])
        dialer = Dialer(side.host, side.entry, PeerLimits())
        await dialer._follow_server(Server(addresses=["not an address"]))
        await dialer._follow_server(Server(addresses=["10.0.0.2:9000"] * 17))
        stored: Peering = (await side.host.client.read(PEERING, "east")).data
        assert stored.addresses == ["10.0.0.1:9000"]
        assert [each.peer for each in side.events if isinstance(each, events.PeerRefused)] == ["east"]
        await dialer._follow_server(Server(addresses=["10.0.0.2:9000"]))
        stored = (await side.host.client.read(PEERING, "east")).data
        assert stored.addresses == ["10.0.0.2:9000"]


async def told_after(seconds: float) -> tuple[float, bool]:
    """Delete a dialing peering whose peer ends the stream this long after Terminated.

    Returns:
        How long the stream stayed open after Terminated, and whether the other side is known to have learned of it.
    """
    async with open_side("east", Role.DIALS, TEAM) as side, raw_peer(side) as peer:
        await peer.receive()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(side.entry.terminate)
            while (await peer.receive()).terminated is None:
                pass
            began = trio.current_time()
            await wait_all_tasks_blocked()
            assert side.ends == [], "the dialer has reset the stream, which may take the message back"
            with trio.move_on_after(seconds):
                await peer.drain()
            await peer.end()
        await eventually(side.ended, True)
        assert [each.reason for each in side.ends] == [DELETED]
        return round(trio.current_time() - began, 1), side.entry.notified


async def test_dialer_waits_until_its_peer_has_ended_the_stream_after_terminated(autojump_clock: MockClock) -> None:
    assert await told_after(3.0) == (3.0, True)


async def test_dialer_whose_peer_does_not_end_the_stream_leaves_without_a_confirmation(
    autojump_clock: MockClock,
) -> None:
    assert await told_after(60.0) == (TOLD, False)


async def test_stream_that_opens_while_its_peering_is_being_deleted_sends_terminated(autojump_clock: MockClock) -> None:
    async with open_side("east", Role.DIALS, TEAM) as side:
        await side.entry.terminate()
        async with raw_peer(side) as peer:
            while (await peer.receive()).terminated is None:
                pass


async def test_accepting_side_cannot_direct_a_dialer_to_another_host_in_plain_text(tmp_path: Path) -> None:
    """Otherwise it, or another program on the machine, would make this side send the secret over a network."""
    async with open_side("east", Role.DIALS, TEAM) as side:
        await side.change(addresses=[f"unix:{tmp_path}/west"], plain_text=True)
        dialer = Dialer(side.host, side.entry, PeerLimits())
        dialer._target = ["203.0.113.7:9000"]
        with trio.fail_after(30):
            ended = await dialer._attempt("secret")
        assert ended.reason == REFUSED
        assert "a secret sent to another host in plain text can be read on the way" in str(ended)
