"""The state of an open store in PostgreSQL: its connections, what is known of its history, and who waits for it."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence

import trio

from headway.errors import HeadwayError, HistoryCompacted, StoreUnusable, Unavailable
from headway.resource import Kind, Position
from headway.storage._kept import Bounds, KeptCommits, Page
from headway.storage._log import CommitLog
from headway.storage._operations import StoreMismatch
from headway.storage._rules import Rules
from headway.storage._watch import Pulse
from headway.storage.postgres import _schema as sql
from headway.storage.postgres._address import PostgresAddress
from headway.storage.postgres._clock import ServerClock
from headway.storage.postgres._connection import Connection, Pool, connect, only, understood
from headway.storage.postgres._history import IN_MEMORY, LoggedCommit, commits_of, read_page
from headway.storage.postgres._reads import GatheredReads
from headway.storage.postgres._requests import Place, Request, Scope, State
from headway.storage.postgres._rules import RulesFollower
from headway.storage.postgres._snapshots import Snapshots
from headway.storage.postgres._standing import (
    OtherHistory,
    Standing,
    begin_session,
    check_same_history,
    found,
    read_server,
    read_standing,
)
from headway.storage.postgres._writer import Writer

MOST_MET = 100_000
"""The number of resources of which an engine knows that they have been stored: some 6 MB."""

READERS = 2
"""The number of connections for reads of one answer, and as many for scans. Further reads wait.

A renewal of a lease so never waits for lists of large kinds.
"""


class History:
    """What is known of the history of a store, from one opening or from one loss of it to the next.

    Attributes:
        timeline: the sessions of the store.
        log: the newest changes.
        kept: the commits whose changes the store keeps.
        pulse: wakes the watchers.
        trimmed: the floor, the dropped bytes and the time when the store's history was last deleted.
    """

    def __init__(self, standing: Standing, bounds: Bounds) -> None:
        self._store_id = standing.store_id
        self.timeline = standing.timeline
        self.log = CommitLog(
            standing.revision,
            max_changes=bounds.max_changes,
            max_age=bounds.max_age,
            max_bytes=min(bounds.max_bytes, IN_MEMORY),
        )
        self.log.formers_after = standing.floor
        self.kept = KeptCommits(standing.floor, bounds)
        self.trimmed: tuple[int, int, float] = (standing.floor, 0, trio.current_time())
        self.pulse = Pulse()

    def publish(self, commits: Sequence[LoggedCommit], head: int) -> None:
        """Append all commits up to a revision to the log, and wake the watchers. Those above it have no changes."""
        log, now = self.log, trio.current_time()
        if head <= log.head:
            return
        # A session begins with a commit that changes no resource.
        eras = [first for first, _ in self.timeline.eras]
        begun = eras[bisect_right(eras, log.head) : bisect_right(eras, head)]
        if begun:
            commits = sorted([*commits, *(LoggedCommit(each, [], {}, now, 0) for each in begun)])
        for revision, changes, formers, at, size in commits:
            log.append(revision, changes, max(at, 0.0), formers)
            if changes:
                self.kept.append(revision, len(changes), at, size)
            else:
                log.mark()
        if head > log.head:
            log.append(head, (), now)
        self.kept.trim(now)
        self.pulse.beat()

    def at(self, revision: int) -> Position:
        """Return a position of the log."""
        return Position(self._store_id, self.timeline.at(revision), revision)

    def knows(self, session: str) -> bool:
        """Return True if a session is in the timeline."""
        return any(session == id for _, id in self.timeline.eras)


class Session:
    """An open store.

    Args:
        address: the address of the store.
        bounds: the bounds of its history.
        counts: counts what happens rarely, for diagnosis.
        rules: the rules of its commits.

    Attributes:
        where: the address, for errors.
        readers, scans: the connections for reads of one answer, and of as many as it takes.
        clock: the clock of the server.
        seen: the highest position that a caller has seen.
        leases: beats when a term has begun or ended.
        lease_beats: the number of these beats.
        reached: beats when the log has reached another revision.
        suspicion: why a connection has found another history; empty if none has.
    """

    def __init__(self, address: PostgresAddress, bounds: Bounds, counts: Counter[str], rules: Rules) -> None:
        self._address = address
        self.sql = sql.statements(address.schema)
        self.where = where = str(address)
        self.counts = counts
        self.bounds = bounds
        self.leases = Pulse()
        self.lease_beats = 0
        self.reached = Pulse()
        self.readers = Pool(self.connect, where, READERS)
        self.gathered = GatheredReads[Place](self.readers, lambda of: (self.sql.read, sql.places(of)))
        self.held = GatheredReads[Scope](self.readers, lambda of: (self.sql.lease, sql.scopes(of)))
        self.scans = Pool(self.connect, where, READERS)
        self.snapshots = Snapshots(self.scans, self.sql)
        self.rules = RulesFollower(rules, self.sql)
        self.clock = ServerClock()
        self.writer = Writer(self)
        # The hashes of the resources that are stored, as far as this engine has met them.
        self._met: set[int] = set()
        self.seen: Position | None = None
        self._history: History | None = None
        # The sessions of the histories that the store has lost.
        self._lost: set[str] = set()
        self._server = ""
        self._refusal: Callable[[], HeadwayError] | None = None
        self.suspicion = ""

    # Connecting.

    async def connect(self) -> Connection:
        """Open a connection to the history that was seen.

        Raises:
            Unavailable: the server cannot be reached, accepts no writes, or has another history, which the follower
                will find out.
        """
        try:
            connection = await self._connect()
        except StoreUnusable as error:
            # It has been open, so a server that refuses it now is not as it was.
            raise Unavailable(str(error)) from error
        try:
            with understood(self.where):
                await self._check(connection)
        except BaseException as error:
            connection.drop()
            if isinstance(error, OtherHistory):
                self.suspicion = str(error)
                raise Unavailable(f"{self.where} has another history: {error}") from error
            raise
        return connection

    async def _connect(self) -> Connection:
        # The password is read each time, because it may have been changed in its file.
        return await connect(self._address.connecting(), self.where)

    async def _check(self, connection: Connection) -> None:
        # Taken before the read: other tasks see later commits meanwhile.
        seen = self.seen
        server = await read_server(connection)
        standing = await read_standing(connection, self.sql, self.where)
        if seen is not None:
            check_same_history(seen, standing)
        if standing is None:
            raise OtherHistory("the store is not there any more")
        if standing.timeline.eras and (standing.server != server or standing.restored):
            self.counts["other servers" if standing.server != server else "restored in place"] += 1
            await begin_session(connection, self.sql, server, after=standing.timeline.eras[-1][1])
        # A former primary may still serve the connections that it has.
        self._server = server
        connection.outdated = lambda: self._server != server

    async def open(self, replaced: str = "") -> None:
        """Find the store, or create it, and begin a session.

        Only an engine that opens creates a store. A server that has come back without its data would otherwise become
        an empty store, on which every controller of a running engine would act.

        Args:
            replaced: why the store that was open seems to have another history, or to be another one. If it has,
                begin with that.
        """
        connection = await self._connect()
        try:
            with understood(self.where):
                server = await read_server(connection)
                standing = await read_standing(connection, self.sql, self.where)
                if replaced and self._is_same(standing):
                    self.suspicion = ""
                    return
                if standing is None:
                    if replaced:
                        return
                    await found(connection, self.sql, self.where)
                await begin_session(connection, self.sql, server)
                standing = await read_standing(connection, self.sql, self.where)
                assert standing is not None, "it was read above"
                await self.begin(standing, connection, (lambda: StoreMismatch(replaced)) if replaced else None)
                self.suspicion = ""
        finally:
            connection.drop()

    async def begin(
        self, standing: Standing, connection: Connection, replaced: Callable[[], HeadwayError] | None = None
    ) -> None:
        """Begin with a history, as it is now.

        Args:
            replaced: ends all watches with an error, because the history is another one.
        """
        history = History(standing, self.bounds)
        [rows] = await connection.ask((self.sql.sizes, {"after": standing.floor}))
        now = trio.current_time()
        for revision, count, age, size in rows:
            if revision <= standing.revision:
                history.kept.append(revision, count, now - max(age, 0.0), size)
        here = history.at(standing.revision)
        if self._history is None or replaced is not None:
            self._lost |= {id for _, id in self._history.timeline.eras} if self._history is not None else set()
            self.seen = here
        else:
            self.note(here.session, here.revision)
        former, self._history = self._history, history
        if former is not None:
            why = f"the history of {self.where} after revision {former.log.head} is no longer kept"
            former.pulse.stop(replaced or (lambda: HistoryCompacted(why)))
            self.beat_leases()
            self.reached.beat()
        self.rules.lose()

    def beat_leases(self) -> None:
        """Note that a term has begun or ended."""
        self.lease_beats += 1
        self.leases.beat()

    # The state.

    @property
    def history(self) -> History:
        """What is known of the history."""
        assert self._history is not None, "it is open"
        return self._history

    def use(self) -> Session:
        """Return the session. Raise an error if it is no longer usable."""
        if self._refusal is not None:
            raise self._refusal()
        return self

    def stop(self, why: Callable[[], HeadwayError]) -> None:
        """Refuse everything from now on, and end all waiting."""
        self._refusal = self._refusal or why
        self.writer.refuse(why)
        self.history.pulse.stop(why)
        self.leases.stop(why)
        self.reached.stop(why)

    def _is_same(self, standing: Standing | None) -> bool:
        """Return True if all that was seen is in the history that the store has now."""
        try:
            for seen in (self.position, self.history.at(self.history.log.head)):
                check_same_history(seen, standing)
        except OtherHistory:
            return False
        return True

    @property
    def position(self) -> Position:
        """The highest position that is known."""
        head = self.history.log.head
        assert self.seen is not None, "it is open"
        return self.seen if self.seen.revision >= head else self.history.at(head)

    def after(self, request: Request) -> Position:
        """Return the position of a request. Its session may be one that the log has not reached yet."""
        return self.note(request.session, request.revision)

    def stored(self, session: str, before: int, state: State) -> None:
        """Note what a transaction has stored.

        It is published at once if all before it is. Otherwise the follower reads it.
        """
        self.note(session, state.revision)
        history = self.history
        if history.log.head == before and history.timeline.eras[-1][1] == session:
            commits = commits_of(state.changes, trio.current_time())
            if commits is not None:
                history.publish(commits, state.revision)

    def ended(self) -> None:
        """Note that a transaction has ended, whatever its outcome."""
        self.reached.beat()

    @property
    def head(self) -> int:
        """The last revision that is published."""
        return self.history.log.head

    def meet(self, place: Place) -> None:
        """Note that a resource has been stored."""
        if len(self._met) >= MOST_MET:
            self._met.clear()
        self._met.add(hash(place))

    def has_met(self, place: Place) -> bool:
        """Return True if a resource has been stored, as far as this engine knows."""
        return hash(place) in self._met

    def note(self, session: str, revision: int) -> Position:
        """Note a revision that the server has reached in a session, and return its position."""
        assert self.seen is not None, "it is open"
        here = Position(self.seen.store_id, session, revision)
        # An answer of a former server may come late.
        if revision > self.seen.revision and session not in self._lost:
            self.seen = here
        return here

    def check_reached(self, revision: int) -> None:
        """Raise Unavailable if the revision of the store was higher before."""
        # Of a store that was restored in place, the connections are as before.
        if self.seen is not None and revision < self.seen.revision:
            self.suspicion = f"revision {self.seen.revision} was seen, and {revision} is its last one"
            raise Unavailable(f"{self.where} has another history: {self.suspicion}")

    async def confirm(self) -> Position:
        """Return the position of the last commit."""
        [rows] = await self.readers.ask((self.sql.here, {}))
        revision, session = only(rows)
        return self.note(session, revision)

    async def until_reached(self, history: History, revision: int) -> None:
        """Wait until the log of a history has reached a revision, or the history was replaced."""
        while history is self.history and history.log.head < revision:
            await self.reached.wait()

    async def read_page(self, history: History, kind: Kind, after: int, through: int, formers: bool) -> Page:
        """Read changes of a history from the store, as `ReadPage` says."""
        page = await read_page(self.readers, self.sql, kind, after, through, formers=formers)
        if history is not self.history:
            # This raises why.
            await history.pulse.wait()
        return page

    def closed(self) -> HeadwayError:
        """Return the error for a use after the end."""
        return StoreUnusable(f"the store at {self.where} is closed")


async def store_is_there(address: PostgresAddress) -> bool:
    """Return True if a store exists at an address. Creates nothing. Raises the same errors as opening it."""
    connection = await connect(address.connecting(), str(address))
    try:
        with understood(str(address)):
            await read_server(connection)
            return await read_standing(connection, sql.statements(address.schema), str(address)) is not None
    finally:
        connection.drop()
