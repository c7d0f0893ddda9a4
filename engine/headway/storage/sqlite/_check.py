"""Checks and lists of a store's file without opening it as a store.

A check runs SQLite's own check, and compares the rows with each other. Everything here only reads, in one transaction,
so a server may write to the file at the same time.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import trio
from typing_extensions import override

from headway.errors import StoreUnusable
from headway.resource import Key, Kind, Position, pb, resource_key
from headway.storage._backend import ListsResources
from headway.storage._leases import lease_of
from headway.storage._operations import Within
from headway.storage.sqlite import _schema as sql
from headway.storage.sqlite._connect import explained
from headway.storage.sqlite._inspect import (
    SCHEMA_WITHIN,
    begin_of,
    damage_text,
    has_schema,
    missing_rows,
    open_to_read,
    open_unrecognized,
    refuse_unrecognized,
)
from headway.storage.sqlite._reader import read_many
from headway.storage.sqlite._rows import Rows, resource_from

_MOST_PAGES = 100
"""The maximum number of findings of SQLite's own check. If there are more, one already says enough."""


# The place of the file format for writers in SQLite's header, and the highest one, which is that of files with a log.
_WRITE_FORMAT, _WAL_FORMAT = 18, 2


class Finding(NamedTuple):
    """A problem found in a store.

    Attributes:
        what: its kind: "header", "pages", "table", "rows", "meta", "resource", "history", "former", "uid", "fence",
            "lease" or "incarnation".
        where: its place: a page or tree as SQLite names it, a key, a revision or a name.
        problem: a sentence that describes it.
    """

    what: str
    where: str
    problem: str

    def __str__(self) -> str:
        return f"{self.what} {self.where}: {self.problem}" if self.where else f"{self.what}: {self.problem}"


class Checked(NamedTuple):
    """A file at one moment.

    Attributes:
        findings: its problems; empty if it is whole.
        position: the last commit; without a store id if the file no longer has one.
        oldest: the revision before the first one in history.
        resources: the number of resources of each kind.
    """

    findings: list[Finding]
    position: Position = Position("", "", 0)
    oldest: int = 0
    resources: Mapping[Kind, int] = MappingProxyType({})


def check_file(path: str) -> Checked:
    """Return the contents and the problems of the store's file, or backup, at ``path``. Writes nothing.

    A server may have the file open. Raises StoreUnusable if the path has no store to check.
    """
    begin = b""
    with suppress(OSError):
        # Before SQLite has the file open: its descriptor could not be closed then.
        begin, _ = begin_of(path, SCHEMA_WITHIN)
    try:
        with closing(open_unrecognized(path)) as connection:
            # Damaged text is shown with escapes.
            connection.text_factory = partial(str, encoding="utf-8", errors="backslashreplace")
            found = _header(path, connection, begin)
            connection.execute("PRAGMA query_only = 1")
            connection.execute("BEGIN")
            return _checked(connection, found + _findings(connection))
    except StoreUnusable:
        raise
    except Exception as error:  # noqa: BLE001  # damage may have any effect, and is reported
        return Checked([Finding("pages", "", damage_text(error))])


def _header(path: str, connection: sqlite3.Connection, begin: bytes) -> list[Finding]:
    """Return what is wrong with the header of a store. Raise StoreUnusable if the file is not one."""
    try:
        refuse_unrecognized(path, connection)
        if (found := sql.format_of(connection)) < sql.FORMAT:
            raise StoreUnusable(
                f"{path} has format {found}: open it with this Headway to upgrade it to {sql.FORMAT}, and then check it"
            )
    except StoreUnusable as error:
        if not has_schema(begin):
            raise
        return [Finding("header", "", f"it is damaged, since the tables are those of a store of this Headway: {error}")]
    if len(begin) > _WRITE_FORMAT and begin[_WRITE_FORMAT] > _WAL_FORMAT:
        return [Finding("header", "", f"its write format is {begin[_WRITE_FORMAT]}, which SQLite only reads")]
    return []


def _checked(connection: sqlite3.Connection, found: list[Finding]) -> Checked:
    try:
        meta = sql.read_meta(connection)
        (session,) = connection.execute(sql.LAST_SESSION).fetchone() or ("",)
        resources = {(group, kind): count for group, kind, count in connection.execute(sql.COUNT_KINDS)}
        position = Position(meta["store_id"], session, meta["head"])
        if not missing_rows(connection):
            return Checked(found, position, meta["history_floor"], resources)
    except Exception:  # noqa: BLE001  # the findings contain the reason
        pass
    return Checked(found)


def _findings(connection: sqlite3.Connection) -> list[Finding]:
    found = _run_check(_pages, connection) + _run_check(_tables, connection)
    try:
        if problem := missing_rows(connection):
            # Without these rows the others cannot be checked.
            return [*found, Finding("meta", "", problem)]
    except sqlite3.Error:
        pass  # SQLite's check has reported the cause. Check everything else.
    except TypeError as error:
        return [*found, Finding("meta", "", damage_text(error))]
    for check in (_sessions, _resources_and_history, _formers, _fences_and_leases):
        found += _run_check(check, connection)
    return found


def _run_check(
    check: Callable[[sqlite3.Connection], Iterator[Finding]], connection: sqlite3.Connection
) -> list[Finding]:
    found: list[Finding] = []
    try:
        # Append one at a time, to keep the findings that precede an unreadable page.
        for each in check(connection):
            found.append(each)
    except Exception as error:  # noqa: BLE001  # damaged rows hold any value
        what = "pages" if isinstance(error, sqlite3.Error) else "rows"
        found.append(Finding(what, "", f"{damage_text(error)}; the rest could not be checked"))
    return found


def _pages(connection: sqlite3.Connection) -> Iterator[Finding]:
    try:
        lines = connection.execute(f"PRAGMA integrity_check({_MOST_PAGES})").fetchall()
        yield from (Finding("pages", "", line) for (line,) in lines if line != "ok")
    except sqlite3.Error:
        # SQLite gives up if the first page of a table is damaged. Checking each table on its own shows which one it is.
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            try:
                connection.execute(f"PRAGMA integrity_check({table})").fetchall()
            except sqlite3.Error as error:
                yield Finding("pages", f"of table {table}", str(error))


def _tables(connection: sqlite3.Connection) -> Iterator[Finding]:
    """Compare the columns of each table with those of a new store, and read the texts in them.

    Damage of a column's name shows first when it is written, and damage of a text when the engine reads it.
    """
    with closing(sqlite3.connect(":memory:")) as whole:
        for statement in sql.TABLES:
            whole.execute(statement)
        for (table,) in whole.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            found, wanted = (
                sorted(each.execute("SELECT name, type, pk FROM pragma_table_info(?)", (table,)).fetchall())
                for each in (connection, whole)
            )
            if found != wanted:
                yield Finding("table", table, f"its columns are {found}, not {wanted}")
            texts = [each[0] for each in wanted if each in found and each[1] in ("TEXT", "")]
            if not texts:
                continue
            for row in connection.execute(
                f"SELECT {', '.join(f'CAST({name} AS BLOB)' for name in texts)} FROM {table}"
            ):
                for name, text in zip(texts, row, strict=True):
                    try:
                        text.decode()
                    except UnicodeDecodeError as error:
                        yield Finding("rows", f"of table {table}", f"a {name} is no text: {error}")


def _sessions(connection: sqlite3.Connection) -> Iterator[Finding]:
    head = sql.read_meta(connection)["head"]
    # A session without a commit begins at the same revision as the next one.
    rows = connection.execute(
        "SELECT incarnation, first_revision, last_revision FROM incarnations"
        " ORDER BY first_revision, last_revision IS NULL, last_revision"
    )
    before, left = 0, True
    for session, first, last in rows:
        if not left:
            yield Finding("incarnation", session, f"it begins at {first}, but an earlier one has not ended")
        if first < before:
            yield Finding("incarnation", session, f"it begins at {first}, below {before}, where another ended")
        if (head if last is None else last) < first - 1 or (last or 0) > head:
            yield Finding("incarnation", session, f"it goes from {first} to {last}, but the store is at {head}")
        before, left = (before if last is None else last), last is not None


class _Last(NamedTuple):
    """The last change of a key in history."""

    revision: int
    deleted: bool


def _resources_and_history(connection: sqlite3.Connection) -> Iterator[Finding]:
    meta = sql.read_meta(connection)
    head, floor = meta["head"], meta["history_floor"]
    if floor > head:
        yield Finding("meta", "history_floor", f"it is {floor}, above {head}, the last revision")
    last: dict[tuple[str, ...], _Last] = {}
    yield from _history(connection, head, floor, last)
    uids: dict[str, str] = {}
    for *place, uid, owner_uid, revision, sealed, body in connection.execute(
        "SELECT type_group, kind, partition, namespace, name, uid, owner_uid, revision, seal, body FROM resources"
    ):
        where = "/".join(place)
        if revision < 1 or revision > head:
            yield Finding("resource", where, f"its revision is {revision}, but the store's last is {head}")
        if uid in uids:
            yield Finding("uid", uid, f"both {uids[uid]} and {where} have it")
        uids[uid] = where
        logged = last.pop(tuple(place), None)
        if logged is not None and (logged.deleted or logged.revision != revision):
            what = "removed" if logged.deleted else "written"
            yield Finding("resource", where, f"revision {revision}, but history has it {what} at {logged.revision}")
        elif logged is None and revision > floor:
            yield Finding("resource", where, f"revision {revision} is missing in history, which begins at {floor}")
        try:
            resource = resource_from(revision, sealed, body)
        except StoreUnusable as error:
            yield Finding("resource", where, str(error))
            continue
        if (kept := _place(resource)) != tuple(place):
            yield Finding("resource", where, f"its row holds {'/'.join(kept)}")
        if resource.id is None or resource.id.uid != uid:
            yield Finding("resource", where, f"its row says uid {uid}, but holds another")
        if (resource.owner.uid if resource.owner is not None else "") != owner_uid:
            yield Finding("resource", where, f"its row says owner {owner_uid or 'none'}, but holds another")
    for key, logged in last.items():
        if not logged.deleted:
            yield Finding("resource", "/".join(key), f"history has it written at {logged.revision}, but it is missing")


def _history(
    connection: sqlite3.Connection, head: int, floor: int, last: dict[tuple[str, ...], _Last]
) -> Iterator[Finding]:
    expected = (0, 0)
    for revision, seq, group, kind, deleted, version, sealed, body in connection.execute(
        "SELECT revision, seq, type_group, kind, deleted, version, seal, body FROM history ORDER BY revision, seq"
    ):
        where = f"{revision}/{seq}"
        if revision <= floor or revision > head:
            yield Finding("history", where, f"expected a revision above {floor}, at most {head}")
        if seq != (expected[1] if revision == expected[0] else 0):
            yield Finding("history", where, "an earlier change of the same commit is missing")
        expected = (revision, seq + 1)
        if version >= revision if deleted else version != revision:
            yield Finding(
                "history", where, f"it has version {version}, {'removed' if deleted else 'put'} at this revision"
            )
        try:
            place = _place(resource_from(version, sealed, body))
        except StoreUnusable as error:
            yield Finding("history", where, str(error))
            continue
        if place[:2] != (group, kind):
            yield Finding("history", where, f"it is under {group}.{kind}, but holds {'/'.join(place)}")
        last[place] = _Last(revision, bool(deleted))


def _formers(connection: sqlite3.Connection) -> Iterator[Finding]:
    for revision, seq, version, sealed, body, place in connection.execute(
        "SELECT f.revision, f.seq, f.version, f.seal, f.body, h.revision FROM formers f"
        " LEFT JOIN history h ON h.revision = f.revision AND h.seq = f.seq ORDER BY f.revision, f.seq"
    ):
        where = f"{revision}/{seq}"
        if place is None:
            yield Finding("former", where, "history has no change that it precedes")
        if version >= revision:
            yield Finding("former", where, f"it has version {version}, at or above the change that it precedes")
        try:
            resource_from(version, sealed, body)
        except StoreUnusable as error:
            yield Finding("former", where, str(error))


def _place(resource: pb.Resource) -> tuple[str, ...]:
    if resource.id is None or resource.id.type is None:
        return ("", "", "", "", "")
    return (resource.id.type.group, resource.id.type.kind, *resource_key(resource))


def _fences_and_leases(connection: sqlite3.Connection) -> Iterator[Finding]:
    head = sql.read_meta(connection)["head"]
    terms: dict[tuple[str, str], int] = {}
    for controller, member, term, number, settled in connection.execute(
        "SELECT controller, member, term, number, settled FROM fences"
    ):
        name = lease_of(controller, member)
        terms[controller, member] = term
        if term < 1 or number < 0:
            yield Finding("fence", name, f"it is at ({term}, {number}), which is impossible")
        if settled > head:
            yield Finding("fence", name, f"its checkpoint is {settled}, above {head}, the last revision")
    for controller, member, holder, term, *_ in connection.execute(sql.READ_LEASES):
        below = terms.get((controller, member), 0)
        if below < term:
            name = lease_of(controller, member)
            yield Finding("lease", name, f"{holder} holds it in term {term}, but its fence is at {below}")


class FileLists(ListsResources):
    """A `ListsResources` on the file, or the backup, at ``path``.

    Every list is a consistent snapshot. Raises StoreUnusable if the store does not exist or has an earlier format.
    """

    def __init__(self, path: str) -> None:
        self._path = os.path.realpath(path)

    @override
    async def list(
        self, kind: Kind, within: Within, *, after: Key | None = None, limit: int = 0
    ) -> tuple[Sequence[pb.Resource], Position]:
        """Return resources of a kind, ordered by key, and their position, which has no store id."""
        read = partial(self._read, kind, within, after, limit)
        rows, revision = await trio.to_thread.run_sync(read)
        return await rows.all(), Position("", "", revision)

    def _read(self, kind: Kind, within: Within, after: Key | None, limit: int) -> tuple[Rows, int]:
        try:
            with closing(open_to_read(self._path)) as connection:
                if (found := sql.format_of(connection)) < sql.FORMAT:
                    raise StoreUnusable(
                        f"{self._path} has format {found}, expected {sql.FORMAT}: "
                        "open it with this Headway to upgrade it, and then read it"
                    )
                connection.execute("BEGIN")
                return read_many(connection, kind, within, after=after, limit=limit)
        except sqlite3.Error as error:
            raise StoreUnusable(f"{self._path} cannot be read: {explained(error)}") from error
