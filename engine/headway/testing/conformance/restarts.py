"""Checks of a store that is closed and opened again, or restored (promises 1, 3, 9, 10, and how watches end)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import trio

from headway.errors import HeadwayError
from headway.resource import Bookmark, EndOfSnapshot, StreamItem
from headway.storage import Backend, Fence, FenceLowered, StoreMismatch
from headway.testing.conformance._reader import held, reading, summary
from headway.testing.conformance._tools import (
    EVERYTHING,
    KIND,
    OTHER_KIND,
    QUIET,
    Capability,
    fail,
    must,
    name_of,
    needs,
    put,
    refused,
    remove,
    thing,
    uid_of,
)
from headway.testing.conformance._truth import Truth


class Reopened:
    """A store that a check can open several times: ``async with store.open() as backend``."""

    def __init__(
        self,
        open: Callable[[], AbstractAsyncContextManager[Backend]],
        restore: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.open = open
        self._restore = restore

    async def restore(self) -> None:
        """Restore the closed store from a copy of itself as it is now."""
        if self._restore is None:
            fail("this store has no restore function")
        await self._restore()


async def a_closed_store_ends_its_watches(store: Reopened) -> None:
    """Closing a store ends its watches: a pending or later next() raises a HeadwayError."""
    waiting = trio.Event()
    ended: list[BaseException | StreamItem] = []

    async def wait_for_more(backend: Backend) -> None:
        watch = await backend.watch(KIND, EVERYTHING)
        must(
            isinstance(await watch.next(), EndOfSnapshot),
            "a watch of an empty store does not begin with the end of its snapshot",
        )
        waiting.set()
        for _ in range(2):
            try:
                ended.append(await watch.next())
            except HeadwayError as error:
                ended.append(error)

    with trio.move_on_after(QUIET) as patience:
        async with trio.open_nursery() as nursery, store.open() as backend:
            nursery.start_soon(wait_for_more, backend)
            await waiting.wait()
    must(not patience.cancelled_caught, "next() of a watch of a closed store never returned")
    must(all(isinstance(each, HeadwayError) for each in ended), f"a watch of a closed store returned {ended}")


@needs(Capability.DURABILITY)
async def acknowledged_writes_survive_a_restart(store: Reopened) -> None:
    """Resources, kinds and owned resources are the same after reopening, field for field. Deleted resources stay
    deleted.
    """
    truth = Truth()
    async with store.open() as backend:
        async with truth.writing(backend):
            pass
        await put(backend, thing("other", kind=OTHER_KIND, owner_uid="o"))
        before = [await backend.list(kind, EVERYTHING) for kind in (KIND, OTHER_KIND)]
    async with store.open() as backend:
        for kind, (found, _) in zip((KIND, OTHER_KIND), before, strict=True):
            must((await backend.list(kind, EVERYTHING))[0] == found, "a list is different after reopening")
        must(
            held((await backend.list(KIND, EVERYTHING))[0]) == truth.at(backend.position),
            "the store does not have what was acknowledged",
        )
        must(await backend.kinds() == sorted([KIND, OTHER_KIND]), "the kinds are different after reopening")
        owned, _ = await backend.list_by_owner("o")
        must([name_of(each) for each in owned] == ["other"], "an owner owns different resources after reopening")
        reader = await reading(backend)
        await reader.until_snapshot()
        must(reader.held == held(before[0][0]), "a snapshot is not what was stored before")


@needs(Capability.DURABILITY)
async def revisions_go_on_after_reopening(store: Reopened) -> None:
    """A reopened store has the same id, a new session and a position that is not lower. Its next revision is above all
    others.
    """
    async with store.open() as backend:
        await put(backend, thing("a"))
        last = (await backend.raise_fence("c", "m", 0, 0)).position
    for _ in range(3):
        async with store.open() as backend:
            here = backend.position
            must(here.store_id == last.store_id, "the store id changed by reopening")
            must(here.session != last.session, "two openings of a store have the same session")
            must(here.revision >= last.revision, "the position went down by reopening")
            last = await put(backend, thing(f"n{here.revision}"))
            must(last.revision > here.revision, "a revision was used twice")


@needs(Capability.KEPT_HISTORY)
async def earlier_positions_can_be_resumed_from(store: Reopened) -> None:
    """After reopening, a watch can resume from any earlier position, and delivers everything since, once."""
    truth = Truth()
    async with store.open() as backend:
        begun = backend.position
        positions = [begun]
        for writer in ("u", "v"):
            await truth.write(backend, writer, steps=8)
            positions.append(backend.position)
    async with store.open() as backend:
        await truth.write(backend, "w", steps=8)
        here = backend.position
        for position in positions:
            reader = await reading(backend, after=position)
            # With the session of this opening, or, in a store that several processes have open, the session that made
            # the revision.
            resumed = [Bookmark(at, resumed=True) for at in (here._replace(revision=position.revision), position)]
            must(await reader.next() in resumed, "a watch did not begin with a bookmark that it was resumed, and where")
            await reader.until(here.revision)
            must(
                summary(reader.changes) == truth.after(position),
                "resumed over a reopening: not exactly the later changes",
            )


@needs(Capability.DURABILITY)
async def fences_outlive_a_reopening(store: Reopened) -> None:
    """A raised fence and its checkpoint survive reopening."""
    async with store.open() as backend:
        raised = await backend.raise_fence("c", "m", 3, 4)
        await backend.record_checkpoint(raised.fence, raised.checkpoint + 7)
    async with store.open() as backend:
        await refused(FenceLowered, put(backend, thing("late"), fence=Fence("c", "m", 3, 3)), "a write below its fence")
        await refused(FenceLowered, backend.raise_fence("c", "m", 3, 4), "a raise of a fence to where it is")
        again = await backend.raise_fence("c", "m", 0, 0)
        must(again.fence.term == 4, "a fence's next term is not one above the one before the reopening")
        must(again.checkpoint == raised.checkpoint + 7, "the checkpoint was lost by reopening")


@needs(Capability.DURABILITY)
async def a_lease_counts_as_held_after_reopening(store: Reopened) -> None:
    """A lease is still held after reopening, for a full ttl: no other holder gets it, its holder can renew it, and
    terms go on above.
    """
    async with store.open() as backend:
        term = (await backend.acquire_lease("c", "a", 600.0)).held.lease.term
        ended = (await backend.acquire_lease("d", "a", 600.0)).held.lease.term
        await backend.release_lease("d", "a", ended)
    async with store.open() as backend:
        other = await backend.acquire_lease("c", "b", 600.0)
        must(not other.acquired and other.held.lease.term == term, "another holder acquired a lease that is held")
        await backend.keep_lease("c", "a", term)
        taken = await backend.acquire_lease("d", "b", 600.0)
        must(taken.acquired and taken.held.lease.term > ended, "a term was granted twice")
        await refused(
            FenceLowered, put(backend, thing("late"), fence=Fence("d", "", ended, 9)), "a write of an old term"
        )


async def a_restored_store_is_another(store: Reopened) -> None:
    """A restored store has the content of the copy, a new id and a position above all earlier revisions. No earlier
    watch resumes in it.
    """
    async with store.open() as backend:
        at = await put(backend, kept := thing("kept", "text", owner_uid="o"))
        gone = await put(backend, deleted := thing("deleted"))
        await remove(backend, deleted, str(gone.revision))
        await backend.raise_fence("c", "m", 5, 5)
        before = backend.position
    await store.restore()
    async with store.open() as backend:
        here = backend.position
        must(here.store_id != before.store_id, "a restored store has the same id as before")
        must(here.revision >= before.revision, "the position went down by restoring")
        for position in (before, at):
            await refused(StoreMismatch, backend.watch(KIND, EVERYTHING, position), "resuming in a restored store")
        found, _ = await backend.list(KIND, EVERYTHING)
        must(
            [(name_of(each), uid_of(each)) for each in found] == [("kept", uid_of(kept))],
            "a restored store does not have the copy's content",
        )
        owned, _ = await backend.list_by_owner("o")
        must(len(owned) == 1, "an owner owns different resources after restoring")
        must((await backend.raise_fence("c", "m", 0, 0)).fence.term > 5, "a term went down by restoring")
