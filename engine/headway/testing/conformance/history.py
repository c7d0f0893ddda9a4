"""Checks of history: resuming, compacted positions, the bound of history and slow watchers (promises 5 and 6)."""

from __future__ import annotations

from headway.errors import HistoryCompacted
from headway.resource import Bookmark, Position
from headway.storage import Backend, StoreMismatch
from headway.testing.conformance._reader import Reader, held, reading, summary
from headway.testing.conformance._tools import (
    EVERYTHING,
    KIND,
    OTHER_KIND,
    SHORT_HISTORY,
    Capability,
    fail,
    must,
    needs,
    put,
    putting,
    refused,
    remove,
    removing,
    thing,
    uid_of,
)


async def a_watch_resumes_after_every_position(backend: Backend) -> None:
    """A watch resumed after any commit first delivers a bookmark that says so, then exactly the changes after it."""
    positions, facts = await _some_history(backend)
    for position in positions:
        reader = await reading(backend, after=position)
        first = await reader.next()
        must(first == Bookmark(position, resumed=True), "a resumed watch did not begin with a bookmark of its position")
        await reader.until(positions[-1].revision)
        after = [fact for fact in facts if fact[0] > position.revision]
        must(summary(reader.changes) == after, f"resumed after {position.revision}: not exactly the later changes")
    at = await put(backend, thing("afterwards"))
    await reader.until(at.revision)
    must(summary(reader.changes) == [(at.revision, "afterwards", False)], "a resumed watch did not continue")


async def _some_history(backend: Backend) -> tuple[list[Position], list[tuple[int, str, bool]]]:
    """Make commits of one and of several operations, in this kind and another, and raises of a fence."""
    positions, facts = [backend.position], []
    for index in range(8):
        at = await put(backend, resource := thing(f"n{index}"))
        facts.append((at.revision, f"n{index}", False))
        positions.append(at)
        positions.append(await put(backend, thing(f"n{index}", kind=OTHER_KIND)))
        at = await backend.commit(
            [
                removing(resource, str(at.revision)),
                putting(thing(f"m{index}")),
                putting(thing(f"m{index}", kind=OTHER_KIND)),
            ]
        )
        facts += [(at.revision, f"m{index}", False), (at.revision, f"n{index}", True)]
        positions.append(at)
        positions.append((await backend.raise_fence("c", "m", 0, 0)).position)
    return positions, facts


async def every_returned_position_can_be_resumed_after(backend: Backend) -> None:
    """Positions of reads, lists, snapshots, bookmarks, empty commits and fences can be resumed after."""
    await put(backend, resource := thing("a"))
    reader = await reading(backend)
    positions = [
        (await backend.read(KIND, ("default", "default", "a")))[1],
        (await backend.list(KIND, EVERYTHING))[1],
        (await backend.list_by_owner("o"))[1],
        await reader.until_snapshot(),
        await backend.commit([]),
        (await backend.raise_fence("c", "m", 1, 0)).position,
    ]
    await reader.next()
    positions.append(reader.bookmarks[-1].position)
    at = await put(backend, thing("a", uid=uid_of(resource)), resource.version)
    for position in positions:
        resumed = await reading(backend, after=position)
        await resumed.until(at.revision)
        must(
            summary(resumed.changes) == [(at.revision, "a", False)],
            f"resuming after {position} did not deliver exactly the later change",
        )


async def a_position_above_the_head_is_refused(backend: Backend) -> None:
    """A position above the store's own cannot be resumed after: HistoryCompacted."""
    here = await put(backend, thing("a"))
    above = here._replace(revision=here.revision + 1)
    await refused(HistoryCompacted, backend.watch(KIND, EVERYTHING, above), "resuming above the head")


async def a_position_of_another_store_is_refused(backend: Backend) -> None:
    """A position with another store id, or a session that this store never had, is StoreMismatch at any revision."""
    here = await put(backend, thing("a"))
    for revision in (0, here.revision, here.revision + 1):
        other = here._replace(store_id="another", revision=revision)
        await refused(StoreMismatch, backend.watch(KIND, EVERYTHING, other), "resuming at another store's position")
        unknown = here._replace(session="unknown", revision=revision)
        await refused(
            StoreMismatch, backend.watch(KIND, EVERYTHING, unknown), "resuming at a position of an unknown session"
        )


@needs(Capability.HISTORY_BOUND)
async def the_newest_history_is_kept(backend: Backend) -> None:
    """A watch can resume over the whole history that the store keeps, whatever else has happened."""
    positions = [await put(backend, thing(f"n{index}")) for index in range(SHORT_HISTORY * 3)]
    reader = await reading(backend, after=positions[-1 - SHORT_HISTORY])
    await reader.until(positions[-1].revision)
    must(len(reader.changes) == SHORT_HISTORY, "a resumed watch did not deliver the changes that are kept")


@needs(Capability.HISTORY_BOUND)
async def history_is_bounded(backend: Backend) -> None:
    """A position whose history is compacted cannot be resumed after: HistoryCompacted. A new watch begins with a
    snapshot.
    """
    positions = [await put(backend, thing(f"n{index}")) for index in range(SHORT_HISTORY * 3)]
    for position in positions[:SHORT_HISTORY]:
        await refused(
            HistoryCompacted,
            backend.watch(KIND, EVERYTHING, position),
            "resuming at a position whose history is compacted",
        )
    reader = await reading(backend)
    await reader.until_snapshot()
    must(len(reader.held) == len(positions), "a snapshot lacks resources whose changes are compacted")


@needs(Capability.HISTORY_BOUND)
async def a_slow_watcher_blocks_no_writer_and_fails(backend: Backend) -> None:
    """A slow watcher never blocks writers. If it is too far behind it gets HistoryCompacted, never a gap."""
    slow = await reading(backend)
    await slow.until_snapshot()
    for index in range(SHORT_HISTORY * 3):
        await put(backend, thing(f"n{index}"))
    await refused(HistoryCompacted, slow.next(), "next() of a watcher that is too far behind")
    must(slow.changes == [], "a watcher that is too far behind received a part of the changes")
    await refused(HistoryCompacted, slow.next(), "a second next() of the same watcher")


@needs(Capability.HISTORY_BOUND)
async def a_watcher_that_begins_slowly_has_no_gap(backend: Backend) -> None:
    """A watcher that reads its snapshot late gets it whole, then HistoryCompacted or every change."""
    facts = [(await put(backend, thing(f"n{index}"))).revision for index in range(3)]
    slow = await reading(backend)
    for index in range(SHORT_HISTORY * 3):
        await put(backend, thing(f"late{index}"))
    at = await slow.until_snapshot()
    must(len(slow.held) == len(facts) and at.revision == facts[-1], "a snapshot was changed by later commits")
    await refused(HistoryCompacted, slow.next(), "next() of a watcher whose tail is compacted")


@needs(Capability.HISTORY_BOUND)
async def a_watcher_that_keeps_up_loses_nothing(backend: Backend) -> None:
    """A watcher that never lags by more than the kept history receives every change."""
    reader: Reader = await reading(backend)
    for index in range(SHORT_HISTORY * 4):
        at = await put(backend, resource := thing(f"n{index}"))
        if index % 4 == 3:
            at = await remove(backend, resource, str(at.revision))
        if index % 8 == 7:
            await reader.until(at.revision)
    found, _ = await backend.list(KIND, EVERYTHING)
    must(reader.held == held(found), "a watcher that kept up does not have what is stored")
    must(len(reader.changes) == SHORT_HISTORY * 5, "a watcher that kept up missed a change")


@needs(Capability.HISTORY_BOUND)
async def a_commit_larger_than_history_is_delivered_whole(backend: Backend) -> None:
    """A commit of more changes than are kept is delivered whole to a watcher that was up to date just before it."""
    reader = await reading(backend)
    await reader.until_snapshot()
    at = await backend.commit([putting(thing(f"n{index}")) for index in range(SHORT_HISTORY * 2)])
    try:
        await reader.until(at.revision)
    except HistoryCompacted:
        fail("a watcher at the head got HistoryCompacted after one commit")
    must(len(reader.changes) == SHORT_HISTORY * 2, "a part of a large commit is missing")
