"""Subscribe to types: a snapshot, its end, and then whole commits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from grpclib.const import Status

from headway.resource import Change, EndOfSnapshot, Position, SnapshotChunk
from headway.storage import Backend, MemoryBackend
from headway.subscribing import OpenSubscriptions
from headway.subscription import (
    Commit,
    Commits,
    NewSnapshot,
    Reached,
    SnapshotComplete,
    SnapshotPart,
    SubscriptionPosition,
)
from tests.helpers.calls import Interrupted, refused
from tests.helpers.declared import CHILD, NOTE, NOTE_V2, PLANET, REGION
from tests.helpers.subscribing import (
    RATES,
    Subscriber,
    a_service,
    a_snapshot,
    commit,
    commits,
    events_of,
    everything,
    named,
    of_topic,
    publish,
    put,
    remove,
    short,
    shown,
    subscriber,
    within,
)
from tests.service.conftest import a_store


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


async def test_progress_waits_for_its_interval(in_memory: Subscriber, autojump_clock: trio.testing.MockClock) -> None:
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


MOVES = [pytest.param(NOTE, NOTE_V2, id="v1 to v2"), pytest.param(NOTE_V2, NOTE, id="v2 to v1")]


@pytest.mark.parametrize(("before", "after"), MOVES)
async def test_move_to_another_version_is_a_deletion_and_then_a_write(before: Any, after: Any) -> None:
    """In the commit of the move, whichever version is watched first."""
    backend = MemoryBackend()
    at = await commit(backend, put("moved", "1", before))
    async with (
        subscriber(backend, a_service(backend)) as caller,
        caller.open(everything(NOTE), everything(NOTE_V2)) as items,
    ):
        await a_snapshot(items)
        await commit(backend, put("moved", "2", after, expected=str(at)))
        while not isinstance(item := await anext(items), Commits):
            assert isinstance(item, Reached)
        assert [list(map(short, each.events)) for each in item.commits] == [["-Note moved=1", "Note moved=2"]]


@pytest.mark.parametrize(("before", "after"), MOVES)
async def test_resource_that_moves_to_another_version_amid_a_snapshot_is_in_the_snapshot(
    before: Any, after: Any
) -> None:
    """One version was read before the move, and the other one after it."""
    inner = MemoryBackend()
    at = await commit(inner, put("moved", "1", before))
    store = Between(inner)
    store.steps = [[put("moved", "2", after, expected=str(at))]]
    async with (
        subscriber(store, a_service(store)) as caller,
        caller.open(everything(NOTE), everything(NOTE_V2)) as items,
    ):
        assert (await a_snapshot(items))[0] == ["Note moved=2"]


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
        assert item.reason == "the subjects, or your rights, have changed since resume_after"
        assert (await a_snapshot(items))[0] == ["Child one=", "Note one="]
    async with in_memory.open(everything(CHILD), everything(NOTE), everything(NOTE), after=None) as items:
        _, ordered = await a_snapshot(items)
    async with in_memory.open(everything(NOTE), everything(CHILD), after=ordered) as items:
        assert shown(await anext(items)) == "reached"


async def test_position_of_another_store_is_refused(in_memory: Subscriber) -> None:
    """A snapshot would take the subscriber to another state without its knowing."""
    other = MemoryBackend()
    await commit(other, put("one"))
    for selection in ("", "of other subjects"):
        wrong = SubscriptionPosition(other.position, (), selection)
        async with in_memory.open(everything(), after=wrong) as items:
            await refused(anext(items), Status.DATA_LOSS, "is of store")


async def test_server_that_lags_does_not_take_a_subscriber_back(in_memory: Subscriber) -> None:
    """It refuses a position above its own, so that the subscriber tries again."""
    above = in_memory.backend.position._replace(revision=10)
    for selection in ("", "of other subjects"):
        async with in_memory.open(everything(), after=SubscriptionPosition(above, (), selection)) as items:
            await refused(anext(items), Status.UNAVAILABLE, "below resume_after 10")


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
