"""Checks of the items of a watch one by one: their order, their contents, and errors (promises 5, 7)."""

from __future__ import annotations

import re

import trio

from headway.errors import HeadwayError, HistoryCompacted
from headway.protobuf import copy_message
from headway.resource import Bookmark, Changes, Condition, EndOfSnapshot, Position, SnapshotChunk, pb, resource_key
from headway.storage import Backend, StoreMismatch, Watch, Within
from headway.testing.conformance._reader import reading, summary
from headway.testing.conformance._tools import (
    EVERYTHING,
    KIND,
    OTHER_KIND,
    must,
    put,
    putting,
    read_back,
    refused,
    remove,
    text_of,
    thing,
    uid_of,
    version_of,
)
from headway.testing.conformance._truth import Truth


async def a_watch_delivers_a_snapshot_its_end_and_then_changes(backend: Backend) -> None:
    """A watch delivers resources, one end of the snapshot, then only changes and bookmarks. A resumed watch delivers
    one bookmark that says so, and no snapshot.
    """
    await put(backend, thing("before"))
    begun = backend.position
    watches: dict[str, tuple[Watch, str]] = {
        "everything": (await backend.watch(KIND, EVERYTHING), r"S+E[CB]*"),
        "a part": (await backend.watch(KIND, Within(name_prefix="ua")), r"S*E[CB]*"),
        "another kind": (await backend.watch(OTHER_KIND, EVERYTHING), r"EB*"),
        "resumed": (await backend.watch(KIND, EVERYTHING, begun), r"R[CB]*"),
        "resumed, a part": (await backend.watch(KIND, Within(namespace="none"), begun), r"RB*"),
    }
    said = dict.fromkeys(watches, "")

    async def receive(name: str) -> None:
        while True:
            item = await watches[name][0].next()
            said[name] += _letter(item)
            if _stands(item) == backend.position.revision and truth.done:
                return

    truth = Truth()
    with trio.move_on_after(20) as patience:
        async with truth.writing(backend) as lookers:
            for name in watches:
                lookers.start_soon(receive, name)
            await truth.ended.wait()
            # One more change for each watch: it may have received the last one before the writers were known to have
            # ended.
            await put(backend, thing("last"))
    must(not patience.cancelled_caught, f"a watch did not deliver everything that was written: {said}")
    for name, (_, grammar) in watches.items():
        must(re.fullmatch(grammar, said[name]), f"a watch of {name} delivered {said[name]}, expected {grammar}")


def _letter(item: object) -> str:
    match item:
        case SnapshotChunk():
            return "S"
        case EndOfSnapshot():
            return "E"
        case Changes():
            return "C"
        case Bookmark(resumed=True):
            return "R"
        case _:
            return "B"


def _stands(item: object) -> int:
    match item:
        case EndOfSnapshot(position=position) | Bookmark(position=position):
            assert isinstance(position, Position)
            return position.revision
        case Changes(changes=changes):
            return changes[-1].revision
        case _:
            return 0


async def a_watch_delivers_the_whole_resource(backend: Backend) -> None:
    """A watch delivers a resource field for field as it was committed, in a snapshot and a change. A deletion has its
    last state.
    """
    given = _full("full")
    reader = await reading(backend)
    await reader.until_snapshot()
    at = await put(backend, copy_message(given))
    given.version = str(at.revision)
    snapshot = await backend.watch(KIND, EVERYTHING)
    chunk = await snapshot.next()
    must(isinstance(chunk, SnapshotChunk) and list(chunk.resources) == [given], "a snapshot's resource is incomplete")
    gone = await remove(backend, given, given.version)
    await reader.until(gone.revision)
    must(len(reader.changes) == 2, "a creation and a deletion were not delivered as two changes")
    must(reader.changes[0].resource == given, "a change's resource differs from the one that was written")
    must(
        reader.changes[1].deleted and reader.changes[1].resource == given, "a deletion's resource is not the last state"
    )


def _full(name: str) -> pb.Resource:
    full = thing(name, "x" * 300, owner_uid="an-owner")
    full.metadata["\N{SNOWMAN}"] = "finalizer.one finalizer.two"
    condition = Condition(type="Ready", reason="Because", message="it is", resource=pb.Reference(name="b"))
    full.status = {"controller": pb.Status(observed_generation=full.generation, conditions=[condition])}
    return full


async def a_deletion_has_a_revision_of_its_own(backend: Backend) -> None:
    """A deletion has a revision of its own, above the version that it deleted. Its resource still has that version."""
    reader = await reading(backend)
    at = await put(backend, resource := thing("a"))
    gone = await remove(backend, resource, str(at.revision))
    await reader.until(gone.revision)
    change = reader.changes[-1]
    must(
        change.deleted and change.revision == gone.revision > at.revision,
        "a deletion does not have its commit's revision",
    )
    must(change.resource.version == str(at.revision), "a deletion's resource does not have the deleted version")


async def a_new_incarnation_is_delivered_after_the_old_ones_deletion(backend: Backend) -> None:
    """For a name that is deleted and created again, a watch delivers the old uid's deletion, then the new uid's
    creation, and no more.
    """
    reader = await reading(backend)
    await reader.until_snapshot()
    uids: list[tuple[str, bool]] = []
    for _ in range(5):
        at = await put(backend, resource := thing("a"))
        await remove(backend, resource, str(at.revision))
        uids += [(uid_of(resource), False), (uid_of(resource), True)]
    at = await put(backend, last := thing("a"))
    await reader.until(at.revision)
    delivered = [(uid_of(each.resource), each.deleted) for each in reader.changes]
    must(
        delivered == [*uids, (uid_of(last), False)], "the incarnations of a name are not delivered one after the other"
    )


async def another_group_version_is_a_deletion_and_a_write(backend: Backend) -> None:
    """A write that stores a resource in another version of its kind is delivered as a deletion and a write in one
    commit. A resumed watch delivers it that way, too. A write that keeps the version is one change.
    """
    reader = await reading(backend)
    before = await reader.until_snapshot()
    first = await put(backend, resource := thing("a", "first"))
    second = await put(backend, thing("a", "second", uid=uid_of(resource), version="v2"), str(first.revision))
    third = await put(backend, thing("a", "third", uid=uid_of(resource), version="v2"), str(second.revision))
    resumed = await reading(backend, after=before)
    wanted = [
        (first.revision, "first", "v1", False),
        (second.revision, "first", "v1", True),
        (second.revision, "second", "v2", False),
        (third.revision, "third", "v2", False),
    ]
    for each in (reader, resumed):
        await each.until(third.revision)
        delivered = [
            (one.revision, text_of(one.resource), version_of(one.resource), one.deleted) for one in each.changes
        ]
        must(delivered == wanted, "a change of version was not delivered as a deletion and a write")
        must(
            [one.more for one in each.changes] == [False, True, False, False],
            "the two changes of one commit are not marked as one",
        )
        left = each.changes[1].resource
        must(
            left.version == str(first.revision),
            "the deletion does not have the version at which the resource was stored",
        )


async def a_new_watch_has_no_deleted_resource(backend: Backend) -> None:
    """A watch that begins after a deletion does not show the resource. One that resumes from before delivers the
    deletion.
    """
    at = await put(backend, resource := thing("a"))
    older = await reading(backend)
    stood = await older.until_snapshot()
    older.watch.close()
    gone = await remove(backend, resource, str(at.revision))
    fresh = await reading(backend)
    await fresh.until_snapshot()
    must(fresh.held == {}, "a new watch's snapshot has a deleted resource")
    resumed = await reading(backend, after=stood)
    await resumed.until(gone.revision)
    must(summary(resumed.changes) == [(gone.revision, "a", True)], "a deletion between two watches was not delivered")


async def all_watches_reach_the_stores_position(backend: Backend) -> None:
    """After a commit, all watches are at the same revision: the store's position."""
    withins = (EVERYTHING, Within(partition="p"), Within(namespace="n"), Within(name_prefix="z"))
    readers = [await reading(backend, within, kind=kind) for within in withins for kind in (KIND, OTHER_KIND)]
    for index in range(3):
        at = await backend.commit([putting(thing(f"a{index}")), putting(thing(f"z{index}", partition="p"))])
        for reader in readers:
            await reader.until(at.revision)
            must(reader.frontier == at.revision == backend.position.revision, "watches are at different revisions")
    counts = [len(reader.changes) for reader in readers]
    must(counts == [6, 0, 3, 0, 0, 0, 3, 0], f"watches delivered {counts} changes")


async def a_watch_that_cannot_begin_fails_at_once(backend: Backend) -> None:
    """A position that cannot be resumed from is an error of `watch` itself, for every kind and filter. No snapshot
    follows.
    """
    here = await put(backend, thing("a"))
    wrong = (here._replace(store_id="another"), here._replace(session="never"), Position("", "", 0),
             here._replace(revision=here.revision + 1000))  # fmt: skip
    for kind in (KIND, OTHER_KIND, ("no", "Kind")):
        for within in (EVERYTHING, Within(name_prefix="x")):
            for position in wrong:
                error = await refused(HeadwayError, backend.watch(kind, within, position), f"resuming at {position}")
                must(
                    isinstance(error, StoreMismatch | HistoryCompacted) and str(error),
                    f"resuming at {position}: {error!r}",
                )


async def reads_and_watches_return_the_same_resource(backend: Backend) -> None:
    """Without concurrent writes, a read, a list, a list by owner and a watch return the same resource."""
    reader = await reading(backend)
    given = _full("full")
    at = await put(backend, copy_message(given))
    given.version = str(at.revision)
    await reader.until(at.revision)
    listed, _ = await backend.list(KIND, EVERYTHING)
    owned, _ = await backend.list_by_owner("an-owner")
    key = resource_key(given)
    ways = {"read": await read_back(backend, given), "list": listed[0], "list by owner": owned[0] if owned else None}
    for way, found in ways.items():
        must(found == given, f"a {way} returned something else than was written under {'/'.join(key)}")
