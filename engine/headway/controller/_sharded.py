"""A run of a sharded controller: it caches and maps for all shards, and reconciles the keys of those that it has.

- Each process that runs the controller is a *member*: it holds the lease ``app/controller/members/NAME`` and lists the
  others, every third of a ttl. The run primes its types once, under a fence of the process' own.
- A shard has a lease, ``app/controller#3``, a fence and a record of what is settled. Who should have it by rendezvous
  (`_shards.py`) waits for its lease, and who shouldn't any more gives it up. Who really has it is decided by the lease
  alone, so members may disagree for a while on who lives: a shard is nobody's then, and never two members'.
- Taking a shard is a start of its own (C3, C6). From the moment in which its lease is held, the keys of it that are
  mapped are collected. Its fence is raised; every type is waited for up to that commit, the shard's *starting
  revision*; what was deleted since its former holder owed nothing is read from the store's history, up to where each
  type stands; then, in one step, its keys in the cache are queued, with those collected, and those that the deletions
  and the watched resources map to.
- A write in the reconcile of a key bears the fence of the key's shard (C8). A lost one holds back all keys of the run,
  and is settled by raising that shard's fence (C5).
- Giving up a shard: no key of it is handed out from then on; those in hand end by themselves, or are cancelled after a
  ttl, and lost writes of theirs are settled; what was settled is recorded; then the lease is released (C7). When the
  lease is lost instead, those in hand are cancelled at once, in the time that its holder has left. Other shards go on.
- What was owed for a shard that was lost, or that the former run in this process had, is kept for as long as the shard
  should be this process', and queued when it has the shard again (C6).
"""

from __future__ import annotations

import copy
import dataclasses
import random
from functools import partial
from typing import Any, NamedTuple

import trio

from headway._groups import leaves, only_error
from headway.client import HeldLease, RunFence, Writes, hold_lease
from headway.controller._definition import Definition, Reconciler
from headway.controller._deletions import Deletions
from headway.controller._fence import RunWrites
from headway.controller._mapping import RunMapping
from headway.controller._placement import Sharded
from headway.controller._request import Reason, Request, Result
from headway.controller._run import RECORD_INTERVAL, Run
from headway.controller._runtime import Runtime
from headway.controller._shard_queue import OneShard, ShardQueue
from headway.controller._shard_writes import ShardWrites
from headway.controller._shards import member_of, shard_of
from headway.controller._status import ControllerStatus
from headway.errors import Fenced, LeaseLost, StoreChanged, Unavailable
from headway.events import CallDelayed
from headway.queue import BACKLOG, WaitingQueue, WorkQueue
from headway.resource import Key, Position, TypeName


class _Deletions(NamedTuple):
    """What a read of the store's history has found: the deletions after ``since``, of each type up to ``until``."""

    since: int
    until: dict[TypeName, int]
    found: Deletions

    def cover(self, since: int, until: dict[TypeName, int]) -> bool:
        """Whether all deletions between these are among them. Of a type of which they can't be known none are."""
        return self.since <= since and all(
            up_to <= since or (up_to <= self.until[name] and name in self.found) for name, up_to in until.items()
        )


class _Shard:
    """A shard that this run has, or wants.

    Attributes:
        waiting: what waits for it, until it is open.
        leaving: it is another member's.
        mapping: of what the cache held when it was taken; None: it isn't open.
        running: the reconciles of its keys that are in hand.
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
        """Give it up, however far it has come."""
        self.leaving.set()
        if self.mapping is None:
            self.waiting.cancel()

    def ended(self, reconcile: trio.CancelScope) -> None:
        """One of those in hand has ended."""
        self.running.remove(reconcile)
        if not self.running:
            self._idle.unpark_all()

    async def wait_idle(self) -> None:
        """Wait until none is in hand."""
        while self.running:
            await self._idle.park()


class ShardedRun(Run):
    """A `Run` of the shards that are this process'.

    Args:
        process: the member that this process is.
        lease_ttl: of its leases, in seconds.
    """

    _queue: ShardQueue

    def __init__(self, definition: Definition, *, process: str, lease_ttl: float, **rest: Any) -> None:
        placement = definition.placement
        assert isinstance(placement, Sharded)
        self._count = placement.shards
        self._process = process
        self._ttl = lease_ttl
        self._inner: Reconciler[Any] = definition.reconcile
        self._shards: dict[int, _Shard] = {}
        self._assigned = False
        self._reading = trio.Lock()
        self._read: _Deletions | None = None
        super().__init__(dataclasses.replace(definition, reconcile=self._reconcile), **rest)

    def _shard_of(self, key: Key) -> int:
        return shard_of(key, self._count)

    # --- what it has otherwise than other runs ---

    def _make_queue(self, machine: WorkQueue[Key, Reason]) -> WaitingQueue[Key, Reason]:
        return ShardQueue(machine, self._shard_of)

    def _client_writes(self) -> Writes:
        self._shard_writes = ShardWrites(self._writes, self._shard_of)
        return self._shard_writes

    async def _missed(self, raised: RunFence) -> Deletions:  # noqa: ARG002  # each shard has its own
        return {}

    def _begin(self, deleted: Deletions) -> None:
        if self._owed.store_id:
            # Whose shards are whose is about to be found out: until then all of what is owed is kept.
            for number in range(self._count):
                self._queue.collect(number)
        super()._begin(deleted)

    def _queue_held(self, mapping: RunMapping, deleted: Deletions) -> None:
        """Nothing: no shard is open yet."""

    def _start_beside(self, nursery: trio.Nursery) -> None:
        nursery.start_soon(self._share, name=f"the shards of {self._definition.name}")

    async def _record_now(self) -> None:
        """Nothing: each shard has its own record."""

    def checkpoint(self) -> int:
        """The revision up to which this run owes nothing; 0 while it owes something, or waits for a shard."""
        mappings = [shard.mapping for shard in self._shards.values()]
        if not self._assigned or any(mapping is None or mapping.unmapped for mapping in mappings):
            return 0
        return super().checkpoint()

    def status(self) -> ControllerStatus:
        """What this run is doing now."""
        held = tuple(sorted(shard.number for shard in self._shards.values() if shard.mapping is not None))
        return dataclasses.replace(super().status(), shards=held)

    def runtime_for(self, key: Key) -> Runtime:
        """The runtime that a reconcile of the key gets."""
        shard = self._shards.get(self._shard_of(key))
        return self._runtime if shard is None or shard.runtime is None else shard.runtime

    async def _reconcile(self, rt: Runtime, request: Request[Any]) -> Result:
        """The declared reconciler, so that it can be ended for its shard alone."""
        shard = self._shards[self._shard_of(request.id.key)]
        with trio.CancelScope() as scope:
            shard.running.add(scope)
            try:
                return await self._inner(shard.runtime or rt, request)
            finally:
                shard.ended(scope)
        raise LeaseLost(f"shard {shard.number} of {self._definition.name} is another process' now")

    # --- whose shards are whose ---

    async def _share(self) -> None:
        """Be a member, and have the shards that are this one's; for ever."""
        prefix = f"{self._fence_name}/members/"
        async with (
            hold_lease(self._lease, prefix + self._process, holder=self._process, ttl=self._ttl, report=self._report),
            trio.open_nursery() as nursery,
        ):
            while True:
                delay = self._ttl / 3 * random.uniform(0.7, 1)
                try:
                    leases = await self._lease.list(prefix)
                except Unavailable as error:
                    self._report(CallDelayed(self._definition.name, "List", error, delay))
                else:
                    members = {lease.name.removeprefix(prefix) for lease in leases}
                    self._assign(members | {self._process}, nursery)
                self._note_progress()
                await trio.sleep(delay)

    def _assign(self, members: set[str], nursery: trio.Nursery) -> None:
        self._assigned = True
        for number in range(self._count):
            shard = self._shards.get(number)
            mine = member_of(number, members) == self._process
            if not mine:
                if shard is not None:
                    shard.leave()
                else:
                    self._queue.close_shard(number)
            elif shard is None:
                self._shards[number] = shard = _Shard(number)
                nursery.start_soon(self._have, shard, name=f"shard {number} of {self._definition.name}")

    async def _have(self, shard: _Shard) -> None:
        """Wait for the shard's lease, and have the shard until it is another member's, or lost."""
        name = f"{self._fence_name}#{shard.number}"
        try:
            with shard.waiting:
                async with hold_lease(
                    self._lease, name, holder=self._process, ttl=self._ttl, report=self._report
                ) as lease:
                    await self._hold(shard, lease)
        except Exception as error:
            # It is asked for again when the members have been looked at; that this takes a while is as well.
            if not all(isinstance(each, LeaseLost | Fenced | Unavailable) for each in leaves(error)):
                raise
            self._report(CallDelayed(self._definition.name, f"shard {shard.number}", only_error(error), self._ttl / 3))
        finally:
            if shard.leaving.is_set():
                self._queue.close_shard(shard.number)
            del self._shards[shard.number]

    async def _hold(self, shard: _Shard, lease: HeldLease) -> None:
        number, queue, definition = shard.number, self._queue, self._definition
        own = OneShard(queue, number, self._shard_of)
        writes = RunWrites(definition.name, self._informers, own, self._report, self._note_progress)
        writes.own = self._writes.own
        queue.collect(number)
        try:
            shard.recorded = await self._take(shard, lease, writes, own)
            async with trio.open_nursery() as nursery:
                types = [self._informers.shared(type) for type in definition.types]
                nursery.start_soon(writes.settle, self._lease, types, name=f"settling writes of shard {number}")
                nursery.start_soon(self._map_all, shard, name=f"mapping for shard {number}")
                nursery.start_soon(self._record_shard, shard, writes, name=f"recording shard {number}")
                await shard.leaving.wait()
                checkpoint = self._checkpoint_of(shard)
                queue.close_shard(number)
                with trio.move_on_after(self._ttl):
                    await shard.wait_idle()
                await self._end_in_hand(shard)
                while own.held:
                    await self.wait_progress()
                await self._note(shard, writes, checkpoint)
                nursery.cancel_scope.cancel()
        finally:
            if not shard.leaving.is_set():
                # It should be this process' still, and then is owed here what was.
                queue.collect(number)
            # Invariant: nothing of the shard is in hand when its lease is given back (C7).
            await self._end_in_hand(shard)
            # After that: who is cancelled in the middle of a write holds all keys.
            own.leave()

    async def _take(self, shard: _Shard, lease: HeldLease, writes: RunWrites, own: OneShard) -> int:
        """Begin with a shard whose lease is held. Returns up to where its former holder owed nothing."""
        number, subscriptions = shard.number, self._subscriptions
        raised = await writes.raise_first(self._lease, self._fence_name, str(number), term=lease.term, number=1)
        start = raised.position
        if start.store_id != self._writes.store_id:
            raise StoreChanged(f"shard {number} was taken in store {start.store_id}, not {self._writes.store_id}")
        for type in self._definition.types:
            await self._informers.shared(type).wait_complete(start.revision)
        # What is mapped without being collected was at or below these.
        until = {name: subscription.gate.frontier for name, subscription in subscriptions.items()}
        deleted = await self._deleted_until(start, raised.checkpoint, until)
        # No checkpoint from here on.
        for subscription in subscriptions.values():
            subscription.check()
        mapping = self._make_mapping(own, partial(self._mapped, shard))
        mapping.open(subscriptions)
        self._map_held(mapping, deleted)
        shard.runtime = copy.copy(self._runtime)
        shard.runtime.term = lease.term
        self._shard_writes.by_shard[number] = writes
        shard.mapping = mapping
        self._queue.open_shard(number)
        held = [
            key for key in subscriptions[self._definition.manages.name].gate.entries if self._shard_of(key) == number
        ]
        self._queue.add_all(held, Reason("started"), priority=BACKLOG)
        return raised.checkpoint

    async def _deleted_until(self, start: Position, checkpoint: int, until: dict[TypeName, int]) -> Deletions:
        """As `_deletions`; shards that are taken at once share a read of the store's history where one is enough."""
        async with self._reading:
            read = self._read
            if read is None or not read.cover(checkpoint, until):
                now = {name: subscription.gate.frontier for name, subscription in self._subscriptions.items()}
                self._read = read = _Deletions(checkpoint, now, await self._deletions(start, checkpoint, now))
            if not self._reading.statistics().tasks_waiting:
                self._read = None
        return {name: [each for each in found if each.revision > checkpoint] for name, found in read.found.items()}

    async def _end_in_hand(self, shard: _Shard) -> None:
        for scope in shard.running:
            scope.cancel()
        with trio.CancelScope(shield=True):
            await shard.wait_idle()

    # --- beside a shard that is open ---

    async def _map_all(self, shard: _Shard) -> None:
        """Map what was held when the shard was taken; what fails, again and again."""
        mapping = shard.mapping
        assert mapping is not None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(mapping.retry)
            while mapping.unmapped:
                await mapping.map_ready()
                if mapping.unmapped:
                    await self.wait_progress()
            nursery.cancel_scope.cancel()

    def _mapped(self, shard: _Shard) -> None:
        # Not before the last one: shards that wait for progress would wake each other for ever.
        if shard.mapping is not None and not shard.mapping.unmapped:
            self._note_progress()

    def _checkpoint_of(self, shard: _Shard) -> int:
        """The revision up to which nothing of a shard is owed; 0 while something is."""
        if (
            shard.mapping is None
            or shard.mapping.unmapped
            or not self._mapping.owes_nothing
            or self._queue.held
            or self._queue.owes(shard.number)
            or any(self._informers.shared(type).distrusted for type in self._definition.types)
        ):
            return 0
        return self._mapping.complete

    async def _record_shard(self, shard: _Shard, writes: RunWrites) -> None:
        while True:
            await trio.sleep(RECORD_INTERVAL * random.uniform(0.7, 1))
            await self._note(shard, writes, self._checkpoint_of(shard))

    async def _note(self, shard: _Shard, writes: RunWrites, checkpoint: int) -> None:
        if checkpoint <= shard.recorded or writes.fence is None:
            return
        # When it can't be noted, the next holder does more than it need; nothing is lost. Fenced ends the shard.
        try:
            await self._lease.record_checkpoint(writes.fence, checkpoint)
        except Unavailable as error:
            self._report(CallDelayed(self._definition.name, "RecordSettled", error, RECORD_INTERVAL))
        else:
            shard.recorded = checkpoint
