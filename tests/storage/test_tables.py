"""In-memory tables: a page is a part of the sorted whole, and a long read lets other tasks run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest
import trio

from headway.resource import Key, Position, pb, resource_key
from headway.storage import MemoryBackend, Put, Remove, ResourceTables, Within
from tests.helpers.declared import NOTE, an_id

PLACES = [("default", "default"), ("default", "east"), ("west", "default"), ("west", "east")]
WITHINS = [
    Within(partition, namespace, prefix)
    for partition in ("*", "default", "west", "none")
    for namespace in ("*", "east", "none")
    for prefix in ("", "1", "23", "9z")
]


def a_resource(key: Key, owner: str = "") -> pb.Resource:
    id = an_id(key[2], partition=key[0], namespace=key[1], uid="-".join(key))
    return pb.Resource(id=id, owner=an_id("boss", uid=owner) if owner else None)


async def filled(keys: Sequence[Key], owner: str = "") -> MemoryBackend:
    backend = MemoryBackend(max_changes=1)
    await backend.commit([Put(NOTE.kind, key, a_resource(key, owner), "") for key in keys])
    return backend


async def test_pages_add_up_to_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds within every tenancy and prefix, from every position, also when a read yields within a page."""
    monkeypatch.setattr("headway.storage._reads.TURN", 7)
    backend = await filled([(*place, str(number)) for place in PLACES for number in range(30)])
    await backend.commit([Remove(NOTE.kind, ("west", "east", "23"), "west-east-23", "1")])
    for within in WITHINS:
        whole, _ = await backend.list(NOTE.kind, within)
        keys = [resource_key(each) for each in whole]
        assert keys == sorted(keys)
        assert all(map(within.matches, keys))
        for after in (None, ("", "", ""), ("default", "east", "15"), ("default", "east", "151"), ("zz", "", "")):
            rest = [key for key in keys if after is None or key > after]
            for limit in (1, 2, 10, 1000):
                page, _ = await backend.list(NOTE.kind, within, after=after, limit=limit)
                assert [resource_key(each) for each in page] == rest[:limit], (within, after, limit)


async def test_whole_list_is_consistent_during_concurrent_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The read lets other tasks run and shows none of their writes. The list of owned resources does the same."""
    monkeypatch.setattr("headway.storage._sorted_keys.LOAD", 5)
    keys = [("default", "default", str(number)) for number in range(100)]
    backend = await filled(keys, owner="BOSS")
    turns = 0

    async def change() -> None:
        nonlocal turns
        for number in range(50):
            await trio.lowlevel.checkpoint()
            key = ("default", "default", f"new-{backend.position.revision}-{number}")
            await backend.commit([Put(NOTE.kind, key, a_resource(key, "BOSS"), "")])
            turns += 1

    reads: list[Callable[[], Awaitable[tuple[Sequence[pb.Resource], Position]]]] = [
        lambda: backend.list(NOTE.kind, Within()),
        lambda: backend.list_by_owner("BOSS"),
    ]
    for read in reads:
        turns = 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(change)
            listed, at = await read()
            assert turns > 1
            nursery.cancel_scope.cancel()
        assert max(int(each.version) for each in listed) == at.revision
        assert len(listed) == 99 + at.revision


def test_scan_is_bounded() -> None:
    """Matches may be far apart. A scan returns the position from which the next scan continues."""
    tables = ResourceTables()
    keys = [("default", "default", f"n{number:03}") for number in range(30)]
    for key in keys:
        tables.put(NOTE.kind, key, a_resource(key))
    last = Within("*", "*", "n029")
    found, after = tables.scan(NOTE.kind, last, after=None, limit=1, most=10)
    assert (found, after) == ([], keys[9])
    found, after = tables.scan(NOTE.kind, last, after=after, limit=1, most=10)
    assert (found, after) == ([], keys[19])
    found, after = tables.scan(NOTE.kind, last, after=after, limit=1, most=10)
    assert ([resource_key(each) for each in found], after) == ([keys[29]], None)
