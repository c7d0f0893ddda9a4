"""Deliberate one-line bugs in Headway, each with the tests that must find it."""

from __future__ import annotations

from tests.mutants.clusters import CLUSTER_MUTANTS
from tests.mutants.fetches import FETCH_MUTANTS
from tests.mutants.fields import FIELD_MUTANTS
from tests.mutants.kubernetes_types import KUBERNETES_TYPE_MUTANTS
from tests.mutants.limits import LIMIT_MUTANTS
from tests.mutants.logins import LOGIN_MUTANTS
from tests.mutants.mutant import Mutant as Mutant
from tests.mutants.needs import NEED_MUTANTS
from tests.mutants.notifications import NOTIFICATION_MUTANTS
from tests.mutants.once_survived import ONCE_SURVIVED
from tests.mutants.over_http import HTTP_MUTANTS
from tests.mutants.pauses import PAUSE_MUTANTS
from tests.mutants.peerings import PEERING_MUTANTS
from tests.mutants.postgres import POSTGRES_MUTANTS
from tests.mutants.quotas import QUOTA_MUTANTS
from tests.mutants.runs import RUN_MUTANTS
from tests.mutants.scopes import SCOPE_MUTANTS
from tests.mutants.simulated_clusters import SIMULATED_CLUSTER_MUTANTS
from tests.mutants.simulated_peers import SIMULATED_PEER_MUTANTS
from tests.mutants.steps import STEP_MUTANTS
from tests.mutants.subscriptions import SUBSCRIPTION_MUTANTS
from tests.mutants.terminal import TERMINAL_MUTANTS
from tests.mutants.topics import TOPIC_MUTANTS
from tests.mutants.whys import WHY_MUTANTS
from tests.mutants.worlds import WORLD_MUTANTS

_CONTRACT = "run/test_contract.py"
_CHANGES = "run/test_contract_of_changes.py"
_WRITES = "run/test_contract_of_writes.py"
_FURTHER = "run/test_contract_further.py"
_RESTARTS = "run/test_contract_of_restarts.py"
_HISTORIES = "testing/test_watch_histories.py"

MUTANTS = (
    # --- the store of a type ---
    Mutant(
        "a change at or below the frontier is accepted",
        "cache/_type_store.py",
        "if revision <= frontier or revision < newest:",
        "if revision < newest - 10**9:",
        _CONTRACT,
    ),
    Mutant(
        "a snapshot from below the frontier is accepted",
        "cache/_type_store.py",
        "if self.primed and revision < self.frontier:",
        "if False:",
        _CONTRACT,
    ),
    Mutant(
        "a late reply replaces a newer state",
        "cache/_type_store.py",
        "if revision <= self._ahead.get(key, 0):\n            return None\n        if revision > self.frontier:\n",
        "if True:\n",
        _CONTRACT,
    ),
    Mutant(
        "a change below an own write is applied",
        "cache/_type_store.py",
        "if ahead and ahead.get(key, 0) >= revision:",
        "if ahead and revision <= 0:",
        _CONTRACT,
    ),
    # --- a run's start ---
    Mutant(
        "a run does not wait for its starting revision",
        "run/_priming.py",
        "await wait_primed(informer, start.revision, self._stall_limit)",
        "await wait_primed(informer, 0, self._stall_limit)",
        _RESTARTS,
    ),
    Mutant(
        "the first reconciles see the types at different revisions",
        "run/_priming.py",
        "await self.wait_complete(max(subscription.subscribed_at for subscription in self.subscriptions.values()))",
        "await trio.lowlevel.checkpoint()",
        _CONTRACT,
    ),
    Mutant(
        "a deletion that only a reply has shown when the run subscribes is not found",
        "cache/_informer.py",
        "self.subscribed_at = store.newest",
        "self.subscribed_at = store.frontier",
        _CHANGES,
    ),
    Mutant(
        "the entries of the cache at the start are not queued",
        "run/_ownership.py",
        'self.queue.add_all(managed.store.entries, Reason("started"), priority=BACKLOG)',
        "pass",
        _RESTARTS,
    ),
    Mutant(
        "deletions between two runs are not found",
        "run/_ownership.py",
        "return await caches.deletions(raised.position, raised.checkpoint, until)",
        "return {}",
        _CHANGES,
    ),
    Mutant(
        "the pending keys of the previous run are forgotten",
        "run/_run.py",
        "for key in self._owed.keys:",
        "for key in ():",
        _CHANGES,
    ),
    # --- causality ---
    Mutant(
        "a stream tells how far it is while an item is on its way",
        "storage/_watch.py",
        "if not (self._sleeps and self._has_nothing()):",
        "if not self._has_nothing():",
        "informers/test_asking.py",
    ),
    Mutant(
        "a stream tells that it is complete although it has a change to deliver",
        "storage/_watch.py",
        "if not (self._sleeps and self._has_nothing()):",
        "if not self._sleeps:",
        "storage/test_skipping_watches.py",
    ),
    Mutant(
        "a stream sleeps through the revision that is wanted",
        "storage/_watch.py",
        "not (self._announced < self._wanted <= self._log.head) and ",
        "",
        "informers/test_asking.py",
    ),
    Mutant(
        "a stream does not learn what was wanted before it was opened",
        "informers/_follower.py",
        "if informer.wanted:",
        "if not informer:",
        "informers/test_asking.py",
    ),
    Mutant(
        "a store that catches up slowly counts as stalled",
        "run/_priming.py",
        "        informer.ask_on()\n",
        "",
        "run/test_priming_progress.py",
    ),
    Mutant(
        "a stream tells how far it is past the items that a wrapper holds back",
        "service/_watch_list.py",
        " and not call.wrapped",
        "",
        "informers/test_asking.py",
    ),
    Mutant(
        "a later revision is wanted in place of an earlier one",
        "cache/_informer.py",
        " and not 0 < self.wanted <= revision:",
        ":",
        "informers/test_asking.py",
    ),
    Mutant(
        "a pin does not say that it waits for a later frontier",
        "cache/_informer.py",
        "if not pin.reached and not 0 < self.wanted <= pin.revision:",
        "if not pin:",
        "informers/test_asking.py",
    ),
    Mutant(
        "a change waits for a type that has long reached it",
        "run/_mapping.py",
        "complete, asked = self.reach(first), first",
        "complete, asked = min(each.store.frontier for each in self._subscriptions.values()), first",
        _CONTRACT,
    ),
    Mutant(
        "a change is mapped before every type has reached it",
        "run/_mapping.py",
        "complete = asked = 0",
        "complete = asked = 10**18",
        _CONTRACT,
    ),
    Mutant(
        "a change is not mapped by its old state",
        "run/_change_mapper.py",
        "states = (None if old is None else view(old), None if new is None else view(new))",
        "states = (None, None if new is None else view(new))",
        _CHANGES,
    ),
    Mutant(
        "changes that a run had not mapped are forgotten",
        "run/_mapping.py",
        "            owed.append(each)\n",
        "",
        _CHANGES,
    ),
    Mutant(
        "a mapping that failed is dropped",
        "run/_mapping_retries.py",
        "kept = self._changes.defer(item, now + delay)",
        "kept = FailedChanges(item, now + delay)",
        "run/test_failing_functions.py",
    ),
    # --- own writes ---
    Mutant(
        "a write with an unknown outcome holds no key back",
        "run/_fence.py",
        "self._queue.hold(self)",
        "pass",
        _WRITES,
    ),
    Mutant(
        "the resolving commit is not awaited",
        "run/_fence.py",
        "await self._caches.wait_complete(raised.position.revision)",
        "await trio.lowlevel.checkpoint()",
        _WRITES,
    ),
    Mutant(
        "a canceled write counts as rejected",
        "client/_refusals.py",
        "return not (isinstance(error, trio.Cancelled) and (knows_outcomes or ended_a_wait(error)))\n",
        "return not isinstance(error, trio.Cancelled)\n",
        _WRITES,
    ),
    # --- the queue ---
    Mutant(
        "a request for a key in hand is forgotten",
        "queue/_machine.py",
        "        following = self._in_hand(key).following\n        if following is None:\n            del",
        "        following = None\n        if following is None:\n            del",
        _CHANGES,
    ),
    Mutant(
        "a change within the interval of its key is forgotten",
        "queue/_machine.py",
        "            self._back_off_until(entry, end, now)\n            entry = self._lanes.pop()",
        "            del self._entries[entry.key]\n            entry = self._lanes.pop()",
        "run/test_min_interval.py",
    ),
    Mutant(
        "the backlog never gets a turn",
        "queue/_entries.py",
        "if live and self._passed_over < self._live_per_backlog:",
        "if live:",
        "run/test_contract_starvation.py",
    ),
    Mutant(
        "keys of a low priority never get a turn",
        "queue/_ranked.py",
        "oldest if self._passed_over == self._live_per_backlog else",
        "oldest if False else",
        "run/test_priorities.py",
    ),
    Mutant(
        "a key that waits keeps the priority that it had",
        "queue/_ranked.py",
        '        if entry.state == "ready":\n            self._lanes.append(entry)\n',
        "",
        "run/test_priorities.py",
    ),
    Mutant(
        "a key that triggers itself is not slowed",
        "run/_outcomes.py",
        "        if delay is None:\n            return False\n",
        "        if delay is not None or True:\n            return False\n",
        "run/test_self_triggers.py",
    ),
    Mutant(
        "writers that undo each other are not slowed",
        "run/_self_triggers.py",
        "if write is None and fight is not None and key in fight.undone:",
        "if write is None and fight is not None and key in fight.undone and now < 0:",
        "fights/test_fights.py",
    ),
    Mutant(
        "two equal writers find their fight at the same turn",
        "fights/_turns.py",
        "return FREE + int(chance.random() * MORE)",
        "return FREE",
        "fights/test_fights.py",
    ),
    Mutant(
        "each change that a fight causes elsewhere ends the delay",
        "run/_self_triggers.py",
        "(due := known.due_by(reason, now)) > now",
        "(due := known.due_by(reason, now)) < 0",
        "fights/test_fights.py",
    ),
    Mutant(
        "a change of a part that nobody fights over waits for the end of a fight",
        "fights/_turns.py",
        "if now - fight.changed_at > SOON and fight",
        "if now < 0 and fight",
        "fights/test_turns.py",
    ),
    Mutant(
        "a fight is found although the values are new",
        "fights/_turns.py",
        "            fight.turns = COUNTED + 1\n",
        "            pass\n",
        "fights/test_turns.py",
    ),
    Mutant(
        "programs that write different fields fight",
        "fights/_turns.py",
        "if holder is not None and holder != by:",
        "if holder != by or True:",
        "fights/test_turns.py",
    ),
    Mutant(
        "rare turns are a fight",
        "fights/_turns.py",
        "if took > SOON + busy:",
        "if took > SOON + busy + 1e9:",
        "fights/test_turns.py",
    ),
    Mutant(
        "the delays of a fight do not begin anew with another reason",
        "run/_self_triggers.py",
        "                return due\n            self.loops.pop(key, None)\n",
        "                return due\n",
        "fights/test_fights.py",
    ),
    Mutant(
        "a fight delays a requeue that the program has asked for",
        "queue/_machine.py",
        "            elif due < entry.due:\n",
        "            elif due != entry.due:\n",
        "fights/test_fights.py",
    ),
    Mutant(
        "a key that may wait is not pending",
        "queue/_machine.py",
        '                waiting.state, waiting.since = "backing off", now\n'
        "                self._backing_off += waiting is entry\n",
        "                pass\n",
        "queue/test_reporting_back.py",
    ),
    Mutant(
        "a key that its own status has triggered is not queued",
        "run/_change_mapper.py",
        "self._queue.add(key, reason, priority=priority, due=due)",
        "due > trio.current_time() or self._queue.add(key, reason, priority=priority, due=due)",
        "run/test_self_triggers.py",
    ),
    Mutant(
        "a reconcile that has looked at its status is not repeated for its own",
        "run/_own_writes.py",
        "(own := write.own) is None or own.looked or not",
        "(own := write.own) is None or not",
        "run/test_own_statuses.py",
    ),
    Mutant(
        "a look in a task that no reconcile has started does not count",
        "resource/_stored.py",
        "(looking := stored._looking) is not None",
        "(looking := LOOKING.get()) is not None",
        "run/test_own_statuses.py",
    ),
    Mutant(
        "a look at a copy without changes does not count",
        "resource/_resource.py",
        "        made._looking = self._looking\n",
        "        made._looking = None\n",
        "run/test_own_statuses.py",
    ),
    Mutant(
        "a look after an own status does not count",
        "run/_outcomes.py",
        "        if statuses.looked:\n",
        "        if statuses.looked and not statuses.put_off:\n",
        "run/test_own_statuses.py",
    ),
    Mutant(
        "a change that comes with the reply to an own status is not reconciled",
        "run/_own_writes.py",
        "or own.looked or not _is_status_alone(applied, write.status_key):",
        "or own.looked:",
        "run/test_own_statuses.py",
    ),
    Mutant(
        "a task that a reconcile has left behind writes the statuses of the next one",
        "reconcile/_request.py",
        "and type == self.type and is_within(self.task)",
        "and type == self.type",
        "run/test_own_statuses.py",
    ),
    Mutant(
        "a status on another resource is taken for an own one",
        "reconcile/_request.py",
        "self.own() if key == self.key and type == self.type and is_within",
        "self._own() if is_within",
        "run/test_own_statuses.py",
    ),
    Mutant(
        "an apply is compared with a state that is older than what its caller has read",
        "run/_cached_states.py",
        " and _reaches(informer, revision)",
        "",
        "run/test_unchanged_applies.py",
    ),
    Mutant(
        "an apply is compared with a state for which its caller's write was refused",
        "client/_unchanged.py",
        "        if self.failures > self._failures_before_read:\n            return None\n",
        "",
        "run/test_unchanged_applies.py",
    ),
    Mutant(
        "an apply is compared with a cache that may lack a lost write",
        "run/_cached_states.py",
        "if stored is None or self._held():",
        "if stored is None:",
        "run/test_unchanged_applies.py",
    ),
    Mutant(
        "an apply is compared with a cache whose stream is interrupted",
        "run/_cached_states.py",
        "informer.cut_off is None and not",
        "not",
        "run/test_unchanged_applies.py",
    ),
    Mutant(
        "a key that its own status has triggered runs at once",
        "run/_self_triggers.py",
        "return now + MERGING + -(now + MERGING) % TICK",
        "return now",
        "run/test_self_triggers.py",
    ),
    # --- shards ---
    Mutant(
        "a sharded controller is idle while a shard has unmapped deletions",
        "sharding/_ownership.py",
        "if not self._assigned or any(mapping is None or mapping.unmapped for mapping in mappings):",
        "if not self._assigned or any(mapping is None for mapping in mappings):",
        "sharding/test_pending.py",
        "not_idle_while",
    ),
    # --- terms and leases ---
    Mutant(
        "a write carries no fence",
        "client/_client.py",
        "request.fence, request.store_id = writes.fence, writes.store_id",
        "request.store_id = writes.store_id",
        _FURTHER,
    ),
    Mutant(
        "a store accepts a stale term",
        "storage/_leases.py",
        "if borne < stored:",
        "if False:",
        _FURTHER,
    ),
    Mutant(
        "a new placement goes on from the furthest of some shards",
        "storage/_fences.py",
        "whole += [min(each) for count, each in parts.items() if count == str(len(each))]",
        "whole += [max(each) for each in parts.values()]",
        "storage/test_conformance.py",
        "memory",
    ),
    Mutant(
        "a new placement begins at its own first fence",
        "storage/_fences.py",
        'if member.startswith("members/"):',
        "if True:",
        "sharding/test_changes.py",
    ),
    Mutant(
        "the terms of a new placement begin at 1",
        "storage/_fences.py",
        "if of == controller and _division(each) not in (None, division):",
        "if False:",
        "sharding/test_changes.py",
    ),
    Mutant(
        "a lease counts as held for longer than it is",
        "client/_hold.py",
        "SURE = 0.8",
        "SURE = 1.2",
        "run/test_singleton.py",
    ),
    Mutant(
        "a lost lease ends nothing",
        "client/_hold.py",
        "self._why = error\n                    self._block.cancel()\n",
        "self._why = error\n",
        "client/test_hold_lease.py",
    ),
    # --- durability ---
    Mutant(
        "SQLite answers before it has committed",
        "storage/sqlite/_writer.py",
        'connection.execute("COMMIT")',
        "pass",
        _FURTHER,
    ),
    Mutant(
        "SQLite shows a deleted resource as stored lately",
        "storage/sqlite/_requests.py",
        "self._recent.remove(operation.kind, operation.key)",
        "pass",
        "storage/test_sqlite_recent.py",
    ),
    Mutant(
        "SQLite shows a state from before a commit that another read has seen",
        "storage/sqlite/_backend.py",
        "if self._seen > self.log.head:",
        "if False:",
        "storage/test_sqlite_recent.py",
    ),
    Mutant(
        "a canceled write of SQLite ends before its thread",
        "base/_thread_calls.py",
        "trio.lowlevel.Abort.FAILED",
        "trio.lowlevel.Abort.SUCCEEDED",
        "base/test_thread_calls.py",
    ),
    # --- streams ---
    Mutant(
        "a commit is delivered in pieces",
        "storage/_log.py",
        "index < group[-1])",
        "False)",
        _HISTORIES,
        "in_memory_keep",
    ),
    Mutant(
        "a filtered part of a commit reports that more changes follow",
        "storage/_filter.py",
        "if more != change.more:",
        "if False:",
        _HISTORIES,
        "in_memory_keep",
    ),
    Mutant(
        "a snapshot ends after its first chunk",
        "storage/_reads.py",
        "        chunk, self._taken = self._taken[:SNAPSHOT_CHUNK], self._taken[SNAPSHOT_CHUNK:]\n",
        "        chunk, self._taken, self._cut = self._taken[:SNAPSHOT_CHUNK], [], Cut((), 0, 0)\n",
        _HISTORIES,
        "in_memory_keep",
    ),
    *ONCE_SURVIVED,
    *STEP_MUTANTS,
    *SUBSCRIPTION_MUTANTS,
    *HTTP_MUTANTS,
    *TERMINAL_MUTANTS,
    *TOPIC_MUTANTS,
    *NOTIFICATION_MUTANTS,
    *CLUSTER_MUTANTS,
    *FETCH_MUTANTS,
    *SCOPE_MUTANTS,
    *PEERING_MUTANTS,
    *NEED_MUTANTS,
    *LOGIN_MUTANTS,
    *FIELD_MUTANTS,
    *PAUSE_MUTANTS,
    *KUBERNETES_TYPE_MUTANTS,
    *LIMIT_MUTANTS,
    *POSTGRES_MUTANTS,
    *QUOTA_MUTANTS,
    *SIMULATED_CLUSTER_MUTANTS,
    *SIMULATED_PEER_MUTANTS,
    *WHY_MUTANTS,
    # --- what only a whole run shows ---
    *RUN_MUTANTS,
    *WORLD_MUTANTS,
)
