"""Mutants that once survived the whole default run, or the tests next to the code. Each now has a test of its own."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

ONCE_SURVIVED = (
    Mutant(
        "a lease's renewal counts from its reply",
        "client/_hold.py",
        "self._term.renewed(sent_at, trio.current_time(), self._pauses.longest)",
        "self._term.renewed(trio.current_time(), trio.current_time(), self._pauses.longest)",
        "client/test_lease_term.py",
    ),
    Mutant(
        "a shard that is handed over counts as idle once it is closed",
        "sharding/_ownership.py",
        "                checkpoint = self._checkpoint()\n                queue.close_shard(number)\n",
        "                queue.close_shard(number)\n                checkpoint = self._checkpoint()\n",
        "sharding/test_handover.py",
    ),
    Mutant(
        "a shard that is handed over records nothing",
        "sharding/_ownership.py",
        "                await self._record(checkpoint)\n",
        "",
        "sharding/test_handover.py",
    ),
    Mutant(
        "a shard that must leave as it opens stays open",
        "sharding/_ownership.py",
        "                queue.close_shard(number)\n            else:\n",
        "                pass\n            else:\n",
        "sharding/test_handover.py",
    ),
    Mutant(
        "a shard that collects again forgets its scheduled keys",
        "sharding/_shards.py",
        "[*super().scheduled(), *super().owed()]",
        "super().owed()",
        "sharding/test_shard_queue.py",
    ),
    Mutant(
        "a run starts at the raise before its initialiser",
        "run/_run.py",
        "raised = again._replace(checkpoint=raised.checkpoint)",
        "raised = raised",
        "run/test_starts_and_ends.py",
    ),
    Mutant(
        "a read of etcd's revision that is under way answers later callers",
        "storage/etcd/_session.py",
        "batch, self._next = self._next, None\n"
        "                try:\n"
        "                    await self._question()\n"
        "                except HeadwayError as error:\n"
        "                    batch.failure = error\n",
        "batch = self._next\n"
        "                try:\n"
        "                    await self._question()\n"
        "                except HeadwayError as error:\n"
        "                    batch.failure = error\n"
        "                self._next = None\n",
        "storage/test_etcd_confirmations.py",
    ),
    Mutant(
        "an index skips an update within a generation",
        "cache/_index_table.py",
        "        for key, old, new, _ in applied:\n",
        "        for key, old, new, _ in applied:\n"
        "            if old is not None and new is not None and old.generation == new.generation:\n"
        "                continue\n",
        "cache/test_index_updates.py",
    ),
    Mutant(
        "a bookmark below the frontier sets the session",
        "cache/_type_store.py",
        "        if position.revision >= self.frontier:\n"
        "            self.session, self.versions = position.session, position.versions\n",
        "        self.session, self.versions = position.session, position.versions\n"
        "        if position.revision >= self.frontier:\n",
        "cache/test_type_store_positions.py",
    ),
    Mutant(
        "a change whose mapping failed is not mapped by the next run",
        "mapper/_map_queue.py",
        "        for kept in failed.values():\n",
        "        for kept in list[FailedChanges]():\n",
        "run/test_starts_and_ends.py",
    ),
    Mutant(
        "a success keeps the failures of a key that was added in the meantime",
        "queue/_machine.py",
        "            self._entries[key] = following\n            self._queue(following, now)\n",
        "            following.failures = self._entries[key].failures\n"
        "            self._entries[key] = following\n"
        "            self._queue(following, now)\n",
        "queue/test_reporting_back.py",
    ),
    Mutant(
        "the simulation's fault drop does nothing",
        "testing/simulation/world/_streams.py",
        "        elif isinstance(fault, faults.Drop):\n",
        "        elif False:\n",
        "simulation/test_faults.py",
    ),
    Mutant(
        "removed metadata is no difference",
        "client/_create_apply.py",
        "same and stored.metadata == wanted.metadata",
        "same and stored.metadata | wanted.metadata == stored.metadata",
        "cli/test_preview.py",
        "metadata",
    ),
    Mutant(
        "what an older program's hook drops is a difference",
        "client/_create_apply.py",
        "return merge_and_compare(type, stored, filled.message())",
        "return filled.message().data == stored.data",
        "client/test_apply_older_program.py",
        "hook",
    ),
    Mutant(
        "a changed list element has unknown fields of the one that it replaces",
        "protobuf/_unknown_fields.py",
        "                    if equal(copied, other):",
        "                    if True:",
        "protobuf/test_unknown_fields.py",
    ),
    Mutant(
        "an unknown field of a oneof stays beside the one that replaces it",
        "protobuf/_unknown_fields.py",
        "if not message._unknown_fields and not begun:",
        "if not message._unknown_fields:",
        "protobuf/test_unknown_fields.py",
        "oneof",
    ),
    Mutant(
        "an update decided on an optimistic read does not require its namespace",
        "service/_write.py",
        "                operations = (*units.required, *operations)\n",
        "                pass\n",
        "storage/test_etcd_service.py",
    ),
    Mutant(
        "raising a member's fence requires the right to the controller's lease",
        "service/_lease.py",
        "        self._check_take(lease_of(request.controller, request.member))\n",
        "        self._check_take(request.controller)\n",
        "access/test_leases_guarded.py",
    ),
    Mutant(
        "recording a member's checkpoint requires the right to the controller's lease",
        "service/_lease.py",
        "        self._check_take(lease_of(fence.controller, fence.member))\n",
        "        self._check_take(fence.controller)\n",
        "access/test_leases_guarded.py",
    ),
    Mutant(
        "calls that exceed the grace of a stopping server are not ended",
        "rpc/server/_server.py",
        "            calls.stop(unary=True)\n",
        "            calls.stop()\n",
        "rpc/test_stopping.py",
    ),
    Mutant(
        "a run records no checkpoint when it ends",
        "run/_ownership.py",
        "        with trio.move_on_after(1, shield=True), contextlib.suppress(HeadwayError):\n"
        "            await self._record(run)\n",
        "        pass\n",
        "run/test_starts_and_ends.py",
    ),
    Mutant(
        "a run with an initialiser reports the revision of its first raise",
        "run/_fence.py",
        "        raised = await self._raise()\n        self.starting_revision = raised.position.revision\n",
        "        raised = await self._raise()\n",
        "run/test_starts_and_ends.py",
    ),
    Mutant(
        "a store that has answered in time counts as away",
        "engine/_store_health.py",
        "if since is not None and since == self._looking_since:",
        "if since is not None:",
        "test_store_health.py",
    ),
    Mutant(
        "a list of leases shows those that the caller may not read",
        "service/_lease.py",
        "            leases = [each for each in leases if ask(permissions.may_read_lease, each.lease.name)]\n",
        "            pass\n",
        "sharding/test_rights.py",
    ),
    Mutant(
        "the simulation's fault missed kills no process",
        "testing/simulation/world/_streams.py",
        "                process.history_gone = True\n                process.kill()\n",
        "                process.history_gone = True\n",
        "simulation/test_faults.py",
    ),
    Mutant(
        "the position of a page is that of its last read",
        "service/_pages.py",
        "position = position or here",
        "position = here",
        "service/test_pages.py",
    ),
    Mutant(
        "the position of a list is that of the store at its end",
        "service/_list.py",
        "    return item.position\n",
        "    return backend.position\n",
        "service/test_list.py",
        "position",
    ),
    Mutant(
        "an outage of a store counts from its last problem",
        "engine/_store_health.py",
        "        if before is None:\n            self._since = now\n",
        "        self._since = now\n",
        "test_store_health.py",
        "recovery",
    ),
    Mutant(
        "the first changes of a session precede its announcement",
        "storage/_watch.py",
        "        if log.head > cursor.revision and not unannounced:\n",
        "        if log.head > cursor.revision:\n",
        "storage/test_skipping_watches.py",
    ),
    Mutant(
        "a watch resumes one revision below a replaced schema",
        "versions/_resumed.py",
        "    if after.revision < revision:\n",
        "    if after.revision < revision - 1:\n",
        "versions/test_replaced_schemas.py",
    ),
    Mutant(
        "an opening drops the newest commit for its age",
        "storage/sqlite/_reader.py",
        "if revision != newest and (size > max_bytes or time < oldest):",
        "if size > max_bytes or time < oldest:",
        "storage/test_sqlite_growth.py",
        "newest",
    ),
    Mutant(
        "a sleeping watch does not announce a session that begins behind a change",
        "storage/_skipping_watch.py",
        "not (marks and marks[-1] > self._announced)",
        "not (marks and marks[-1] > self._cursor.revision)",
        "storage/test_skipping_watches.py",
    ),
    Mutant(
        "a page does not end before its reply is too large",
        "service/_pages.py",
        "(collected.count == size or collected.is_full())",
        "collected.count == size",
        "service/test_large_lists.py",
    ),
    Mutant(
        "the age of a cache leaves out the time before its store was replaced",
        "notify/_primed_cache.py",
        "trio.current_time() - min(since) if since",
        "trio.current_time() - max(since) if since",
        "notify/test_restores.py",
    ),
    Mutant(
        "a controller that reconciled for long counts as failing from before that",
        "run/_supervisor.py",
        "if self.failing_since is None or (run is not None and run.reconciled_for() >= FLAP):",
        "if self.failing_since is None:",
        "run/test_supervisor.py",
    ),
    Mutant(
        "the undecodable resources of a replaced store are remembered",
        "cache/_informer.py",
        "            self._undecodable = Undecodable(self.type, self.bounded)\n            self.distrusted",
        "            self.distrusted",
        "cache/test_informer.py",
    ),
    Mutant(
        "the refusal of an earlier fence holds the keys",
        "run/_fence.py",
        "        if fence == self.fence:\n",
        "        if True:\n",
        "run/test_fence.py",
    ),
    Mutant(
        "a run is subscribed to a store that has not raised its fence",
        "run/_priming.py",
        "if cached != start.store_id:",
        "if False:",
        "run/test_priming.py",
    ),
    Mutant(
        "no room is made when descriptors run out",
        "rpc/server/_server.py",
        "        self._admission.make_room()\n",
        "",
        "rpc/test_strangers.py",
        "descriptors_run_out",
    ),
    Mutant(
        "a connection that begins while the server stops is served",
        "rpc/server/_server.py",
        "            protocol.abort()\n            return\n",
        "            pass\n",
        "rpc/test_stopping.py",
    ),
    Mutant(
        "changes that a run has not begun to map are not left to the next one",
        "mapper/_map_queue.py",
        "while self._waiting or self._backlog or self._owed:",
        "while self._waiting or self._backlog:",
        "mapper/test_map_queue.py",
        "left_again",
    ),
    Mutant(
        "a reconcile that fails permanently takes the change that followed with it",
        "queue/_waiting.py",
        "    dropped = succeeded\n",
        "    def dropped(self, key: K, now: float | None = None) -> None:\n"
        "        self._machine._entries.pop(key)\n"
        "        self._reported_back()\n",
        "run/test_failing_functions.py",
        "fails_permanently",
    ),
    Mutant(
        "a standby forgets the keys that its last run left",
        "run/_supervisor.py",
        "        self._owed = self._owed._replace(subscriptions=())\n",
        "        self._owed = self._owed._replace(subscriptions=(), keys=())\n",
        "run/test_singleton.py",
        "after_a_standby",
    ),
    Mutant(
        "a standby forgets the changes that its last run left",
        "run/_supervisor.py",
        "        self._owed = self._owed._replace(subscriptions=())\n",
        "        self._owed = self._owed._replace(subscriptions=(), changes=())\n",
        "run/test_supervisor.py",
        "survive_a_standby",
    ),
    Mutant(
        "a status that another writer has set first counts as an own write",
        "run/_own_writes.py",
        "        if write.unchanged:\n            return\n",
        "",
        "run/test_watching.py",
        "set_first",
    ),
    Mutant(
        "the revision of an earlier commit counts as an own write with a server that does not tell",
        "run/_own_writes.py",
        "if revision in self.latest or revision != write.position.revision:",
        "if revision in self.latest:",
        "run/test_own_writes.py",
        "changed_nothing",
    ),
    Mutant(
        "a delayed key is reconciled only when something else looks at the queue",
        "queue/_waiting.py",
        "elif due is not None and not self._woken:",
        "elif due is not None and self._woken:",
        "run/test_requeues.py",
        "when_it_is_due",
    ),
)
