"""Quotas, as a rule of commits: the store asks it before each commit, in the commit, and it follows every change."""

from __future__ import annotations

import trio

from headway.errors import QuotaExceeded
from headway.quotas import QUOTA, STATUS_ROOM, Quota, Use, list_uses, rule_of
from headway.resource import Kind, pb
from headway.storage import Backend, stored_size
from headway.testing.conformance._tools import (
    EVERYTHING,
    KIND,
    OTHER_KIND,
    Capability,
    must,
    name_of,
    names,
    needs,
    put,
    putting,
    read_back,
    refused,
    remove,
    removing,
    thing,
    uid_of,
)

WRITERS, EACH, ROOM = 8, 8, 20
"""The concurrent writers of a check, the resources that each tries to create, and those that the quota allows."""


def quota(
    name: str = "limit",
    *,
    resources: int | None = None,
    bytes: int | None = None,
    partition: str = "default",
    namespace: str = "",
    kind: Kind = ("", ""),
) -> pb.Resource:
    """Return a new quota to store."""
    limits = Quota(
        partition=partition,
        namespace=namespace,
        group=kind[0],
        kind=kind[1],
        max_resources=resources,
        max_bytes=bytes,
    )
    message = QUOTA.new(name, limits).message()
    assert message.id is not None
    message.id.uid = f"uid-of-{name}"
    return message


def keep_quotas(backend: Backend) -> None:
    """Let a store keep quotas. Fail clearly if it takes no rules."""
    must(rule_of(backend) is not None, "the store has no rules: implement TakesRules, or declare that it lacks QUOTAS")


async def _use_of(backend: Backend, name: str = "limit") -> Use:
    """Return the use of a quota."""
    found = [each.use for each in await list_uses(backend) if each.limit.name == name]
    must(len(found) == 1, f"the rule of quotas does not know the stored quota {name!r}")
    return found[0]


async def _raised(backend: Backend, changed: pb.Resource) -> None:
    """Replace a stored quota."""
    stored = await read_back(backend, changed)
    must(stored is not None, "a stored quota cannot be read")
    await put(backend, changed, "" if stored is None else stored.version)


async def _version(backend: Backend, resource: pb.Resource) -> str:
    stored = await read_back(backend, resource)
    return "" if stored is None else stored.version


@needs(Capability.QUOTAS)
async def a_quota_of_resources_is_kept(backend: Backend) -> None:
    """A creation that would exceed a quota is rejected and names the quota, its limit and its use."""
    keep_quotas(backend)
    await put(backend, thing("before"))
    await put(backend, quota(resources=2))
    await put(backend, thing("second"))
    before = backend.position
    refusal = await refused(QuotaExceeded, put(backend, thing("third")), "a creation above the quota")
    must(
        (refusal.quota, refusal.what, refusal.limit, refusal.use, refusal.adds) == ("limit", "resources", 2, 2, 1),
        f"the rejection says {refusal}",
    )
    must(backend.position.revision == before.revision, "a rejected commit has made a revision")
    must(await names(backend) == ["before", "second"], "a rejected commit has changed something")
    await refused(
        QuotaExceeded, backend.commit([putting(thing("x")), putting(thing("y"))]), "a commit of two creations above it"
    )
    must((await _use_of(backend)).resources == 2, "the use is not the number of resources")


@needs(Capability.QUOTAS)
async def a_quota_of_bytes_is_kept(backend: Backend) -> None:
    """A byte is one of the encoding of a resource without its version. Growth is limited, in updates too."""
    keep_quotas(backend)
    first = thing("first", "x" * 200)
    await put(backend, first)
    size = stored_size(first)
    await put(backend, quota(bytes=size + 50))
    must(await _use_of(backend) == Use(1, size), "the use in bytes is not the size of the resource")
    longer = thing("first", "x" * 251, uid=uid_of(first))
    refusal = await refused(QuotaExceeded, put(backend, longer, await _version(backend, first)), "an update above it")
    must((refusal.what, refusal.use, refusal.adds) == ("bytes", size, 51), f"the rejection says {refusal}")
    fits = thing("first", "x" * 250, uid=uid_of(first))
    await put(backend, fits, await _version(backend, first))
    must(await _use_of(backend) == Use(1, size + 50), "an update has not changed the use by the bytes that it adds")


@needs(Capability.QUOTAS)
async def deletions_and_smaller_resources_are_never_refused(backend: Backend) -> None:
    """A lowered quota blocks neither deletions nor writes that make a resource smaller, and counts down with them."""
    keep_quotas(backend)
    made = [thing(name, "x" * 100) for name in ("a", "b", "c")]
    for each in made:
        await put(backend, each)
    await put(backend, quota(resources=1, bytes=10))
    smaller = thing("a", "x", uid=uid_of(made[0]))
    await put(backend, smaller, await _version(backend, made[0]))
    same = thing("a", "y", uid=uid_of(made[0]))
    await put(backend, same, await _version(backend, made[0]))
    for each in made[1:]:
        await remove(backend, each, await _version(backend, each))
    must((await _use_of(backend)).resources == 1, "the use has not become smaller with the deletions")
    await remove(backend, same, await _version(backend, same))
    must(await _use_of(backend) == Use(0, 0), "the use of nothing is not zero")


@needs(Capability.QUOTAS)
async def a_replacement_in_one_commit_needs_no_room(backend: Backend) -> None:
    """A commit counts by the sum of its changes: it may delete one resource and create another."""
    keep_quotas(backend)
    old = thing("old")
    await put(backend, old)
    await put(backend, quota(resources=1))
    await backend.commit([removing(old, await _version(backend, old)), putting(thing("new"))])
    must(await names(backend) == ["new"], "the replacement is not stored")
    must((await _use_of(backend)).resources == 1, "the replacement has changed the use")


@needs(Capability.QUOTAS)
async def a_small_status_is_never_refused(backend: Backend) -> None:
    """A status of a few kilobytes is stored, and counted, even above the quota. A larger one needs room."""
    keep_quotas(backend)
    made = thing("made")
    await put(backend, made)
    await put(backend, quota(bytes=1))
    before = await _use_of(backend)

    def saying(length: int) -> pb.Resource:
        said = thing("made", uid=uid_of(made))
        said.generation = made.generation
        said.status = {"writer": pb.Status(conditions=[pb.Condition(type="Ready", message="x" * length)])}
        return said

    await put(backend, saying(STATUS_ROOM // 2), await _version(backend, made))
    after = await _use_of(backend)
    must(after.bytes > before.bytes + STATUS_ROOM // 2, "a status is not counted")
    large = put(backend, saying(STATUS_ROOM), await _version(backend, made))
    await refused(QuotaExceeded, large, "a status above the room for statuses")


@needs(Capability.QUOTAS)
async def a_quota_counts_its_own_part(backend: Backend) -> None:
    """A quota counts one partition, one of its namespaces, or one kind there, and nothing else."""
    keep_quotas(backend)
    await put(backend, thing("a", namespace="n1"))
    await put(backend, thing("b", namespace="n2"))
    await put(backend, quota("space", resources=1, namespace="n1"))
    await put(backend, quota("kind", resources=1, kind=OTHER_KIND))
    await put(backend, quota("elsewhere", resources=0, partition="p2"))
    await put(backend, thing("c", namespace="n2"))
    await put(backend, thing("d", kind=OTHER_KIND, namespace="n2"))
    for many, why in (
        (thing("e", namespace="n1"), "space"),
        (thing("e", kind=OTHER_KIND, namespace="n3"), "kind"),
        (thing("e", partition="p2"), "elsewhere"),
    ):
        refusal = await refused(QuotaExceeded, put(backend, many), f"a creation above quota {why}")
        must(refusal.quota == why, f"expected quota {why}, got {refusal.quota}")
    must((await _use_of(backend, "space")).resources == 1, "a quota of a namespace counts others")
    must((await _use_of(backend, "kind")).resources == 1, "a quota of a kind counts others")


@needs(Capability.QUOTAS)
async def a_changed_quota_holds_from_its_commit_on(backend: Backend) -> None:
    """The next commit is decided by the new limits, and by none once the quota is deleted."""
    keep_quotas(backend)
    await put(backend, quota(resources=1))
    await put(backend, thing("a"))
    await _raised(backend, quota(resources=2))
    await put(backend, thing("b"))
    await refused(QuotaExceeded, put(backend, thing("c")), "a creation above the raised quota")
    await _raised(backend, quota(resources=0))
    await refused(QuotaExceeded, put(backend, thing("c")), "a creation above the lowered quota")
    await remove(backend, quota(), await _version(backend, quota()))
    await put(backend, thing("c"))
    await put(backend, quota(resources=3))
    must((await _use_of(backend)).resources == 3, "a quota that is declared again has another use")
    await refused(QuotaExceeded, put(backend, thing("d")), "a creation above the quota that is declared again")


@needs(Capability.QUOTAS)
async def writers_never_exceed_a_quota_together(backend: Backend) -> None:
    """If many writers create resources at once, the quota admits exactly the number that it has room for."""
    keep_quotas(backend)
    await put(backend, quota(resources=ROOM))
    await put(backend, quota("space", resources=ROOM // 2, namespace="n0"))
    refusals = 0

    async def write(writer: int) -> None:
        nonlocal refusals
        for index in range(EACH):
            try:
                await put(backend, thing(f"w{writer}-{index}", namespace=f"n{writer % 2}"))
            except QuotaExceeded:
                refusals += 1

    async with trio.open_nursery() as nursery:
        for writer in range(WRITERS):
            nursery.start_soon(write, writer)
    found, _ = await backend.list(KIND, EVERYTHING)
    must(len(found) == ROOM, f"{len(found)} resources are stored, and the quota allows {ROOM}")
    must(refusals == WRITERS * EACH - ROOM, f"{refusals} writes were refused, expected {WRITERS * EACH - ROOM}")
    must(sum(_namespace(each) == "n0" for each in found) <= ROOM // 2, "the quota of the namespace is exceeded")
    must((await _use_of(backend)).resources == ROOM, "the use differs from the number of stored resources")
    for each in found:
        await remove(backend, each, each.version)
    must(await _use_of(backend) == Use(0, 0), "the use of nothing is not zero")


@needs(Capability.QUOTAS)
async def the_use_is_the_sum_of_what_is_stored(backend: Backend) -> None:
    """Under concurrent creations, updates and deletions, the use stays the number and the size of the resources."""
    keep_quotas(backend)
    await put(backend, quota(resources=1000, bytes=1 << 20))

    async def write(writer: int) -> None:
        made = thing(f"w{writer}", "x" * writer)
        for length in (1, 300, 20):
            await put(backend, made)
            longer = thing(name_of(made), "y" * length, uid=uid_of(made))
            await put(backend, longer, await _version(backend, made))
            await remove(backend, longer, await _version(backend, made))
        stays = thing(f"stays{writer}", "z" * writer * 10)
        await put(backend, stays)
        longer = thing(name_of(stays), "z" * 500, uid=uid_of(stays))
        await put(backend, longer, await _version(backend, stays))

    async with trio.open_nursery() as nursery:
        for writer in range(WRITERS):
            nursery.start_soon(write, writer)
    found, _ = await backend.list(KIND, EVERYTHING)
    expected = Use(len(found), sum(map(stored_size, found)))
    must(await _use_of(backend) == expected, f"the use is {await _use_of(backend)}, and {expected} is stored")


@needs(Capability.QUOTAS)
async def a_quota_can_be_declared_under_writers(backend: Backend) -> None:
    """A quota that is stored among concurrent creations counts those before it, and refuses those after it."""
    keep_quotas(backend)
    made: list[int] = []
    declared = 0

    async def write(writer: int) -> None:
        for index in range(EACH):
            try:
                made.append((await put(backend, thing(f"w{writer}-{index}"))).revision)
            except QuotaExceeded:
                await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        for writer in range(WRITERS):
            nursery.start_soon(write, writer)
        declared = (await put(backend, quota(resources=0))).revision
    must(all(revision < declared for revision in made), "a creation after the quota was not refused by it")
    must((await _use_of(backend)).resources == len(made), "the use differs from the number of creations")


def _namespace(resource: pb.Resource) -> str:
    tenancy = resource.id.tenancy if resource.id is not None else None
    return "" if tenancy is None else tenancy.namespace
