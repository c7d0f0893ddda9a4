"""Commits of many writers are equivalent to the same commits made one by one in order of their revisions."""

from __future__ import annotations

import random
from collections import Counter
from typing import NamedTuple

import pytest
import trio

from headway.resource import pb, resource_key
from headway.storage import (
    Effect,
    EtcdBackend,
    Fence,
    FenceLowered,
    Operation,
    Put,
    Require,
    RequireOwnsNothing,
    ResourceTables,
    StorageError,
    decide,
    list_within,
)
from headway.storage.etcd import etcd_revision
from headway.testing.conformance import EVERYTHING, KIND, held, putting, removing, thing, uid_of
from tests.storage.etcd_kit import followed, primed, rigged

NAMES = [f"n{index}" for index in range(60)]
WRITERS, ROUNDS = 24, 12


class Made(NamedTuple):
    """An acknowledged commit, or a raised fence."""

    revision: int
    operations: tuple[Operation, ...]
    fence: Fence | None


class Writers:
    """Concurrent writers that write at random and record their acknowledged commits."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.fence = Fence("c", "", 0, 0)
        self.made: list[Made] = []
        self.refused = Counter[str]()

    async def write(self, store: EtcdBackend) -> None:
        """Make a commit that is decided on before other writers' commits are made."""
        if self.random.random() < 0.01:
            raised = await store.raise_fence("c", "", 0, 0)
            self.fence = max(self.fence, raised.fence)
            self.made.append(Made(raised.position.revision, (), raised.fence))
            return
        fence = self.fence if self.fence.term and self.random.random() < 0.5 else None
        await self.commit(store, await self.operations(store), fence)

    async def put(self, store: EtcdBackend, name: str) -> None:
        """Put one resource, whatever its state."""
        stored = await self.expected(store, name)
        uid, version = (None, "") if stored is None else (uid_of(stored), stored.version)
        await self.commit(store, (putting(thing(name, uid=uid), version),), None)

    async def commit(self, store: EtcdBackend, operations: tuple[Operation, ...], fence: Fence | None) -> None:
        """Commit, and record the acknowledgement."""
        try:
            at = await store.commit(operations, fence)
        except StorageError as error:
            self.refused[type(error).__name__] += 1
        else:
            self.made.append(Made(at.revision, operations, fence))

    async def operations(self, store: EtcdBackend) -> tuple[Operation, ...]:
        """Return one or two changes with their requirements."""
        found: list[Operation] = []
        for name in self.random.sample(NAMES, self.random.choice((1, 1, 2))):
            stored = await self.expected(store, name)
            owner = await self.expected(store, self.random.choice(NAMES)) if self.random.random() < 0.5 else None
            if stored is None:
                found.append(putting(thing(name, owner_uid=uid_of(owner) if owner is not None else "")))
            elif self.random.random() < 0.5:
                found.append(removing(stored, stored.version))
                if self.random.random() < 0.8:
                    found.append(RequireOwnsNothing(uid_of(stored)))
                continue
            else:
                owner_uid = uid_of(owner) if owner is not None else ""
                found.append(putting(thing(name, uid=uid_of(stored), owner_uid=owner_uid), stored.version))
            if owner is not None:
                found.append(Require(KIND, resource_key(owner), uid_of(owner)))
        return tuple(found)

    @staticmethod
    async def expected(store: EtcdBackend, name: str) -> pb.Resource | None:
        return (await store.read_optimistic(KIND, ("default", "default", name)))[0]

    def replayed(self) -> ResourceTables:
        """Make the commits again, one by one; each must end as if it were alone."""
        tables, fence = ResourceTables(), Fence("c", "", 0, 0)
        # A commit without changes has no revision of its own. It names the revision that it was decided on.
        changing = {each.revision for each in self.made if not _changes_nothing(each, self.made)}
        assert len(changing) == sum(not _changes_nothing(each, self.made) for each in self.made)
        for each in sorted(self.made, key=lambda it: (it.revision, _changes_nothing(it, self.made))):
            if not each.operations:
                assert each.fence is not None
                assert each.fence > fence
                fence = each.fence
                continue
            if each.fence is not None and each.fence < fence:
                raise FenceLowered(f"{each} was made below {fence}")
            applied = [entry for operation in each.operations if (entry := decide(tables, operation)) is not None]
            _apply(tables, applied, each.revision)
        return tables


def _changes_nothing(made: Made, among: list[Made]) -> bool:
    """Return True if the commit changed nothing.

    Only the removal of a missing resource changes nothing; another commit may then have the revision that it names.
    """
    only_removes = bool(made.operations) and not any(isinstance(each, Put) for each in made.operations)
    return only_removes and any(each.revision == made.revision and each is not made for each in among)


def _apply(tables: ResourceTables, applied: list[Effect], revision: int) -> None:
    for kind, key, _, new in applied:
        if new is None:
            tables.remove(kind, key)
        else:
            assert new.version == str(revision)
            tables.put(kind, key, new)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.wide) for seed in (1, 2))])
async def test_concurrent_commits_are_serializable(seed: int) -> None:
    writers = Writers(seed)
    async with rigged() as rig, EtcdBackend(rig.url) as other:
        stores = [rig.store, other]
        readers = [await primed(store) for store in stores]
        for number in range(ROUNDS):
            async with trio.open_nursery() as nursery:
                if number % 2:
                    # These commits do not conflict, so they share transactions however slow the machine is.
                    for name in NAMES[:WRITERS]:
                        nursery.start_soon(writers.put, rig.store, name)
                else:
                    for _ in range(WRITERS):
                        nursery.start_soon(writers.write, rig.store)
                    nursery.start_soon(writers.write, other)
            await rig.store.list(KIND, EVERYTHING)
        tables = writers.replayed()
        for store, reader in zip(stores, readers, strict=True):
            await followed(reader, store)
            assert reader.held == held(await list_within(tables, KIND, EVERYTHING, None, 0))
    transactions = Counter(etcd_revision(each.revision) for each in writers.made)
    assert max(transactions.values()) > 3, "at most three commits shared a transaction"
    assert writers.refused["VersionConflict"]
