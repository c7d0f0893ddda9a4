"""The fences and checkpoints of the lease service. The tests of leases are in test_leases_by_service.py."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from grpclib.const import Status

from headway.api import Reason
from headway.resource import pb
from headway.service._lease import milliseconds
from tests.helpers.calls import Calls, at, refused, take
from tests.helpers.declared import a_note, a_type

HIGHEST = 2**63 - 1
"""The highest term, and the highest number."""


async def test_fence_is_raised_by_a_commit(calls: Calls) -> None:
    """The position of the commit is unique. A write that was sent before it cannot be stored after it."""
    await calls.write(a_note())
    for term in (1, 2):
        reply = await calls.raise_fence("painter", "here")
        assert reply.fence == pb.Fence(controller="painter", member="here", term=term)
        assert at(reply.position).revision == 1 + term == calls.revision
    stored = await calls.stored(a_note(), fence=reply.fence)
    assert int(stored.version) == 4


async def test_raised_fence_reaches_watchers_as_a_bookmark(calls: Calls) -> None:
    """The commit has a revision without a change. A bookmark reports the revision, so that a run can wait for it."""
    async with calls.watch(a_type()) as items:
        await take(items, 1)
        reply = await calls.raise_fence()
        bookmark = await anext(items)
        assert bookmark.position == at(reply.position)


async def test_controllers_and_members_have_separate_fences(calls: Calls) -> None:
    """Raising one fence supersedes no other."""
    first = (await calls.raise_fence("painter", "a")).fence
    await calls.raise_fence("painter", "b")
    await calls.raise_fence("writer", "a")
    await calls.write(a_note(), fence=first)


async def test_error_of_a_fence_names_its_member(calls: Calls) -> None:
    """Each shard of a controller has a fence and a lease of its own."""
    first = (await calls.raise_fence("painter", "4")).fence
    await calls.raise_fence("painter", "4")
    said = "the fence of painter#4 is at (2, 0)"
    await refused(calls.write(a_note(), fence=first), Status.FAILED_PRECONDITION, said, reason=Reason.FENCED)
    call = calls.raise_fence("painter", "4", term=1)
    await refused(call, Status.FAILED_PRECONDITION, said, reason=Reason.FENCED)


async def test_next_run_gets_the_checkpoint(calls: Calls) -> None:
    """The checkpoint is the highest recorded revision, or the revision of the first raise if none was recorded.

    Recording makes no commit.
    """
    first = await calls.raise_fence()
    for name in "abcdefgh":
        await calls.write(a_note(name))
    assert first.position is not None
    assert first.settled_revision == first.position.revision
    here = calls.revision
    for revision in (7, 5):
        await calls.record_checkpoint(first.fence, revision)
    assert calls.revision == here
    assert (await calls.raise_fence()).settled_revision == 7
    call = calls.record_checkpoint(first.fence, 9)
    await refused(call, Status.FAILED_PRECONDITION, "the fence of painter", reason=Reason.FENCED)
    assert (await calls.raise_fence()).settled_revision == 7


async def test_checkpoint_of_a_history_that_the_store_never_had_is_refused(calls: Calls) -> None:
    """The deletions below it, in the present history, were not seen (C6)."""
    first = await calls.raise_fence()
    at = first.position
    assert at is not None
    await calls.write(a_note())
    for other in (dataclasses.replace(at, store_id="another"), dataclasses.replace(at, incarnation="another")):
        call = calls.record_checkpoint(first.fence, at.revision, other)
        await refused(call, Status.DATA_LOSS, "position")
    await calls.record_checkpoint(first.fence, calls.revision, at)
    assert (await calls.raise_fence()).settled_revision == at.revision + 1


async def test_request_without_a_name_is_refused(in_memory: Calls) -> None:
    """The request must name the owner of the fence."""
    await refused(in_memory.raise_fence(""), Status.INVALID_ARGUMENT, "controller is required")
    await refused(in_memory.record_checkpoint(None, 1), Status.INVALID_ARGUMENT, "fence is required")
    call = in_memory.record_checkpoint(pb.Fence(controller="painter"), 1)
    await refused(call, Status.INVALID_ARGUMENT, "fence.term must not be 0")


async def test_term_that_was_never_granted_is_refused(calls: Calls) -> None:
    """Terms grow by one. A caller that could raise a fence to any term could lock its controller out forever."""
    fence = (await calls.raise_fence()).fence
    assert fence is not None
    term = fence.term
    here = calls.revision
    for wrong in (term + 1, term + 2**32, HIGHEST):
        said = f"term {wrong} of painter was never granted; the highest granted term is {term}"
        call = calls.raise_fence(term=wrong, number=1)
        await refused(
            call, Status.FAILED_PRECONDITION, f"{said}: raise the fence in the term", reason=Reason.UNKNOWN_TERM
        )
        unknown = pb.Fence(controller="painter", term=wrong)
        checkpoint = calls.record_checkpoint(unknown, 1)
        await refused(checkpoint, Status.FAILED_PRECONDITION, said, reason=Reason.UNKNOWN_TERM)
    assert calls.revision == here
    highest = pb.Fence(controller="painter", term=term, number=HIGHEST)
    assert (await calls.raise_fence(term=term, number=HIGHEST)).fence == highest
    assert (await calls.raise_fence()).fence == pb.Fence(controller="painter", term=term + 1)


async def test_checkpoint_above_the_store_is_refused(calls: Calls) -> None:
    """With such a checkpoint, the next run would skip future changes and miss deletions (C6)."""
    fence = (await calls.raise_fence()).fence
    here = calls.revision
    for wrong in (here + 1, 2**63 - 1, 2**64 - 1):
        said = f"revision {wrong} is above the store's, {here}: send one that a watch has reached"
        await refused(calls.record_checkpoint(fence, wrong), Status.INVALID_ARGUMENT, said)
    await calls.write(a_note())
    await calls.record_checkpoint(fence, here + 1)
    assert (await calls.raise_fence()).settled_revision == here + 1


LONG = "a" * 2**20


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"controller": LONG}, "controller 'aaa"),
        ({"controller": "a", "member": LONG}, "member 'aaa"),
        ({"controller": "a" * 200, "member": "b" * 55}, "member 'bbb"),
        ({"controller": "a b"}, "controller 'a b' must be up to 255 letters, digits and - . _ / :"),
        ({"controller": "/a"}, "controller '/a' must be"),
        ({"controller": "a\n"}, "controller 'a\\n' must be"),
        ({"controller": "a", "member": "b#c"}, "member 'b#c' must be"),
        ({"controller": "a", "member": "b\n"}, "member 'b\\n' must be"),
        ({"controller": "a", "term": HIGHEST + 1}, f"term {HIGHEST + 1} must be from 0 to {HIGHEST}"),
        ({"controller": "a", "term": 2**64 - 1}, f"term {2**64 - 1} must be from 0 to {HIGHEST}"),
        ({"controller": "a", "number": HIGHEST + 1}, f"number {HIGHEST + 1} must be from 0 to {HIGHEST}"),
    ],
)
async def test_every_field_of_a_fence_is_bounded(in_memory: Calls, given: dict[str, Any], said: str) -> None:
    """The bounds hold in a raise, in a checkpoint and in a write.

    The error quotes only the beginning of a long value.
    """
    fence = pb.Fence(**{"term": 1, **given})
    said_of_fence = "fence." + (said.replace("from 0", "from 1") if "term" in given else said)
    calls: list[tuple[str, Callable[[], Awaitable[object]]]] = [
        (said, lambda: in_memory.raise_fence(**given)),
        (said_of_fence, lambda: in_memory.record_checkpoint(fence, 0)),
        (said_of_fence, lambda: in_memory.write(a_note(), fence=fence)),
    ]
    for expected, call in calls:
        assert len(await refused(call(), Status.INVALID_ARGUMENT, expected)) < 300
    assert in_memory.revision == 0


def test_remaining_time_of_a_lease_is_rounded_alike_at_any_time() -> None:
    """A clock is a float, so now + 10 - now may be slightly more than ten."""
    assert {milliseconds((begin + 10.0) - begin) for begin in (count / 7 for count in range(1000))} == {10_000}
    assert milliseconds(0.0001) == 1
    assert milliseconds(-1.0) == 0
