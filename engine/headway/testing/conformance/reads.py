"""Checks of reads and lists: filters, order, owners, and visibility of acknowledged writes (promise 8)."""

from __future__ import annotations

from headway.resource import Key, resource_key
from headway.storage import Backend
from headway.testing.conformance._reader import reading
from headway.testing.conformance._tools import (
    EVERYTHING,
    FILTERS,
    KIND,
    OTHER_KIND,
    matrix_keys,
    must,
    name_of,
    names,
    put,
    read_back,
    remove,
    store_a_matrix,
    text_of,
    thing,
    uid_of,
)


async def an_acknowledged_write_is_read(backend: Backend) -> None:
    """A read that begins after an acknowledged commit sees it, by every way of reading, and its position is that commit
    or later.
    """
    uid, version = "", ""
    for text in ("first", "second", "third"):
        resource = thing("a", text, uid=uid or None, owner_uid="o")
        uid = uid_of(resource)
        at = await put(backend, resource, version)
        version = str(at.revision)
        one, read_at = await backend.read(KIND, resource_key(resource))
        many, listed_at = await backend.list(KIND, EVERYTHING)
        owned, owned_at = await backend.list_by_owner("o")
        for found in ([one] if one is not None else [], many, owned):
            must([text_of(each) for each in found] == [text], "a read missed an acknowledged write")
        must(read_at == listed_at == owned_at == at, "a read's position is not the last commit")
    gone_at = await remove(backend, resource, version)
    must(await backend.read(KIND, resource_key(resource)) == (None, gone_at), "a read missed an acknowledged deletion")
    must(await names(backend) == [], "a list missed an acknowledged deletion")


async def an_unknown_key_reads_as_absent(backend: Backend) -> None:
    """A read of another name, tenancy or kind finds nothing."""
    await put(backend, thing("a"))
    for other in (thing("b"), thing("a", partition="p"), thing("a", namespace="n"), thing("a", kind=OTHER_KIND)):
        must(await read_back(backend, other) is None, "a read of a key that was never written found something")
    must(await names(backend, kind=("no", "Kind")) == [], "a list of a kind that was never written found something")


async def a_list_is_filtered_and_sorted_by_key(backend: Backend) -> None:
    """A list matches partition and namespace exactly or any, names by a literal prefix, and is sorted by key."""
    must(await names(backend) == [], "a list of an empty store found something")
    await store_a_matrix(backend)
    for within in FILTERS:
        found, _ = await backend.list(KIND, within)
        must(
            [resource_key(resource) for resource in found] == matrix_keys(within), f"the list within {within} is wrong"
        )


async def a_list_continues_after_a_key_and_ends_at_its_limit(backend: Backend) -> None:
    """Pages of any size together are the whole list. A page can begin after a key that does not exist."""
    await store_a_matrix(backend)
    for within in FILTERS:
        whole = matrix_keys(within)
        for limit in (1, 2, len(whole) + 1):
            pages: list[Key] = []
            after: Key | None = None
            while found := (await backend.list(KIND, within, after=after, limit=limit))[0]:
                must(len(found) <= limit, f"a list with limit {limit} returned {len(found)} resources")
                page = [resource_key(resource) for resource in found]
                must(after is None or page[0] > after, f"the page after {after} begins at {page[0]}")
                pages += page
                after = pages[-1]
            must(pages == whole, f"the pages of {limit} within {within} together are not the list")
        for key in whole:
            found, _ = await backend.list(KIND, within, after=(*key[:2], key[2] + "-"))
            behind = [resource_key(resource) for resource in found]
            must(
                behind == [each for each in whole if each > (*key[:2], key[2] + "-")], f"the list after {key} is wrong"
            )


async def a_snapshot_is_filtered(backend: Backend) -> None:
    """A watch's snapshot is filtered as a list is."""
    await store_a_matrix(backend)
    for within in FILTERS:
        reader = await reading(backend, within)
        await reader.until_snapshot()
        must(sorted(reader.held) == matrix_keys(within), f"the snapshot within {within} is wrong")
        reader.watch.close()


async def the_changes_after_a_snapshot_are_filtered(backend: Backend) -> None:
    """The changes after a snapshot are filtered as the snapshot is, and commits stay whole."""
    readers = {within: await reading(backend, within) for within in FILTERS}
    for reader in readers.values():
        await reader.until_snapshot()
    await store_a_matrix(backend)
    for within, reader in readers.items():
        await reader.until(backend.position.revision)
        must(sorted(reader.held) == matrix_keys(within), f"the changes within {within} are wrong")


async def kinds_are_those_of_the_stored_resources(backend: Backend) -> None:
    """kinds() returns each kind with resources once, in order, and drops a kind when its last resource is deleted."""
    must(await backend.kinds() == [], "an empty store has kinds")
    only = thing("only", kind=OTHER_KIND)
    at = await put(backend, only)
    for name in ("a", "b"):
        await put(backend, thing(name))
    must(await backend.kinds() == sorted([KIND, OTHER_KIND]), f"the kinds are {await backend.kinds()}")
    await remove(backend, only, str(at.revision))
    must(await backend.kinds() == [KIND], "kinds() returned a kind without resources")


async def owned_resources_are_found_by_the_owners_uid(backend: Backend) -> None:
    """list_by_owner() finds resources by the owner's exact uid, over all kinds and tenancies. Another uid, or none,
    owns nothing.
    """
    await put(backend, thing("a", owner_uid="o1"))
    await put(backend, thing("b", owner_uid="o1", kind=OTHER_KIND, partition="p"))
    await put(backend, thing("c", owner_uid="o2"))
    await put(backend, thing("d"))
    must(await _owned(backend, "o1") == ["a", "b"], "list_by_owner() did not find what o1 owns")
    must(await _owned(backend, "o2") == ["c"], "list_by_owner() did not find what o2 owns")
    for uid in ("o", "O1", ""):
        must(await _owned(backend, uid) == [], f"the uid {uid!r} owns something")


async def owned_resources_are_found_after_their_owner_is_deleted(backend: Backend) -> None:
    """Owned resources are found after their owner is deleted, and no longer after they are deleted themselves."""
    at = await put(backend, owner := thing("owner"))
    first = await put(backend, resource := thing("a", owner_uid=uid_of(owner)))
    await put(backend, thing("b", owner_uid=uid_of(owner)))
    await remove(backend, owner, str(at.revision))
    must(await _owned(backend, uid_of(owner)) == ["a", "b"], "the deletion of an owner hid its resources")
    again = await put(backend, thing("a", "again", uid=uid_of(resource), owner_uid=uid_of(owner)), str(first.revision))
    must(await _owned(backend, uid_of(owner)) == ["a", "b"], "a write of an owned resource hid it or duplicated it")
    await remove(backend, resource, str(again.revision))
    must(await _owned(backend, uid_of(owner)) == ["b"], "a deleted resource is still owned")
    await put(backend, thing("a", owner_uid="another"))
    must(await _owned(backend, uid_of(owner)) == ["b"], "the second incarnation of a name has the owner of the first")


async def _owned(backend: Backend, uid: str) -> list[str]:
    found, _ = await backend.list_by_owner(uid)
    return sorted(name_of(resource) for resource in found)
