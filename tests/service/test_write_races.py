"""Concurrent Writes: positions, retries after lost races, and cancellation."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
import trio
import trio.testing
from grpclib.const import Status
from typing_extensions import override

from headway.client import Client
from headway.errors import EngineBug, OutcomeUnknown
from headway.protobuf import copy_message
from headway.resource import AnyMessage, Key, Kind, Position, ResourceType, pb
from headway.rpc import InProcessChannel
from headway.service import ResourceService
from headway.storage import Fence, MemoryBackend, Operation
from tests.helpers.calls import Calls, Interrupted, at, refused
from tests.helpers.declared import CHILD, NOTE, a_note, a_status, an_id, registry, text_of, uid_of
from tests.helpers.versions import V1, V2, V3, Member, a_team, data_of, versions


async def test_position_of_a_write_is_that_of_its_own_commit(calls: Calls) -> None:
    """The position equals the version and is unique, even if others write at the same time."""
    replies: list[pb.WriteResponse] = []

    async def write(name: str) -> None:
        for _ in range(5):
            replies.append(await calls.write(a_note(name)))

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(write, f"note-{number}")
    positions = [at(reply.position) for reply in replies]
    for reply, position in zip(replies, positions, strict=True):
        assert reply.resource is not None
        assert reply.resource.version == str(position.revision)
    assert len({position.revision for position in positions}) == 40
    assert {position[:2] for position in positions} == {calls.backend.position[:2]}


async def test_lost_race_to_create_is_retried(
    calls: Calls, racing: Calls, interrupted: Interrupted, autojump_clock: trio.testing.MockClock
) -> None:
    """The loser in Consul gets "wrong uid". Here, it updates the winner's resource."""
    interrupted.before_commit = [lambda: calls.write(a_note("one", "winner"))]
    stored = await racing.stored(a_note("one", "loser"))
    assert text_of(stored) == "loser"
    assert uid_of(stored) == await calls.uid("one", NOTE)
    assert 0.075 <= autojump_clock.current_time() <= 0.12


async def test_write_without_a_version_is_tried_five_times(autojump_clock: trio.testing.MockClock) -> None:
    """The write waits between its attempts, longer each time, and not after the last."""
    backend = MemoryBackend()
    calls, interrupted = Calls(backend, registry()), Interrupted(backend)
    racing = Calls(interrupted, registry())
    await calls.write(a_note())
    times = itertools.repeat(lambda: calls.write(a_note()))
    interrupted.before_commit = list(itertools.islice(times, 4))
    await racing.write(a_note("one", "in the end"))
    assert text_of((await calls.read(an_id())).resource) == "in the end"
    assert interrupted.commits == 5
    assert 1.125 <= autojump_clock.current_time() <= 1.125 * 1.5
    interrupted.before_commit = list(itertools.islice(times, 5))
    started = autojump_clock.current_time()
    await refused(racing.write(a_note()), Status.ABORTED, "lost 5 races against other writers")
    assert interrupted.commits == 10
    assert 1.125 <= autojump_clock.current_time() - started <= 1.125 * 1.5


Verb = Callable[[Calls], Awaitable[object]]


async def put_status(calls: Calls) -> object:
    return await calls.write_status(an_id(uid=await calls.uid("one", NOTE)), a_status())


@pytest.mark.parametrize(
    "verb", [lambda calls: calls.write(a_note("one", "mine")), put_status, lambda calls: calls.delete(an_id())]
)
async def test_write_that_has_lost_a_race_loses_no_more_of_them_to_later_ones(
    verb: Verb, autojump_clock: trio.testing.MockClock
) -> None:
    """Others without a version, which begin during each of its attempts, wait until it has ended."""
    backend = MemoryBackend()
    await Calls(backend, registry()).write(a_note())
    interrupted = Interrupted(backend)
    racing = Calls(interrupted, registry())
    others: list[int] = []

    async def other(number: int) -> None:
        await racing.write(a_note("one", f"theirs {number}"))
        others.append(number)

    async with trio.open_nursery() as nursery:
        mine = trio.lowlevel.current_task()

        async def begin() -> None:
            if trio.lowlevel.current_task() is mine:
                nursery.start_soon(other, interrupted.commits)
                await trio.testing.wait_all_tasks_blocked()

        interrupted.before_commit = [begin] * 20
        await verb(racing)
        assert others == [1]
        assert autojump_clock.current_time() < 0.12
        interrupted.before_commit = []
    assert len(others) == interrupted.commits - 2 == 2


async def test_canceled_retry_writes_nothing(autojump_clock: trio.testing.MockClock) -> None:
    """A caller that gives up during the wait gets the cancellation and not the conflict."""
    backend = MemoryBackend()
    calls, interrupted = Calls(backend, registry()), Interrupted(backend)
    interrupted.before_commit = [lambda: calls.write(a_note("one", "theirs"))]
    with trio.move_on_after(0.01) as scope:
        await Calls(interrupted, registry()).write(a_note("one", "mine"))
    assert scope.cancelled_caught
    await trio.sleep(10)
    assert text_of((await calls.read(an_id())).resource) == "theirs"
    assert autojump_clock.current_time() == pytest.approx(10.01)


@pytest.mark.parametrize("recreate", [False, True])
async def test_lost_race_with_a_version_is_a_conflict_with_the_stored_version(
    calls: Calls, racing: Calls, interrupted: Interrupted, recreate: bool
) -> None:
    """This holds for another incarnation, too, if the caller gave no uid."""
    first = await calls.stored(a_note())

    async def other() -> None:
        if recreate:
            await calls.delete(an_id())
        await calls.write(a_note("one", "theirs"))

    interrupted.before_commit = [other]
    write = a_note("one", "mine", version=first.version)
    said = f"Note one is stored at version {calls.revision + 1 + recreate}, not {first.version}"
    await refused(racing.write(write), Status.ABORTED, said)
    assert text_of((await calls.read(an_id())).resource) == "theirs"


async def test_second_attempt_starts_from_the_original_request(
    calls: Calls, racing: Calls, interrupted: Interrupted, autojump_clock: trio.testing.MockClock
) -> None:
    """The owner is looked up again by its name, as in the first attempt."""
    await calls.write(a_note("boss"))

    async def other() -> None:
        await calls.delete(an_id("boss"))
        await calls.write(a_note("boss"))
        await calls.write(a_note("one", type=CHILD, owner=an_id("boss")))

    interrupted.before_commit = [other]
    stored = await racing.stored(a_note("one", type=CHILD, owner=an_id("boss")))
    assert stored.owner is not None
    assert stored.owner.uid == await calls.uid("boss", NOTE)
    assert autojump_clock.current_time() > 0


async def test_write_that_has_begun_to_commit_is_not_canceled(calls: Calls) -> None:
    """C5: a write that is canceled earlier has written nothing. A write that has begun to commit is answered."""
    with trio.CancelScope() as scope:
        scope.cancel()
        await calls.write(a_note())
    assert scope.cancelled_caught
    assert await calls.names(NOTE) == []


class Believing(MemoryBackend):
    """A store whose optimistic reads return slightly stale resources."""

    def __init__(self) -> None:
        super().__init__()
        self.believed: pb.Resource | None = None

    async def read_optimistic(self, kind: Kind, key: Key) -> tuple[pb.Resource | None, Position]:
        stored, position = await self.read(kind, key)
        return self.believed or stored, position


async def test_error_that_is_no_refusal_is_not_tried_again() -> None:
    """A store with optimistic reads has committed, and then raises an error that no store may raise."""
    commits: list[object] = []

    class Broken(Believing):
        @override
        async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:
            commits.append(await super().commit(operations, fence))
            raise EngineBug("a mistake of the store's")

    failed: list[type[BaseException]] = []
    channel = InProcessChannel(ResourceService(Broken(), registry()), report=lambda _, each: failed.append(type(each)))
    with pytest.raises(OutcomeUnknown):
        await Client(channel, registry()).write(NOTE.new("one"))
    assert (len(commits), failed) == (1, [EngineBug])


@pytest.mark.parametrize("type", [V1, V2, V3])
async def test_stale_undecodable_payload_is_read_again(type: ResourceType[Any]) -> None:
    """Another writer has corrected the payload, and the write is merged with the correction."""
    backend = Believing()
    calls = Calls(backend, versions())
    mended = await calls.stored(a_team(V3, V3.payload(notes={"a": "b"})))
    believed = copy_message(mended)
    believed.version = "0"
    believed.data = AnyMessage(type_url=V3.type_url, value=b"\xff")
    backend.believed = believed
    payload = type.payload(names=["ada"]) if type is V1 else type.payload(members=[Member(name="ada")])
    assert data_of(await calls.stored(a_team(type, payload)), type) == payload
    backend.believed = None
    kept = data_of((await calls.read(an_id("one", V3))).resource, V3)
    assert ([each.name for each in kept.members], kept.notes) == (["ada"], {} if type is V3 else {"a": "b"})
