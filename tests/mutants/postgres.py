"""Mutants of the store in PostgreSQL: of its promises, of its pages, and of what engines tell each other."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SCHEMA, _WRITER = "storage/postgres/_schema.py", "storage/postgres/_writer.py"
_REQUESTS, _READS = "storage/postgres/_requests.py", "storage/postgres/_reads.py"
_RULES, _FOLLOW = "storage/postgres/_rules.py", "storage/postgres/_follow.py"
_SESSION, _WRITING = "storage/postgres/_session.py", "storage/test_postgres_writer.py"
_STANDING, _CONNECTION = "storage/postgres/_standing.py", "storage/postgres/_connection.py"

_TOGETHER, _BOUNDS = "storage/test_postgres_together.py", "storage/test_postgres_bounds.py"
_GROWTH, _FAULTS = "storage/test_postgres_growth.py", "storage/test_postgres_faults.py"
_CONFORMANCE = "storage/test_conformance.py"
_CHECKS = "postgres and (below_the_fence_is_refused or its_release or renewed or scope or many_writers)"
_UNKNOWN = "broken_commit or may_not_have or cannot_notify"
_SESSIONS = "settings_of_a_user or restored_in_place or one_session"
_LEASES = "counts_anew or expired_term or counts_for_no_rule"
_PAGES = "cut_by_the_end or of_one_revision or of_a_scope or scope_has or metadata_reads or rules_follow_long"

POSTGRES_MUTANTS = (
    # --- one order of commits ---
    Mutant(
        "a transaction does not lock the row of the store",
        _SCHEMA,
        '{_CLOCK} FROM {s}.store FOR UPDATE"',
        '{_CLOCK} FROM {s}.store"',
        _TOGETHER,
    ),
    Mutant(
        "an engine does not learn of the sessions that others begin",
        _FOLLOW,
        "        history.timeline = timeline\n",
        "",
        _TOGETHER,
    ),
    Mutant(
        "a notification is sent before the commit, and holds up other stores",
        _WRITER,
        "(sql.COMMIT, {}), *_notices(self._sql, state, before)\n",
        "*_notices(self._sql, state, before), (sql.COMMIT, {})\n",
        _FAULTS,
        _UNKNOWN,
    ),
    Mutant(
        "a commit whose answer was lost counts as rejected",
        _CONNECTION,
        "return made if writing else Unavailable(",
        "return Unavailable(",
        _FAULTS,
        _UNKNOWN,
    ),
    Mutant(
        "a commit that no replica may have is acknowledged",
        _WRITER,
        "                    if connection.warnings:\n",
        "                    if False:\n",
        _FAULTS,
        _UNKNOWN,
    ),
    Mutant(
        "a commit that cannot notify counts as failed",
        _CONNECTION,
        "if broken is not None and not committed:",
        "if broken is not None:",
        _FAULTS,
        _UNKNOWN,
    ),
    # --- fences and leases ---
    Mutant(
        "a commit does not check its fence",
        _REQUESTS,
        "        if self._fence is not None:\n            check_fence(state, self._fence)\n        changes",
        "        changes",
        _CONFORMANCE,
        _CHECKS,
    ),
    Mutant(
        "the end of a term does not raise its fence",
        _REQUESTS,
        "            if term == lease.term:\n",
        "            if False:\n",
        _CONFORMANCE,
        _CHECKS,
    ),
    Mutant(
        "a renewal continues another term",
        _SCHEMA,
        "AND holder = %(holder)s AND term = %(term)s",
        "AND holder = %(holder)s",
        _CONFORMANCE,
        _CHECKS,
    ),
    Mutant(
        "a term begins although its predecessor is being renewed",
        _SCHEMA,
        'f"{self.leases} FOR UPDATE"',
        "self.leases",
        _TOGETHER,
    ),
    Mutant(
        "a lease expires by the clock of the engine",
        _SCHEMA,
        "false, clock_timestamp() + make_interval(secs => %(ttl)s))",
        "false, to_timestamp(%(acquired_at)s) + make_interval(secs => %(ttl)s))",
        _TOGETHER,
    ),
    Mutant(
        "an expired term is not ended by the next transaction",
        _WRITER,
        "            state.end_leases(expired)\n",
        "",
        _FAULTS,
        _LEASES,
    ),
    Mutant(
        "a lease does not count anew on a restarted server",
        _STANDING,
        "[(statements.renew_all, {})] if sessions and",
        "[] if sessions and",
        _FAULTS,
        _LEASES,
    ),
    Mutant(
        "a frozen engine keeps the lock of the store",
        _SCHEMA,
        "set_config('idle_in_transaction_session_timeout', '5s', false), ",
        "",
        _FAULTS,
        _SESSIONS,
    ),
    Mutant(
        "the end of a term is missed while it is read",
        "storage/postgres/_lease.py",
        "        if session.lease_beats == beats:\n",
        "        if True:\n",
        _BOUNDS,
        "while_it_is_read",
    ),
    # --- sessions, and histories that were lost ---
    Mutant(
        "an engine writes to a store that is below what it has seen",
        _WRITER,
        "        self._store.check_reached(revision)\n",
        "",
        "storage/test_postgres_restored.py",
        "before_it_knows",
    ),
    Mutant(
        "each engine begins a session on a restarted server",
        _STANDING,
        "    if after is not None and session != after:\n",
        "    if False:\n",
        _FAULTS,
        _SESSIONS,
    ),
    # --- reads of one revision, in parts ---
    Mutant(
        "the pages of a list are of several revisions",
        _SCHEMA,
        "ISOLATION LEVEL REPEATABLE READ, READ ONLY",
        "ISOLATION LEVEL READ COMMITTED, READ ONLY",
        _BOUNDS,
        _PAGES,
    ),
    Mutant(
        "the number of changes in an answer cuts a commit",
        _SCHEMA,
        "FETCH FIRST %(most)s ROWS WITH TIES",
        "FETCH FIRST %(most)s ROWS ONLY",
        _BOUNDS,
        _PAGES,
    ),
    Mutant(
        "the bytes of an answer cut a commit",
        _SCHEMA,
        "(ORDER BY {order} GROUPS BETWEEN",
        "(ORDER BY {order} ROWS BETWEEN",
        _BOUNDS,
        _PAGES,
    ),
    Mutant(
        "a list by metadata reads on behind its limit",
        _READS,
        " and not (scan.wanted and sum(map(len, pages)) >= scan.wanted)",
        "",
        _BOUNDS,
        _PAGES,
    ),
    Mutant(
        "a scope has what a resource was stored with first",
        _SCHEMA,
        " form = excluded.form, metadata = excluded.metadata,",
        " form = excluded.form,",
        _BOUNDS,
        _PAGES,
    ),
    Mutant(
        "a NUL in metadata fails the commits of others",
        _REQUESTS,
        'if "\\\\u000" in found:',
        "if False:",
        _BOUNDS,
        _PAGES,
    ),
    Mutant(
        "a change of metadata does not keep the state before it",
        _REQUESTS,
        "stored, row, another))",
        "stored, row, False))",
        _CONFORMANCE,
        _CHECKS,
    ),
    # --- history ---
    Mutant(
        "history is deleted without raising its floor",
        _SCHEMA,
        "SET floor = greatest(floor, %(floor)s)",
        "SET floor = floor",
        _GROWTH,
    ),
    Mutant(
        "an engine with a longer history lowers the floor",
        _SCHEMA,
        "SET floor = greatest(floor, %(floor)s)",
        "SET floor = %(floor)s",
        _GROWTH,
    ),
    Mutant(
        "an engine goes on behind history that it has missed",
        _FOLLOW,
        "        if floor > log.head:\n",
        "        if False:\n",
        _GROWTH,
    ),
    Mutant(
        "a page of deleted history has a gap",
        "storage/postgres/_history.py",
        "    if after < floor:\n",
        "    if False:\n",
        _GROWTH,
    ),
    Mutant(
        "an engine does not hear of the commits of others",
        _FOLLOW,
        "        await connection.ask((session.sql.listen, {}))\n",
        "",
        _TOGETHER,
        "hears_at_once",
    ),
    # --- quotas ---
    Mutant(
        "a quota misses what others have committed before a fence was raised",
        _RULES,
        "if self._at == (session, before):",
        "if self._at[0] == session:",
        _TOGETHER,
    ),
    Mutant(
        "rules follow only the first page of what others have committed",
        _RULES,
        "            if not is_cut(PAGE_CHANGES, [(row[5], None) for row in since]):\n",
        "            if True:\n",
        _BOUNDS,
        _PAGES,
    ),
    Mutant(
        "a failed transaction counts for quotas",
        _WRITER,
        "            self._rules.lose()\n",
        "",
        _FAULTS,
        _LEASES,
    ),
    # --- what the writer publishes, and what it believes ---
    Mutant(
        "a commit is published before those of other engines that came first",
        _SESSION,
        "if history.log.head == before and",
        "if history.log.head <= before and",
        _WRITING,
        "not_known",
    ),
    Mutant(
        "the follower repeats what the writer has published meanwhile",
        _FOLLOW,
        "[row for row in rows if row[0] > log.head]",
        "rows",
        _WRITING,
        "repeats",
    ),
    Mutant(
        "rules follow only what the engine has heard of",
        _RULES,
        "if follows and since is None and revision > self._at[1]:",
        "if False:",
        _WRITING,
        "heard_of",
    ),
    Mutant(
        "an engine remembers every resource that it has met",
        _SESSION,
        "            self._met.clear()\n",
        "            pass\n",
        _WRITING,
        "believed",
    ),
    Mutant(
        "writers that are done wait for the lock of the next transaction",
        _WRITER,
        "            if not self._is_quick:\n",
        "            if False:\n",
        _WRITING,
        "lock_of_the_next",
    ),
    Mutant(
        "writers that are done wait for a lock that another engine has just taken",
        _WRITER,
        "            if self._done is done:\n",
        "            if False:\n",
        _WRITING,
        "lock_of_the_next",
    ),
    Mutant(
        "an interrupted transaction counts as stored",
        _WRITER,
        "except BaseException as error:  # no caller",
        "except Exception as error:  # no caller",
        _WRITING,
        "interrupted",
    ),
    Mutant(
        "a lease ends before all count anew, after the clock was set forward",
        "storage/postgres/_clock.py",
        "            return True\n        self._last",
        "            self._last = (shown, asked_at)\n            return True\n        self._last",
        "storage/test_postgres_clock.py",
        "another_task",
    ),
    Mutant(
        "what fails when it is committed without a COMMIT is acknowledged",
        _CONNECTION,
        "zip_longest(prepares, results)",
        "zip(prepares, results, strict=False)",
        _FAULTS,
        "when_it_is_committed",
    ),
    Mutant(
        "half of the writers wait while a slow disk stores the others",
        _WRITER,
        "self._halves = now - self._ended > self._took",
        "self._halves = True",
        _WRITING,
        "Turns",
    ),
)
