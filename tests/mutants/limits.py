"""Mutants of the limits on calls, of the clients that heed them, and of the rate of a controller's writes."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_BUCKETS = "base/test_buckets.py"
_LIMITS = "access/test_limits.py"
_CALLS = "access/test_limited_calls.py"
_STREAMS = "access/test_limited_streams.py"
_GOVERNOR = "run/test_governor.py"

LIMIT_MUTANTS = (
    # --- turns ---
    Mutant(
        "lists and snapshots are read in the order in which they are asked for",
        "base/_turns.py",
        "caller, task = CALLER.get(), trio.lowlevel.current_task()",
        "caller, task = None, trio.lowlevel.current_task()",
        "service/test_turns_of_callers.py",
    ),
    Mutant(
        "a write without a version can lose all its races to later ones",
        "service/_blanket.py",
        "    if at not in turns:\n",
        "    if True:\n",
        "service/test_write_races.py",
        "loses_no_more",
    ),
    Mutant(
        "a list by owner misses what was replaced while it was read",
        "storage/sqlite/_snapshots.py",
        "return whole and self._owner_uid.encode() in body",
        "return False",
        "storage/test_sqlite_snapshots.py",
        "of_an_owner",
    ),
    # --- buckets and limits ---
    Mutant(
        "a key that gets a bucket of its own begins with a full one",
        "base/_buckets.py",
        "Bucket(self._burst, self._per_second, now, bucket.left(now))",
        "Bucket(self._burst, self._per_second, now)",
        _BUCKETS,
    ),
    Mutant(
        "buckets that are full again are kept",
        "base/_buckets.py",
        "if self._of[key].is_full(now):",
        "if self._of[key].is_full(now - 1e9):",
        _BUCKETS,
    ),
    Mutant(
        "a refused call spends tokens",
        "access/_limiter.py",
        "        if exceeded is None:\n",
        "        if True:\n",
        _LIMITS,
    ),
    Mutant(
        "callers without a token share buckets with the others",
        "access/_limiter.py",
        'return self._anonymous if call.anonymous and "caller" in self._units else self._others',
        "return self._others",
        _LIMITS,
    ),
    Mutant(
        "a limit that has not changed gives every caller another burst",
        "access/_limiter.py",
        "before.get(each) or _Kept(each)",
        "_Kept(each)",
        _LIMITS,
    ),
    Mutant(
        "a limit counts calls on other namespaces",
        "access/_limiter.py",
        "and limit.namespace in (ANY, call.namespace)",
        "",
        _LIMITS,
    ),
    Mutant(
        "a limit by tenancy refuses a call whose tenancy is not known yet",
        "access/_limiter.py",
        "if not each.by_tenancy and each.applies(call)",
        "if each.applies(call)",
        _LIMITS,
    ),
    Mutant(
        "a subscription counts only in the place of its first subject",
        "access/_counted.py",
        "for subject in subjects[:MAX_SUBJECTS])",
        "for subject in subjects[:1])",
        "access/test_counted.py",
    ),
    # --- calls ---
    Mutant(
        "leases are limited",
        "access/_counted.py",
        'return CATEGORIES_OF.get(service, {}).get(method, "read")',
        'return CATEGORIES_OF.get(service, {}).get(method, "read") or "read"',
        _CALLS,
    ),
    Mutant("no call is counted", "access/_guard.py", "            count(request)\n", "", _CALLS),
    Mutant(
        "a refused request is received",
        "access/_guard.py",
        "        refuse(limiter.refuses(call, trio.current_time()))\n",
        "",
        _CALLS,
    ),
    Mutant(
        "a refusal does not say that nothing was done",
        "rpc/_limited.py",
        'return {NOT_BEGUN: "1", PUSHBACK:',
        "return {PUSHBACK:",
        _CALLS,
    ),
    # --- clients ---
    Mutant("clients do not wait", "rpc/client/_channel.py", "await waits.wait(refused)", "raise", _CALLS),
    Mutant(
        "a write that was canceled between two attempts is in doubt",
        "client/_refusals.py",
        " or ended_a_wait(error))",
        ")",
        _CALLS,
    ),
    Mutant(
        "refused callers come back at one moment",
        "api/_limited_waits.py",
        "return seconds + chance.uniform(",
        "return seconds + 0 * chance.uniform(",
        "rpc/test_limited.py",
    ),
    Mutant(
        "caches open refused streams too early",
        "informers/_follower.py",
        "max(retry_delay(self._failures), self._limited)",
        "retry_delay(self._failures)",
        _STREAMS,
    ),
    Mutant(
        "subscriptions open refused streams too early",
        "subscribing/_follower.py",
        "max(retry_delay(self._failures, _LONGEST_WAIT), self._limited)",
        "retry_delay(self._failures, _LONGEST_WAIT)",
        _STREAMS,
    ),
    # --- the rate of a controller ---
    Mutant("the governor holds nothing back", "run/_governor.py", "await self._wait_for_turn()", "pass", _GOVERNOR),
    Mutant(
        "waiting counts towards the deadline",
        "reconcile/_request.py",
        "self.scope.deadline - now, math.inf",
        "self.scope.deadline - now, self.scope.deadline",
        _GOVERNOR,
    ),
    Mutant(
        "a write elsewhere stops the clock of a reconcile",
        "run/_governor.py",
        "        if task.parent_nursery is None:\n            return None",
        "        if task.parent_nursery is None:\n            return reconciling",
        _GOVERNOR,
    ),
    Mutant(
        "a held write carries the fence from before its wait",
        "client/_client.py",
        "            if writes.governor is not None:\n"
        "                await writes.governor.wait()\n"
        "            request.fence, request.store_id = writes.fence, writes.store_id\n",
        "            request.fence, request.store_id = writes.fence, writes.store_id\n"
        "            if writes.governor is not None:\n"
        "                await writes.governor.wait()\n",
        "client/test_outcomes.py",
        "turn",
    ),
    Mutant(
        "each run has a rate of its own",
        "run/_run.py",
        "ownership.queue, report, noted, governor=governor",
        'ownership.queue, report, noted, governor=governor and type(governor)("", governor._limit, report)',
        _GOVERNOR,
    ),
)
