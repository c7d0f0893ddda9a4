"""Mutants of the cache, the priming and the mapping. The machine of a whole run must kill each of them."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MACHINE = "stateful/test_run.py"

RUN_MUTANTS = (
    Mutant(
        "a run begins on the cache of a history that the store has lost",
        "run/_priming.py",
        "if known.store_id == position.store_id and known.revision >= position.revision",
        "if False",
        "run/test_store_rolled_back.py",
        "silent",
    ),
    Mutant(
        "a run goes on with the cache of a store that was rolled back",
        "cache/_informer.py",
        "            subscription.fail(error)\n",
        "            _ = replaced and subscription.fail(error)\n",
        MACHINE,
    ),
    Mutant(
        "a fence at the last revision that the store has lost is taken for a new one",
        "run/_priming.py",
        "known.revision >= position.revision",
        "known.revision > position.revision",
        MACHINE,
    ),
    Mutant(
        "a stream that begins with a snapshot does not say what the cache has known",
        "informers/_follower.py",
        "watch_request(self._type, resume_after, interval, store.known)",
        "watch_request(self._type, resume_after, interval, None)",
        MACHINE,
    ),
    # --- the start of a run ---
    Mutant(
        "a run begins at the first end of a snapshot, even below its start",
        "run/_priming.py",
        "await wait_primed(informer, start.revision, self._stall_limit)",
        "await wait_primed(informer, 1, self._stall_limit)",
        MACHINE,
    ),
    Mutant(
        "the resources in the cache are not mapped at the start",
        "run/_owed.py",
        "        if name in watched:\n            _add_cached(mapping, name, subscription)\n",
        "",
        MACHINE,
    ),
    Mutant(
        "an index is not built over the primed data",
        "cache/_indexing.py",
        "            table.build(at_once)\n",
        "            pass\n",
        MACHINE,
    ),
    # --- the next run ---
    Mutant(
        "an added watch forgets the pending keys",
        "run/_run.py",
        "return Owed(keys, await self._primed.mapping.owed(), feeds)",
        "return Owed([], await self._primed.mapping.owed(), feeds)",
        MACHINE,
        "taken_over",
    ),
    Mutant(
        "an added watch forgets the changes that wait to be mapped",
        "run/_run.py",
        "return Owed(keys, await self._primed.mapping.owed(), feeds)",
        "return Owed(keys, [], feeds)",
        MACHINE,
        "taken_over",
    ),
    Mutant(
        "an added watch forgets the changes of the streams",
        "run/_run.py",
        "return Owed(keys, await self._primed.mapping.owed(), feeds)",
        "return Owed(keys, await self._primed.mapping.owed(), ())",
        MACHINE,
        "taken_over",
    ),
    Mutant(
        "the changes of a lost history are forgotten",
        "run/_owed.py",
        "mapping.changes.push_backlog(type, [change._replace(revision=0) for change in found])",
        "_ = found",
        MACHINE,
        "lost_history",
    ),
    Mutant(
        "the changes of a lost history wait for revisions that the store does not have",
        "run/_owed.py",
        "mapping.changes.push_backlog(type, [change._replace(revision=0) for change in found])",
        "mapping.changes.push(type, found)",
        MACHINE,
        "lost_history",
    ),
    Mutant(
        "a checkpoint of a lost history is recorded in the restored store",
        "service/_lease.py",
        '        await check_known(self._backend, ("", ""), position(request.known))\n',
        "",
        MACHINE,
        "records_no_checkpoint",
    ),
    Mutant(
        "the changes of the streams are forgotten by a run that ends before it is primed",
        "run/_run.py",
        "            return self._owed\n",
        "            return Owed(self._owed.keys, self._owed.changes)\n",
        MACHINE,
    ),
    Mutant(
        "the next run forgets the keys that are scheduled",
        "run/_run.py",
        "[*self._ownership.queue.owed(), *self._ownership.queue.scheduled()]",
        "list(self._ownership.queue.owed())",
        MACHINE,
    ),
    # --- the cache ---
    Mutant(
        "a reply that a false bookmark has overtaken is not applied",
        "cache/_type_store.py",
        "elif self._holds_older(key, revision if stored is None else int(stored.version)):",
        "elif False:",
        "stateful/test_scoped_run.py",
        "faster",
    ),
    Mutant(
        "a snapshot one revision below the frontier is accepted",
        "cache/_type_store.py",
        "if self.primed and revision < self.frontier:",
        "if self.primed and revision < self.frontier - 1:",
        MACHINE,
    ),
    Mutant(
        "a later snapshot deletes nothing",
        "cache/_type_store.py",
        "for key in [key for key in entries if key not in gathered and ahead.get(key, 0) <= revision]:",
        "for key in list[Key]():",
        MACHINE,
    ),
    Mutant(
        "a part of a broken snapshot is kept",
        "cache/_type_store.py",
        'because a new stream begins."""\n        self._gathered = {}\n',
        'because a new stream begins."""\n',
        MACHINE,
    ),
    # --- the streams ---
    Mutant(
        "a distrusted stream is resumed",
        "cache/_informer.py",
        "return self.store.position if self.store.primed and not self.distrusted else None",
        "return self.store.position if self.store.primed else None",
        MACHINE,
    ),
    Mutant(
        "a stream that stays below the frontier is never left",
        "informers/_follower.py",
        "patience.deadline = trio.current_time() + self._lag_limit",
        "pass",
        MACHINE,
    ),
    Mutant(
        "a silent stream is never left",
        "informers/_patrol.py",
        "                patience.cancel()\n",
        "                pass\n",
        MACHINE,
    ),
    Mutant(
        "a stream that repeats its bookmark is never left",
        "informers/_follower.py",
        "if machine.frontier > before or checked is None or isinstance(item, SnapshotChunk):",
        "if True:",
        MACHINE,
    ),
    Mutant(
        "a change at a bookmark's own revision is accepted",
        "informers/_stream.py",
        "if revision <= bookmark:",
        "if revision < bookmark:",
        MACHINE,
    ),
    Mutant(
        "a stream that resumes at another revision is accepted",
        "informers/_stream.py",
        "if revision != asked.revision:",
        "if False:",
        MACHINE,
    ),
    Mutant(
        "a stream is resumed although the store has dropped the next commit",
        "storage/_log.py",
        "if after < self.floor:",
        "if after < self.floor - 1:",
        MACHINE,
    ),
    # --- the first reconciles ---
    Mutant(
        "the first reconciles see the types at different cuts",
        "run/_priming.py",
        "await self.wait_complete(max(subscription.subscribed_at for subscription in self.subscriptions.values()))",
        "pass",
        MACHINE,
    ),
    Mutant(
        "what changes while other types are still primed is forgotten",
        "run/_run.py",
        "        self._cache.open(self._caches.subscriptions)\n",
        "        [each.drain() for each in self._caches.subscriptions.values()]\n"
        "        self._cache.open(self._caches.subscriptions)\n",
        MACHINE,
    ),
    # --- between two processes ---
    Mutant(
        "a deletion at the revision of the subscription is in neither the cache nor the history",
        "run/_priming.py",
        "if change.deleted and change.revision <= until",
        "if change.deleted and change.revision < until",
        MACHINE,
    ),
    Mutant(
        "the deletions are read from the fence of the run on",
        "run/_ownership.py",
        "caches.deletions(raised.position, raised.checkpoint, until)",
        "caches.deletions(raised.position, raised.position.revision, until)",
        MACHINE,
    ),
    Mutant(
        "a checkpoint is recorded although keys are pending",
        "run/_ownership.py",
        "checkpoint = run.mapped() if done else 0",
        "checkpoint = run.mapped()",
        "run/test_starts_and_ends.py",
        "begins_with",
    ),
    Mutant(
        "a run that ends records a checkpoint above deletions of a type that it has begun to watch",
        "run/_ownership.py",
        "self._record(run, self.is_idle())",
        "self._record(run, self._owes_no_deletion(run))",
        "run/test_contract_of_watches.py",
        "c6_changes_of_the_new_type",
    ),
    Mutant(
        "a checkpoint is recorded although a cache may have missed a deletion",
        "run/_ownership.py",
        " or self.hold() is not None or self.caches.distrusted:",
        " or self.hold() is not None:",
        MACHINE,
    ),
    # --- replies to writes ---
    Mutant(
        "the reply to a deletion does not have the resource that is there instead",
        "service/_delete.py",
        "resource=stored if seen is None else seen)",
        "resource=stored if seen is None else None)",
        MACHINE,
    ),
    Mutant(
        "the reply to a write is not shown by the cache",
        "run/_fence.py",
        "            informer.reply(write.key, write.stored, write.position)\n",
        "            pass\n",
        MACHINE,
    ),
    Mutant(
        "a snapshot takes back what a reply has shown",
        "cache/_type_store.py",
        "            if ahead.get(key, 0) > revision:\n",
        "            if False:\n",
        MACHINE,
    ),
    Mutant(
        "a snapshot deletes what a reply has shown",
        "cache/_type_store.py",
        "if key not in gathered and ahead.get(key, 0) <= revision]:",
        "if key not in gathered]:",
        MACHINE,
    ),
    Mutant(
        "a reply that comes late overrides a newer one",
        "cache/_type_store.py",
        "        if revision <= self._ahead.get(key, 0):\n",
        "        if revision < 0:\n",
        MACHINE,
    ),
    Mutant(
        "a deletion that a reply has shown is undone by an older change",
        "cache/_type_store.py",
        "            self._ahead[key] = revision\n",
        "            self._ahead[key] = revision if stored is not None else 0\n",
        MACHINE,
    ),
    # --- unknown writes ---
    Mutant(
        "keys are handed out while the outcome of a write is unknown",
        "run/_fence.py",
        "        self.unknown_writes += 1\n        self._queue.hold(self)\n",
        "        self.unknown_writes += 1\n",
        MACHINE,
    ),
    Mutant(
        "keys are handed out once the first of two unknown writes is resolved",
        "run/_fence.py",
        "if resolving == self.unknown_writes:",
        "if resolving > 0:",
        MACHINE,
    ),
    Mutant(
        "a write is resolved before the cache has reached the fence",
        "run/_fence.py",
        "            await self._caches.wait_complete(raised.position.revision)\n",
        "",
        MACHINE,
    ),
    Mutant(
        "a write that is lost while the fence is raised is never resolved",
        "run/_fence.py",
        "            self._unresolved = trio.Event()\n            resolving = self.unknown_writes\n"
        "            raised = await self._raise()\n",
        "            resolving = self.unknown_writes\n            raised = await self._raise()\n"
        "            self._unresolved = trio.Event()\n",
        MACHINE,
    ),
    # --- changes and keys ---
    Mutant(
        "the state before an update is not mapped",
        "run/_change_mapper.py",
        "states = (None if old is None else view(old),",
        "states = (None if old is None or new is not None else view(old),",
        MACHINE,
    ),
    Mutant(
        "a change of a key that is being reconciled is lost",
        "queue/_machine.py",
        "                entry.following = Entry(entry.key, (reason,), priority, now)\n",
        "",
        MACHINE,
    ),
    Mutant(
        "the next run forgets the keys that were being reconciled",
        "queue/_queries.py",
        'owed = [key for key, entry in self._entries.items() if entry.state != "scheduled"]',
        'owed = [key for key, entry in self._entries.items() if entry.state not in ("scheduled", "in hand")]',
        MACHINE,
    ),
    Mutant(
        "the next run forgets the keys that back off",
        "queue/_queries.py",
        'if entry.state != "scheduled"]',
        'if entry.state in ("ready", "in hand")]',
        MACHINE,
    ),
    Mutant(
        "a key that has failed for good is dropped with the changes since then",
        "queue/_waiting.py",
        "    dropped = succeeded\n",
        "    def dropped(self, key: K, now: float | None = None) -> None:\n"
        "        del self._machine._entries[key]\n"
        "        self._wake()\n",
        MACHINE,
    ),
    Mutant(
        "a change that comes during a reconcile waits for the one that this has asked for",
        "queue/_machine.py",
        "            following.due = min(following.due, again.due)\n            again = following\n",
        "            again.reasons = following.reasons\n",
        MACHINE,
    ),
    Mutant(
        "keys of a paused controller are handed out once a write is resolved",
        "queue/_waiting.py",
        "        self._holders.discard(holder)\n",
        "        self._holders.clear()\n",
        MACHINE,
    ),
    # --- a run's first function, and mappers that fail ---
    Mutant(
        "what a run's first function may have written is not in the cache at its first reconcile",
        "run/_run.py",
        "raised = again._replace(checkpoint=raised.checkpoint)",
        "raised = raised._replace(fence=again.fence)",
        MACHINE,
    ),
    Mutant(
        "of two changes whose mapping fails the second is lost",
        "mapper/_map_queue.py",
        "            failed.add(item)\n            return failed\n",
        "            failed.due = due\n            return failed\n",
        MACHINE,
    ),
    Mutant(
        "a stray in a mapper's answer loses the rest",
        "run/_change_mapper.py",
        "        for key in keys:\n"
        "            self._add_mapped(key, applied, reason, priority, fight)\n"
        "        if problems:\n",
        "        for key in () if problems else keys:\n"
        "            self._add_mapped(key, applied, reason, priority, fight)\n"
        "        if problems:\n",
        MACHINE,
    ),
    Mutant(
        "the first snapshot of a process continues where a broken one ended",
        "informers/_follower.py",
        "        store.restart()\n        try:\n",
        "        if store.primed:\n            store.restart()\n        try:\n",
        MACHINE,
    ),
    # --- what readers are handed ---
    Mutant(
        "all readers share the metadata of a resource",
        "resource/_resource.py",
        "self._metadata = dict(self._message.metadata)",
        "self._metadata = self._message.metadata",
        MACHINE,
    ),
    Mutant(
        "all readers share the status of a resource",
        "resource/_resource.py",
        "self._status = {key: copy_message(status) for key, status in self._message.status.items()}",
        "self._status = dict(self._message.status)",
        MACHINE,
    ),
    Mutant(
        "all readers share the decoded payload of a resource",
        "resource/_resource.py",
        'self._data = decode(self.type.payload, stored.value if stored is not None else b"")',
        'self._data = self._message.__dict__.setdefault("_shared", decode(self.type.payload, stored.value))',
        MACHINE,
    ),
    # --- causality ---
    Mutant(
        "a change is mapped when the first type has reached it",
        "run/_mapping.py",
        "return min([subscription.reach(revision) for subscription in self._subscriptions.values()])",
        "return max([subscription.reach(revision) for subscription in self._subscriptions.values()])",
        MACHINE,
    ),
)
