"""The lease service: fences that rise, and what is noted beside them. Leases are in test_leases_by_service.py."""

from __future__ import annotations

from grpclib.const import Status

from headway.resource import pb
from headway.service._lease import milliseconds
from headway.storage import MemoryBackend
from tests.helpers.calls import Calls, at, refused, take
from tests.helpers.declared import a_note, a_type


async def test_a_fence_is_raised_by_a_commit(calls: Calls) -> None:
    """Its position is one that nothing else has: what is sent before it can't land after it."""
    await calls.write(a_note())
    for term in (1, 2):
        reply = await calls.raise_fence("painter", "here")
        assert reply.fence == pb.Fence(controller="painter", member="here", term=term)
        assert at(reply.position).revision == 1 + term == calls.revision
    stored = await calls.stored(a_note(), fence=reply.fence)
    assert int(stored.version) == 4


async def test_watchers_hear_that_a_raise_has_moved_the_store(calls: Calls) -> None:
    """The commit has a revision without a change; a bookmark tells it, so that a run can wait for it."""
    async with calls.watch(a_type()) as items:
        await take(items, 1)
        reply = await calls.raise_fence()
        bookmark = await anext(items)
        assert bookmark.position == at(reply.position)


async def test_terms_and_numbers_only_rise(calls: Calls) -> None:
    """Term first, then number; equal or below is refused as fenced, and says where the fence stands."""
    await calls.raise_fence(term=5, number=3)
    here = calls.revision
    for term, number in ((5, 3), (5, 2), (4, 9)):
        call = calls.raise_fence(term=term, number=number)
        await refused(call, Status.FAILED_PRECONDITION, "fenced: the fence of painter is at (5, 3)")
    assert calls.revision == here
    assert (await calls.raise_fence(term=5, number=4)).fence == pb.Fence(controller="painter", term=5, number=4)
    assert (await calls.raise_fence(number=0)).fence == pb.Fence(controller="painter", term=6)


async def test_controllers_and_members_have_fences_of_their_own(calls: Calls) -> None:
    """One's raise supersedes nobody else."""
    first = (await calls.raise_fence("painter", "a")).fence
    await calls.raise_fence("painter", "b")
    await calls.raise_fence("writer", "a")
    await calls.write(a_note(), fence=first)


async def test_what_is_settled_is_told_to_the_next_run(calls: Calls) -> None:
    """The highest revision noted, and that of the first raise where nobody has noted any; noting makes no commit."""
    first = await calls.raise_fence()
    assert first.position is not None
    assert first.settled_revision == first.position.revision
    here = calls.revision
    for revision in (7, 5):
        await calls.record_settled(first.fence, revision)
    assert calls.revision == here
    assert (await calls.raise_fence()).settled_revision == 7
    call = calls.record_settled(first.fence, 9)
    await refused(call, Status.FAILED_PRECONDITION, "fenced: the fence of painter")
    assert (await calls.raise_fence()).settled_revision == 7


async def test_a_request_without_a_name_is_refused(in_memory: Calls) -> None:
    """Whose fence it is must be said."""
    await refused(in_memory.raise_fence(""), Status.INVALID_ARGUMENT, "controller is required")
    await refused(in_memory.record_settled(None, 1), Status.INVALID_ARGUMENT, "fence is required")
    call = in_memory.record_settled(pb.Fence(controller="painter"), 1)
    await refused(call, Status.INVALID_ARGUMENT, "fence.term 0 is no term")


async def test_a_term_that_no_store_can_hold_is_refused(calls: Calls) -> None:
    """Uint64 on the wire, and more than SQLite's integers hold: an answer, not a crash."""
    highest = 2**64 - 1
    if isinstance(calls.backend, MemoryBackend):
        assert (await calls.raise_fence(term=highest)).fence == pb.Fence(controller="painter", term=highest)
    else:
        await refused(calls.raise_fence(term=highest), Status.INVALID_ARGUMENT, str(highest))


def test_what_is_left_of_a_lease_is_the_same_at_any_time() -> None:
    """Clocks are floats: ten seconds from now less now may be a little more than ten."""
    assert {milliseconds((begin + 10.0) - begin) for begin in (count / 7 for count in range(1000))} == {10_000}
    assert milliseconds(0.0001) == 1
    assert milliseconds(-1.0) == 0
