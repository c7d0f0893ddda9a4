"""Checks of scopes by metadata, for stores that filter by it themselves (promise 11)."""

from __future__ import annotations

from headway.protobuf import copy_message
from headway.resource import Position, pb
from headway.storage import Backend, SkipsUnrelated, Within, filters_metadata
from headway.testing.conformance._reader import held, reading, summary
from headway.testing.conformance._tools import (
    KIND,
    Capability,
    must,
    name_of,
    needs,
    put,
    putting,
    remove,
    thing,
)

GOLD = Within(metadata=(("tier", "gold"),))
_LIKE_GOLD = "*\x0c\n\x04tier\x12\x04gold"
"""A text of a payload that looks like the encoded metadata. A store may search its bytes, but must not be misled."""


def _tiered(name: str, tier: str, *, partition: str = "default", text: str = "") -> pb.Resource:
    made = thing(name, text, partition=partition)
    made.metadata["tier"] = tier
    return made


async def _changed(backend: Backend, resource: pb.Resource, tier: str) -> Position:
    """Store the resource with another tier. ``resource`` becomes what is stored."""
    expected, resource.version = resource.version, ""
    resource.metadata = {**resource.metadata, "tier": tier}
    at = await put(backend, copy_message(resource), expected)
    resource.version = str(at.revision)
    return at


async def _stored(backend: Backend, resource: pb.Resource) -> pb.Resource:
    """Store a new resource, and return an equal one with its version."""
    kept = copy_message(resource)
    kept.version = str((await put(backend, resource)).revision)
    return kept


@needs(Capability.METADATA)
async def a_scope_by_metadata_has_only_its_resources(backend: Backend) -> None:
    """A list and a snapshot by metadata have the resources with these entries, also together with a tenancy."""
    must(filters_metadata(backend), "the store claims scopes by metadata, but its filters_metadata is not True")
    tiers = ("gold", "free", "gold,", "")
    for index, tier in enumerate(tiers * 2):
        await put(backend, _tiered(f"n{index}", tier, partition="ab"[index // 4], text=_LIKE_GOLD))
    await put(backend, thing("without"))
    for within, wanted in (
        (GOLD, ["n0", "n4"]),
        (GOLD._replace(partition="b"), ["n4"]),
        (GOLD._replace(namespace="default", name_prefix="n0"), ["n0"]),
        (Within(metadata=(("tier", ""),)), ["n3", "n7"]),
        (Within(metadata=(("tier", "gold"), ("written-by", "conformance"))), ["n0", "n4"]),
        (Within(metadata=(("tier", "gold"), ("written-by", "another"))), []),
    ):
        found, _ = await backend.list(KIND, within)
        must([name_of(each) for each in found] == wanted, f"a list within {within} has other resources")
        page, _ = await backend.list(KIND, within, limit=1)
        must([name_of(each) for each in page] == wanted[:1], f"a page within {within} has other resources")
        reader = await reading(backend, within)
        await reader.until_snapshot()
        must(reader.snapshot == held(found), f"a snapshot within {within} has other resources than a list")


@needs(Capability.METADATA)
async def leaving_a_scope_is_a_deletion_of_the_old_state(backend: Backend) -> None:
    """A change that moves a resource out of a scope is delivered as a deletion, with the last state in the scope."""
    ada = await _stored(backend, _tiered("ada", "gold"))
    reader = await reading(backend, GOLD)
    begun = await reader.until_snapshot()
    before = ada.version
    at = await _changed(backend, ada, "free")
    await reader.until(at.revision)
    must(summary(reader.changes) == [(at.revision, "ada", True)], "leaving a scope was not delivered as a deletion")
    old = reader.changes[0].resource
    must(
        (old.version, old.metadata.get("tier")) == (before, "gold"),
        "the deletion does not have the last state in the scope",
    )
    last = await _changed(backend, ada, "silver")
    gone = await remove(backend, ada, ada.version)
    await reader.until(gone.revision)
    must(len(reader.changes) == 1, f"changes from {last.revision} on, outside the scope, were delivered")
    resumed = await reading(backend, GOLD, after=begun)
    await resumed.until(gone.revision)
    must(resumed.changes == reader.changes, "a watch that resumes has other changes than one that was open")


@needs(Capability.METADATA)
async def entering_a_scope_is_an_ordinary_change(backend: Backend) -> None:
    """A change that moves a resource into a scope is delivered as it is, and so are its later changes."""
    ada = await _stored(backend, _tiered("ada", "free"))
    reader = await reading(backend, GOLD)
    await reader.until_snapshot()
    entered = await _changed(backend, ada, "gold")
    again = await _changed(backend, ada, "gold")
    removed = await remove(backend, ada, ada.version)
    await reader.until(removed.revision)
    must(
        summary(reader.changes)
        == [(entered.revision, "ada", False), (again.revision, "ada", False), (removed.revision, "ada", True)],
        "a resource that has entered a scope has other changes",
    )
    must(reader.held == {}, "a resource that has entered the scope and was deleted is still there")


@needs(Capability.METADATA)
async def skipping_unrelated_commits_loses_no_change(backend: Backend) -> None:
    """A watch that implements `headway.storage.SkipsUnrelated` delivers every change of its scope."""
    reader = await reading(backend, GOLD)
    if not isinstance(reader.watch, SkipsUnrelated):
        return
    await reader.until_snapshot()
    ada = await _stored(backend, _tiered("ada", "free"))
    wanted: list[tuple[int, str, bool]] = []
    for tier, deleted in (("gold", False), ("gold", False), ("free", True), ("gold", False)):
        for index in range(3):
            await put(backend, _tiered(f"other-{len(wanted)}-{index}", "free"))
        at = await _changed(backend, ada, tier)
        wanted.append((at.revision, "ada", deleted))
        while reader.frontier is None or reader.frontier < at.revision:
            await reader.next_change()
        must(
            summary(reader.changes) == wanted,
            "a watch that skips commits has other changes than its scope",
        )
    at = await put(backend, thing("last"))
    await reader.until(at.revision)
    must(summary(reader.changes) == wanted, "a watch that has skipped commits delivers changes again, or others")


@needs(Capability.METADATA)
async def more_is_right_in_a_scope(backend: Backend) -> None:
    """A scope by metadata gets its part of a commit. A resource that leaves it is a deletion, and `more` is right."""
    there = [
        await _stored(backend, _tiered(name, tier)) for name, tier in (("a", "gold"), ("b", "free"), ("c", "gold"))
    ]
    reader = await reading(backend, GOLD)
    await reader.until_snapshot()
    puts = []
    for resource, tier in zip(there, ("free", "gold", "gold"), strict=True):
        changed = copy_message(resource)
        changed.version, changed.metadata = "", {**resource.metadata, "tier": tier}
        puts.append(putting(changed, resource.version))
    at = await backend.commit([*puts, putting(_tiered("d", "free")), putting(_tiered("e", "gold"))])
    await reader.until(at.revision)
    must(
        [(name_of(each.resource), each.deleted, each.more) for each in reader.changes]
        == [("a", True, True), ("b", False, True), ("c", False, True), ("e", False, False)],
        "a commit has another part in a scope",
    )
    other = await put(backend, _tiered("f", "free"))
    await reader.until(other.revision)
    must(reader.bookmarks[-1].position == other, "no bookmark for a commit outside the scope")


@needs(Capability.METADATA)
async def a_watch_by_metadata_misses_nothing_in_turns(backend: Backend) -> None:
    """While resources leave and enter in turns, a watch by metadata and one that resumes follow all of it."""
    there = [await _stored(backend, _tiered(f"n{index}", "gold")) for index in range(4)]
    reader = await reading(backend, GOLD)
    begun = await reader.until_snapshot()
    for turn in range(4):
        for resource in there:
            await _changed(backend, resource, ("free", "gold")[turn % 2])
        await reader.until(backend.position.revision)
        must(len(reader.held) == (0, 4)[turn % 2], "a watch by metadata has missed a leaving or an entering")
        resumed = await reading(backend, GOLD, after=begun)
        await resumed.until(backend.position.revision)
        must(resumed.changes == reader.changes, "a watch that resumes has other changes than one that was open")
