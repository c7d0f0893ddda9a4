"""Subscribe: a snapshot, its end, and then whole commits, of several types and topics. BEHAVIOURS M and Q."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from grpclib.const import Status

from headway.resource import Change, EndOfSnapshot, Position, SnapshotChunk
from headway.service import OpenSubscriptions
from headway.storage import Backend, EtcdBackend, MemoryBackend
from headway.subscription import (
    Commit,
    Commits,
    NewSnapshot,
    Reached,
    SnapshotComplete,
    SnapshotPart,
    SubscriptionPosition,
    Topic,
    TopicPosition,
)
from tests.helpers.calls import Interrupted, refused
from tests.helpers.declared import CHILD, NOTE, PLANET, REGION
from tests.helpers.etcd_server import EtcdServer
from tests.helpers.subscribing import (
    Subscriber,
    a_service,
    a_snapshot,
    commit,
    commits,
    events_of,
    everything,
    named,
    of_topic,
    put,
    remove,
    short,
    shown,
    subscriber,
    within,
)
from tests.service.conftest import a_store

SETTINGS = [
    pytest.param(("memory", True), id="memory, network"),
    pytest.param(("sqlite", False), id="sqlite, in process"),
    pytest.param(("etcd", False), id="etcd, in process"),
    pytest.param(("memory", False), id="memory, in process", marks=pytest.mark.wide),
    pytest.param(("sqlite", True), id="sqlite, network", marks=pytest.mark.wide),
    pytest.param(("etcd", True), id="etcd, network", marks=pytest.mark.wide),
]


@asynccontextmanager
async def opened(store: str, request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Backend]:
    if store == "etcd":
        server: EtcdServer = request.getfixturevalue("etcd")
        async with EtcdBackend(f"etcd://{server.endpoint}{server.new_prefix()}") as backend:
            yield backend
    else:
        async with a_store(store, folder) as backend:
            yield backend


@pytest.fixture(params=SETTINGS)
async def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subscriber]:
    """A subscriber of each kind of store, in the process and over the network. RATES is a topic of the service."""
    store, network = request.param
    RATES.reset()
    async with (
        opened(store, request, tmp_path) as backend,
        subscriber(backend, a_service(backend, {"rates": RATES, "plain": PLAIN}), network=network) as caller,
    ):
        yield caller
        assert caller.unexpected == []


@pytest.fixture
async def in_memory() -> AsyncIterator[Subscriber]:
    backend = MemoryBackend()
    async with backend, subscriber(backend, a_service(backend, {"rates": RATES, "plain": PLAIN})) as caller:
        yield caller
        assert caller.unexpected == []


current: dict[str, bytes] = {}


def rates(subject: str) -> dict[str, bytes]:
    return {each: value for each, value in current.items() if subject in (each, "*")}


RATES: Topic[bytes] = Topic("rates", None, rates, wildcard=True)
PLAIN: Topic[bytes] = Topic("plain", None, rates)


def publish(*subjects: str) -> TopicPosition:
    for subject in subjects:
        current[subject] = b"x"
    return RATES.publish(dict.fromkeys(subjects, b"x"))


@pytest.fixture(autouse=True)
def empty_state() -> None:
    current.clear()


async def test_q2_subscription_is_a_snapshot_its_end_and_then_every_commit(anywhere: Subscriber) -> None:
    """The commits are in order, and each is of its own revision. A deletion has the last state."""
    backend = anywhere.backend
    first = await commit(backend, put("one", "1"), put("two", "1", CHILD))
    async with anywhere.open(everything(NOTE), everything(CHILD)) as items:
        found, position = await a_snapshot(items)
        assert found == ["Child two=1", "Note one=1"]
        assert position.store is not None
        assert position.store.revision >= first
        second = await commit(backend, put("one", "2", expected=str(first)))
        await commit(backend, put("three", "1", CHILD))
        await commit(backend, remove("one", expected=str(second)))
        assert await commits(items, 3) == [["Note one=2"], ["Child three=1"], ["-Note one=2"]]


async def test_q3_commit_of_several_types_is_one_batch(anywhere: Subscriber) -> None:
    """It comes whole, however many types and subjects it concerns, and with its position."""
    backend = anywhere.backend
    async with anywhere.open(everything(NOTE), everything(CHILD), everything(PLANET)) as items:
        await a_snapshot(items)
        for number in range(20):
            at = await commit(backend, *(put(f"x{number}", "", type) for type in (NOTE, CHILD, PLANET, REGION)))
            item = await anext(items)
            while isinstance(item, Reached):
                item = await anext(items)
            assert shown(item) == [[f"Child x{number}=", f"Note x{number}=", f"Planet x{number}="]]
            assert item.commits[0].position.store.revision == at


async def test_commits_that_come_together_have_positions_of_their_own(in_memory: Subscriber) -> None:
    """A subscriber that stops between two of them resumes with the second one."""
    subjects = everything(NOTE), of_topic("rates")
    async with in_memory.open(*subjects) as items:
        await a_snapshot(items)
        revisions = [await commit(in_memory.backend, put(f"x{number}")) for number in range(3)]
        numbers = [publish("EUR").number for _ in range(3)]
        found: list[Commit] = []
        while len(found) < 6:
            item = await anext(items)
            found += item.commits if isinstance(item, Commits) else []
        stored = [each.position.store for each in found if isinstance(each.events[0], Change)]
        assert [each and each.revision for each in stored] == revisions
        published = [each.position.topics[0].number for each in found if not isinstance(each.events[0], Change)]
        assert published == numbers
    for index, each in enumerate(found):
        async with in_memory.open(*subjects, after=each.position) as items:
            left = 5 - index
            assert len(await commits(items, left)) == left


async def test_m3_subscription_resumes_from_any_kept_position(anywhere: Subscriber) -> None:
    """There is no snapshot. Consul resumes only from the very last position."""
    backend = anywhere.backend
    async with anywhere.open(everything(NOTE), everything(CHILD), of_topic("rates")) as items:
        _, begin = await a_snapshot(items)
        positions = [begin]
        for number in range(4):
            await commit(backend, put(f"x{number}"), put(f"x{number}", "", CHILD))
            item = await anext(items)
            while isinstance(item, Reached):
                item = await anext(items)
            positions.append(item.commits[-1].position)
        publish("EUR")
        item = await anext(items)
        while isinstance(item, Reached):
            item = await anext(items)
        positions.append(item.commits[-1].position)
    expected = [[f"Child x{number}=", f"Note x{number}="] for number in range(4)] + [["rates/EUR"]]
    for index, position in enumerate(positions):
        async with anywhere.open(everything(NOTE), everything(CHILD), of_topic("rates"), after=position) as items:
            item = await anext(items)
            assert shown(item) == "reached"
            assert item.position == position
            assert sorted(await commits(items, 5 - index)) == sorted(expected[index:])


async def test_subjects_select_a_name_a_tenancy_or_everything(anywhere: Subscriber) -> None:
    """What several of them select comes once, in the snapshot and afterwards."""
    backend = anywhere.backend
    await commit(backend, put("core"), put("core-2"), put("other"), put("core", "", CHILD))
    subjects = [named("core"), within("default", "default", "core-"), named("core"), named("core-2"), named("x", CHILD)]
    async with anywhere.open(*subjects) as items:
        raw: list[str] = []
        while not isinstance(item := await anext(items), SnapshotComplete):
            raw += map(short, events_of(item))
        assert sorted(raw) == ["Note core-2=", "Note core="]
        await commit(backend, put("core-3"), put("other-2"), put("x", "", CHILD), put("y", "", CHILD))
        await commit(backend, put("core-33"))
        assert await commits(items, 2) == [["Child x=", "Note core-3="], ["Note core-33="]]


@pytest.mark.parametrize("type", [NOTE, REGION, PLANET])
async def test_name_is_exact_in_every_scope(anywhere: Subscriber, type: Any) -> None:
    first = await commit(anywhere.backend, put("a", "", type), put("ab", "", type))
    async with anywhere.open(named("a", type)) as items:
        assert (await a_snapshot(items))[0] == [f"{type.name.kind} a="]
        await commit(anywhere.backend, put("abc", "", type))
        await commit(anywhere.backend, put("b", "", type))
        await commit(anywhere.backend, remove("a", type, expected=str(first)))
        assert await commits(items, 1) == [[f"-{type.name.kind} a="]]
    async with anywhere.open(within("*" if type is not PLANET else "", "*" if type is NOTE else "", "ab", type)) as it:
        assert (await a_snapshot(it))[0] == [f"{type.name.kind} ab=", f"{type.name.kind} abc="]


async def test_empty_snapshot_has_exactly_one_end(anywhere: Subscriber) -> None:
    """Its position can be resumed."""
    async with anywhere.open(everything(), of_topic("rates", "EUR")) as items:
        end = await anext(items)
        assert isinstance(end, SnapshotComplete)
    async with anywhere.open(everything(), of_topic("rates", "EUR"), after=end.position) as items:
        assert shown(await anext(items)) == "reached"


async def test_quiet_subscription_reports_its_progress(anywhere: Subscriber) -> None:
    """Commits of other types advance the position, so that it can still be resumed when history has gone on."""
    async with anywhere.open(everything()) as items:
        _, begin = await a_snapshot(items)
        at = await commit(anywhere.backend, put("x", "", PLANET))
        item = await anext(items)
        assert isinstance(item, Reached)
        assert item.position.store is not None
        assert begin.store is not None
        assert begin.store.revision < at <= item.position.store.revision


async def test_progress_waits_for_its_interval(
    in_memory: Subscriber,
    autojump_clock: trio.testing.MockClock,  # noqa: ARG001  # the fixture is in effect
) -> None:
    """A busy store does not wake a quiet subscriber more often. A commit is never delayed."""
    backend = in_memory.backend
    async with in_memory.open(everything(), interval=10_000) as items:
        await a_snapshot(items)
        begin = trio.current_time()
        await commit(backend, put("x", "", PLANET))
        await commit(backend, put("one"))
        assert shown(await anext(items)) == [["Note one="]]
        assert trio.current_time() == begin
        await commit(backend, put("y", "", PLANET))
        assert shown(await anext(items)) == "reached"
        assert trio.current_time() == begin + 10


class Between(Interrupted):
    """A store in which something is committed after each item of a snapshot."""

    def __init__(self, inner: Backend) -> None:
        super().__init__(inner)
        self.steps: list[Any] = []

    async def watch(self, kind: Any, within: Any, resume_after: Position | None = None) -> Any:
        watch = await super().watch(kind, within, resume_after)
        return watch if resume_after is not None else _Stepping(watch, self)


class _Stepping:
    def __init__(self, inner: Any, store: Between) -> None:
        self._inner = inner
        self._store = store

    async def next(self) -> Any:
        item = await self._inner.next()
        if self._store.steps and isinstance(item, EndOfSnapshot):
            await commit(self._store, *self._store.steps.pop(0))
        return item

    def close(self) -> None:
        self._inner.close()


async def test_m9_snapshot_of_several_types_is_complete_up_to_one_revision(tmp_path: Path) -> None:
    """Commits between the snapshots of two types belong to the snapshot, and come neither twice nor half.

    Consul compares only what is buffered when the subscription begins.
    """
    for kind in ("memory", "sqlite"):
        async with a_store(kind, tmp_path) as inner:
            first = await commit(inner, put("gone"), put("kept"), put("kid", "", CHILD))
            store = Between(inner)
            store.steps = [
                [put("both"), put("both", "", CHILD), remove("gone", expected=str(first))],
                [put("late"), put("late", "", CHILD)],
            ]
            async with (
                subscriber(store, a_service(store)) as caller,
                caller.open(everything(NOTE), everything(CHILD)) as items,
            ):
                found, position = await a_snapshot(items)
                assert found == ["Child both=", "Child kid=", "Note both=", "Note kept="]
                assert position.store is not None
                assert position.store.revision == first + 1
                assert await commits(items, 1) == [["Child late=", "Note late="]]


async def test_m9_overlapping_parts_are_complete_up_to_one_revision() -> None:
    """A resource of two parts comes once, although the parts are read at different revisions."""
    inner = MemoryBackend()
    at = await commit(inner, put("ab", "1"), put("b", "1"))
    store = Between(inner)
    store.steps = [[put("ab", "2", expected=str(at)), put("b", "2", expected=str(at))], [], []]
    async with (
        subscriber(store, a_service(store)) as caller,
        caller.open(within(prefix="a"), named("b"), within(prefix="ab")) as items,
    ):
        assert (await a_snapshot(items))[0] == ["Note ab=2", "Note b=2"]
        await commit(inner, put("abc"))
        assert await commits(items, 1) == [["Note abc="]]


async def test_slow_subscriber_is_told_to_take_a_new_snapshot() -> None:
    """History is bounded. A subscriber that has missed some gets the whole state instead, and never a gap."""
    backend = MemoryBackend(max_changes=10)
    async with subscriber(backend, a_service(backend)) as caller, caller.open(everything(), everything(CHILD)) as items:
        await a_snapshot(items)
        await commit(backend, put("first"))
        assert await commits(items, 1) == [["Note first="]]
        for number in range(30):
            await commit(backend, put(f"n{number:02}"), put(f"n{number:02}", "", CHILD))
        item = await anext(items)
        assert isinstance(item, NewSnapshot)
        assert "changes are kept after" in item.reason
        found, position = await a_snapshot(items)
        assert len(found) == 61
        assert (position.store or Position("", "", 0)).revision == backend.position.revision
        await commit(backend, put("last"))
        assert await commits(items, 1) == [["Note last="]]


async def test_m3_compacted_position_is_answered_by_a_new_snapshot() -> None:
    backend = MemoryBackend(max_changes=5)
    async with subscriber(backend, a_service(backend)) as caller:
        async with caller.open(everything()) as items:
            _, begin = await a_snapshot(items)
        for number in range(10):
            await commit(backend, put(f"n{number}"))
        async with caller.open(everything(), after=begin) as items:
            assert shown(await anext(items)) == "new snapshot"
            assert len((await a_snapshot(items))[0]) == 10


async def test_position_of_other_subjects_is_answered_by_a_new_snapshot(in_memory: Subscriber) -> None:
    """To resume would leave out the resources that are selected now and were not before."""
    await commit(in_memory.backend, put("one"), put("one", "", CHILD))
    async with in_memory.open(everything(NOTE)) as items:
        _, position = await a_snapshot(items)
    async with in_memory.open(everything(NOTE), everything(CHILD), after=position) as items:
        item = await anext(items)
        assert isinstance(item, NewSnapshot)
        assert item.reason == "the subjects, or your rights, are others than those of resume_after"
        assert (await a_snapshot(items))[0] == ["Child one=", "Note one="]
    async with in_memory.open(everything(CHILD), everything(NOTE), everything(NOTE), after=None) as items:
        _, ordered = await a_snapshot(items)
    async with in_memory.open(everything(NOTE), everything(CHILD), after=ordered) as items:
        assert shown(await anext(items)) == "reached"


async def test_position_of_another_store_is_refused(in_memory: Subscriber) -> None:
    """A snapshot would take the subscriber to another state without its knowing."""
    other = MemoryBackend()
    await commit(other, put("one"))
    wrong = SubscriptionPosition(other.position)
    async with in_memory.open(everything(), after=wrong) as items:
        await refused(anext(items), Status.DATA_LOSS, "is of store")


async def test_server_that_lags_does_not_take_a_subscriber_back(in_memory: Subscriber) -> None:
    """It refuses a position above its own, so that the subscriber tries again."""
    above = in_memory.backend.position._replace(revision=10)
    async with in_memory.open(everything(), after=SubscriptionPosition(above)) as items:
        await refused(anext(items), Status.UNAVAILABLE, "below resume_after 10")


async def test_m2_topic_begins_with_the_current_events(anywhere: Subscriber) -> None:
    """Then comes what is published, in the order of the calls, each call whole."""
    current["EUR"] = current["CHF"] = b"x"
    async with anywhere.open(of_topic("rates")) as items:
        found, position = await a_snapshot(items)
        assert found == ["rates/CHF", "rates/EUR"]
        assert position.store is None
        publish("EUR", "USD")
        publish("CHF")
        assert await commits(items, 2) == [["rates/EUR", "rates/USD"], ["rates/CHF"]]


async def test_m6_subscriber_gets_only_the_subjects_it_asked_for(anywhere: Subscriber) -> None:
    """One call is one batch, as far as its subjects are asked for."""
    current["EUR"] = current["CHF"] = b"x"
    async with anywhere.open(of_topic("rates", "EUR"), of_topic("rates", "USD")) as items:
        assert (await a_snapshot(items))[0] == ["rates/EUR"]
        publish("CHF")
        publish("CHF", "EUR", "USD")
        assert await commits(items, 1) == [["rates/EUR", "rates/USD"]]


async def test_m1_unknown_topic_and_missing_wildcard_are_refused(in_memory: Subscriber) -> None:
    for subject, said in [
        (of_topic("nothing"), "subjects[0].topic 'nothing' not found: no app of this engine declares it"),
        (of_topic("plain"), "subjects[0]: topic plain doesn't support everything: name a subject"),
        (of_topic("plain", "*"), "must be a subject of the topic; for all of them send everything"),
    ]:
        async with in_memory.open(subject) as items:
            await refused(anext(items), Status.INVALID_ARGUMENT, said)
    async with in_memory.open(of_topic("plain", "EUR")) as items:
        assert shown(await anext(items)) == "end"


async def test_m5_ended_subscription_frees_its_topic(anywhere: Subscriber) -> None:
    current["EUR"] = b"x"
    async with anywhere.open(of_topic("rates", "EUR")) as items:
        await a_snapshot(items)
        assert (RATES.subscribers, RATES.kept_snapshots) == (1, 1)
    while RATES.subscribers:
        await trio.lowlevel.checkpoint()
    assert RATES.kept_snapshots == 0


async def test_slow_subscriber_of_a_topic_is_told_to_take_a_new_snapshot(in_memory: Subscriber) -> None:
    """The publisher never waits for it."""
    async with in_memory.open(of_topic("rates")) as items:
        await a_snapshot(items)
        for _ in range(10_001):
            publish("EUR")
        assert shown(await anext(items)) == "new snapshot"
        found, position = await a_snapshot(items)
        assert found == ["rates/EUR"]
        assert position.topics == (RATES.position,)


async def test_m7_reset_topic_makes_its_subscribers_take_a_new_snapshot(anywhere: Subscriber) -> None:
    """Nothing that was published before the reset follows the snapshot. Old positions can't be resumed."""
    current["EUR"] = b"x"
    async with anywhere.open(of_topic("rates"), everything()) as items:
        _, before = await a_snapshot(items)
        publish("CHF")
        current.clear()
        RATES.reset()
        assert shown(await anext(items)) == "new snapshot"
        assert (await a_snapshot(items))[0] == []
        publish("USD")
        assert await commits(items, 1) == [["rates/USD"]]
    async with anywhere.open(of_topic("rates"), everything(), after=before) as items:
        assert shown(await anext(items)) == "new snapshot"


async def test_m8_every_subscriber_sees_one_order(in_memory: Subscriber) -> None:
    """Whatever the pace of each, and however publishers take turns."""
    seen: dict[int, list[str]] = {}

    async def read(number: int, started: trio.Event) -> None:
        async with in_memory.open(of_topic("rates")) as items:
            await a_snapshot(items)
            started.set()
            seen[number] = []
            while len(seen[number]) < 300:
                seen[number] += [each for batch in await commits(items, 1) for each in batch]
                for _ in range(number):
                    await trio.lowlevel.checkpoint()

    async def write(number: int) -> None:
        for each in range(100):
            publish(f"{number}-{each}")
            await trio.lowlevel.checkpoint()

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            for number in range(4):
                started = trio.Event()
                nursery.start_soon(read, number, started)
                await started.wait()
            for number in range(3):
                nursery.start_soon(write, number)
    assert len(seen[0]) == 300
    assert seen[0] == seen[1] == seen[2] == seen[3]


async def test_failed_snapshot_of_a_topic_is_reported_and_not_kept() -> None:
    """The subscriber learns no more than that it failed, and the next one calls the function again."""
    fails = [OSError("the secret")]

    def broken(_: str) -> dict[str, bytes]:
        if fails:
            raise fails.pop()
        return {}

    topic: Topic[bytes] = Topic("broken", None, broken, wildcard=True)
    backend = MemoryBackend()
    async with subscriber(backend, a_service(backend, {"broken": topic})) as caller:
        async with caller.open(of_topic("broken")) as items:
            with pytest.raises(Exception, match="the snapshot of topic broken failed") as caught:
                await anext(items)
        assert "secret" not in str(caught.value)
        assert [str(each) for each in caller.unexpected] == ["the secret"]
        async with caller.open(of_topic("broken")) as items:
            assert shown(await anext(items)) == "end"
    assert topic.subscribers == 0


@pytest.mark.parametrize("subject", [everything(), of_topic("rates")])
async def test_m7_ending_engine_ends_every_subscription(subject: Any) -> None:
    """It says why, and refuses new ones."""
    backend, streams = MemoryBackend(), OpenSubscriptions()
    service = a_service(backend, {"rates": RATES}, streams=streams)
    async with subscriber(backend, service) as caller, caller.open(subject) as items:
        await a_snapshot(items)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(refused, anext(items), Status.UNAVAILABLE, "the engine is shutting down")
            await trio.testing.wait_all_tasks_blocked()
            streams.end()
        async with caller.open(subject) as again:
            await a_snapshot(again)
            await refused(anext(again), Status.UNAVAILABLE, "the engine is shutting down")
    assert len(streams) == 0


async def test_snapshot_is_sent_in_messages_that_clients_accept(anywhere: Subscriber) -> None:
    """Stock clients take four MiB. What is larger than a piece comes alone."""
    for number in range(30):
        await commit(anywhere.backend, put(f"n{number}", "x" * 100_000))
    async with anywhere.open(everything()) as items:
        parts = []
        while isinstance(item := await anext(items), SnapshotPart | SnapshotChunk):
            parts.append(len(events_of(item)))
        assert sum(parts) == 30
        assert isinstance(item, SnapshotComplete)
