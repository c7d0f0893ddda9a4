"""The writer of an open store: requests that arrive during a transaction share the next one.

Invariants:

1. One transaction of this engine is under way at a time. It holds the lock of the store from its first statement on.
2. A request is canceled before its transaction begins, or not at all (promise 4).
3. What a transaction has decided is based on what is committed, because it has read that under the lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

import trio

from headway.errors import HeadwayError, OutcomeUnknown, StoreUnusable, Unavailable
from headway.storage.postgres import _schema as sql
from headway.storage.postgres._clock import ServerClock
from headway.storage.postgres._connection import Bodies, Connection, Numbers, Rows, Statement, Texts, only, understood
from headway.storage.postgres._history import resource_from
from headway.storage.postgres._requests import Logged, Request, Scope, State, StoredRow, lease_from
from headway.storage.postgres._rules import RulesFollower
from headway.storage.postgres._standing import RESTORED

MOST_IN_A_BATCH = 256
"""The maximum number of requests in one transaction."""

MOST_BYTES = 4 << 20
"""The bytes of bodies after which a transaction takes no further request."""

PATIENCE = 0.002
"""The seconds within which a transaction gets the lock of the store and its answers, if nobody else holds it."""

LATE = 0.02
"""The seconds after which those that are done no longer wait for the next transaction."""

LEASES = "leases"
"""The payload of a notification about the end or the beginning of a term. Others are revisions of commits."""


class Turns:
    """The number of requests that share the next transaction. Pure.

    The fewer transactions, the better, if the writers wait for the store. If the store waits for the writers, half of
    them take turns with the others: some prepare their next requests while those of the others are stored.

    Attributes:
        submitted: when the last request has come.
    """

    def __init__(self) -> None:
        self.submitted = 0.0
        self._began = self._ended = self._took = 0.0
        self._last = 0
        self._halves = False

    def most(self, pending: int, now: float, *, idle: bool) -> int:
        """Return the maximum number of requests of the next transaction.

        Args:
            pending: the number of requests that wait.
            idle: True if none has waited when the last transaction has ended.
        """
        if idle:
            self._halves = now - self._ended > self._took
            self._last = 0
        elif now - self.submitted > self._took / 2:
            self._halves = False
        return (pending + self._last + 1) // 2 if self._halves else MOST_IN_A_BATCH

    def begin(self, size: int, now: float) -> None:
        """Note the number of requests of a transaction, and when it begins."""
        self._last = size
        self._began = now

    def end(self, now: float) -> None:
        """Note when a transaction ends."""
        self._ended = now
        self._took = now - self._began


class OpenStore(Protocol):
    """What a writer needs of an open store.

    Attributes:
        where: the address of the server.
        rules: follows the rules of commits.
        clock: the clock of the server.
        head: the last revision that is published.
    """

    sql: sql.Statements
    where: str
    rules: RulesFollower
    clock: ServerClock

    @property
    def head(self) -> int: ...

    async def connect(self) -> Connection:
        """Open a connection."""
        ...

    def check_reached(self, revision: int) -> None:
        """Raise an error if the revision of the store was higher before."""

    def stored(self, session: str, before: int, state: State) -> None:
        """Note what a transaction has changed behind a revision, before its writers continue."""

    def ended(self) -> None:
        """Note that a transaction has ended, whatever its outcome."""


class Writer:
    """The transactions of one engine.

    Attributes:
        writing: the revision of a transaction while it is written; otherwise 0.
    """

    def __init__(self, store: OpenStore) -> None:
        self._store = store
        self._sql = store.sql
        self._where = store.where
        self._rules = store.rules
        self.writing = 0
        self._connection: Connection | None = None
        self._pending: deque[Request] = deque()
        self._turns = Turns()
        # Those whose transaction has ended, and who continue once the next one is sent: what they do next is done while
        # the store writes. Not if the next one may have to wait for the lock of the store.
        self._done: Sequence[Request] = ()
        self._is_quick = False
        self._holds = trio.Event()
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
        self._pending.append(request)
        self._turns.submitted = trio.current_time()
        self._wake.set()
        request.wake = partial(trio.lowlevel.reschedule, trio.lowlevel.current_task())

        def abort(_: object) -> trio.lowlevel.Abort:
            if request not in self._pending:
                return trio.lowlevel.Abort.FAILED
            self._pending.remove(request)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)
        if request.error is not None:
            raise request.error

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Make the transactions, until `close` is called and nothing is pending."""
        try:
            await self._run()
        finally:
            # Without this task, no caller may be left waiting.
            self.refuse(self._ended)
            self._fail(self._pending, self._ended())
            self._done = [*self._done, *self._pending]
            self._pending.clear()
            self._wake_done()
            self._drop()

    async def _run(self) -> None:
        turns = self._turns
        with trio.CancelScope(shield=True):
            while self._pending or not self._closing:
                idle = not self._pending
                if idle:
                    self._wake_done()
                    self._wake = trio.Event()
                    await self._wake.wait()
                    # Those that come together share a transaction.
                    await trio.lowlevel.checkpoint()
                    await trio.lowlevel.checkpoint()
                if not self._pending:
                    continue
                batch = self._taken(turns.most(len(self._pending), trio.current_time(), idle=idle))
                turns.begin(len(batch), trio.current_time())
                await self._run_batch(batch)
                turns.end(trio.current_time())

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.drop()

    def close(self) -> None:
        """End `run` once nothing is pending."""
        self._closing = True
        self._wake.set()

    def _taken(self, most: int) -> list[Request]:
        """Take the requests of the next transaction. No two of them may change the same resource."""
        taken: list[Request] = []
        left: list[Request] = []
        changed: set[object] = set()
        size = 0
        while self._pending and len(taken) < min(most, MOST_IN_A_BATCH) and size < MOST_BYTES:
            request = self._pending.popleft()
            # Who owns something is known from before the transaction, so such a request comes first.
            if not changed.isdisjoint(request.changed) or (request.owners and taken):
                left.append(request)
                continue
            changed.update(request.changed)
            size += request.size
            taken.append(request)
            if self._tells(request):
                break
        self._pending.extendleft(reversed(left))
        return taken

    def _tells(self, request: Request) -> bool:
        """Return True if a request tells the rules what to demand of the commits after it."""
        kinds = self._rules.rules.kinds
        return bool(kinds) and any(kind in kinds for kind, _ in request.changed)

    async def _run_batch(self, requests: Sequence[Request]) -> None:
        try:
            await self._stored(requests)
        except BaseException as error:  # no caller may be left waiting, or take it for stored, whatever the error
            self._fail(requests, error)
            self._rules.lose()
            if not isinstance(error, HeadwayError):
                raise
        finally:
            self.writing = 0
            self._store.ended()
            self._wake_done()
            self._done = requests
            if not self._is_quick:
                self._wake_done()
            self._holds.set()

    async def wake_late(self) -> None:
        """Let those continue whose next transaction has to wait for the lock unexpectedly, until canceled."""
        while True:
            await self._holds.wait()
            self._holds, done = trio.Event(), self._done
            await trio.sleep(LATE)
            if self._done is done:
                self._wake_done()

    def _wake_done(self) -> None:
        for each in self._done:
            each.wake()
        self._done = ()

    def _fail(self, requests: Iterable[Request], error: BaseException) -> None:
        for request in requests:
            if request.error is None or not isinstance(error, OutcomeUnknown):
                # Several tasks raise it, so each gets its own.
                request.error = type(error)(*error.args) if isinstance(error, HeadwayError) else self._failed()
                request.error.__cause__ = error

    def _failed(self) -> HeadwayError:
        return OutcomeUnknown(f"the task that writes to the store at {self._where} has failed")

    def _ended(self) -> HeadwayError:
        return StoreUnusable(f"the task that writes to the store at {self._where} has ended")

    async def _stored(self, requests: Sequence[Request]) -> None:
        connection = self._connection
        if connection is None or not connection.is_idle:
            self._wake_done()  # It may take long.
            self._drop()
            connection = self._connection = await self._store.connect()
        try:
            with understood(self._where):
                asked_at = trio.current_time()
                state, session, expired = await self._read(connection, requests)
                self._is_quick = trio.current_time() < asked_at + PATIENCE
            before = state.revision
            state.end_leases(expired)
            _run(state, requests)
            writes = _writes(self._sql, state, before)
            with understood(self._where, writing=bool(writes)):
                self._wake_done()
                if writes:
                    self.writing = state.revision
                    connection.warnings.clear()
                    # A transaction that notifies is committed alone: no other one of the server is, until it is on
                    # the disk and its replicas have it.
                    await connection.ask(
                        *writes, (sql.HEARD, {}), (sql.COMMIT, {}), *_notices(self._sql, state, before)
                    )
                    if connection.warnings:
                        # That its replica may not have the commit, for example.
                        raise OutcomeUnknown(
                            f"{self._where} has warned about a commit: {'; '.join(connection.warnings)}"
                        )
                else:
                    await connection.ask((sql.ROLLBACK, {}))
            self._rules.made(session, before, state.revision, (each.place for each in state.changes))
        except BaseException:
            connection.drop()
            raise
        for request in requests:
            if request.error is None:
                request.session = session
                request.publish()
                if request.committing is not None and request.made_revision:
                    request.committing.made(request.revision)
        self._store.stored(session, before, state)

    async def _read(self, connection: Connection, requests: Sequence[Request]) -> tuple[State, str, list[Scope]]:
        """Begin a transaction, take the lock, and read what the requests name, the session, and expired leases."""
        s = self._sql
        found: list[Rows]
        places = list(dict.fromkeys(place for each in requests for place in each.places))
        owners = [uid for each in requests for uid in each.owners]
        scopes = list(dict.fromkeys(scope for each in requests for scope in each.scopes))
        rules = self._rules if self._rules.wanted and any(each.changed or each.counts for each in requests) else None
        since_asked = rules.asks(self._store.head) if rules is not None else []
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
        asked_at = trio.current_time()
        _, stores, *found = await connection.ask(*asked)
        revision, session, floor, written, shown = only(stores)
        if not written:
            raise Unavailable(RESTORED)
        if self._store.clock.was_set_forward(shown, asked_at):
            # No lease has expired before its time: all count anew.
            await connection.ask((s.renew_all, {}), (sql.COMMIT, {}))
            self._store.clock.renewed(shown, asked_at)
            return await self._read(connection, requests)
        self._store.check_reached(revision)
        state = State(revision)
        if rules is not None:
            since = found.pop(0) if since_asked else None
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
        "metadata": Texts(row.metadata for row in rows),
        "bodies": bodies,
        "added": Numbers(int(each.replaced is None) for each in changes),
        "grown": Numbers(len(body) - size for body, size in zip(bodies, sizes, strict=True)),
    }
