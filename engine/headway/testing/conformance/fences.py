"""Checks of fences: raises, rejected writes and checkpoints."""

from __future__ import annotations

import trio

from headway.storage import Backend, Fence, FenceLowered, UnknownTerm
from headway.testing.conformance._reader import reading
from headway.testing.conformance._tools import (
    Capability,
    fail,
    must,
    names,
    needs,
    put,
    read_back,
    refused,
    remove,
    text_of,
    thing,
    uid_of,
)


async def a_fence_is_raised_by_a_commit(backend: Backend) -> None:
    """A raise returns the fence as stored, at a revision of its own that every watch reaches."""
    reader = await reading(backend)
    before = await reader.until_snapshot()
    raised = await backend.raise_fence("c", "m", 3, 4)
    must(raised.fence == Fence("c", "m", 3, 4), "the stored fence differs from the one given")
    must(raised.position.revision > before.revision, "raising a fence made no revision")
    must(backend.position == raised.position, "the store's position is not the raise of the fence")
    await reader.until(raised.position.revision)
    must(reader.changes == [], "a fence was delivered as a change of a resource")


async def term_zero_raises_to_the_next_term(backend: Backend) -> None:
    """A raise with term 0 sets the fence to the stored term plus one, with the number given."""
    must((await backend.raise_fence("c", "m", 0, 0)).fence == Fence("c", "m", 1, 0), "the first term is not 1")
    must((await backend.raise_fence("c", "m", 0, 5)).fence == Fence("c", "m", 2, 5), "the next term is not one above")
    await backend.raise_fence("c", "m", 9, 9)
    must((await backend.raise_fence("c", "m", 0, 0)).fence == Fence("c", "m", 10, 0), "the next term is not one above")


async def a_fence_that_is_not_above_is_refused(backend: Backend) -> None:
    """A raise to the same fence, a lower number or a lower term is FenceLowered: it makes no revision and leaves the
    fence as it is.
    """
    raised = await backend.raise_fence("c", "m", 3, 4)
    for term, number in ((3, 4), (3, 3), (2, 9), (1, 0)):
        await refused(FenceLowered, backend.raise_fence("c", "m", term, number), f"a raise to {(term, number)}")
    must(backend.position == raised.position, "a rejected raise made a revision")
    await backend.raise_fence("c", "m", 3, 5)
    await backend.raise_fence("c", "m", 4, 0)


async def a_write_below_the_fence_is_refused(backend: Backend) -> None:
    """A write below the fence is FenceLowered: writes, deletions and empty commits, with valid versions or not."""
    low, high = Fence("c", "m", 1, 9), Fence("c", "m", 2, 1)
    await backend.raise_fence("c", "m", 1, 0)
    at = await put(backend, resource := thing("a", "as it was"), fence=low)
    raised = await backend.raise_fence("c", "m", 2, 1)
    for fence in (low, Fence("c", "m", 2, 0)):
        late = thing("a", "late", uid=uid_of(resource))
        await refused(FenceLowered, put(backend, late, str(at.revision), fence), "a write below the fence")
        await refused(FenceLowered, put(backend, thing("b"), "7", fence), "a bad write below the fence")
        await refused(
            FenceLowered, remove(backend, resource, str(at.revision), fence=fence), "a deletion below the fence"
        )
        await refused(FenceLowered, backend.commit([], fence), "an empty commit below the fence")
    must(backend.position == raised.position, "a rejected write made a revision")
    found = await read_back(backend, resource)
    must(found is not None and text_of(found) == "as it was", "a write below the fence was stored")
    must(await names(backend) == ["a"], "a write below the fence was stored")
    await put(backend, thing("a", "in time", uid=uid_of(resource)), str(at.revision), high)


async def a_write_at_or_above_the_fence_is_stored(backend: Backend) -> None:
    """A write at the fence is stored. A write with a higher number is stored and raises nothing. A write without a
    fence is not compared.
    """
    await backend.raise_fence("c", "m", 2, 1)
    await put(backend, thing("equal"), fence=Fence("c", "m", 2, 1))
    await put(backend, thing("number"), fence=Fence("c", "m", 2, 7))
    await put(backend, thing("without"))
    await put(backend, thing("still equal"), fence=Fence("c", "m", 2, 1))
    must(len(await names(backend)) == 4, "a write at or above its fence is missing")


async def a_write_of_a_term_that_was_never_granted_is_refused(backend: Backend) -> None:
    """A write of a term that was never granted is UnknownTerm, whether or not the fence was ever raised, and whatever
    the write would do.
    """
    at = await put(backend, resource := thing("a", "as it was"))
    expected = str(at.revision)
    for granted in (0, 2):
        if granted:
            at = (await backend.raise_fence("c", "m", granted, 1)).position
        fence = Fence("c", "m", granted + 1, 0)
        late = thing("a", "unknown", uid=uid_of(resource))
        await refused(UnknownTerm, put(backend, late, expected, fence), f"a write above term {granted}")
        await refused(UnknownTerm, remove(backend, resource, expected, fence=fence), f"a deletion above term {granted}")
        await refused(UnknownTerm, backend.commit([], fence), f"an empty commit above term {granted}")
        await refused(UnknownTerm, backend.record_checkpoint(fence, 1), f"a checkpoint above term {granted}")
    must(backend.position == at, "a rejected write made a revision")
    found = await read_back(backend, resource)
    must(found is not None and text_of(found) == "as it was", "a write of a term that was never granted was stored")


async def fences_are_compared_with_their_own(backend: Backend) -> None:
    """Each controller and each of its members has its own fence."""
    await backend.raise_fence("c", "m", 5, 5)
    for controller, member in (("c", "other"), ("other", "m"), ("", "")):
        raised = await backend.raise_fence(controller, member, 0, 0)
        must(raised.fence.term == 1, "a fence of another controller or member was raised")
        await put(backend, thing(f"by {controller} {member}"), fence=Fence(controller, member, 1, 0))
    must(len(await names(backend)) == 3, "a write was compared with the fence of another controller or member")


async def no_write_below_the_fence_is_stored_after_its_raise(backend: Backend) -> None:
    """Writes that race with a raise and are stored are stored before it."""
    acknowledged: list[int] = []
    raised_at = 0
    await backend.raise_fence("c", "m", 1, 0)

    async def write(writer: int) -> None:
        for index in range(30):
            try:
                at = await put(backend, thing(f"n{writer}-{index}"), fence=Fence("c", "m", 1, 0))
            except FenceLowered:
                return
            acknowledged.append(at.revision)

    async with trio.open_nursery() as nursery:
        for writer in range(8):
            nursery.start_soon(write, writer)
        while len(acknowledged) < 20:
            await trio.lowlevel.checkpoint()
        raised_at = (await backend.raise_fence("c", "m", 2, 0)).position.revision
    must(len(acknowledged) < 240, "no writer was rejected, although the fence was raised while they wrote")
    must(max(acknowledged) < raised_at, "a write below the fence was stored after the fence")
    must(len(await names(backend)) == len(acknowledged), "a write was stored that was not acknowledged")


async def a_checkpoint_is_returned_by_the_next_raise(backend: Backend) -> None:
    """The checkpoint of a controller and member makes no revision and never goes down. The next raise returns it."""
    raised = await backend.raise_fence("c", "m", 1, 0)
    must(raised.checkpoint == raised.position.revision, "the checkpoint of a first raise is not its own revision")
    again = await backend.raise_fence("c", "m", 0, 0)
    must(again.checkpoint == raised.checkpoint, "a raise changed the checkpoint")
    raised = again
    await backend.record_checkpoint(raised.fence, 7)
    await backend.record_checkpoint(raised.fence, 5)
    must(backend.position == raised.position, "a checkpoint made a revision")
    again = await backend.raise_fence("c", "m", 0, 0)
    must(again.checkpoint == 7, "the checkpoint is not the highest one recorded")
    other = await backend.raise_fence("d", "m", 0, 0)
    must(other.checkpoint == other.position.revision, "the checkpoint of another controller was returned")
    await backend.record_checkpoint(again.fence, 9)
    must((await backend.raise_fence("c", "m", 0, 0)).checkpoint == 9, "the checkpoint did not rise")


async def a_new_member_goes_on_from_the_others(backend: Backend) -> None:
    """The first raise of a member returns how far its controller had got when it divided its keys in another way:
    `headway.storage.first_checkpoint`. Members "members/NAME" have no keys, and go on from nobody.
    """
    here = (await backend.raise_fence("other", "", 0, 0)).position.revision + 1000
    for member, further in (("0/2", 3), ("1/2", 2), ("0/3", 5), ("1/3", 6), ("members/a", 9)):
        raised = await backend.raise_fence("c", member, 0, 0)
        await backend.record_checkpoint(raised.fence, here + further)
    for raised in (await backend.raise_fence("c", "", 0, 0), await backend.raise_fence("c", "", 0, 0)):
        found = raised.checkpoint - here
        must(found == 2, f"expected the lowest checkpoint of both parts, {here} + 2, got {here} + {found}")
    await backend.record_checkpoint(raised.fence, here + 4)
    found = (await backend.raise_fence("c", "2/3", 0, 0)).checkpoint - here
    must(found == 4, f"expected the checkpoint of the member with all keys, {here} + 4, got {here} + {found}")
    own = await backend.raise_fence("c", "members/b", 0, 0)
    must(own.checkpoint == own.position.revision, "a member without keys went on from another one")


async def a_checkpoint_below_the_fence_is_refused(backend: Backend) -> None:
    """A checkpoint below the fence is FenceLowered: a superseded run records nothing."""
    first = await backend.raise_fence("c", "m", 1, 0)
    await backend.record_checkpoint(first.fence, first.checkpoint + 2)
    await backend.raise_fence("c", "m", 2, 0)
    await refused(FenceLowered, backend.record_checkpoint(first.fence, 8), "a checkpoint below the fence")
    kept = (await backend.raise_fence("c", "m", 0, 0)).checkpoint
    must(kept == first.checkpoint + 2, "a rejected checkpoint was kept")


@needs(Capability.FENCE_LIST)
async def fences_are_listed_in_order(backend: Backend) -> None:
    """list_fences() returns every fence once and in order, also for leases, and makes no revision. A copy of the store
    begins above them.
    """
    list_fences = getattr(backend, "list_fences", None)
    if list_fences is None:
        fail("the store has no list_fences() and does not declare that it lacks it")
    must(await list_fences() == [], "an empty store returns fences")
    for controller, member, term, number in (("d", "", 2, 7), ("c", "m", 3, 4), ("c", "", 1, 0), ("c", "m", 5, 1)):
        await backend.raise_fence(controller, member, term, number)
    held = (await backend.acquire_lease("led#x", "a", 600.0)).held.lease
    here = backend.position
    wanted = [Fence("c", "", 1, 0), Fence("c", "m", 5, 1), Fence("d", "", 2, 7), Fence("led", "x", held.term, 0)]
    must(list(await list_fences()) == wanted, "list_fences() does not return every fence as stored and in order")
    must(backend.position == here, "listing fences made a revision")
