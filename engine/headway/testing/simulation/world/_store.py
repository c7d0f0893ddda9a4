"""The store of a simulation: in memory, with its whole history, and a hook on every commit."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar

import trio

from headway.peering import peering_of
from headway.protobuf import copy_message
from headway.resource import DELETION_TIMESTAMP, FINALIZERS, Key, Kind, Position, pb
from headway.storage import (
    SCHEMA_KIND,
    Acquired,
    CommitLog,
    Fence,
    MemoryBackend,
    Operation,
    Put,
    Require,
    RequireOwnsNothing,
    Within,
)
from headway.testing.simulation.oracles import HEADWAYS_OWN, is_of_peering

Resources = dict[tuple[Kind, Key], pb.Resource]
CREATING: ContextVar[bool] = ContextVar("headway.simulation.creating", default=False)
"""True while a call of `Client.create` is handled."""
OnCommit = Callable[[int, Kind, Key, pb.Resource | None, pb.Resource | None, Fence | None], None]
_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_FIRST_MILLISECOND = 1_700_000_000_000
LONGEST_HANDOVER = 60.0
"""The number of seconds after which a lease may go to any process, because its heir may be dead."""


class SimulatedStore(MemoryBackend):
    """A `Backend` in memory that calls ``on_commit`` for each change, before any stream delivers it.

    The call happens in the same task step as the change. Ids that are random elsewhere are the same in every run here.
    """

    def __init__(self, on_commit: OnCommit, number: int = 1, name: str = "store") -> None:
        super().__init__(max_changes=1_000_000, max_age=1e12)
        self._name = name
        self._number = number
        self._store_id, self._session = _hex(name, number), _hex("session", name, number)
        self._position = self._at(0)
        self._on_commit = on_commit
        # The processes that are to acquire leases next, by the lease's name.
        self._heirs: dict[str, str] = {}
        self._handed_over = trio.lowlevel.ParkingLot()
        self._now: Resources = {}
        self._records: dict[Key, pb.Resource] = {}
        self._history: list[tuple[int, Resources]] = [(0, {})]
        # The number of times that each name was created, and its number of generations.
        self._taken: Counter[tuple[Kind, Key]] = Counter()
        self._generations: Counter[tuple[Kind, Key]] = Counter()

    async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:
        """Commit the operations and report each change to ``on_commit``."""
        if operations and all(isinstance(each, Put) and each.kind == SCHEMA_KIND for each in operations):
            return await self._record(operations)
        self._identify(operations)
        position = await super().commit(operations, fence)
        # Still the same task step as the commit, so nothing has come between.
        self._note(position.revision, operations, fence)
        return position

    async def _record(self, operations: Sequence[Operation]) -> Position:
        """Keep the type records that an engine writes when it opens. They get no revision of their own, so that runs
        stay comparable.
        """
        await trio.lowlevel.checkpoint()
        for operation in operations:
            if isinstance(operation, Put):
                operation.resource.version = str(self.position.revision)
                self._records[operation.key] = operation.resource
        return self.position

    async def list(
        self, kind: Kind, within: Within, *, after: Key | None = None, limit: int = 0
    ) -> tuple[Sequence[pb.Resource], Position]:
        """List resources; type records come from a table of their own."""
        if kind != SCHEMA_KIND:
            return await super().list(kind, within, after=after, limit=limit)
        await trio.lowlevel.checkpoint()
        return [*self._records.values()], self.position

    def _identify(self, operations: Sequence[Operation]) -> None:
        """Give new resources a uid and changed ones a generation, made from their name and count.

        Two runs are compared by what they made, and a reconciler may well pass a uid on. So a uid depends only on the
        name of the resource and on how often that name was created.
        """
        for operation in operations:
            if isinstance(operation, Put):
                place, made = (operation.kind, operation.key), operation.resource
                stored = self._now.get(place)
                if is_of_peering(operation.kind, operation.key) and operation.kind[0] in HEADWAYS_OWN:
                    # No reader compares their uids.
                    continue
                if stored is None and made.id is not None:
                    uid = _ulid(self._taken[place] + 1, "uid", *place[0], *place[1])
                    # A creation's token determines the end of the uid, so that its client recognizes the resource.
                    made.id.uid = uid[:10] + made.id.uid[10:] if CREATING.get() else uid
                # A copy has the generation of its original.
                if (stored is None or made.generation != stored.generation) and not peering_of(operation.key[0]):
                    made.generation = _ulid(self._generations[place] + 1, "generation", *place[0], *place[1])

    def _note(self, revision: int, operations: Sequence[Operation], fence: Fence | None) -> None:
        changes: list[tuple[Kind, Key, pb.Resource | None, pb.Resource | None]] = []
        for operation in operations:
            if isinstance(operation, Require | RequireOwnsNothing):
                continue
            place = (operation.kind, operation.key)
            old = self._now.get(place)
            new = self._tables.get(operation.kind, operation.key)
            if new is old:
                continue
            if new is None:
                self._now.pop(place, None)
            else:
                self._now[place] = new
            changes.append((*place, old, new))
            self._taken[place] += old is None
            self._generations[place] += old is None or (new is not None and new.generation != old.generation)
        if changes:
            self._history.append((revision, dict(self._now)))
        for change in changes:
            self._on_commit(revision, *change, fence)

    def at(self, revision: int) -> Resources:
        """Return the resources as of a revision."""
        return next(there for made, there in reversed(self._history) if made <= revision)

    @property
    def now(self) -> Resources:
        """The current resources."""
        return self._now

    def end_leases(self) -> None:
        """End every lease as if it had expired."""
        for held in self._leases.list(""):
            self._end(held.lease)

    async def begin_terms(self) -> None:
        """End every lease as if it had expired, and wait until its holder has acquired it again."""
        for held in self._leases.list(""):
            self._heirs[held.lease.name] = held.lease.holder
            self._end(held.lease)
        with trio.move_on_after(LONGEST_HANDOVER):
            await self.wait_handed_over()

    def hand_over(self, names: Iterable[str], leader: str) -> None:
        """End these leases, unless the process holds them, so that it acquires them next."""
        held = {each.lease.name: each.lease for each in self._leases.list("")}
        for name in names:
            lease = held.get(name)
            if lease is None or lease.holder != leader:
                self._heirs[name] = leader
                if lease is not None:
                    self._end(lease)

    async def wait_handed_over(self) -> None:
        """Wait until every process has acquired what it was handed."""
        while self._heirs:
            await self._handed_over.park()

    async def acquire_lease(self, name: str, holder: str, ttl: float, attempt: str = "") -> Acquired:
        """Acquire a lease. While it is being handed to another process, wait for that for some seconds."""
        with trio.move_on_after(LONGEST_HANDOVER):
            while self._heirs.get(name, holder) != holder:
                await self._handed_over.park()
        acquired = await super().acquire_lease(name, holder, ttl, attempt)
        if acquired.acquired and self._heirs.pop(name, None) is not None:
            self._handed_over.unpark_all()
        return acquired

    async def restored(self, revision: int) -> SimulatedStore:
        """Return a new store, with another id and higher revisions, that holds what this one held at a revision."""
        other = SimulatedStore(self._on_commit, self._number + 1, self._name)
        other._fences = dict(self._fences)
        other._records = dict(self._records)
        other._taken, other._generations = self._taken, self._generations
        other._append(self.position.revision + 1000, ())
        puts = [
            Put(kind, key, copy_message(resource), "")
            for (kind, key), resource in sorted(self.at(revision).items(), key=lambda each: int(each[1].version))
        ]
        if puts:
            with trio.CancelScope(shield=True):
                await MemoryBackend.commit(other, puts)
            other._now = {(put.kind, put.key): put.resource for put in puts}
            other._history = [(other.position.revision, dict(other._now))]
        return other

    def rolled_back(self, revision: int) -> SimulatedStore:
        """Return an older copy of this store, with the same id and another session. It has no history."""
        other = SimulatedStore(self._on_commit, self._number + 1, self._name)
        other._store_id = self._store_id
        other._fences, other._records = dict(self._fences), dict(self._records)
        other._taken, other._generations = self._taken, self._generations
        other._log = CommitLog(revision, max_changes=1_000_000, max_age=1e12)
        other._position = other._at(revision)
        for (kind, key), resource in self.at(revision).items():
            copied = copy_message(resource)
            other._tables.put(kind, key, copied)
            other._now[kind, key] = copied
        other._history = [(revision, dict(other._now))]
        return other

    def compact(self) -> None:
        """Drop the history, as if much had happened since."""
        kept, self._log._max_age = self._log._max_age, -1.0
        for _ in range(2):
            self._append(self._log.head + 1, ())
        self._log._max_age = kept


def _hex(*of: object) -> str:
    """Return 32 hexadecimal digits, the form of a random id."""
    return hashlib.blake2b(repr(of).encode(), digest_size=16).hexdigest()


def _ulid(count: int, *of: str) -> str:
    """Return a ULID that differs for each name, and that increases with the count, as real ones do with time."""
    random = hashlib.blake2b("/".join((*of, str(count))).encode(), digest_size=10).digest()
    # Each name has a time of its own, so that the order of two resources' ULIDs says nothing about them.
    began = int.from_bytes(hashlib.blake2b("/".join(of).encode(), digest_size=4).digest())
    number = (_FIRST_MILLISECOND + began + 1000 * count) << 80 | int.from_bytes(random)
    return "".join(_DIGITS[number >> 5 * at & 31] for at in reversed(range(26)))


def asked_again(wish: pb.Resource) -> pb.Resource:
    """Return a copy of what a user wrote, without what ties it to one store, for a write to another store."""
    asked = copy_message(wish)
    asked.version = asked.generation = ""
    asked.status = {}
    reserved = (FINALIZERS, DELETION_TIMESTAMP)
    asked.metadata = {name: said for name, said in wish.metadata.items() if name not in reserved}
    for id in (asked.id, asked.owner):
        if id is not None:
            id.uid = ""
    return asked
