"""What a connection finds: the server, the store on it, and whether that is the history that this process has seen."""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass

import psycopg

from headway.errors import StoreUnusable, Unavailable
from headway.resource import Position
from headway.storage._timeline import KNOWN_SESSIONS, Timeline
from headway.storage.postgres import _schema as sql
from headway.storage.postgres._connection import Connection, Statement, only, understood

RESTORED = "the tables were restored in place: they may lack commits that only others have seen"
"""Why a connection is of no more use. The next one begins a session, to which no lost commit belongs."""


class OtherHistory(Exception):
    """The server has another history than the one that was seen, or another store."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A store as a connection has found it.

    Attributes:
        floor: history is compacted up to this revision.
        server: the server of the current session.
        restored: True if something else than an engine has written the row of the store last.
    """

    store_id: str
    revision: int
    floor: int
    timeline: Timeline
    server: str
    restored: bool = False


async def read_server(connection: Connection) -> str:
    """Return what tells the server from another one, and from itself before a restart.

    Raises:
        Unavailable: the server accepts no writes.
        StoreUnusable: a pooler answers in its place, or the database has another encoding.
    """
    _, _, [(recovering, encoding, process, server)] = await connection.ask(
        (sql.SEARCH_PATH, {}), (sql.SETTINGS, {}), (sql.SERVER, {})
    )
    if process != connection.process:
        raise StoreUnusable(
            "a pooler such as PgBouncer answers in place of the server: connect to PostgreSQL itself, because "
            "notifications (LISTEN), and what tells one server from another, need a session on the server itself"
        )
    if recovering:
        raise Unavailable("the server is a standby: it accepts no writes")
    if encoding != "UTF8":
        raise StoreUnusable(f"the database has the encoding {encoding}: create one with ENCODING 'UTF8'")
    return str(server)


async def read_standing(connection: Connection, statements: sql.Statements, where: str) -> Standing | None:
    """Return the store, or None if there is none. Raises StoreUnusable if it is of a newer program."""
    try:
        _, stores, sessions, _ = await connection.ask(
            (sql.BEGIN_READ, {}), (statements.standing, {}), (statements.sessions, {}), (sql.COMMIT, {})
        )
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        await connection.ask((sql.ROLLBACK, {}))
        return None
    if not stores:
        return None
    store_id, format, revision, _, floor, written, _ = stores[0]
    if format != sql.FORMAT:
        raise StoreUnusable(
            f"the store at {where} has format {format}, and this program knows format {sql.FORMAT}: use a newer Headway"
        )
    timeline = Timeline(tuple((first, id) for first, id, _ in sessions))
    return Standing(store_id, revision, floor, timeline, sessions[-1][2] if sessions else "", not written)


async def found(connection: Connection, statements: sql.Statements, where: str) -> None:
    """Create the tables of a store that is not there. Another engine may do so at the same time."""
    lock = ("SELECT pg_advisory_xact_lock(hashtext(%(channel)s))", {"channel": statements.channel})
    with understood(where):
        await connection.ask((sql.BEGIN, {}), lock)
        try:
            if await _exists(connection, "to_regclass", statements.store):
                if not (await connection.ask((statements.here, {})))[0]:
                    raise StoreUnusable(f'the table "store" at {where} has lost its row: restore it from a backup')
                return
            try:
                if not await _exists(connection, "to_regnamespace", statements.schema):
                    await connection.ask((statements.create_schema, {}))
                for table in statements.tables:
                    await connection.ask((table, {}))
            except psycopg.errors.InsufficientPrivilege as error:
                raise StoreUnusable(
                    f"there is no store at {where}, and this user may not create one: let an administrator run what "
                    f"`headway store sql` prints ({' '.join(str(error).split())})"
                ) from error
            await connection.ask((statements.found, {"id": uuid.uuid4().hex}), (sql.COMMIT, {}))
        finally:
            if not connection.is_idle and not connection.closed:
                await connection.ask((sql.ROLLBACK, {}))


async def _exists(connection: Connection, lookup: str, name: str) -> bool:
    [[(found,)]] = await connection.ask((f"SELECT {lookup}(%(name)s) IS NOT NULL", {"name": name}))
    return bool(found)


async def begin_session(
    connection: Connection, statements: sql.Statements, server: str, *, after: str | None = None
) -> None:
    """Begin a session by a commit. Leases that are held count anew if the store is on another server now.

    Args:
        after: do nothing if this is no longer the current session.
    """
    _, stores, sessions = await connection.ask((sql.BEGIN, {}), (statements.lock, {}), (statements.sessions, {}))
    revision, session, *_ = only(stores)
    if after is not None and session != after:
        await connection.ask((sql.ROLLBACK, {}))
        return
    values = {"id": uuid.uuid4().hex, "revision": revision + 1, "server": server}
    moved: list[Statement] = [(statements.renew_all, {})] if sessions and sessions[-1][2] != server else []
    await connection.ask(
        *moved,
        (statements.begin_session, values),
        (statements.enter_session, values),
        (statements.forget_sessions, {"most": KNOWN_SESSIONS + 1}),
        (sql.COMMIT, {}),
    )
    for payload in (str(revision + 1), "leases"):
        # Behind the commit, which a full queue of notifications must not fail.
        with suppress(psycopg.Error):
            await connection.ask((statements.notify, {"channel": statements.channel, "payload": payload}))


def check_same_history(seen: Position, now: Standing | None) -> None:
    """Raise OtherHistory unless a position that was returned before is in the history that the server has now.

    A database that was restored, or a replica that has lost commits, has a lower revision. If it is no longer lower,
    the session that begins on another server shows it.
    """
    if now is None:
        raise OtherHistory("the store is not there any more")
    if now.store_id != seen.store_id:
        raise OtherHistory(f"expected store {seen.store_id}, got {now.store_id}")
    left = now.timeline.lefts().get(seen.session, now.timeline.oldest - 1)
    if now.revision < seen.revision or (left is not None and seen.revision > left):
        raise OtherHistory(f"revision {seen.revision} of session {seen.session} is not in its history")
