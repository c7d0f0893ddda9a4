"""Delete: removal, marking for deletion, and the state of the name in the answer."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence

import pytest
import trio
import trio.testing
from grpclib.const import Status

from headway.api import Reason
from headway.errors import StoreUnusable
from headway.resource import DELETION_TIMESTAMP, FINALIZERS, Key, Kind, Position, pb
from headway.storage import Backend, Fence, Operation
from tests.helpers.calls import Calls, Interrupted, at, refused
from tests.helpers.declared import (
    NOTE,
    ULID,
    a_note,
    an_id,
    id_of,
    registry,
    text_of,
    uid_of,
)


@pytest.mark.parametrize("with_version", [False, True])
@pytest.mark.parametrize("with_uid", [False, True])
async def test_delete_matches_name_version_and_uid_as_given(calls: Calls, with_version: bool, with_uid: bool) -> None:
    """The answer has the position of the deletion, and no resource."""
    stored = await calls.stored(a_note())
    id = an_id(uid=uid_of(stored) if with_uid else "")
    reply = await calls.delete(id, version=stored.version if with_version else "")
    assert reply.resource is None
    assert at(reply.position).revision == int(stored.version) + 1 == calls.revision
    await refused(calls.read(an_id()), Status.NOT_FOUND)


async def test_missing_resource_counts_as_deleted(calls: Calls) -> None:
    """The answer has a position at which the name was free. Nothing is committed."""
    await calls.write(a_note("other"))
    here = calls.revision
    for id in (an_id(), an_id(uid=ULID)):
        reply = await calls.delete(id, version="7")
        assert reply.resource is None
        assert at(reply.position) == calls.backend.position
    assert calls.revision == here


async def test_other_incarnation_stays_and_is_returned(calls: Calls) -> None:
    """The named incarnation no longer exists, which is what the caller wanted.

    The answer contains the present incarnation, so that no cache takes the name for free.
    """
    stored = await calls.stored(a_note())
    reply = await calls.delete(an_id(uid=ULID), version="7")
    assert reply.resource == stored
    assert at(reply.position) == calls.backend.position
    assert await calls.names(NOTE) == ["one"]


@pytest.mark.parametrize("with_uid", [False, True])
@pytest.mark.parametrize("finalizers", ["", "a"])
async def test_version_is_compared_with_or_without_uid_and_finalizers(
    calls: Calls, with_uid: bool, finalizers: str
) -> None:
    """Consul compares the version only together with a uid, and never if finalizers hold the resource."""
    old = await calls.stored(a_note(metadata={FINALIZERS: finalizers}))
    new = await calls.stored(a_note("one", "changed"))
    id = an_id(uid=uid_of(old) if with_uid else "")
    said = f"Note one is stored at version {new.version}, not {old.version}; read it again"
    await refused(calls.delete(id, version=old.version), Status.ABORTED, said)
    assert (await calls.read(an_id())).resource == new
    assert calls.revision == int(new.version)


async def test_finalizers_turn_a_deletion_into_a_mark(calls: Calls) -> None:
    """The resource is marked with a time, and returned. A second delete does not mark it again."""
    stored = await calls.stored(a_note("one", "kept", metadata={FINALIZERS: "a b", "colour": "red"}))
    begun = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    reply = await calls.delete(id_of(stored), version=stored.version)
    marked = reply.resource
    assert marked is not None
    mark = marked.metadata[DELETION_TIMESTAMP]
    assert mark.endswith("Z")
    assert begun <= datetime.datetime.fromisoformat(mark) <= datetime.datetime.now(datetime.UTC)
    assert marked.metadata == {FINALIZERS: "a b", "colour": "red", DELETION_TIMESTAMP: mark}
    assert (uid_of(marked), text_of(marked), marked.status) == (uid_of(stored), "kept", stored.status)
    assert marked.generation != stored.generation
    assert marked.version == str(at(reply.position).revision) == str(calls.revision)
    again = await calls.delete(an_id())
    assert again.resource == marked
    assert at(again.position).revision == int(marked.version) == calls.revision


async def test_marked_resource_without_finalizers_is_removed_by_the_next_delete(calls: Calls) -> None:
    """The marked resource stays until then."""
    await calls.write(a_note(metadata={FINALIZERS: "a"}))
    await calls.delete(an_id())
    bare = await calls.stored(a_note(metadata={FINALIZERS: ""}))
    assert DELETION_TIMESTAMP in bare.metadata
    reply = await calls.delete(an_id())
    assert reply.resource is None
    assert await calls.names(NOTE) == []


async def test_lower_fence_is_refused_even_if_nothing_would_change(calls: Calls) -> None:
    """C8: this holds for existing, finalized, marked, recreated and missing resources."""
    old = (await calls.raise_fence()).fence
    await calls.write(a_note("plain"))
    await calls.write(a_note("held", metadata={FINALIZERS: "a"}))
    await calls.write(a_note("marked", metadata={FINALIZERS: "a"}))
    await calls.delete(an_id("marked"), fence=old)
    await calls.delete(an_id("missing"), fence=old)
    await calls.raise_fence()
    here = calls.revision
    for id in (an_id("plain"), an_id("held"), an_id("marked"), an_id("plain", uid=ULID), an_id("missing")):
        await refused(
            calls.delete(id, fence=old), Status.FAILED_PRECONDITION, "the fence of painter", reason=Reason.FENCED
        )
    assert calls.revision == here


async def test_delete_for_another_store_is_refused(calls: Calls) -> None:
    """The rule is the same as in Write."""
    await calls.write(a_note())
    call = calls.delete(an_id(), store_id="elsewhere")
    await refused(call, Status.FAILED_PRECONDITION, "store_id: the write is for store elsewhere")
    await calls.delete(an_id(), store_id=calls.backend.position.store_id)


@pytest.mark.parametrize("finalizers", ["", "a"])
async def test_lost_race_is_retried(
    calls: Calls, racing: Calls, interrupted: Interrupted, autojump_clock: trio.testing.MockClock, finalizers: str
) -> None:
    """Without a version, concurrent changes don't matter, with or without finalizers."""
    await calls.write(a_note(metadata={FINALIZERS: finalizers}))
    interrupted.before_commit = [lambda: calls.write(a_note("one", "theirs"))]
    reply = await racing.delete(an_id())
    if finalizers:
        assert reply.resource is not None
        assert DELETION_TIMESTAMP in reply.resource.metadata
        assert text_of(reply.resource) == "theirs"
    else:
        assert await calls.names(NOTE) == []
    assert 0.075 <= autojump_clock.current_time() <= 0.12


async def test_lost_race_with_a_version_is_a_conflict(calls: Calls, racing: Calls, interrupted: Interrupted) -> None:
    """The answer names the stored version."""
    stored = await calls.stored(a_note())
    interrupted.before_commit = [lambda: calls.write(a_note("one", "theirs"))]
    said = f"Note one is stored at version {int(stored.version) + 1}, not {stored.version}"
    await refused(racing.delete(an_id(), version=stored.version), Status.ABORTED, said)


@pytest.mark.wide
@pytest.mark.parametrize("finalizers", ["", "a"])
@pytest.mark.parametrize("with_version", [False, True])
@pytest.mark.parametrize("with_uid", [False, True])
async def test_answer_contains_an_incarnation_created_concurrently(
    calls: Calls,
    racing: Calls,
    interrupted: Interrupted,
    autojump_clock: trio.testing.MockClock,
    with_uid: bool,
    with_version: bool,
    finalizers: str,
) -> None:
    """The answer is true at its own position.

    That holds even if another caller deleted the resource first and a third caller created the name again.
    """
    stored = await calls.stored(a_note(metadata={FINALIZERS: finalizers}))

    async def replace() -> None:
        if finalizers:
            await calls.write(a_note(metadata={FINALIZERS: ""}))
        await calls.delete(an_id())
        await calls.write(a_note("one", "theirs"))

    interrupted.before_commit = [replace]
    call = racing.delete(an_id(uid=uid_of(stored) if with_uid else ""), version=stored.version if with_version else "")
    if finalizers and with_version and not with_uid:
        await refused(call, Status.ABORTED, "Note one is stored at version")
        return
    reply = await call
    now = await calls.backend.read(NOTE.kind, ("default", "default", "one"))
    assert reply.resource == now[0]
    assert at(reply.position) == now[1]
    if with_uid or not finalizers:
        assert text_of(reply.resource) == "theirs"
    assert autojump_clock.current_time() < 0.2


@pytest.mark.parametrize("gone", [False, True])
async def test_concurrent_writes_do_not_change_the_answer(
    calls: Calls, racing: Calls, interrupted: Interrupted, gone: bool
) -> None:
    """At the answer's position the name is free, no matter which caller deleted the resource."""
    stored = await calls.stored(a_note())

    async def others() -> None:
        await calls.write(a_note("other"))
        if gone:
            await calls.delete(an_id())

    interrupted.before_commit = [others]
    reply = await racing.delete(id_of(stored))
    assert reply.resource is None
    assert at(reply.position) == calls.backend.position
    assert await calls.names(NOTE) == ["other"]


class AfterCommit(Interrupted):
    """A store that calls a function after each commit, and cannot be read afterwards."""

    def __init__(self, inner: Backend, happens: Callable[[], None]) -> None:
        super().__init__(inner)
        self._happens = happens

    async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:
        position = await super().commit(operations, fence)
        self._happens()
        return position

    async def read(self, kind: Kind, key: Key) -> tuple[pb.Resource | None, Position]:
        if self.commits:
            raise StoreUnusable("the disk is gone")
        return await super().read(kind, key)


@pytest.mark.parametrize("owning", [False, True])
async def test_completed_deletion_is_answered(calls: Calls, owning: bool) -> None:
    """C5: concurrent commits, a canceled caller, and a store that can no longer be read don't change the answer."""
    owner = await calls.stored(a_note())
    if owning:
        await calls.write(a_note("owned", owner=id_of(owner)))
    scope = trio.CancelScope()
    store = AfterCommit(calls.backend, scope.cancel)
    store.before_commit = [lambda: calls.write(a_note("other"))]
    with scope:
        reply = await Calls(store, registry()).delete(an_id())
    assert reply.resource is None
    assert at(reply.position) == calls.backend.position
    assert "one" not in await calls.names(NOTE)
    assert store.commits == 1 + owning


async def test_lost_race_with_an_unreadable_store_writes_nothing(calls: Calls) -> None:
    await calls.write(a_note())
    store = AfterCommit(calls.backend, lambda: None)
    store.before_commit = [lambda: calls.delete(an_id())]
    call = Calls(store, registry()).delete(an_id())
    await refused(call, Status.UNAVAILABLE, "the disk is gone", reason=Reason.NOTHING_WRITTEN)
