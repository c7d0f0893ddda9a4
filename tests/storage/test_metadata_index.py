"""The indexes by metadata: kept from the first write on or made by a snapshot, complete, and bounded."""

from __future__ import annotations

import gc
import random

import pytest
import trio

from headway.protobuf import copy_message
from headway.resource import Key, Within, pb, resource_key
from headway.storage import (
    CutSnapshot,
    ListedSnapshot,
    MemoryBackend,
    Put,
    Remove,
    Snapshot,
    _metadata_index,
    _metadata_indexes,
    read_snapshot,
)
from headway.storage._metadata_index import _SLACK, MOST_AT_ONCE, MOST_VALUES
from headway.storage._metadata_indexes import MOST_INDEXES, MOST_KEPT
from headway.testing.conformance import KIND, thing

TIERS = ("gold", "gold", "gold", "free", "silver", "")


def scope(**metadata: str) -> Within:
    return Within(metadata=tuple(metadata.items()))


class Model:
    """A store with random changes, and what is in it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.backend = MemoryBackend(max_changes=1)
        self.there: dict[Key, pb.Resource] = {}

    def snapshot(self, within: Within) -> Snapshot:
        return read_snapshot(self.backend._tables, KIND, within)

    async def change(self, times: int = 1) -> None:
        for _ in range(times):
            made = thing(f"n{self.chance.randrange(4000):04}")
            key = resource_key(made)
            for name in ("tier", "zone"):
                if self.chance.random() < 0.9:
                    made.metadata[name] = self.chance.choice(TIERS)
            old = self.there.pop(key, None)
            if old is not None and self.chance.random() < 0.3:
                assert old.id is not None
                await self.backend.commit([Remove(KIND, key, old.id.uid, old.version)])
                continue
            if old is not None:
                made.id = copy_message(old).id
            await self.backend.commit([Put(KIND, key, made, "" if old is None else old.version)])
            self.there[key] = made

    def matching(self, within: Within) -> dict[Key, str]:
        return {key: each.version for key, each in self.there.items() if within.admits(each)}


async def read(snapshot: Snapshot) -> dict[Key, str]:
    found: list[pb.Resource] = []
    while chunk := await snapshot.next():
        found += chunk
    assert len({resource_key(each) for each in found}) == len(found)
    return {resource_key(each): each.version for each in found}


@pytest.fixture
def keeps_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep no index from the first write on, so that snapshots make them."""
    monkeypatch.setattr(_metadata_indexes, "MOST_KEPT", 0)


@pytest.mark.parametrize("seed", range(2))
async def test_index_is_kept_from_the_first_write_on(seed: int) -> None:
    """The first snapshot by a metadata key reads no other resources, and equals a comparison of all."""
    model = Model(seed)
    for _ in range(5):
        await model.change(400)
        for within in (scope(tier="gold"), scope(tier=""), scope(tier="none"), scope(tier="gold", zone="free")):
            snapshot = model.snapshot(within)
            assert isinstance(snapshot, ListedSnapshot)
            assert await read(snapshot) == model.matching(within)
    for key, each in list(model.there.items()):
        assert each.id is not None
        await model.backend.commit([Remove(KIND, key, each.id.uid, each.version)])
    assert await read(model.snapshot(scope(tier="gold"))) == {}


async def test_index_does_not_grow_with_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resource that changes between two values again and again leaves a bounded number of keys behind."""
    monkeypatch.setattr(_metadata_index, "_SLACK", 64)
    model = Model(1)
    await model.change(100)
    right = len(model.matching(scope(tier="gold")))
    made = thing("flaps")
    version = ""
    for number in range(1000):
        made = copy_message(made)
        made.metadata["tier"] = "gold" if number % 2 else "free"
        at = await model.backend.commit([Put(KIND, resource_key(made), made, version)])
        version = str(at.revision)
        found = model.backend._tables.indexes.find(KIND, scope(tier="gold"))
        assert found is not None
        assert len(found.keys) <= 2 * (right + 1) + 65
    found = model.backend._tables.indexes.find(KIND, scope(tier="gold"))
    assert found is not None
    assert "flaps" in {key[2] for key in found.keys}


async def test_index_that_names_exactly_what_matches_is_not_compared_again() -> None:
    """It no longer is exact once a resource has left the value, until its list is cleaned."""
    model = Model(1)
    gold = scope(tier="gold")

    async def write(name: str, tier: str) -> None:
        made = thing(name)
        made.metadata["tier"] = tier
        old = model.there.pop(resource_key(made), None)
        if old is not None:
            made.id = copy_message(old).id
        at = await model.backend.commit([Put(KIND, resource_key(made), made, "" if old is None else old.version)])
        made.version = str(at.revision)
        model.there[resource_key(made)] = made

    exact: list[bool] = []
    for change in (("a", "gold"), ("b", "gold"), ("c", "free"), ("b", "free"), ("c", "gold"), ("b", "gold")):
        await write(*change)
        found = model.backend._tables.indexes.find(KIND, gold)
        assert found is not None
        exact.append(found.exact)
        for within in (gold, scope(tier="gold", zone="x"), gold._replace(name_prefix="b")):
            assert await read(model.snapshot(within)) == model.matching(within)
    assert exact == [True, True, True, False, False, False]


async def test_index_whose_values_few_resources_share_is_given_up() -> None:
    """It would take more memory than it is worth. The first snapshot makes one."""
    backend = MemoryBackend(max_changes=1)

    async def write(number: int) -> None:
        made = thing(f"n{number:05}")
        made.metadata |= {"serial": str(number), "tier": "gold"}
        await backend.commit([Put(KIND, resource_key(made), made, "")])

    for number in range(MOST_VALUES - 1):
        await write(number)
    assert backend._tables.indexes.find(KIND, scope(serial="5")) is not None
    await write(MOST_VALUES)
    assert backend._tables.indexes.find(KIND, scope(serial="5")) is None
    assert backend._tables.indexes.find(KIND, scope(tier="gold")) is not None
    for kind in (CutSnapshot, ListedSnapshot):
        snapshot = read_snapshot(backend._tables, KIND, scope(serial="7"))
        assert isinstance(snapshot, kind)
        assert [key[2] for key in await read(snapshot)] == ["n00007"]


async def test_indexes_that_are_kept_are_bounded_and_none_begins_too_late() -> None:
    """A key that was left out once is never begun later, when other resources have it already."""
    backend = MemoryBackend(max_changes=1)
    made_as: dict[str, pb.Resource] = {}

    async def write(name: str, before: str = "", **metadata: str) -> str:
        made = copy_message(made_as.setdefault(name, thing(name)))
        made.metadata = metadata
        return str((await backend.commit([Put(KIND, resource_key(made), made, before)])).revision)

    names = [f"k{number:02}" for number in range(MOST_KEPT + 3)]
    version = await write("many", **dict.fromkeys(names, "1"))
    last = names[-1]
    assert len(backend._tables.indexes._kept[KIND]) == MOST_KEPT
    assert backend._tables.indexes.find(KIND, scope(**{last: "1"})) is None
    # The places of the others are free again, but a resource has the last key still.
    await write("many", version, **{last: "1"})
    assert not backend._tables.indexes._kept[KIND]
    await write("more", **{last: "1"})
    snapshot = read_snapshot(backend._tables, KIND, scope(**{last: "1"}))
    assert isinstance(snapshot, CutSnapshot)
    assert sorted(key[2] for key in await read(snapshot)) == ["many", "more"]


@pytest.mark.usefixtures("keeps_none")
@pytest.mark.parametrize("seed", [0, *(pytest.param(each, marks=pytest.mark.wide) for each in range(1, 4))])
async def test_index_is_complete_whatever_changes_while_it_is_built(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every later snapshot equals a comparison of all resources, and the first one is of its own moment."""
    monkeypatch.setattr("headway.storage._reads.SNAPSHOT_CHUNK", 50)
    model = Model(seed)
    await model.change(2500)
    first = model.snapshot(scope(tier="gold"))
    assert isinstance(first, CutSnapshot)
    expected = model.matching(scope(tier="gold"))
    found: dict[Key, str] = {}
    parts = 0
    while chunk := await first.next():
        parts += first.index is not None
        found |= {resource_key(each): each.version for each in chunk}
        await model.change(200)
    assert found == expected
    assert parts >= 1, "nothing has changed while the index was being built"
    kept = model.backend._tables.indexes.find(KIND, scope(tier="gold"))
    assert kept is not None
    assert set(kept.keys) >= model.matching(scope(tier="gold")).keys()
    assert len(kept.keys) <= 2 * len(model.matching(scope(tier="gold"))) + _SLACK
    for _ in range(5):
        for within in (scope(tier="gold"), scope(tier=""), scope(tier="none"), scope(tier="gold", zone="free")):
            later = model.snapshot(within)
            assert isinstance(later, ListedSnapshot)
            assert await read(later) == model.matching(within)
        await model.change(300)


@pytest.mark.usefixtures("keeps_none")
async def test_index_whose_builder_was_dropped_is_never_used() -> None:
    """While it is being built, another snapshot compares all resources. Afterwards, a new builder begins."""
    model = Model(1)
    await model.change(3000)
    first = model.snapshot(scope(tier="gold"))
    second = model.snapshot(scope(tier="gold"))
    assert isinstance(second, CutSnapshot)
    assert second.index is None
    del first
    gc.collect()
    await model.change(500)
    third = model.snapshot(scope(tier="free"))
    assert isinstance(third, CutSnapshot)
    assert third.index is not None
    assert await read(third) == model.matching(scope(tier="free"))
    assert isinstance(model.snapshot(scope(tier="gold")), ListedSnapshot)


@pytest.mark.usefixtures("keeps_none")
async def test_indexes_of_one_store_are_bounded() -> None:
    """Callers cannot make the store keep more. The least recently used one is dropped."""
    model = Model(2)
    await model.change(50)
    await read(model.snapshot(scope(tier="gold")))
    for number in range(2 * MOST_INDEXES):
        await read(model.snapshot(scope(**{f"k{number}": "1"})))
        assert isinstance(model.snapshot(scope(tier="gold")), ListedSnapshot)
    assert len(model.backend._tables.indexes.made) == MOST_INDEXES


async def test_scope_of_most_resources_is_read_in_parts() -> None:
    """Reading all of them at once would block other tasks."""
    backend = MemoryBackend(max_changes=1)
    for begin in range(0, MOST_AT_ONCE + 1000, 1000):
        made = [thing(f"n{number:06}") for number in range(begin, begin + 1000)]
        await backend.commit([Put(KIND, resource_key(each), each, "") for each in made])
    within = scope(**{"written-by": "conformance"})
    for _ in range(2):
        snapshot = read_snapshot(backend._tables, KIND, within)
        assert isinstance(snapshot, CutSnapshot)
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(others)
            assert len(await read(snapshot)) == MOST_AT_ONCE + 1000
            nursery.cancel_scope.cancel()
        assert turns >= 10
