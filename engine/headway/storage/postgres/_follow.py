"""The task that follows the store's history: what other engines commit, and what this one does, in order.

A notification only says that there is something to read. Everything is read from the history, so nothing depends on
the delivery of one.

However long the store is away, nothing is lost that it still keeps when it comes back.
"""

from __future__ import annotations

from contextlib import suppress

import trio

from headway.errors import EngineBug, HeadwayError, StoreUnusable, Unavailable
from headway.storage._timeline import Timeline
from headway.storage.postgres import _schema as sql
from headway.storage.postgres._connection import Connection, only, understood
from headway.storage.postgres._history import commits_from, is_cut
from headway.storage.postgres._session import Session
from headway.storage.postgres._standing import (
    RESTORED,
    OtherHistory,
    Standing,
    check_same_history,
    read_standing,
)
from headway.storage.postgres._writer import LEASES

PAGE = 2000
"""The number of changes at which an answer ends, and a commit more."""

SILENCE = 5.0
"""The seconds without a notification after which the store is asked nevertheless: the connection may have ended."""

TRIM_STEP = 1000
"""The number of revisions of history that the store may keep beyond its bounds, because deletions have a cost."""

TRIM_PART = 4
"""The part of its bytes and of its age by which the history may exceed them."""

TRIM_ROWS = 10_000
"""The maximum number of rows that one statement deletes."""

_FIRST_WAIT, _LONGEST_WAIT = 0.05, 2.0


class Follower:
    """The task that follows a store.

    Args:
        session: the open store.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._wait = _FIRST_WAIT

    async def run(self) -> None:
        """Follow the store until canceled."""
        session = self._session
        while True:
            connection: Connection | None = None
            try:
                connection = await session.connect()
                with understood(session.where):
                    await self._follow(connection)
            except OtherHistory as error:
                await self._replaced(str(error))
            except HeadwayError as error:
                if isinstance(error, StoreUnusable) and not isinstance(error, Unavailable):
                    text = str(error)
                    session.stop(lambda text=text: StoreUnusable(text))  # type: ignore[misc]  # a lambda with a default
                    return
                session.counts["followers ended"] += 1
                if session.suspicion:
                    await self._replaced(session.suspicion)
            except Exception as error:  # a store without this task must not seem to work
                text = f"the task that follows the store at {session.where} has failed: {error!r}"
                session.stop(lambda text=text: EngineBug(text))  # type: ignore[misc]  # as above
                raise
            finally:
                if connection is not None:
                    connection.drop()
            await trio.sleep(self._wait)
            self._wait = min(self._wait * 2, _LONGEST_WAIT)

    async def _follow(self, connection: Connection) -> None:
        session = self._session
        heard: set[str] = set()
        connection.hear(heard)
        await connection.ask((session.sql.listen, {}))
        session.beat_leases()
        while not connection.outdated():
            if session.suspicion:
                raise OtherHistory(session.suspicion)
            while await self._catch_up(connection):
                pass
            self._wait = _FIRST_WAIT
            await self._trim(connection)
            asked_at = trio.current_time()
            with trio.move_on_at(asked_at + SILENCE):
                while not (await self._is_behind(heard) or self._is_to_trim()):
                    await connection.until_notified()

    async def _is_behind(self, heard: set[str]) -> bool:
        """Take what was heard. Return True if it is of a commit that the log does not have."""
        session, taken = self._session, set(heard)
        heard.clear()
        if LEASES in taken:
            session.beat_leases()
        # Anyone who may connect to the database can notify of anything.
        newest = max((int(each) for each in taken if each.isdecimal() and len(each) < 20), default=0)
        while newest > session.history.log.head and newest == session.writer.writing:
            # The answer to this engine's own COMMIT is on its way, and the writer publishes what it has written.
            await session.reached.wait()
        return newest > session.history.log.head

    async def _catch_up(self, connection: Connection) -> bool:
        """Read what was committed since. Return True if there may be more."""
        session = self._session
        history = session.history
        s, log = session.sql, history.log
        # The writer publishes as well, also during this.
        reached = history.at(log.head)
        asked_at = trio.current_time()
        _, stores, rows, sessions, _ = await connection.ask(
            (sql.BEGIN_READ, {}),
            (s.standing, {}),
            (s.follow, {"after": reached.revision, "most": PAGE, "bytes": sql.ANSWER_BYTES}),
            (s.sessions, {}),
            (sql.COMMIT, {}),
        )
        store_id, _, revision, id, floor, written, shown = only(stores)
        if not written:
            raise Unavailable(RESTORED)
        timeline = Timeline(tuple((first, each) for first, each, _ in sessions))
        now = Standing(store_id, revision, floor, timeline, "")
        check_same_history(reached, now)
        if session.clock.was_set_forward(shown, asked_at):
            await connection.ask((s.renew_all, {}))
            session.clock.renewed(shown, asked_at)
        if floor > log.head:
            await self._begin(connection)
            return True
        history.timeline = timeline
        more = is_cut(PAGE, [(row[7], row[9]) for row in rows])
        head = rows[-1][0] if more else revision
        history.publish(list(commits_from([row for row in rows if row[0] > log.head])), head)
        session.reached.beat()
        session.note(id, revision)
        return more

    def _is_to_trim(self) -> bool:
        history, bounds, now = self._session.history, self._session.bounds, trio.current_time()
        kept, (trimmed, dropped, at) = history.kept, history.trimmed
        kept.trim(now)
        return (
            kept.floor - trimmed >= TRIM_STEP
            or kept.dropped_bytes - dropped >= bounds.max_bytes / TRIM_PART
            or (kept.floor > trimmed and now >= at + bounds.max_age / TRIM_PART)
        )

    async def _trim(self, connection: Connection) -> None:
        """Delete history that is outside the bounds."""
        if not self._is_to_trim():
            return
        history, s = self._session.history, self._session.sql
        floor, dropped, now = history.kept.floor, history.kept.dropped_bytes, trio.current_time()
        await connection.ask((s.raise_floor, {"floor": floor}))
        while (await connection.ask((s.trim, {"floor": floor, "most": TRIM_ROWS})))[0][0][0]:
            pass
        history.trimmed = (floor, dropped, now)

    async def _begin(self, connection: Connection) -> None:
        session = self._session
        standing = await read_standing(connection, session.sql, session.where)
        if standing is None:
            raise Unavailable(f"{session.where} has no store any more")
        session.counts["begun anew"] += 1
        await session.begin(standing, connection)

    async def _replaced(self, why: str) -> None:
        """Begin with the other store or history that the server has now."""
        session = self._session
        session.counts["other histories"] += 1
        with suppress(HeadwayError):
            await session.open(f"{session.where} has another history: {why}")
