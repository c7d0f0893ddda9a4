"""The state of an open store in PostgreSQL: its connections, what is known of its history, and who waits for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import trio

from headway.errors import HeadwayError, HistoryCompacted, StoreUnusable, Unavailable
from headway.resource import Kind, Position
from headway.storage._kept import Bounds, KeptCommits, Page
from headway.storage._log import CommitLog
from headway.storage._rules import Rules
from headway.storage._timeline import Timeline
from headway.storage._watch import Pulse
from headway.storage.postgres import _schema as sql
from headway.storage.postgres._address import PostgresAddress
from headway.storage.postgres._connection import Connection, Pool, connect, understood
from headway.storage.postgres._history import IN_MEMORY, read_page
from headway.storage.postgres._reads import GatheredReads
from headway.storage.postgres._requests import Request
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

READERS = 4
"""The number of connections for reads; further reads wait."""


class History:
    """What is known of the history of a store, from one opening or from one loss of it to the next.

    Attributes:
        log: the newest changes.
        kept: the commits whose changes the store keeps.
        pulse: wakes the watchers.
    """

    def __init__(self, standing: Standing, bounds: Bounds) -> None:
        self.log = CommitLog(
            standing.revision,
            max_changes=bounds.max_changes,
            max_age=bounds.max_age,
            max_bytes=min(bounds.max_bytes, IN_MEMORY),
        )
        self.log.formers_after = max(standing.floor, standing.formers_floor)
        self.kept = KeptCommits(standing.floor, bounds)
        self.pulse = Pulse()


class Session:
    """An open store.

    Args:
        parameters: what libpq connects with.
        schema: the schema of the store.
        where: the address, for errors.
        bounds: the bounds of its history.
        counts: counts what happens rarely, for diagnosis.
        rules: the rules of its commits.

    Attributes:
        parameters: what libpq connects with.
        seen: the highest position that a caller has seen.
        timeline: the sessions of the store.
        leases: beats when a term has begun or ended.
        reached: beats when the log has reached another revision.
    """

    def __init__(
        self, parameters: Mapping[str, str], schema: str, where: str, bounds: Bounds, counts: Counter[str], rules: Rules
    ) -> None:
        self.sql = sql.statements(schema)
        self.where = where
        self.counts = counts
        self.bounds = bounds
        self.leases = Pulse()
        self.reached = Pulse()
        self.parameters = parameters
        self.readers = Pool(self.connect, where, READERS)
        self.gathered = GatheredReads(self.readers, self.sql)
        self.snapshots = Snapshots(self.readers, self.sql)
        self.rules = RulesFollower(rules, self.sql)
        self.writer = Writer(self.connect, self.sql, where, self.rules, self.note)
        self.seen: Position | None = None
        self.timeline = Timeline(())
        self._history: History | None = None
        self._refusal: Callable[[], HeadwayError] | None = None
        self._suspicion = ""

    # Connecting.

    async def connect(self) -> Connection:
        """Open a connection to the history that was seen.

        Raises:
            Unavailable: the server cannot be reached, accepts no writes, or has another history, which the follower
                will find out.
        """
        connection = await connect(self.parameters, self.where)
        try:
            with understood(self.where):
                await self._check(connection)
        except BaseException as error:
            connection.drop()
            if isinstance(error, OtherHistory):
                self._suspicion = str(error)
                raise Unavailable(f"{self.where} has another history: {error}") from error
            raise
        return connection

    async def _check(self, connection: Connection) -> Standing:
        # Taken before the read: other tasks see later commits meanwhile.
        seen = self.seen
        server = await read_server(connection)
        standing = await read_standing(connection, self.sql, self.where)
        if seen is not None:
            check_same_history(seen, standing)
        if standing is None:
            raise OtherHistory("the store is not there any more")
        if standing.timeline.eras and standing.server != server:
            self.counts["other servers"] += 1
            await begin_session(connection, self.sql, server, after=standing.timeline.eras[-1][1])
        return standing

    async def open(self) -> None:
        """Find the store, or create it, and begin a session."""
        connection = await connect(self.parameters, self.where)
        try:
            with understood(self.where):
                server = await read_server(connection)
                if await read_standing(connection, self.sql, self.where) is None:
                    await found(connection, self.sql, self.where)
                await begin_session(connection, self.sql, server)
                standing = await read_standing(connection, self.sql, self.where)
                assert standing is not None, "it was read above"
                await self.begin(standing, connection)
        finally:
            connection.drop()

    async def begin(self, standing: Standing, connection: Connection) -> None:
        """Begin with a history, as it is now."""
        history = History(standing, self.bounds)
        [rows] = await connection.ask((self.sql.sizes, {"after": standing.floor}))
        now = trio.current_time()
        for revision, count, age, size in rows:
            if revision <= standing.revision:
                history.kept.append(revision, count, now - max(age, 0.0), size)
        self.timeline = standing.timeline
        self.seen = Position(standing.store_id, standing.timeline.at(standing.revision), standing.revision)
        self._history = history
        self.rules.lose()

    def replace(self, why: Callable[[], HeadwayError]) -> None:
        """End all watches with an error, because the history is another one, or is no longer kept."""
        self.history.pulse.stop(why)
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

    @property
    def suspicion(self) -> str:
        """Why a connection has found another history; empty if none has."""
        return self._suspicion

    def trust(self) -> None:
        """Forget the suspicion."""
        self._suspicion = ""

    @property
    def position(self) -> Position:
        """The highest position that is known."""
        head = self.history.log.head
        assert self.seen is not None, "it is open"
        return self.seen if self.seen.revision >= head else self.at(head)

    def at(self, revision: int) -> Position:
        """Return a position of the log."""
        assert self.seen is not None, "it is open"
        return Position(self.seen.store_id, self.timeline.at(revision), revision)

    def after(self, request: Request) -> Position:
        """Return the position of a request. Its session may be one that the log has not reached yet."""
        return self.note(request.session, request.revision)

    def note(self, session: str, revision: int) -> Position:
        """Note a revision that the server has reached in a session, and return its position."""
        assert self.seen is not None, "it is open"
        here = Position(self.seen.store_id, session, revision)
        if revision > self.seen.revision:
            self.seen = here
        return here

    async def confirm(self) -> Position:
        """Return the position of the last commit."""
        [[(revision, session)]] = await self.readers.ask((self.sql.here, {}))
        return self.note(session, revision)

    async def until_reached(self, revision: int) -> None:
        """Wait until the log has reached a revision."""
        while self.history.log.head < revision:
            await self.reached.wait()

    async def read_page(self, kind: Kind, after: int, through: int, formers: bool) -> Page:
        """Read changes from the store, as `ReadPage` says."""
        return await read_page(self.readers, self.sql, kind, after, through, formers=formers)

    def lost(self, why: str) -> Callable[[], HeadwayError]:
        """Return the error for watches whose changes are no longer kept."""
        return lambda: HistoryCompacted(why)

    def closed(self) -> HeadwayError:
        """Return the error for a use after the end."""
        return StoreUnusable(f"the store at {self.where} is closed")


async def store_is_there(address: PostgresAddress) -> bool:
    """Return True if a store exists at an address. Creates nothing. Raises the same errors as opening it."""
    connection = await connect(address.connecting(), str(address))
    try:
        with understood(str(address)):
            return await read_standing(connection, sql.statements(address.schema), str(address)) is not None
    finally:
        connection.drop()
