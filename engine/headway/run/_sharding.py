"""The ownership of shards: a run caches and maps for all shards, and reconciles the keys of its own.

- Each process that runs the controller is a *member*: it holds the lease ``app/controller/members/NAME``, and lists the
  others every third of a ttl. The run primes its types once, under a fence of the process' own.
- A shard has a lease (``app/controller#3``), a fence and a checkpoint. Rendezvous hashing (`member_of`) determines the
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
- Keys owed for a lost shard, or by the previous run in this process, are kept for as long as the shard should belong to
  this process. They are enqueued when it has the shard again (C6).
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any, NamedTuple

import trio
from typing_extensions import override

from headway._groups import leaves, only_error
from headway.client import HeldLease, RunFence, Writes, hold_lease
from headway.controller import Definition, Reconciler, Sharded
from headway.errors import Fenced, LeaseLost, StoreChanged, Unavailable
from headway.events import CallDelayed
from headway.queue import BACKLOG, WorkQueue
from headway.reconcile import Reason, Request, Result, Runtime
from headway.resource import Key, Position, TypeName
from headway.run._fence import RunWrites
from headway.run._mapping import Owed, RunMapping
from headway.run._ownership import RECORD_INTERVAL, Ownership, PrimedRun
from headway.run._priming import Deletions, RunCaches
from headway.run._shards import OneShard, ShardQueue, ShardWrites, member_of, shard_of


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
    """A shard that this run has or wants.

    Attributes:
        waiting: the scope of the task that waits for the shard until it is open.
        leaving: set when the shard belongs to another member.
        mapping: the mapping of what the cache held when the shard was taken over; None if it is not open.
        running: the running reconciles of its keys.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.waiting = trio.CancelScope()
        self.leaving = trio.Event()
        self.mapping: RunMapping | None = None
        self.runtime: Runtime | None = None
        self.running: set[trio.CancelScope] = set()
        self.recorded = 0
        self._idle = trio.lowlevel.ParkingLot()

    def leave(self) -> None:
        """Give the shard up, in whatever state it is."""
        self.leaving.set()
        if self.mapping is None:
            self.waiting.cancel()

    def ended(self, reconcile: trio.CancelScope) -> None:
        """Note that a running reconcile has ended."""
        self.running.remove(reconcile)
        if not self.running:
            self._idle.unpark_all()

    async def wait_idle(self) -> None:
        """Wait until no reconcile is running."""
        while self.running:
            await self._idle.park()


class Shards(Ownership):
    """The ownership of the shards whose leases this process holds.

    Args:
        process: the name of this process as a member.
        ttl: the ttl of its leases, in seconds.
        owed: the work that the previous run in this process left.
    """

    queue: ShardQueue

    def __init__(self, definition: Definition, process: str, ttl: float, owed: Owed) -> None:
        placement = definition.placement
        assert isinstance(placement, Sharded)
        self._count = placement.shards
        self._process = process
        self._ttl = ttl
        self._shards: dict[int, _Shard] = {}
        # True once the members have been listed.
        self._assigned = False
        self._reading = trio.Lock()
        self._read: _Deletions | None = None
        self.queue = ShardQueue(WorkQueue(definition.backoff), self._shard_of)
        if owed.store_id:
            # The shards of this process are not known yet, so everything owed is kept until they are.
            for number in range(self._count):
                self.queue.collect(number)

    def _shard_of(self, key: Key) -> int:
        return shard_of(key, self._count)

    @override
    def shards(self) -> tuple[int, ...]:
        return tuple(sorted(shard.number for shard in self._shards.values() if shard.mapping is not None))

    @override
    def writes(self, own: RunWrites) -> Writes:
        self._writes = ShardWrites(own, self._shard_of)
        return self._writes

    @override
    def reconciler(self, declared: Reconciler[Any]) -> Reconciler[Any]:
        return partial(self._reconcile, declared)

    @override
    def runtime_for(self, key: Key) -> Runtime | None:
        shard = self._shards.get(self._shard_of(key))
        return None if shard is None else shard.runtime

    @override
    async def missed(self, caches: RunCaches, raised: RunFence) -> Deletions:
        # Each shard reads the deletions since its own checkpoint.
        return {}

    @override
    def begin(self, run: PrimedRun, missed: Deletions) -> None:
        """Do nothing, because no shard is open yet."""

    @override
    async def end(self, run: PrimedRun) -> None:
        """Do nothing, because each shard has recorded its own checkpoint."""

    @override
    def is_idle(self) -> bool:
        mappings = [shard.mapping for shard in self._shards.values()]
        if not self._assigned or any(mapping is None or mapping.unmapped for mapping in mappings):
            return False
        return self.queue.is_idle()

    async def _reconcile(self, declared: Reconciler[Any], rt: Runtime, request: Request[Any]) -> Result:
        """Call the declared reconciler in a scope that can be canceled for its shard only."""
        shard = self._shards[self._shard_of(request.id.key)]
        with trio.CancelScope() as scope:
            shard.running.add(scope)
            try:
                return await declared(shard.runtime or rt, request)
            finally:
                shard.ended(scope)
        raise LeaseLost(f"shard {shard.number} of {rt.controller} now belongs to another process")

    # --- assignment of shards ---

    @override
    async def serve(self, run: PrimedRun) -> None:
        """Be a member, and keep the shards that belong to it, until canceled."""
        prefix = f"{run.fence_name}/members/"
        async with (
            hold_lease(run.leases, prefix + self._process, holder=self._process, ttl=self._ttl, report=run.report),
            trio.open_nursery() as nursery,
        ):
            while True:
                delay = self._ttl / 3 * random.uniform(0.7, 1)
                try:
                    leases = await run.leases.list(prefix)
                except Unavailable as error:
                    run.report(CallDelayed(run.definition.name, "List", error, delay))
                else:
                    members = {lease.name.removeprefix(prefix) for lease in leases}
                    self._assign(run, members | {self._process}, nursery)
                run.note_progress()
                await trio.sleep(delay)

    def _assign(self, run: PrimedRun, members: set[str], nursery: trio.Nursery) -> None:
        self._assigned = True
        for number in range(self._count):
            shard = self._shards.get(number)
            mine = member_of(number, members) == self._process
            if not mine:
                if shard is not None:
                    shard.leave()
                else:
                    self.queue.close_shard(number)
            elif shard is None:
                self._shards[number] = shard = _Shard(number)
                nursery.start_soon(self._have, run, shard, name=f"shard {number} of {run.definition.name}")

    async def _have(self, run: PrimedRun, shard: _Shard) -> None:
        """Wait for the shard's lease, and keep the shard until another member should have it or the lease is lost."""
        name = f"{run.fence_name}#{shard.number}"
        try:
            with shard.waiting:
                async with hold_lease(
                    run.leases, name, holder=self._process, ttl=self._ttl, report=run.report
                ) as lease:
                    await self._hold(run, shard, lease)
        except Exception as error:
            # The shard is requested again after the next listing of members. The report gives that delay as well.
            if not all(isinstance(each, LeaseLost | Fenced | Unavailable) for each in leaves(error)):
                raise
            run.report(CallDelayed(run.definition.name, f"shard {shard.number}", only_error(error), self._ttl / 3))
        finally:
            if shard.leaving.is_set():
                self.queue.close_shard(shard.number)
            del self._shards[shard.number]

    async def _hold(self, run: PrimedRun, shard: _Shard, lease: HeldLease) -> None:
        number, queue = shard.number, self.queue
        own = OneShard(queue, number, self._shard_of)
        writes = RunWrites(run.definition.name, run.caches, own, run.report, run.note_progress, run.writes.own)
        queue.collect(number)
        try:
            shard.recorded = await self._take(run, shard, lease, writes, own)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(writes.resolve, run.leases, name=f"resolving writes of shard {number}")
                nursery.start_soon(self._map_all, run, shard, name=f"mapping for shard {number}")
                nursery.start_soon(self._record_shard, run, shard, writes, name=f"recording shard {number}")
                await shard.leaving.wait()
                checkpoint = self._checkpoint_of(run, shard)
                queue.close_shard(number)
                with trio.move_on_after(self._ttl):
                    await shard.wait_idle()
                await self._end_in_hand(shard)
                while own.held:
                    await run.wait_progress()
                await self._record(run, shard, writes, checkpoint)
                nursery.cancel_scope.cancel()
        finally:
            if not shard.leaving.is_set():
                # The shard should still belong to this process, which then owes what it owed before.
                queue.collect(number)
            # Invariant: no reconcile of the shard is running when its lease is released (C7).
            await self._end_in_hand(shard)
            # Leave only now: a reconcile that is canceled during a write holds all keys.
            own.leave()

    async def _take(self, run: PrimedRun, shard: _Shard, lease: HeldLease, writes: RunWrites, own: OneShard) -> int:
        """Take over a shard whose lease is held. Return the checkpoint of its previous holder."""
        number, caches = shard.number, run.caches
        raised = await writes.raise_first(run.leases, run.fence_name, str(number), term=lease.term, number=1)
        start = raised.position
        if start.store_id != run.writes.store_id:
            raise StoreChanged(f"shard {number} was taken over in store {start.store_id}, not {run.writes.store_id}")
        await caches.wait_complete(start.revision)
        # Changes that were mapped without being collected are at or below these frontiers.
        deleted = await self._deleted_until(caches, start, raised.checkpoint, caches.frontiers())
        # No checkpoint from here on.
        caches.check()
        mapping = run.new_mapping(own, partial(self._on_mapped, run, shard))
        mapping.add_start(deleted)
        shard.runtime = run.new_runtime(writes)
        self._writes.by_shard[number] = writes
        shard.mapping = mapping
        self.queue.open_shard(number)
        managed = caches.subscriptions[run.definition.manages.name]
        held = [key for key in managed.gate.entries if self._shard_of(key) == number]
        self.queue.add_all(held, Reason("started"), priority=BACKLOG)
        return raised.checkpoint

    async def _deleted_until(
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

    async def _end_in_hand(self, shard: _Shard) -> None:
        for scope in shard.running:
            scope.cancel()
        with trio.CancelScope(shield=True):
            await shard.wait_idle()

    # --- tasks of an open shard ---

    async def _map_all(self, run: PrimedRun, shard: _Shard) -> None:
        """Map what the cache held when the shard was taken over, retrying failures."""
        mapping = shard.mapping
        assert mapping is not None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(mapping.retry)
            while mapping.unmapped:
                await mapping.map_ready()
                if mapping.unmapped:
                    await run.wait_progress()
            nursery.cancel_scope.cancel()

    def _on_mapped(self, run: PrimedRun, shard: _Shard) -> None:
        # Wait for the last change: otherwise shards that wait for progress would wake each other endlessly.
        if shard.mapping is not None and not shard.mapping.unmapped:
            run.note_progress()

    def _checkpoint_of(self, run: PrimedRun, shard: _Shard) -> int:
        """Return the revision up to which nothing of a shard is owed, or 0 while something is."""
        idle = shard.mapping is not None and not shard.mapping.unmapped and self.queue.is_shard_idle(shard.number)
        return run.mapped() if idle else 0

    async def _record_shard(self, run: PrimedRun, shard: _Shard, writes: RunWrites) -> None:
        while True:
            await trio.sleep(RECORD_INTERVAL * random.uniform(0.7, 1))
            await self._record(run, shard, writes, self._checkpoint_of(run, shard))

    async def _record(self, run: PrimedRun, shard: _Shard, writes: RunWrites, checkpoint: int) -> None:
        if checkpoint <= shard.recorded or writes.fence is None:
            return
        # If recording fails, the next holder does more than necessary, but nothing is lost. Fenced ends the shard.
        try:
            await run.leases.record_checkpoint(writes.fence, checkpoint)
        except Unavailable as error:
            run.report(CallDelayed(run.definition.name, "RecordSettled", error, RECORD_INTERVAL))
        else:
            shard.recorded = checkpoint
