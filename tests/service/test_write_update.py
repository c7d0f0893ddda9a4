"""Write to an existing resource: the checks of uid, version and fence, and the parts that stay unchanged."""

from __future__ import annotations

import pytest
from grpclib.const import Status

from headway.api import Reason
from headway.resource import FINALIZERS, pb
from tests.helpers.calls import Calls, refused
from tests.helpers.declared import NOTE, ULID, a_note, an_id, text_of, uid_of


@pytest.mark.parametrize("given", [True, False])
async def test_update_keeps_the_uid_and_changes_generation_and_version(calls: Calls, given: bool) -> None:
    """The request may have the stored uid or none, and need not change anything else."""
    first = await calls.stored(a_note("one", "same"))
    second = await calls.stored(a_note("one", "same", uid=uid_of(first) if given else ""))
    assert uid_of(second) == uid_of(first)
    assert second.generation != first.generation
    assert int(second.version) > int(first.version)


async def test_uid_other_than_the_stored_one_is_refused(calls: Calls) -> None:
    """A write for one incarnation never changes another. The error names the present uid."""
    stored = await calls.stored(a_note("one", "kept"))
    said = f"Note one is stored with uid {uid_of(stored)}, not {ULID}"
    call = calls.write(a_note("one", "lost", uid=ULID))
    await refused(call, Status.FAILED_PRECONDITION, said, reason=Reason.WRONG_UID)
    assert text_of((await calls.read(an_id())).resource) == "kept"


async def test_write_with_a_version_replaces_all_metadata(calls: Calls) -> None:
    """The writer has seen the reserved keys, so leaving them out removes them."""
    first = await calls.stored(a_note(metadata={FINALIZERS: "a"}))
    assert (await calls.stored(a_note(version=first.version))).metadata == {}


async def test_lower_fence_is_refused_and_changes_nothing(calls: Calls) -> None:
    """C8: an equal fence is accepted. The store refuses a lower one, for creations and updates alike."""
    old = (await calls.raise_fence()).fence
    await calls.write(a_note("one", "kept"), fence=old)
    await calls.raise_fence()
    here = calls.revision
    for name in ("one", "new"):
        call = calls.write(a_note(name, "lost"), fence=old)
        await refused(call, Status.FAILED_PRECONDITION, "the fence of", reason=Reason.FENCED)
    assert calls.revision == here
    assert text_of((await calls.read(an_id("one"))).resource) == "kept"
    assert await calls.names(NOTE) == ["one"]


async def test_fence_of_a_term_that_was_never_granted_is_refused(calls: Calls) -> None:
    """Such a fence would be compared with nothing until that term comes.

    Creations and deletions of missing resources refuse it, too.
    """
    fence = (await calls.raise_fence()).fence
    assert fence is not None
    unknown = pb.Fence(controller=fence.controller, term=fence.term + 1)
    said = "term 2 of painter was never granted; the highest granted term is 1"
    for borne in (unknown, pb.Fence(controller="other", term=1)):
        for call in (calls.write(a_note("lost"), fence=borne), calls.delete(an_id("lost"), fence=borne)):
            part = said if borne is unknown else "highest granted term is 0"
            await refused(call, Status.FAILED_PRECONDITION, part, reason=Reason.UNKNOWN_TERM)


@pytest.mark.parametrize(
    ("fence", "said"),
    [
        (pb.Fence(term=1), "fence.controller is required"),
        (pb.Fence(controller="painter"), "fence.term must not be 0"),
    ],
)
async def test_incomplete_fence_is_refused(in_memory: Calls, fence: pb.Fence, said: str) -> None:
    """A fence without all of its parts would protect nothing."""
    await refused(in_memory.write(a_note(), fence=fence), Status.INVALID_ARGUMENT, said, "Raise")


async def test_write_for_another_store_is_refused(calls: Calls) -> None:
    """Versions and uids of two stores are unrelated. A request with a store id writes only to that store."""
    first = await calls.stored(a_note())
    here = calls.backend.position.store_id
    await calls.write(a_note(version=first.version), store_id=here)
    said = f"store_id: the write is for store elsewhere, but this is {here}"
    await refused(calls.write(a_note(), store_id="elsewhere"), Status.FAILED_PRECONDITION, said)
