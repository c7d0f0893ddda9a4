"""The writer of an open store: requests that arrive during a transaction share the next one.

Invariants:

1. One transaction of this engine is under way at a time. It holds the lock of the store from its first statement on.
2. A request is canceled before its transaction begins, or not at all (promise 4).
3. What a transaction has decided is based on what is committed, because it has read that under the lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

import trio

from headway.errors import HeadwayError, OutcomeUnknown
from headway.storage.postgres import _schema as sql
from headway.storage.postgres._connection import Bodies, Connection, Numbers, Rows, Statement, Texts, understood
from headway.storage.postgres._history import resource_from
from headway.storage.postgres._requests import Logged, Request, Scope, State, StoredRow, lease_from
from headway.storage.postgres._rules import RulesFollower

MOST_IN_A_BATCH = 256
"""The maximum number of requests in one transaction."""

MOST_BYTES = 4 << 20
"""The bytes of bodies after which a transaction takes no further request."""

LEASES = "leases"
"""The payload of a notification about the end or the beginning of a term. Others are revisions of commits."""


class _Pending:
    __slots__ = ("done", "request", "task")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.done = False
        self.task: trio.lowlevel.Task | None = None


class Writer:
    """The transactions of one engine.

    Args:
        connect: opens a connection, on which nothing else is done.
        statements: the statements of the store's schema.
        where: the address of the server.
        rules: follows the rules of commits.
        made: called with the session of each transaction that is stored, the revision before it, and what it has
            changed, before its writers continue.
        reached: called with the revision of the store in each transaction. Raises an error if it was higher before.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Connection]],
        statements: sql.Statements,
        where: str,
        rules: RulesFollower,
        made: Callable[[str, int, State], object],
        reached: Callable[[int], object],
    ) -> None:
        self._connect = connect
        self._sql = statements
        self._where = where
        self._rules = rules
        self._made = made
        self._reached = reached
        self._connection: Connection | None = None
        self._pending: deque[_Pending] = deque()
        self._wake = trio.Event()
        self._closing = False
        self._refusal: Callable[[], HeadwayError] | None = None

    def refuse(self, why: Callable[[], HeadwayError]) -> None:
        """Refuse all further requests; pending ones are still done."""
        self._refusal = self._refusal or why

    @trio.lowlevel.enable_ki_protection
    async def submit(self, request: Request) -> None:
        """Run a request and return when it is stored. Raises the request's error."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._refusal is not None:
            raise self._refusal()
        mine = _Pending(request)
        self._pending.append(mine)
        self._wake.set()
        mine.task = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            if mine not in self._pending:
                return trio.lowlevel.Abort.FAILED
            self._pending.remove(mine)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)
        if request.error is not None:
            raise request.error

    async def run(self) -> None:
        """Make the transactions, until `close` is called and nothing is pending."""
        with trio.CancelScope(shield=True):
            while self._pending or not self._closing:
                if not self._pending:
                    self._wake = trio.Event()
                    await self._wake.wait()
                    continue
                # The writers that the last transaction has woken come back within a turn or two.
                await trio.lowlevel.checkpoint()
                await trio.lowlevel.checkpoint()
                await self._run_batch(self._taken())
        self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.drop()

    def close(self) -> None:
        """End `run` once nothing is pending."""
        self._closing = True
        self._wake.set()

    def _taken(self) -> list[_Pending]:
        """Take the requests of the next transaction. No two of them may change the same resource."""
        taken: list[_Pending] = []
        left: list[_Pending] = []
        changed: set[object] = set()
        size = 0
        while self._pending and len(taken) < MOST_IN_A_BATCH and size < MOST_BYTES:
            each = self._pending.popleft()
            request = each.request
            # Who owns something is known from before the transaction, so such a request comes first.
            if not changed.isdisjoint(request.changed) or (request.owners and taken):
                left.append(each)
                continue
            changed.update(request.changed)
            size += request.size
            taken.append(each)
            if self._tells(request):
                break
        self._pending.extendleft(reversed(left))
        return taken

    def _tells(self, request: Request) -> bool:
        """Return True if a request tells the rules what to demand of the commits after it."""
        kinds = self._rules.rules.kinds
        return bool(kinds) and any(kind in kinds for kind, _ in request.changed)

    async def _run_batch(self, batch: Sequence[_Pending]) -> None:
        requests = [each.request for each in batch]
        try:
            await self._stored(requests)
        except Exception as error:  # no caller may be left waiting, whatever the error
            self._fail(requests, error)
            self._rules.lose()
            if not isinstance(error, HeadwayError):
                raise
        finally:
            for each in batch:
                if each.task is not None:
                    trio.lowlevel.reschedule(each.task)

    def _fail(self, requests: Iterable[Request], error: Exception) -> None:
        for request in requests:
            if request.error is None or not isinstance(error, OutcomeUnknown):
                # Several tasks raise it, so each gets its own.
                request.error = type(error)(*error.args) if isinstance(error, HeadwayError) else error
                request.error.__cause__ = error

    async def _stored(self, requests: Sequence[Request]) -> None:
        connection = self._connection
        if connection is None or not connection.is_idle:
            self._drop()
            connection = self._connection = await self._connect()
        try:
            with understood(self._where):
                state, session, expired = await self._read(connection, requests)
            before = state.revision
            state.end_leases(expired)
            _run(state, requests)
            writes = _writes(self._sql, state, before)
            with understood(self._where, writing=bool(writes)):
                if writes:
                    connection.warnings.clear()
                    # A transaction that notifies is committed alone: no other one of the server is, until it is on
                    # the disk and its replicas have it.
                    await connection.ask(*writes, (sql.COMMIT, {}), *_notices(self._sql, state, before))
                    if connection.warnings:
                        # That its replica may not have the commit, for example.
                        raise OutcomeUnknown(
                            f"{self._where} has warned about a commit: {'; '.join(connection.warnings)}"
                        )
                else:
                    await connection.ask((sql.ROLLBACK, {}))
            self._rules.made(session, before, state.revision, (each.place for each in state.changes))
        finally:
            if not connection.is_idle:
                connection.drop()
        for request in requests:
            if request.error is None:
                request.session = session
                request.publish()
                if request.committing is not None and request.made_revision:
                    request.committing.made(request.revision)
        self._made(session, before, state)

    async def _read(self, connection: Connection, requests: Sequence[Request]) -> tuple[State, str, list[Scope]]:
        """Begin a transaction, take the lock, and read what the requests name, the session, and expired leases."""
        s = self._sql
        found: list[Rows]
        places = list(dict.fromkeys(place for each in requests for place in each.places))
        owners = [uid for each in requests for uid in each.owners]
        scopes = list(dict.fromkeys(scope for each in requests for scope in each.scopes))
        rules = self._rules if self._rules.wanted and any(each.changed or each.counts for each in requests) else None
        since_asked = rules.asks() if rules is not None else []
        asked: list[Statement] = [(sql.BEGIN, {}), (s.lock, {}), *since_asked]
        if rules is not None and rules.rules.active and places:
            # A rule may look at what a change replaces.
            asked.append((s.read, sql.places(places)))
        if places:
            asked.append((s.look, sql.places(places)))
        if scopes:
            of = {"controllers": Texts(each for each, _ in scopes), "members": Texts(each for _, each in scopes)}
            whole = any(each.whole for each in requests)
            fences, leases = (s.fences_of, s.locked_leases) if whole else (s.fences, s.leases)
            asked += [(s.expired, of), (fences, of), (leases, of)]
        asked += [(s.owns, {"uid": uid}) for uid in owners]
        active = rules is not None and rules.rules.active
        _, [(revision, session, floor)], *found = await connection.ask(*asked)
        self._reached(revision)
        state = State(revision)
        if rules is not None:
            since = found.pop(0) if since_asked else []
            old = found.pop(0) if places and active else []
            await rules.catch_up(connection, session, revision, floor, since)
            if rules.rules.active and not active and places:
                [old] = await connection.ask((s.read, sql.places(places)))
            stored = {
                place: resource_from(row[2], row[3])
                for place, row in zip(places, old, strict=False)
                if row[3] is not None
            }
            # A request that tells the rules what to demand is the last of its transaction.
            if rules.rules.active or self._tells(requests[-1]):
                state.charge = partial(rules.charge, stored=stored)
        if places:
            for group, kind, partition, namespace, name, *row in found.pop(0):
                state.rows[(group, kind), (partition, namespace, name)] = StoredRow(*row)
        expired = [(str(controller), str(member)) for controller, member in found.pop(0)] if scopes else []
        if scopes:
            state.fences = {(row[0], row[1]): row[2:] for row in found.pop(0)}
            state.leases = {(row[0], row[1]): lease_from(*row) for row in found.pop(0)}
        state.owning = {uid for uid, rows in zip(owners, found, strict=True) if rows}
        return state, session, expired


def _run(state: State, requests: Sequence[Request]) -> None:
    for request in requests:
        before = state.revision
        try:
            request.made_revision = request.run(state)
        except HeadwayError as error:
            assert state.revision == before, "a rejected request has changed nothing"
            request.error = error
            continue
        request.revision = state.revision


def _writes(s: sql.Statements, state: State, before: int) -> list[Statement]:
    """Return the statements that write what the requests have changed."""
    writes = [*_changes(s, state.changes)]
    if state.raised:
        scopes = list(state.raised)
        writes.append(
            (
                s.write_fences,
                {
                    "controllers": Texts(controller for controller, _ in scopes),
                    "members": Texts(member for _, member in scopes),
                    "terms": Numbers(state.fences[scope][0] for scope in scopes),
                    "numbers": Numbers(state.fences[scope][1] for scope in scopes),
                    "settled": Numbers(state.fences[scope][2] for scope in scopes),
                },
            )
        )
    for (controller, member), lease in state.granted.items():
        scope = {"controller": controller, "member": member}
        if lease is None:
            writes.append((s.delete_lease, scope))
        else:
            granted = lease._asdict()
            del granted["name"]
            writes.append((s.write_lease, {**scope, **granted}))
    if state.revision > before:
        writes.append((s.advance, {"revision": state.revision}))
    return writes


def _notices(s: sql.Statements, state: State, before: int) -> Iterable[Statement]:
    """Return the statements that notify others of what is written."""
    if state.revision > before:
        yield s.notify, {"channel": s.channel, "payload": str(state.revision)}
    if state.granted:
        yield s.notify, {"channel": s.channel, "payload": LEASES}


def _changes(s: sql.Statements, changes: Sequence[Logged]) -> Iterable[Statement]:
    """Return the statements that log changes and make them. What is stored is logged before it is replaced."""
    removed = [each for each in changes if each.put is None]
    if removed:
        yield s.log_stored, {**_numbers(removed), **sql.places(each.place for each in removed)}
    puts = [each for each in changes if each.put is not None]
    # A resource that is now stored as another version of its kind is removed and put.
    deleted = {each.place for each in removed}.difference([each.place for each in puts]) if removed else ()
    if deleted:
        yield s.delete, sql.places(deleted)
    for statement, keeps in ((s.put, False), (s.put_changed, True)):
        given = [each for each in puts if each.keeps_former is keeps]
        if given:
            yield statement, {**_numbers(given), **sql.places(each.place for each in given), **_rows(given)}


def _numbers(changes: Sequence[Logged]) -> dict[str, Numbers]:
    return {
        "revisions": Numbers(each.revision for each in changes),
        "seqs": Numbers(each.seq for each in changes),
    }


def _rows(changes: Sequence[Logged]) -> dict[str, object]:
    rows = [each.put for each in changes if each.put is not None]
    bodies = Bodies(row.body for row in rows)
    sizes = [0 if each.replaced is None else each.replaced.size for each in changes]
    return {
        "uids": Texts(row.uid for row in rows),
        "owners": Texts(row.owner_uid for row in rows),
        "forms": Texts(row.form for row in rows),
        "bodies": bodies,
        "added": Numbers(int(each.replaced is None) for each in changes),
        "grown": Numbers(len(body) - size for body, size in zip(bodies, sizes, strict=True)),
    }
