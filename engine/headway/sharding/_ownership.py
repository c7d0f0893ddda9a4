"""The ownership of shards: a run caches and maps for all shards, and reconciles the keys of its own.

- Each process that runs the controller is a *member*: it holds the lease ``app/controller/members/NAME``, and lists the
  others every third of a ttl. The run primes its types once, under a fence of the process's own.
- A shard has a lease (``app/controller#3/16``), a fence and a checkpoint. Rendezvous hashing (`member_of`) finds the
  member that should have it. That member waits for the lease, and any other member releases it. Only the lease decides
  which member has the shard. Members may therefore disagree for a while on who is alive: the shard then belongs to no
  member, but never to two.
- Taking over a shard is a start of its own (C3, C6). From the moment its lease is held, mapped keys of the shard are
  collected. Its fence is raised. The run waits until every type has reached that commit, the shard's *starting
  revision*. Deletions since the checkpoint of the previous holder are read from the store's history, up to the current
  revision of each type. Then, in one step, the shard's cached keys are enqueued, together with the collected keys and
  with the keys that the deletions and the watched resources map to.
- A write in the reconcile of a key carries the fence of the key's shard (C8). If its outcome is unknown, all keys of
  the run are held until raising that shard's fence has resolved it (C5).
- To give up a shard, the run hands out no more of its keys. Running reconciles end by themselves or are canceled after
  a ttl, and their unknown writes are resolved. The checkpoint is recorded, and then the lease is released (C7). If the
  lease is lost instead, running reconciles are canceled at once, in the time that remains to the holder. Other shards
  continue.
- If a shard is lost or the run restarts, the pending and the scheduled keys are kept as long as the shard should belong
  to this process. They are enqueued when the process has the shard again (C6).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import trio
from typing_extensions import override

from headway.base import chance, leaves, only_error
from headway.client import HeldLease, Writes, hold_lease
from headway.controller import Definition, Reconciler
from headway.errors import Fenced, LeaseLost, RemoteError, StoreChanged, Unavailable
from headway.events import CallDelayed
from headway.queue import BACKLOG
from headway.reconcile import Reason, Request, Result, Runtime
from headway.resource import Key, Position, TypeName
from headway.run import (
    RECORD_INTERVAL,
    Deletions,
    Owed,
    Ownership,
    PrimedRun,
    RunCaches,
    RunMapping,
    RunWrites,
    add_start,
)
from headway.sharding._shards import OneShard, ShardQueue, ShardWrites, member_of, shard_of


class _Deletions(NamedTuple):
    """The result of reading the store's history: the deletions after ``since``, for each type up to ``until``."""

    since: int
    until: dict[TypeName, int]
    found: Deletions

    def cover(self, since: int, until: dict[TypeName, int]) -> bool:
        """Return True if all deletions in these ranges are included. A type whose deletions are unknown has none."""
        return self.since <= since and all(
            up_to <= since or (up_to <= self.until[name] and name in self.found) for name, up_to in until.items()
        )


class _Shard:
    """A shard that this process has or wants.

    Attributes:
        mapping: the mapping of what the cache held when the shard was taken over; None if the shard is not open.
        runtime: the context of its reconciles, with the term of the shard; None if the shard is not open.
    """

    def __init__(self, number: int, shards: Shards, run: PrimedRun) -> None:
        self.number = number
        self.mapping: RunMapping | None = None
        self.runtime: Runtime | None = None
        self._shards = shards
        self._run = run
        name, noted, own = run.definition.full_name, run.progress.note, run.writes.own
        self._writes = RunWrites(name, run.leases, run.caches, shards.queue, run.report, noted, own)
        self._recorded = 0
        # The scope of the task that waits for the shard until it is open.
        self._waiting = trio.CancelScope()
        # Set when the shard belongs to another member.
        self._leaving = trio.Event()
        # The running reconciles of its keys.
        self._running: set[trio.CancelScope] = set()
        self._idle = trio.lowlevel.ParkingLot()

    def leave(self) -> None:
        """Give the shard up, in whatever state it is."""
        self._leaving.set()
        if self.mapping is None:
            self._waiting.cancel()

    async def reconcile(self, declared: Reconciler[Any], rt: Runtime, request: Request[Any]) -> Result:
        """Call the declared reconciler in a scope that can be canceled for this shard only."""
        with trio.CancelScope() as scope:
            self._running.add(scope)
            try:
                return await declared(self.runtime or rt, request)
            finally:
                self._running.remove(scope)
                if not self._running:
                    self._idle.unpark_all()
        raise LeaseLost(f"shard {self.number} of {rt.full_name} now belongs to another process")

    async def have(self) -> None:
        """Wait for the shard's lease, and keep the shard until another member should have it or the lease is lost."""
        run, process = self._run, self._shards.process
        name = f"{run.fence_name}#{self._shards.member_name(self.number)}"
        try:
            with self._waiting:
                async with hold_lease(
                    run.leases, name, holder=process, ttl=self._shards.ttl, report=run.report
                ) as lease:
                    await self._hold(lease)
        except Exception as error:
            # The shard is requested again after the next listing of members. The report gives that delay as well.
            if not all(isinstance(each, LeaseLost | Fenced | Unavailable) for each in leaves(error)):
                raise
            delay = self._shards.ttl / 3
            run.report(CallDelayed(run.definition.full_name, f"shard {self.number}", only_error(error), delay))
        finally:
            if self._leaving.is_set():
                self._shards.queue.close_shard(self.number)
            self._shards.forget(self.number)

    async def _hold(self, lease: HeldLease) -> None:
        run, number, queue = self._run, self.number, self._shards.queue
        queue.collect(number)
        try:
            await self._take(lease)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._writes.resolve, name=f"resolving writes of shard {number}")
                nursery.start_soon(self._map_all, name=f"mapping for shard {number}")
                nursery.start_soon(self._record_often, name=f"recording shard {number}")
                await self._leaving.wait()
                checkpoint = self._checkpoint()
                queue.close_shard(number)
                with trio.move_on_after(self._shards.ttl):
                    await self._wait_idle()
                await self._end_in_hand()
                while self._writes.hold is not None:
                    await run.progress.wait()
                await self._record(checkpoint)
                nursery.cancel_scope.cancel()
        finally:
            if self._leaving.is_set():
                # It is still open if it had to leave in the same turn in which it opened.
                queue.close_shard(number)
            else:
                # The shard should still belong to this process, so keep its keys.
                queue.collect(number)
            # Invariant: no reconcile of the shard is running when its lease is released (C7).
            await self._end_in_hand()
            # Leave only now: a reconcile that is canceled during a write holds all keys.
            self._writes.leave()

    async def _take(self, lease: HeldLease) -> None:
        """Take over the shard, whose lease is held."""
        run, number, caches = self._run, self.number, self._run.caches
        raised = await self._writes.raise_first(
            run.fence_name, self._shards.member_name(number), term=lease.term, number=1
        )
        start = raised.position
        if start.store_id != run.writes.store_id:
            raise StoreChanged(f"shard {number} was taken over in store {start.store_id}, not {run.writes.store_id}")
        await caches.wait_complete(start.revision)
        # Changes that were mapped without being collected are at or below these frontiers.
        deleted = await self._shards.deletions(caches, start, raised.checkpoint, caches.frontiers())
        # No checkpoint from here on.
        caches.check()
        one = OneShard(self._shards.queue, number, self._shards.shard_of)
        mapping = run.new_mapping(one, self._on_mapped)
        add_start(mapping, run.definition, caches.subscriptions, deleted)
        self._recorded = raised.checkpoint
        self.runtime = run.new_runtime(self._writes)
        self.mapping = mapping
        self._shards.open(number, self._writes)
        managed = caches.subscriptions[run.definition.manages.name]
        held = [key for key in managed.store.entries if self._shards.shard_of(key) == number]
        self._shards.queue.add_all(held, Reason("started"), priority=BACKLOG)

    async def _wait_idle(self) -> None:
        """Wait until no reconcile of the shard is running."""
        while self._running:
            await self._idle.park()

    async def _end_in_hand(self) -> None:
        for scope in self._running:
            scope.cancel()
        with trio.CancelScope(shield=True):
            await self._wait_idle()

    # --- tasks of an open shard ---

    async def _map_all(self) -> None:
        """Map what the cache held when the shard was taken over, retrying failures."""
        mapping = self.mapping
        assert mapping is not None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(mapping.retries.run)
            while mapping.unmapped:
                await mapping.map_ready()
                if mapping.unmapped:
                    await self._run.progress.wait()
            nursery.cancel_scope.cancel()

    def _on_mapped(self) -> None:
        # Wait for the last change: otherwise shards that wait for progress would wake each other endlessly.
        if self.mapping is not None and not self.mapping.unmapped:
            self._run.progress.note()

    def _checkpoint(self) -> int:
        """Return the revision up to which the shard has no pending work, or 0 if some work is pending."""
        mapped = self.mapping is not None and not self.mapping.unmapped
        return self._run.mapped() if mapped and self._shards.queue.is_shard_idle(self.number) else 0

    async def _record_often(self) -> None:
        while True:
            await trio.sleep(RECORD_INTERVAL * chance.uniform(0.7, 1))
            await self._record(self._checkpoint())

    async def _record(self, checkpoint: int) -> None:
        if checkpoint <= self._recorded or self._writes.fence is None:
            return
        # If recording fails, the next holder does more than necessary, but nothing is lost. Fenced ends the shard.
        try:
            await self._run.leases.record_checkpoint(self._writes.fence, checkpoint, self._run.caches.known)
        except RemoteError as error:
            self._run.report(CallDelayed(self._run.definition.full_name, "RecordSettled", error, RECORD_INTERVAL))
        else:
            self._recorded = checkpoint


class Shards(Ownership):
    """The ownership of the shards whose leases this process holds.

    Args:
        count: the number of all shards.
        process: the name of this process as a member.
        ttl: the ttl of its leases, in seconds.
        owed: the work that the previous run in this process left.
    """

    queue: ShardQueue

    def __init__(self, definition: Definition, count: int, process: str, ttl: float, owed: Owed) -> None:
        self._count = count
        # A shard is a member as well, named by its number, and a process could have the same name.
        super().__init__(definition, f"members/{process}", lambda machine: ShardQueue(machine, self.shard_of))
        self.process = process
        self.ttl = ttl
        self._shards: dict[int, _Shard] = {}
        # True once the members have been listed.
        self._assigned = False
        self._reading = trio.Lock()
        self._read: _Deletions | None = None
        if owed.subscriptions:
            # The shards of this process are not known yet. Until they are, keep all pending work.
            for number in range(self._count):
                self.queue.collect(number)

    # --- as the ownership of a run ---

    @override
    def shards(self) -> tuple[int, ...]:
        return tuple(sorted(shard.number for shard in self._shards.values() if shard.mapping is not None))

    @override
    def shard_number(self, key: Key) -> int:
        return self.shard_of(key)

    @override
    def further_writes(self) -> Collection[RunWrites]:
        return self._writes.by_shard.values()

    @override
    def writes(self, own: RunWrites) -> Writes:
        self._writes = ShardWrites(own, self.shard_of)
        return self._writes

    @override
    def reconciler(self, declared: Reconciler[Any]) -> Reconciler[Any]:
        async def reconcile(rt: Runtime, request: Request[Any]) -> Result:
            return await self._shards[self.shard_of(request.id.key)].reconcile(declared, rt, request)

        return reconcile

    @override
    def runtime_for(self, key: Key) -> Runtime | None:
        shard = self._shards.get(self.shard_of(key))
        return None if shard is None else shard.runtime

    @override
    async def serve(self, run: PrimedRun) -> None:
        """Be a member, and keep the shards that belong to it, until canceled."""
        prefix = f"{run.fence_name}/members/"
        async with (
            hold_lease(run.leases, prefix + self.process, holder=self.process, ttl=self.ttl, report=run.report),
            trio.open_nursery() as nursery,
        ):
            while True:
                delay = self.ttl / 3 * chance.uniform(0.7, 1)
                try:
                    leases = await run.leases.list(prefix)
                except Unavailable as error:
                    run.report(CallDelayed(run.definition.full_name, "List", error, delay))
                else:
                    members = {lease.name.removeprefix(prefix) for lease in leases}
                    self._assign(run, members | {self.process}, nursery)
                run.progress.note()
                await trio.sleep(delay)

    @override
    def is_idle(self) -> bool:
        mappings = [shard.mapping for shard in self._shards.values()]
        if not self._assigned or any(mapping is None or mapping.unmapped for mapping in mappings):
            return False
        return super().is_idle()

    def _assign(self, run: PrimedRun, members: set[str], nursery: trio.Nursery) -> None:
        self._assigned = True
        for number in range(self._count):
            shard = self._shards.get(number)
            if member_of(number, members) == self.process:
                if shard is None:
                    self._shards[number] = shard = _Shard(number, self, run)
                    nursery.start_soon(shard.have, name=f"shard {number} of {run.definition.full_name}")
            elif shard is not None:
                shard.leave()
            else:
                self.queue.close_shard(number)

    # --- called by the shards ---

    def shard_of(self, key: Key) -> int:
        """Return the number of a key's shard."""
        return shard_of(key, self._count)

    def member_name(self, number: int) -> str:
        """Return the name of a shard as a member. With another number of shards, its keys are others."""
        return f"{number}/{self._count}"

    def open(self, number: int, writes: RunWrites) -> None:
        """Start to hand out the keys of a shard, whose reconciles write with its fence."""
        self._writes.by_shard[number] = writes
        self.queue.open_shard(number)

    def forget(self, number: int) -> None:
        """Forget a shard that has ended here."""
        del self._shards[number]

    async def deletions(
        self, caches: RunCaches, start: Position, checkpoint: int, until: dict[TypeName, int]
    ) -> Deletions:
        """Return the deletions after a checkpoint, up to a revision for each type.

        Shards taken over together share a read of the history if possible.
        """
        async with self._reading:
            read = self._read
            if read is None or not read.cover(checkpoint, until):
                now = caches.frontiers()
                self._read = read = _Deletions(checkpoint, now, await caches.deletions(start, checkpoint, now))
            if not self._reading.statistics().tasks_waiting:
                self._read = None
        return {name: [each for each in found if each.revision > checkpoint] for name, found in read.found.items()}
