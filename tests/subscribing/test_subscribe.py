"""`Client.subscribe`: typed batches, and a stream that repairs itself."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import trio
import trio.testing
from grpclib.const import Status
from typing_extensions import override

import headway
from headway.client import Client
from headway.errors import (
    Closed,
    FailedPrecondition,
    HeadwayError,
    InvalidArgument,
    NotHeadway,
    PermissionDenied,
    StoreChanged,
)
from headway.resource import Change, Position, Registry
from headway.subscription import (
    Commit,
    Commits,
    NewSnapshot,
    Reached,
    SnapshotComplete,
    SnapshotPart,
    SubscriptionPosition,
    TopicEvent,
    TopicPosition,
)
from tests.helpers.plain_types import Rate, Team
from tests.helpers.scripted_channel import ScriptedChannel
from tests.helpers.service_errors import failed

current: dict[str, Rate] = {}
app = headway.App("staff")
TEAM = app.type("staff", "v1", "Team", Team)
ACCOUNT = app.type("staff", "v1", "Account", Team)
SITE = app.type("staff", "v1", "Site", Team, scope=headway.Scope.CLUSTER)
RATES = app.topic(
    "rates", Rate, snapshot=lambda subject: {k: v for k, v in current.items() if subject in (k, "*")}, wildcard=True
)


def said(batch: headway.subscribing.SubscriptionBatch) -> list[str]:
    found: list[str] = []
    for event in batch.events:
        match event:
            case headway.client.Upserted(resource, revision):
                assert revision == int(resource.version)
                found.append(f"{resource.type.name.kind} {resource.name}={resource.data.note}")
            case headway.client.Deleted(resource):
                found.append(f"-{resource.type.name.kind} {resource.name}")
            case headway.subscribing.Published(topic, subject, data):
                assert topic is RATES
                found.append(f"{subject}={data.cents}")
    return sorted(found)


async def test_batches_are_typed_and_their_resources_are_copies() -> None:
    """A reader may modify what it has been handed."""
    current.clear()
    async with headway.open_engine("memory:", app) as engine:
        await engine.client.create(TEAM.new("core", Team(note="1")))
        async with engine.client.subscribe([TEAM, RATES]) as batches:
            batch = await anext(batches)
            assert (batch.snapshot, said(batch)) == (True, ["Team core=1"])
            (event,) = batch.events
            assert isinstance(event, headway.client.Upserted)
            event.resource.data.note = "mine"
            assert (await engine.client.read(TEAM, "core")).data.note == "1"
            current["EUR"] = Rate(cents=5)
            at = RATES.publish(current)
            batch = await anext(batches)
            assert (batch.snapshot, said(batch)) == (False, ["EUR=5"])
            assert batch.position.topics == (at,)
            await engine.client.delete(TEAM.id("core"))
            assert said(await anext(batches)) == ["-Team core"]
            assert batches.problem is None


@pytest.mark.parametrize(
    ("subjects", "error"),
    [
        (list, "got 0 subjects: give from 1 to 64"),
        (lambda: [headway.Subject(TEAM, f"x{number}") for number in range(65)], "got 65 subjects"),
        (lambda: TEAM, "subjects must be a list, such as [TEAM"),
        (lambda: "team", "subjects must be a list"),
        (
            lambda: ["team"],
            "subjects[0] must be a resource type from app.type(...) or a Topic or a Subject, as in [TEAM",
        ),
        (lambda: [headway.Subject(TEAM, "Core")], "is not a valid name"),
        (lambda: [headway.Subject(SITE, "a", namespace="b")], "namespace"),
        (lambda: [headway.Subject(TEAM, "a", name_prefix="a")], "exclude each other: give one"),
        (lambda: [headway.Subject(RATES, "EUR", namespace="a")], "a topic has no partition, namespace or name_prefix"),
        (lambda: [headway.Subject(TEAM, 1)], "name must be a string"),  # type: ignore[arg-type]
    ],
)
async def test_wrong_subject_is_refused_at_once(subjects: Callable[[], Any], error: str) -> None:
    async with headway.open_engine("memory:", app) as engine:
        with pytest.raises(InvalidArgument) as caught:
            async with engine.client.subscribe(subjects()):
                pytest.fail("it was accepted")
        assert error in str(caught.value)


async def test_exception_of_the_block_leaves_unwrapped() -> None:
    async with headway.open_engine("memory:", app) as engine:
        raised = KeyError("mine")

        async def fail() -> None:
            async with engine.client.subscribe([TEAM]) as batches:
                await anext(batches)
                raise raised

        with pytest.raises(KeyError) as caught:
            await fail()
        assert caught.value is raised
        with trio.move_on_after(0) as scope:
            async with engine.client.subscribe([TEAM]) as batches:
                await anext(batches)
        assert scope.cancelled_caught


async def test_subscription_of_an_ended_engine_says_so() -> None:
    async with headway.open_engine("memory:", app) as engine:
        client = engine.client
    with pytest.raises(Closed):
        async with client.subscribe([TEAM]) as batches:
            await anext(batches)


Step = Any
STORE = "store"


def at(revision: int, number: int = 0, store: str = STORE) -> SubscriptionPosition:
    return SubscriptionPosition(Position(store, "s", revision), (TopicPosition("rates", "i", number),), "x")


def upsert(name: str, note: str, revision: int) -> Change:
    message = TEAM.new(name, Team(note=note)).message()
    message.version = str(revision)
    return Change(revision, message, False, False)


def delete(name: str, revision: int) -> Change:
    return upsert(name, "", revision)._replace(deleted=True)


def rate(subject: str, cents: int) -> TopicEvent:
    return TopicEvent("rates", subject, RATES._encoded(subject, Rate(cents=cents)))


def commit(revision: int, *events: Any, number: int = 0) -> Commits:
    return Commits([Commit([*events], at(revision, number))])


class Scripted(ScriptedChannel):
    """A channel whose streams deliver what the test says: one list for each stream, which ends with an error."""

    path = "/headway.subscribe.v1.SubscribeService/Subscribe"
    knows_outcomes = False

    @override
    def opening(self, request: Any) -> SubscriptionPosition | None:
        after = request.resume_after
        return None if after is None else headway.subscription.subscription_position(after)


def scripted(*streams: list[Step]) -> tuple[Scripted, Client]:
    channel, registry = Scripted(streams), Registry()
    registry.register(TEAM)
    return channel, Client(channel, registry)


def lost(status: Status = Status.UNAVAILABLE) -> HeadwayError:
    return failed(status, "lost")


FIRST = [SnapshotPart([upsert("core", "1", 3)]), SnapshotComplete(at(5))]


async def read(client: Client, count: int, **options: Any) -> list[tuple[bool, list[str]]]:
    async with client.subscribe([TEAM, RATES], **options) as batches:
        return [(batch.snapshot, said(batch)) for batch in [await anext(batches) for _ in range(count)]]


@pytest.mark.parametrize(
    "status",
    [
        Status.UNAVAILABLE,
        Status.ABORTED,
        Status.INTERNAL,
        Status.UNKNOWN,
        Status.DEADLINE_EXCEEDED,
        Status.RESOURCE_EXHAUSTED,
        None,
    ],
)
async def test_lost_stream_is_resumed_after_what_was_read(
    status: Status | None, autojump_clock: trio.testing.MockClock
) -> None:
    """The program notices nothing."""
    assert autojump_clock is not None
    end = [] if status is None else [lost(status)]
    channel, client = scripted(
        [*FIRST, commit(6, upsert("core", "2", 6)), *end],
        [Reached(at(6)), Reached(at(9)), *end],
        [Reached(at(9)), commit(10, delete("core", 10)), trio.sleep_forever],
    )
    assert await read(client, 3) == [(True, ["Team core=1"]), (False, ["Team core=2"]), (False, ["-Team core"])]
    assert channel.openings == [None, at(6), at(9)]


async def test_state_is_kept_until_a_new_snapshot_is_complete(autojump_clock: trio.testing.MockClock) -> None:
    """A stream that is lost amid a snapshot hands over none of it."""
    assert autojump_clock is not None
    channel, client = scripted(
        [*FIRST, NewSnapshot("too slow"), SnapshotPart([upsert("half", "", 6)]), lost()],
        [NewSnapshot("history is gone"), SnapshotPart([upsert("tools", "", 7)]), SnapshotComplete(at(8))],
    )
    assert await read(client, 2) == [(True, ["Team core=1"]), (True, ["Team tools="])]
    assert channel.openings[:2] == [None, at(5)]


async def test_first_snapshot_that_was_lost_begins_anew(autojump_clock: trio.testing.MockClock) -> None:
    assert autojump_clock is not None
    _, client = scripted([SnapshotPart([upsert("half", "", 1)]), lost()], FIRST)
    assert await read(client, 1) == [(True, ["Team core=1"])]


async def test_snapshot_that_begins_again_contains_nothing_of_the_first() -> None:
    _, client = scripted([SnapshotPart([upsert("gone", "", 1)]), NewSnapshot("too slow"), *FIRST])
    assert await read(client, 1) == [(True, ["Team core=1"])]


async def test_snapshot_applies_its_own_corrections() -> None:
    """A later part may change or delete what an earlier one contains."""
    parts = [
        SnapshotPart([upsert("a", "1", 1), upsert("b", "1", 1), rate("EUR", 1)]),
        SnapshotPart([upsert("a", "2", 3), delete("b", 4), delete("c", 4), rate("EUR", 2)]),
    ]
    _, client = scripted([*parts, SnapshotComplete(at(4))])
    assert await read(client, 1) == [(True, ["EUR=2", "Team a=2"])]


@pytest.mark.parametrize(
    "stale",
    [
        [NewSnapshot("x"), SnapshotPart([upsert("old", "", 2)]), SnapshotComplete(at(4, 2))],
        [NewSnapshot("x"), SnapshotComplete(at(7, 1))],
        [commit(6, rate("EUR", 0), number=1)],
        [commit(6, upsert("core", "2", 6), number=2)],
        [Reached(at(3, 2))],
        [commit(5, upsert("core", "0", 5), number=2)],
        [SnapshotPart([upsert("old", "", 9)]), SnapshotComplete(at(9))],
        [SnapshotComplete(at(9))],
        [NewSnapshot("x"), commit(9, upsert("core", "3", 9))],
    ],
)
async def test_server_that_lags_or_breaks_the_order_is_left(
    stale: list[Step], autojump_clock: trio.testing.MockClock
) -> None:
    """Nothing goes back: not the revision, and not the number of a topic. The channel tries another server."""
    assert autojump_clock is not None
    begin = [*FIRST, commit(6, upsert("core", "2", 6), number=2), lost()]
    channel, client = scripted(begin, stale, [Reached(at(6, 2)), commit(7, upsert("core", "3", 7), number=2)])
    found = await read(client, 3)
    assert found == [(True, ["Team core=1"]), (False, ["Team core=2"]), (False, ["Team core=3"])]
    assert channel.left_by.count(headway.rpc.Lagging) == 1


@pytest.mark.parametrize(
    ("steps", "error"),
    [
        ([lost(Status.PERMISSION_DENIED)], PermissionDenied),
        ([lost(Status.UNAUTHENTICATED)], PermissionDenied),
        ([lost(Status.INVALID_ARGUMENT)], InvalidArgument),
        ([lost(Status.UNIMPLEMENTED)], NotHeadway),
        ([lost(Status.DATA_LOSS)], StoreChanged),
        ([NewSnapshot("x"), SnapshotComplete(at(9, store="other"))], StoreChanged),
    ],
)
async def test_error_that_lasts_ends_the_subscription(steps: list[Step], error: type[Exception]) -> None:
    """It has a name, and is raised each time."""
    channel, client = scripted([*FIRST, lost()], steps)
    async with client.subscribe([TEAM, RATES]) as batches:
        await anext(batches)
        for _ in range(2):
            with pytest.raises(error):
                await anext(batches)
    assert len(channel.openings) == 2


async def test_attempts_have_growing_delays(autojump_clock: trio.testing.MockClock) -> None:
    """They are from 25 ms to a minute, and begin anew once something has arrived."""
    assert autojump_clock is not None
    times: list[float] = []

    async def note() -> None:
        times.append(trio.current_time())

    _, client = scripted(
        *[[note, lost()]] * 20, [note, *FIRST, lost()], [note, Reached(at(5)), commit(6, delete("x", 6))]
    )
    await read(client, 2)
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert 0.02 < pauses[0] < 0.06
    assert all(pause <= 60 for pause in pauses)
    assert pauses[15] >= 30
    assert pauses[-1] < 0.06


async def test_second_task_that_reads_a_subscription_is_refused_and_the_first_goes_on() -> None:
    """Each of two readers would miss the batches that the other one got."""
    async with (
        headway.open_engine("memory:", app) as engine,
        engine.client.subscribe([TEAM]) as batches,
        trio.open_nursery() as nursery,
    ):
        assert (await anext(batches)).snapshot
        found: list[headway.subscribing.SubscriptionBatch] = []

        async def first() -> None:
            found.append(await anext(batches))

        nursery.start_soon(first)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(FailedPrecondition, match="another task is reading this subscription"):
            await anext(batches)
        await engine.client.write(TEAM.new("core"))
        await trio.testing.wait_all_tasks_blocked()
        assert [batch.snapshot for batch in found] == [False]
