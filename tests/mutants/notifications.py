"""Mutants of caches of programs and of their notifications."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_MACHINE = "stateful/test_notify.py"
_CACHE = "notify/test_open_cache.py"
_STREAMS = "notify/test_cached_streams.py"
_RESTORES = "notify/test_restores.py"
_UPDATES = "notify/test_updates.py"
_HELD_UP = "notify/test_held_up.py"
_FETCHES = "notify/test_fetches.py"
_ENDED = "notify/test_ended.py"

NOTIFICATION_MUTANTS = (
    # --- priming, restores and waits ---
    Mutant(
        "a cache is empty between a reset and the next snapshot",
        "notify/_keeper.py",
        "                await informer.wait_complete(revision)\n",
        "                await trio.lowlevel.checkpoint()\n"
        "                start, revision = start._replace(store_id=informer.store.store_id), 0\n",
        _RESTORES,
    ),
    Mutant(
        "a cache opens at whatever a server has",
        "notify/_keeper.py",
        "held, revision = self._held.values(), start.revision",
        "held, revision = self._held.values(), 0",
        _STREAMS,
    ),
    Mutant(
        "a type goes on into the restored store while another one has not noticed it",
        "notify/_primed_cache.py",
        "return self._frozen.get(type.name, content)",
        "return content",
        _RESTORES,
    ),
    Mutant(
        "notifications go on into the restored store",
        "notify/_cuts.py",
        "if not self._frozen or self._view is None:",
        "if True:",
        _RESTORES,
    ),
    Mutant(
        "a waiter never wakes after a reset to a lower position",
        "cache/_informer.py",
        "        self.wanted = 0\n        self._progress.unpark_all()\n",
        "        self.wanted = 0\n",
        _RESTORES,
    ),
    Mutant(
        "a waiter for the new store never wakes",
        "notify/_keeper.py",
        "                self._note_stream(name, informer)\n            self.primed_again.unpark_all()\n",
        "                self._note_stream(name, informer)\n",
        _RESTORES,
    ),
    Mutant(
        "a wait for a position ends at once",
        "notify/_primed_cache.py",
        "if subscription.reach(revision) < revision:",
        "if not subscription.store.frontier:",
        _CACHE,
    ),
    Mutant(
        "a wait for a revision outlives its cache",
        "notify/_primed_cache.py",
        "            wait.cancel()\n",
        "            pass\n",
        _ENDED,
    ),
    Mutant(
        "notifications outlive their cache",
        "notify/_updates.py",
        "        self._cache_closed = True\n        self._pulse.beat()\n",
        "        self._cache_closed = True\n",
        _ENDED,
    ),
    Mutant(
        "a block of a cache ends with the error of a view that was being opened",
        "notify/_cuts.py",
        "except NotPrimed:",
        "except ZeroDivisionError:",
        _ENDED,
        "as_it_was_left",
    ),
    Mutant(
        "a cache is opened again by the store that has replaced its own",
        "notify/_keeper.py",
        "        await trio.lowlevel.checkpoint_if_cancelled()\n",
        "",
        _ENDED,
        "stays_closed",
    ),
    Mutant(
        "a revoked token hides the exception of a cache's block",
        "engine/_open_cache.py",
        "        if raised is not None:\n            # A task",
        "        if False:\n            # A task",
        _CACHE,
        "revoked",
    ),
    Mutant(
        "a denied type leaves a cache open",
        "notify/_keeper.py",
        "if informer.denied:",
        "if False:",
        _CACHE,
    ),
    Mutant(
        "each cache of a process has streams of its own",
        "informers/_informers.py",
        "informer = of_type.get(part)",
        "informer = None",
        _CACHE,
    ),
    Mutant(
        "a stream stays open after its last reader",
        "informers/_informers.py",
        "if self._count(informer, -1) == 0:",
        "if False:",
        _CACHE,
    ),
    Mutant(
        "a part of a snapshot is shown",
        "cache/_type_store.py",
        "            self._gathered.update(zip(map(resource_key, item.resources), item.resources, strict=True))\n",
        "            self._gathered.update(zip(map(resource_key, item.resources), item.resources, strict=True))\n"
        "            self.entries.update(self._gathered)\n            self.primed = True\n",
        _STREAMS,
    ),
    Mutant(
        "a snapshot deletes nothing",
        "cache/_type_store.py",
        "for key in [key for key in entries if key not in gathered and ahead.get(key, 0) <= revision]:",
        "for key in ():",
        _MACHINE,
    ),
    # --- what handles show ---
    Mutant(
        "a value that goes back has no mark",
        "notify/_cuts.py",
        "self._restored = self._view is not None",
        "self._restored = False",
        _RESTORES,
    ),
    Mutant(
        "a mark of a restore is lost on a slow receiver",
        "notify/_handle.py",
        "        if restored:\n            self._restored_since = True\n",
        "        self._restored_since = restored\n",
        _FETCHES,
    ),
    Mutant(
        "a handle shows half a commit",
        "notify/_cuts.py",
        "        return self._view\n\n    def age(",
        "        return self._cache\n\n    def age(",
        _UPDATES,
    ),
    Mutant(
        "a change is delivered before its view",
        "notify/_cuts.py",
        "changed.update(reads.affected(_differences(type, pending, before, view)))",
        "changed.update(reads.affected(_differences(type, pending, before, self._cache)))",
        _UPDATES,
    ),
    Mutant(
        "a slow receiver gets an old value",
        "notify/_handle.py",
        "if self._value_of != answer.values:",
        "if not self._value_of:",
        _UPDATES,
    ),
    Mutant(
        "a handle that changes again loses its turn",
        "notify/_updates.py",
        "        self._changed[handle] = None\n",
        "        self._changed.pop(handle, None)\n        self._changed[handle] = None\n",
        _UPDATES,
        "order_of_their_changes",
    ),
    Mutant(
        "a closed handle is yielded",
        "notify/_updates.py",
        "        self._changed.pop(handle, None)\n",
        "",
        _UPDATES,
    ),
    Mutant(
        "a receiver that was canceled loses a change",
        "notify/_updates.py",
        "        handle.deliver()\n        return handle\n",
        "        handle.deliver()\n        await trio.lowlevel.checkpoint()\n        return handle\n",
        _UPDATES,
    ),
    Mutant(
        "a read without handles is kept",
        "notify/_cuts.py",
        "        self._reads[read.type.name].remove(read)\n",
        "        pass\n",
        _UPDATES,
    ),
    Mutant(
        "notifications go on without a handle while a type has no stream",
        "notify/_cuts.py",
        "            self._opening.cancel()\n",
        "            pass\n",
        _HELD_UP,
    ),
    Mutant(
        "the error of a stream ends before a later value is shown",
        "notify/_cuts.py",
        "self._ending[type] = self._errors.pop(type)",
        "self._errors.pop(type)",
        _HELD_UP,
    ),
    Mutant(
        "an index is not found by the value before the change",
        "notify/_reads.py",
        "for state in (old, new):",
        "for state in (new,):",
        _UPDATES,
    ),
    Mutant(
        "the first failure of a stream is shown",
        "notify/_keeper.py",
        "SHOWN_FAILURES = 2",
        "SHOWN_FAILURES = 1",
        _UPDATES,
    ),
    # --- facts of Consul's views ---
    Mutant(
        "P-4: each handle has an answer of its own",
        "notify/_fetches.py",
        "answer = self._answers.get(key)",
        "answer = hash(key) and None",
        _UPDATES,
        "test_p4",
    ),
    Mutant(
        "P-4: a change reaches only one of the handles of an answer",
        "notify/_handle.py",
        "        self.values += 1\n        for handle in self.handles:\n",
        "        self.values += 1\n        for handle in list(self.handles)[:1]:\n",
        _UPDATES,
        "test_p4",
    ),
    Mutant(
        "P-6: the delay between streams does not grow",
        "informers/_follower.py",
        "max(retry_delay(self._failures), self._limited)",
        "max(retry_delay(0), self._limited)",
        _STREAMS,
        "test_p6",
    ),
    Mutant(
        "P-6: the delay between streams has no jitter",
        "base/_backing_off.py",
        "return chance.uniform(ceiling / 2, ceiling)",
        "return ceiling",
        _STREAMS,
        "test_p6",
    ),
)
