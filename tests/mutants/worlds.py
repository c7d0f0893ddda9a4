"""Mutants of leases, shards, fences and crashes. The machine of a world of two processes must kill each of them.

The machine of a run has one process and one controller, so none of them shows there.
"""

from __future__ import annotations

from tests.mutants.mutant import Mutant

WORLD = "stateful/test_world.py"

WORLD_MUTANTS = (
    # --- fences ---
    Mutant(
        "a store accepts the write of a process that no longer holds the lease",
        "storage/_memory.py",
        "        check_borne(fence, stored)\n",
        "        check_borne(fence._replace(term=max(fence.term, stored[0]), number=stored[1]), stored)\n",
        WORLD,
    ),
    Mutant(
        "a reconcile of a shard writes with the fence of its process",
        "sharding/_shards.py",
        "return self.by_shard[self._shard_of(reconciling.key)]",
        "return self._own",
        WORLD,
    ),
    Mutant(
        "a lease that expires leaves its fence as it is",
        "storage/_memory.py",
        "        self._raise(scope_of(lease.name), (lease.term + 1, 0))\n",
        "",
        WORLD,
    ),
    # --- leases ---
    Mutant(
        "a lease is granted while another process holds it",
        "storage/_lease_table.py",
        "if held.lease.holder == holder and not is_late(",
        "if not is_late(",
        WORLD,
    ),
    Mutant(
        "a run goes on after its lease could not be renewed",
        "client/_hold.py",
        "                    self._block.deadline = self._term.until\n",
        "                    self._block.deadline = math.inf\n",
        WORLD,
    ),
    Mutant(
        "a holder relies on its lease for twice its ttl",
        "client/_hold.py",
        "return min(ttl * SURE, max(ttl / 2, ttl - 2 * pause))",
        "return ttl * 2",
        WORLD,
    ),
    # --- shards ---
    Mutant(
        "a shard opens before the cache has reached its fence",
        "sharding/_ownership.py",
        "        await caches.wait_complete(start.revision)\n",
        "",
        WORLD,
    ),
    Mutant(
        "the cached keys of a shard that is taken over are not enqueued",
        "sharding/_ownership.py",
        '        self._shards.queue.add_all(held, Reason("started"), priority=BACKLOG)\n',
        "",
        WORLD,
    ),
    Mutant(
        "a shard is released while its reconciles run",
        "sharding/_ownership.py",
        "        for scope in self._running:\n"
        "            scope.cancel()\n"
        "        with trio.CancelScope(shield=True):\n"
        "            await self._wait_idle()\n",
        "        await trio.lowlevel.checkpoint()\n",
        WORLD,
    ),
    Mutant(
        "an unknown write of a shard holds no key back",
        "run/_fence.py",
        "        if self._left:\n",
        "        if True:\n",
        WORLD,
    ),
    Mutant(
        "a shard is handed over with a checkpoint above its pending keys",
        "sharding/_ownership.py",
        "return self._run.mapped() if mapped and self._shards.queue.is_shard_idle(self.number) else 0",
        "return self._run.mapped() if mapped else 0",
        WORLD,
    ),
    Mutant(
        "keys of a shard that has moved are handed out",
        "sharding/_shards.py",
        "is not None and self._shard_of(dequeued.key) not in self._open:",
        "is not None and False:",
        WORLD,
    ),
    # --- crashes ---
    Mutant(
        "a controller's crash ends its engine",
        "run/_supervisor.py",
        "                return only_error(failed), run\n",
        "                raise\n",
        WORLD,
    ),
    Mutant(
        "the next run forgets the keys that the last one left",
        "run/_supervisor.py",
        "                self._owed, began = await run.owed(), run.began\n",
        "                self._owed, began = (await run.owed())._replace(keys=()), run.began\n",
        WORLD,
    ),
    Mutant(
        "a sharded run forgets the keys of the last one before it knows its shards",
        "sharding/_ownership.py",
        "                self.queue.collect(number)\n",
        "                pass\n",
        WORLD,
    ),
    # --- finalizers ---
    Mutant(
        "a finalizer is removed without the clean-up",
        "reconcile/_blocks.py",
        "        if error is not None or not self.cleaning_up:\n",
        "        if not self.cleaning_up:\n",
        WORLD,
    ),
)
