"""Checks of commits: versions, uids, atomicity, revisions and cancellation (promises 1, 2, 4)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import trio

from headway.protobuf import copy_message
from headway.resource import resource_key
from headway.storage import (
    Backend,
    Operation,
    Require,
    RequireOwnsNothing,
    StillOwns,
    StorageError,
    VersionConflict,
    Within,
    WrongUid,
)
from headway.testing.conformance._reader import held, reading
from headway.testing.conformance._tools import (
    EVERYTHING,
    KIND,
    OTHER_KIND,
    fail,
    kind_of,
    must,
    names,
    put,
    putting,
    read_back,
    refused,
    remove,
    removing,
    text_of,
    thing,
    uid_of,
)


async def an_empty_version_creates_and_nothing_else(backend: Backend) -> None:
    """A put without a version creates a resource. If the resource already exists, that is a conflict."""
    first = thing("a", "first")
    await put(backend, first)
    await refused(VersionConflict, put(backend, thing("a", "again", uid=uid_of(first))), "creating what exists")
    found = await read_back(backend, first)
    must(found is not None and text_of(found) == "first", "a rejected creation changed the stored resource")


async def a_version_of_nothing_is_a_conflict(backend: Backend) -> None:
    """A put with a version is a conflict if the resource does not exist, and stores nothing."""
    await refused(VersionConflict, put(backend, thing("a"), "1"), "a put with a version of a missing resource")
    must(await read_back(backend, thing("a")) is None, "a rejected write was stored")


async def the_stored_version_is_replaced_by_a_new_one(backend: Backend) -> None:
    """A write with the stored version is done, and its revision is the new version."""
    first = await put(backend, resource := thing("a", "first"))
    second = await put(backend, thing("a", "second", uid=uid_of(resource)), str(first.revision))
    found = await read_back(backend, resource)
    must(found is not None and text_of(found) == "second", "a write with the stored version was not stored")
    must(found is not None and found.version == str(second.revision), "the version is not the commit's revision")
    must(second.revision > first.revision, "a write did not raise the revision")


async def a_stale_version_is_a_conflict(backend: Backend) -> None:
    """A write with an outdated version, or without one, is a conflict and changes nothing."""
    first = await put(backend, resource := thing("a", "first"))
    second = await put(backend, thing("a", "second", uid=uid_of(resource)), str(first.revision))
    for version in (str(first.revision), "", str(second.revision + 1), "0" + str(second.revision), "none"):
        late = thing("a", "late", uid=uid_of(resource))
        await refused(VersionConflict, put(backend, late, version), f"a put with version {version!r}")
    found = await read_back(backend, resource)
    must(found is not None and text_of(found) == "second", "a stale write changed the stored resource")


async def another_uid_is_refused_before_versions_are_compared(backend: Backend) -> None:
    """A stored name keeps its uid: a write with another uid, or none, is a WrongUid at any version."""
    at = await put(backend, resource := thing("a"))
    for uid in ("another", ""):
        for version in (str(at.revision), "", "99999999"):
            await refused(
                WrongUid, put(backend, thing("a", uid=uid), version), f"a put with uid {uid!r} at version {version!r}"
            )
    found = await read_back(backend, resource)
    must(found is not None and uid_of(found) == uid_of(resource), "a rejected write changed the uid")


async def a_deleted_name_may_have_another_uid(backend: Backend) -> None:
    """After a deletion the name is free for another incarnation."""
    at = await put(backend, resource := thing("a"))
    await remove(backend, resource, str(at.revision))
    must(await read_back(backend, resource) is None, "a deleted resource was still stored")
    await put(backend, again := thing("a"))
    found = await read_back(backend, resource)
    must(found is not None and uid_of(found) == uid_of(again), "the name's second incarnation was not stored")


async def a_removal_of_nothing_makes_no_revision(backend: Backend) -> None:
    """The deletion of a missing resource, or of one with another uid, succeeds and does nothing at any version."""
    here = await put(backend, resource := thing("a"))
    must(await remove(backend, thing("b"), "1") == here, "a removal of a missing resource made a revision")
    for version in (str(here.revision), "", "99999999"):
        must(
            await remove(backend, resource, version, uid="another") == here,
            "a removal with another uid made a revision",
        )
    must(await read_back(backend, resource) is not None, "a removal with another uid deleted the resource")


async def a_removal_at_a_stale_or_empty_version_is_a_conflict(backend: Backend) -> None:
    """A deletion is done only at the stored version."""
    first = await put(backend, resource := thing("a"))
    second = await put(backend, thing("a", uid=uid_of(resource)), str(first.revision))
    for version in (str(first.revision), "", str(second.revision + 1)):
        await refused(VersionConflict, remove(backend, resource, version), f"a removal at version {version!r}")
    must(await read_back(backend, resource) is not None, "a rejected removal deleted the resource")


async def all_versions_of_a_kind_share_its_names(backend: Backend) -> None:
    """The group version is not part of the key: v2 replaces v1, and either can be removed."""
    at = await put(backend, resource := thing("a", version="v1"))
    await refused(WrongUid, put(backend, thing("a", version="v2")), "a second resource of the same name, in v2")
    at = await put(backend, second := thing("a", "now v2", version="v2", uid=uid_of(resource)), str(at.revision))
    must(await names(backend) == ["a"], "two versions of a kind were stored under one name")
    await remove(backend, resource, str(at.revision))
    must(await read_back(backend, second) is None, "a removal took the group version into account")


async def a_resource_is_stored_as_given(backend: Backend) -> None:
    """A stored resource equals the one given, field for field, apart from its version."""
    given = thing("a", "x" * 5000, partition="p", namespace="n", owner_uid="some-owner")
    given.metadata["ünïcode \N{SNOWMAN}"] = "\N{SNOWMAN}"
    wanted = copy_message(given)
    at = await put(backend, given)
    wanted.version = str(at.revision)
    must(await read_back(backend, wanted) == wanted, "the resource read differs from the one written")


async def revisions_rise_and_are_never_reused(backend: Backend) -> None:
    """Every commit has a higher revision than all before it, also after a deletion, a fence, a failed commit or an
    empty one.
    """
    revisions = [backend.position.revision]
    for index in range(3):
        at = await put(backend, resource := thing(f"n{index}"))
        revisions.append(at.revision)
        await refused(VersionConflict, put(backend, thing("none"), "7"), "a put with a version of a missing resource")
        revisions.append((await remove(backend, resource, str(at.revision))).revision)
        await remove(backend, resource, str(at.revision))
        revisions.append((await backend.raise_fence("c", "m", 0, 0)).position.revision)
    for earlier, later in pairwise(revisions):
        must(earlier < later, f"revision {later} was assigned after {earlier}")
    must(backend.position.revision == revisions[-1], "the store's position is not its last commit")


async def a_commit_has_one_revision_for_all_it_changes(backend: Backend) -> None:
    """The operations of one commit share its revision."""
    at = await put(backend, gone := thing("gone"))
    at = await backend.commit([putting(thing("a")), removing(gone, str(at.revision)), putting(thing("b"))])
    found, listed_at = await backend.list(KIND, EVERYTHING)
    must([resource.version for resource in found] == [str(at.revision)] * 2, "one commit stored two revisions")
    must(listed_at.revision == at.revision, "a commit of several operations made several revisions")


async def a_commit_is_atomic(backend: Backend) -> None:
    """If one operation of a commit is rejected, wherever it stands, nothing of the commit is done."""
    at = await put(backend, there := thing("there", "as it was"))
    version = str(at.revision)
    bad: list[tuple[type[StorageError], Operation]] = [
        (VersionConflict, putting(thing("new"), "7")),
        (WrongUid, putting(thing("there"), version)),
        (VersionConflict, removing(there, "7")),
    ]
    for error, operation in bad:
        for index in range(3):
            good: list[Operation] = [putting(thing("b")), putting(thing("c", kind=OTHER_KIND))]
            good.insert(index, operation)
            await refused(error, backend.commit(good), f"a commit with a bad operation at {index}")
    must(backend.position == at, "a rejected commit made a revision")
    must(await names(backend) == ["there"], "a part of a rejected commit was stored")
    must(await names(backend, kind=OTHER_KIND) == [], "a part of a rejected commit was stored in another kind")


async def a_commit_that_names_a_resource_twice_is_refused(backend: Backend) -> None:
    """A commit with two operations on one resource is a ValueError, and nothing is done: no order of them is right."""
    at = await put(backend, resource := thing("a"))
    version = str(at.revision)
    twice: Sequence[Sequence[Operation]] = (
        [putting(thing("b")), putting(thing("b"))],
        [removing(resource, version), putting(thing("a"))],
        [putting(thing("a", uid=uid_of(resource)), version), removing(resource, version)],
    )
    for operations in twice:
        await refused(ValueError, backend.commit(operations), "a commit that names a resource twice")
    must(backend.position == at, "a rejected commit made a revision")
    must(await names(backend) == ["a"], "a rejected commit changed something")
    await backend.commit([putting(thing("b")), putting(thing("b", kind=OTHER_KIND))])


async def a_commit_of_nothing_makes_no_revision(backend: Backend) -> None:
    """A commit without operations, or with ones that change nothing, leaves the store at its position."""
    at = await put(backend, thing("a"))
    must(await backend.commit([]) == at, "an empty commit made a revision")
    must(await backend.commit([removing(thing("b"), "1"), removing(thing("c"), "1")]) == at, "removals made a revision")
    must(backend.position == at, "a commit without changes moved the store")


async def a_requirement_holds_in_the_commit_itself(backend: Backend) -> None:
    """A required resource exists in the commit itself, with its uid and, if given, its version. Otherwise the commit is
    a conflict, and nothing of it is done.
    """
    at = await put(backend, there := thing("there"))
    kind, key, uid = kind_of(there), resource_key(there), uid_of(there)
    version = str(at.revision)
    requirements: tuple[Require, ...] = (
        Require(kind, key, "another"),
        Require(kind, key, uid, str(at.revision + 1)),
        Require(kind, key, "another", version),
        Require(kind, ("default", "default", "missing"), uid),
        Require(OTHER_KIND, key, uid),
    )
    for wrong in requirements:
        orders: tuple[list[Operation], ...] = ([wrong, putting(thing("a"))], [putting(thing("a")), wrong])
        for operations in orders:
            await refused(VersionConflict, backend.commit(operations), f"a commit that requires {wrong}")
    must(await names(backend) == ["there"], "a part of a commit with a failed requirement was stored")
    must(await backend.commit([Require(kind, key, uid)]) == at, "a requirement alone made a revision")
    await backend.commit([Require(kind, key, uid), putting(thing("a")), Require(kind, key, uid, version)])
    await backend.commit([Require(kind, key, uid, version), removing(there, version)])
    await refused(
        VersionConflict,
        backend.commit([Require(kind, key, uid), putting(thing("b"))]),
        "a commit that requires a deleted resource",
    )
    must(await names(backend) == ["a"], "the stored resources are not those of the commits with met requirements")


async def a_requirement_to_own_nothing_holds_in_the_commit_itself(backend: Backend) -> None:
    """While a uid owns any resource, a commit that requires it to own nothing is rejected, and nothing of the commit is
    done.
    """
    at = await put(backend, owner := thing("owner"))
    uid, version = uid_of(owner), str(at.revision)
    must(await backend.commit([RequireOwnsNothing(uid)]) == at, "a requirement alone made a revision")
    child = thing("a", kind=OTHER_KIND, owner_uid=uid)
    first: list[Operation] = [RequireOwnsNothing(uid), putting(child)]
    at = await backend.commit(first)
    asked: list[Operation] = [removing(owner, version), RequireOwnsNothing(uid)]
    await refused(StillOwns, backend.commit(asked), "the removal of an owner")
    must(backend.position == at, "a rejected commit made a revision")
    must(await names(backend) == ["owner"], "a rejected commit removed something")
    last: list[Operation] = [removing(child, str(at.revision)), RequireOwnsNothing("another"), putting(thing("b"))]
    await backend.commit(last)
    await backend.commit(asked)
    must(await names(backend) == ["b"], "the removal of a resource that owns nothing was not done")


async def one_of_many_writers_of_a_version_wins(backend: Backend) -> None:
    """If any number of writers write at the same version, one write is stored and the others are conflicts."""
    at = await put(backend, resource := thing("a"))
    won: list[str] = []

    async def write(text: str) -> None:
        try:
            await put(backend, thing("a", text, uid=uid_of(resource)), str(at.revision))
        except VersionConflict:
            return
        won.append(text)

    async with trio.open_nursery() as nursery:
        for index in range(20):
            nursery.start_soon(write, f"writer {index}")
    found = await read_back(backend, resource)
    must(len(won) == 1, f"{len(won)} writers won with the same version")
    must(found is not None and [text_of(found)] == won, "the stored write is not the acknowledged one")


async def concurrent_commits_have_a_revision_each(backend: Backend) -> None:
    """Concurrent commits, mixed with rejected ones, get different revisions, and all of them are stored."""
    revisions: dict[str, int] = {}

    async def write(name: str) -> None:
        revisions[name] = (await put(backend, thing(name))).revision
        await refused(
            VersionConflict, put(backend, thing(f"not-{name}"), "7"), "a put with a version of a missing resource"
        )

    async with trio.open_nursery() as nursery:
        for index in range(40):
            nursery.start_soon(write, f"n{index}")
    must(len(set(revisions.values())) == 40, "two commits have the same revision")
    found, _ = await backend.list(KIND, EVERYTHING)
    versions = {key[2]: int(version) for key, (_, version) in held(found).items()}
    must(versions == revisions, "the stored versions are not the writers' revisions")


async def a_commit_canceled_beforehand_does_nothing(backend: Backend) -> None:
    """A commit in a scope that is already canceled does nothing."""
    here = backend.position
    with trio.CancelScope() as scope:
        scope.cancel()
        await backend.commit([putting(thing("a")), putting(thing("b"))])
        fail("a commit in a canceled scope continued")
    must(await names(backend) == [], "a canceled commit was stored")
    must(backend.position == here, "a canceled commit made a revision")


async def a_canceled_commit_is_done_whole_or_not_at_all(backend: Backend) -> None:
    """A commit that is canceled at any moment either does nothing, or returns and is done as a whole."""
    reader = await reading(backend)
    # The order of the tasks in one turn is random, so a single attempt for each number of turns shows little.
    for attempt in range(72):
        wanted = [f"{attempt:02}a", f"{attempt:02}b"]
        returned = await _commit_cancelled_after(backend, attempt % 12, wanted)
        there = [name for name in await names(backend, Within(name_prefix=f"{attempt:02}")) if name in wanted]
        must(there == (wanted if returned else []), f"canceled after {attempt % 12} turns: {there=}, {returned=}")
    await reader.until(backend.position.revision)
    found, _ = await backend.list(KIND, EVERYTHING)
    must(reader.held == held(found), "a watch did not deliver what a canceled commit stored")


async def _commit_cancelled_after(backend: Backend, turns: int, wanted: list[str]) -> bool:
    returned = False

    async def commit() -> None:
        nonlocal returned
        with scope:
            # Concurrent with others, so that it waits for its turn and shares it.
            await backend.commit([putting(thing(name)) for name in wanted])
            returned = True

    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()
        for index in range(3):
            nursery.start_soon(put, backend, thing(f"{wanted[0]}-other{index}"))
        nursery.start_soon(commit)
        for _ in range(turns):
            await trio.lowlevel.checkpoint()
        scope.cancel()
    return returned
