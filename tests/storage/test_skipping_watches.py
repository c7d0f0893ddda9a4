"""Watches that skip the commits that change nothing of their part: their tasks don't run, and they miss nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing
from hypothesis import example, given
from hypothesis import strategies as st

from headway.errors import HistoryCompacted, StoreUnusable
from headway.resource import Bookmark, Change, Changes, Key, Kind, Position, StreamItem, Within, pb, resource_key
from headway.storage import CommitLog, LogWatch, Pulse
from headway.testing.conformance import thing
from tests.helpers.steps import Steps

COMPACT_AFTER = 1024
"""The number of dropped changes after which the log frees their places."""


A: Kind = ("g", "A")
B: Kind = ("g", "B")
RED, BLUE = Within(metadata=(("color", "red"),)), Within(metadata=(("color", "blue"),))
PARTS = (Within(), RED, BLUE, Within(name_prefix="x"), Within(namespace="other"), RED._replace(name_prefix="x"))

Next = Callable[[], Awaitable[StreamItem]]


class Store:
    """A log with watches, and the resources that its commits have made."""

    def __init__(self, *, max_changes: int = 100_000) -> None:
        self._log = CommitLog(max_changes=max_changes)
        self._pulse = Pulse()
        self._stored: dict[tuple[Kind, Key], pb.Resource] = {}
        # The first revisions of the sessions.
        self._sessions = [0]

    def watch(self, within: Within, *, ahead: int = 0) -> LogWatch:
        """Return a watch of A that resumes at the head, or ``ahead`` commits after it."""
        return LogWatch(self._log, self._pulse, self._at, self._log.cursor(A, self._log.head + ahead), within, None)

    def _at(self, revision: int) -> Position:
        session = sum(begin <= revision for begin in self._sessions)
        return Position("store", str(session), revision)

    @property
    def head(self) -> int:
        return self._log.head

    def commit(self, *changes: tuple[Kind, str, str, str]) -> None:
        """Store a resource for each (kind, namespace, name, color). Without a color it is deleted."""
        done: list[tuple[Kind, pb.Resource, bool]] = []
        formers: dict[int, pb.Resource] = {}
        for kind, namespace, name, color in changes:
            resource = thing(name, namespace=namespace, kind=kind)
            place = (kind, resource_key(resource))
            before = self._stored.pop(place, None)
            if not color and before is None:
                continue
            if before is not None and before.metadata != {"color": color} and color:
                formers[len(done)] = before
            if color:
                resource.metadata = {"color": color}
                self._stored[place] = resource
            done.append((kind, resource if before is None or color else before, not color))
        self._log.append(self.head + 1, done, 0.0, formers)
        self._pulse.beat()

    def begin_session(self) -> None:
        """Begin a session, as another process that has opened the store."""
        self._log.append(self.head + 1, [], 0.0)
        self._sessions.append(self.head)
        self._log.mark()
        self._pulse.beat()


async def follow(next_item: Next, items: list[StreamItem]) -> None:
    while True:
        items.append(await next_item())


def said(items: list[StreamItem]) -> list[object]:
    """Return the changes, and each session before the first item that belongs to it."""
    session, heard = "", list[object]()
    for item in items:
        if isinstance(item, Changes):
            heard += item.changes
        elif isinstance(item, Bookmark) and item.position.session != session:
            session = item.position.session
            heard.append(session)
    return heard


changes = st.tuples(
    st.sampled_from((A, A, A, B)),
    st.sampled_from(("default", "other")),
    st.sampled_from(("x", "y")),
    st.sampled_from(("red", "blue", "")),
)
# A commit, None for a session, or "turn" for a turn of the watchers.
steps = st.lists(
    st.one_of(st.lists(changes, max_size=2, unique_by=lambda change: change[:3]), st.none(), st.just("turn")),
    max_size=15,
)


RED_X, BLUE_X = [[(A, "default", "x", color)] for color in ("red", "blue")]


@given(steps)
@example([RED_X, "turn", BLUE_X, "turn", RED_X])
def test_skipping_watch_delivers_the_same(steps: list[list[tuple[Kind, str, str, str]] | str | None]) -> None:
    """Both watches deliver the same changes and sessions in the same order. A poll reports what was skipped."""

    async def run() -> None:
        store = Store()
        watches = [(store.watch(part), store.watch(part)) for part in PARTS]
        heard: list[tuple[list[StreamItem], list[StreamItem]]] = [([], []) for _ in PARTS]
        async with trio.open_nursery() as nursery:
            for (awake, asleep), (all_items, items) in zip(watches, heard, strict=True):
                nursery.start_soon(follow, awake.next, all_items)
                nursery.start_soon(follow, asleep.next_change, items)
            await trio.testing.wait_all_tasks_blocked()
            for step in steps:
                if isinstance(step, str):
                    await trio.testing.wait_all_tasks_blocked()
                elif step is None:
                    store.begin_session()
                else:
                    store.commit(*step)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        for (_, asleep), (all_items, items) in zip(watches, heard, strict=True):
            while (item := asleep.poll()) is not None:
                items.append(item)
            assert said(items) == said(all_items)
            last, awake_last = items[-1], all_items[-1]
            assert isinstance(last, Bookmark | Changes)
            assert last == awake_last or (isinstance(last, Bookmark) and last.position.revision == store.head)

    trio.run(run)


@given(st.lists(st.one_of(st.lists(changes, max_size=2), st.none(), st.just("turn"), st.integers(0, 3)), max_size=15))
@example([BLUE_X, 2, "turn", RED_X, BLUE_X, "turn"])
def test_watch_that_is_asked_tells_the_truth(steps: list[list[tuple[Kind, str, str, str]] | str | int | None]) -> None:
    """What comes before a bookmark is all up to it, and what was wanted comes. A number asks for so many commits on."""

    async def run() -> None:
        store = Store()
        watches = [(store.watch(part), store.watch(part)) for part in PARTS]
        heard: list[tuple[list[StreamItem], list[StreamItem]]] = [([], []) for _ in PARTS]
        wanted = 0
        async with trio.open_nursery() as nursery:
            for (awake, asleep), (all_items, items) in zip(watches, heard, strict=True):
                nursery.start_soon(follow, awake.next, all_items)
                nursery.start_soon(follow, asleep.next_change, items)
            for step in steps:
                if isinstance(step, str):
                    await trio.testing.wait_all_tasks_blocked()
                elif isinstance(step, int):
                    wanted = store.head + step
                    for (_, asleep), (_, items) in zip(watches, heard, strict=True):
                        if (told := asleep.ask(wanted)) is not None:
                            assert told.position.revision == store.head
                            items.append(told)
                elif step is None:
                    store.begin_session()
                else:
                    store.commit(*step)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        for all_items, items in heard:
            everything = [each for each in said(all_items) if isinstance(each, Change)]
            assert [each for each in said(items) if isinstance(each, Change)] == everything
            for index, item in enumerate(items):
                if isinstance(item, Bookmark):
                    before = [each for each in said(items[:index]) if isinstance(each, Change)]
                    assert before == [each for each in everything if each.revision <= item.position.revision]
            if wanted <= store.head:
                assert _revision(items[-1]) >= wanted

    trio.run(run)


def _revision(item: StreamItem) -> int:
    return item.changes[-1].revision if isinstance(item, Changes) else item.position.revision  # type: ignore[union-attr]


async def test_watch_with_something_to_return_tells_nothing() -> None:
    """Its task has not run yet since the commit. A bookmark would say that the change did not happen."""
    store, items = Store(), list[StreamItem]()
    watch = store.watch(RED)
    assert watch.ask() is None, "nobody waits for its items"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow, watch.next_change, items)
        await trio.testing.wait_all_tasks_blocked()
        store.commit(*RED_X)
        assert watch.ask() is None
        await trio.testing.wait_all_tasks_blocked()
        store.commit(*BLUE_X[:0])
        assert watch.ask() == Bookmark(Position("store", "1", 2))
        assert watch.ask() is None, "it has been told already"
        nursery.cancel_scope.cancel()


async def test_task_does_not_run_for_the_commits_of_others() -> None:
    """The commits are of another part of the kind, of another kind, or without changes."""
    store, items, counted = Store(), list[StreamItem](), Steps()
    watch = store.watch(RED)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow, watch.next_change, items, name="sleeper")
        await trio.testing.wait_all_tasks_blocked()
        trio.lowlevel.add_instrument(counted)
        for number in range(50):
            store.commit((A, "default", f"x{number}", "blue"))
            store.commit((B, "default", f"x{number}", "red"))
            store.commit()
            await trio.testing.wait_all_tasks_blocked()
        assert counted.count["sleeper"] == 0
        assert len(items) == 1
        store.commit((A, "default", "x", "red"))
        await trio.testing.wait_all_tasks_blocked()
        assert counted.count["sleeper"] == 1
        assert isinstance(items[-1], Changes)
        trio.lowlevel.remove_instrument(counted)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("color", ["red", "blue"])
async def test_new_session_wakes_a_watch_at_once(color: str) -> None:
    """Its reader must know the session of all that follows, even if none of it is for this watch."""
    store, items = Store(), list[StreamItem]()
    watch = store.watch(RED)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow, watch.next_change, items)
        await trio.testing.wait_all_tasks_blocked()
        store.commit((A, "default", "x", color))
        store.begin_session()
        store.commit((A, "default", "y", "blue"))
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert items[1 if color == "blue" else 2] == Bookmark(Position("store", "2", 2))


@pytest.mark.parametrize("part", [Within(), RED])
async def test_new_session_is_announced_between_the_changes_before_and_after_it(part: Within) -> None:
    """The reader of a watch that is behind must not count the later changes to the old session."""
    store = Store()
    watch = store.watch(part)
    store.commit(*RED_X)
    store.begin_session()
    store.commit(*BLUE_X)
    await watch.next()
    before, announced, after = (watch.poll() for _ in range(3))
    assert isinstance(before, Changes)
    assert announced == Bookmark(Position("store", "2", 2))
    assert isinstance(after, Changes)


async def test_next_change_is_a_checkpoint_and_takes_nothing_if_it_is_canceled() -> None:
    """The change may have come since the last item."""
    store = Store()
    watch = store.watch(RED)
    store.commit(*RED_X)
    assert watch.poll() is None, "the first item says that the watch has resumed"
    await watch.next()
    with trio.CancelScope() as scope:
        scope.cancel()
        await watch.next_change()
    assert scope.cancelled_caught
    assert isinstance(await watch.next_change(), Changes)


@pytest.mark.parametrize("part", [Within(), RED])
async def test_watch_sleeps_after_the_commit_that_its_snapshot_includes(part: Within) -> None:
    """A snapshot may be above the head, until its last commit is in the log."""
    store, items = Store(), list[StreamItem]()
    watch = store.watch(part, ahead=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow, watch.next_change, items)
        await trio.testing.wait_all_tasks_blocked()
        store.commit(*RED_X)
        with trio.move_on_after(1) as patience:
            await trio.testing.wait_all_tasks_blocked()
        assert not patience.cancelled_caught, "the watch never sleeps again"
        assert items == [Bookmark(Position("store", "1", 1), resumed=True)]
        store.commit(*BLUE_X)
        await trio.testing.wait_all_tasks_blocked()
        assert isinstance(items[-1], Changes)
        nursery.cancel_scope.cancel()


async def test_many_changes_at_once_are_left_to_the_task() -> None:
    """The writer of a large commit would otherwise look at it for each watcher."""
    store, items = Store(), list[StreamItem]()
    watch = store.watch(RED)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow, watch.next_change, items)
        await trio.testing.wait_all_tasks_blocked()
        for size, woken in ((32, False), (33, True)):
            store.commit(*((A, "default", f"x{number}", "blue") for number in range(size)))
            await trio.testing.wait_all_tasks_blocked()
            assert isinstance(items[-1], Bookmark)
            assert (items[-1].position.revision == store.head) is woken
        nursery.cancel_scope.cancel()


async def test_watch_outlives_the_history_that_it_skipped() -> None:
    """It has missed nothing of its part, so it must not begin anew. The log frees the places of dropped changes."""
    store, items = Store(max_changes=3), list[StreamItem]()
    watch = store.watch(RED)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow, watch.next_change, items)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(2 * COMPACT_AFTER):
            store.commit(*BLUE_X)
        for commit in (RED_X, BLUE_X):
            store.commit(*commit)
            await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    changed = [change for item in items if isinstance(item, Changes) for change in item.changes]
    assert [(change.revision - 2 * COMPACT_AFTER, change.deleted) for change in changed] == [(1, False), (2, True)]


async def test_dropped_change_is_not_skipped() -> None:
    """Only a snapshot can say what it was."""
    store = Store(max_changes=2)
    watch = store.watch(RED)
    await watch.next()
    store.commit(*RED_X)
    for _ in range(3):
        store.commit(*BLUE_X)
    with pytest.raises(HistoryCompacted):
        await watch.next_change()


async def test_broken_store_wakes_every_watch() -> None:
    """It would otherwise never end."""
    log, pulse = CommitLog(), Pulse()
    watch = LogWatch(log, pulse, lambda revision: Position("", "", revision), log.cursor(A, 0), RED, None)
    await watch.next()

    async def expect() -> None:
        with pytest.raises(StoreUnusable):
            await watch.next_change()
        ended.set()

    ended = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(expect)
        await trio.testing.wait_all_tasks_blocked()
        pulse.stop(lambda: StoreUnusable("closed"))
        await trio.testing.wait_all_tasks_blocked()
        assert ended.is_set()
        nursery.cancel_scope.cancel()
