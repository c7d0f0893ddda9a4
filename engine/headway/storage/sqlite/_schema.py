"""The tables of a store's file, every statement that is run on them, and the upgrades from earlier formats.

The file's header identifies it: `APPLICATION_ID` at offset 68 and `FORMAT` (SQLite's user_version) at offset 60. A
change of the tables, or of the meaning of their rows, increases `FORMAT`, and `_STEPS` gets a step to it.

`migrate` upgrades a file of an earlier format. All steps and the new number are one transaction, so a file always has
one format or the other. tests/storage/formats has files written by programs of the time. Format 1 has no seals, no
floor for terms, and in its first form no table of leases. Format 2 has no states before changes of metadata.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from headway.storage.sqlite._rows import seal

APPLICATION_ID = int.from_bytes(b"HdWy", "big")
BACKUP_ID = int.from_bytes(b"HdWb", "big")
"""The value in place of `APPLICATION_ID` in a backup, so that nothing opens it as the original store."""
FORMAT = 3

# A body never holds its version: the row's revision is the version, known only inside the transaction. A seal is the
# checksum of both. Bodies are last in their rows, so that reading the other columns touches no overflow page.
RESOURCES_TABLE = """CREATE TABLE resources (
    type_group TEXT NOT NULL,
    kind TEXT NOT NULL,
    partition TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    uid TEXT NOT NULL,
    owner_uid TEXT NOT NULL,
    revision INTEGER NOT NULL,
    seal INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (type_group, kind, partition, namespace, name)
) WITHOUT ROWID"""
RESOURCES_BY_OWNER = "CREATE INDEX resources_by_owner ON resources (owner_uid) WHERE owner_uid <> ''"
HISTORY_TABLE = """CREATE TABLE history (
    revision INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    type_group TEXT NOT NULL,
    kind TEXT NOT NULL,
    deleted INTEGER NOT NULL,
    version INTEGER NOT NULL,
    time REAL NOT NULL,
    seal INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (revision, seq)
) WITHOUT ROWID"""
# The states before those changes in history that changed the metadata. Watches by metadata need them.
FORMERS_TABLE = """CREATE TABLE formers (
    revision INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    version INTEGER NOT NULL,
    seal INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (revision, seq)
) WITHOUT ROWID"""
# Keyed by the fence that a lease governs.
LEASES_TABLE = """CREATE TABLE IF NOT EXISTS leases (
    controller TEXT NOT NULL,
    member TEXT NOT NULL,
    holder TEXT NOT NULL,
    term INTEGER NOT NULL,
    ttl REAL NOT NULL,
    attempt TEXT NOT NULL,
    acquired_at REAL NOT NULL,
    PRIMARY KEY (controller, member)
) WITHOUT ROWID"""
TABLES = (
    # store_id; head: the last revision; history_floor: history is compacted up to here; formers_floor: up to here, the
    # history lacks the states before changes; term_floor: fences without a row begin with terms above it. A backup, and
    # a store restored from one, also has facts about the backup.
    "CREATE TABLE meta (key TEXT NOT NULL PRIMARY KEY, value NOT NULL) WITHOUT ROWID",
    """CREATE TABLE incarnations (
        incarnation TEXT NOT NULL PRIMARY KEY,
        first_revision INTEGER NOT NULL,
        last_revision INTEGER,
        opened_at REAL NOT NULL
    ) WITHOUT ROWID""",
    RESOURCES_TABLE,
    RESOURCES_BY_OWNER,
    HISTORY_TABLE,
    FORMERS_TABLE,
    """CREATE TABLE fences (
        controller TEXT NOT NULL,
        member TEXT NOT NULL,
        term INTEGER NOT NULL,
        number INTEGER NOT NULL,
        settled INTEGER NOT NULL,
        PRIMARY KEY (controller, member)
    ) WITHOUT ROWID""",
    LEASES_TABLE,
)

INSERT_META = "INSERT INTO meta (key, value) VALUES (?, ?)"
REPLACE_META = "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)"
READ_HEAD = "SELECT value FROM meta WHERE key = 'head'"
WRITE_HEAD = "UPDATE meta SET value = ? WHERE key = 'head'"
WRITE_FLOOR = "UPDATE meta SET value = ? WHERE key = 'history_floor'"

END_SESSION = "UPDATE incarnations SET last_revision = ? WHERE last_revision IS NULL"
BEGIN_SESSION = (
    "INSERT INTO incarnations (incarnation, first_revision, last_revision, opened_at) VALUES (?, ?, NULL, ?)"
)
FORGET_SESSIONS = """
    DELETE FROM incarnations WHERE incarnation IN (
        SELECT incarnation FROM incarnations ORDER BY first_revision DESC, opened_at DESC LIMIT -1 OFFSET ?
    )
"""
LAST_SESSION = "SELECT incarnation FROM incarnations ORDER BY first_revision DESC, opened_at DESC LIMIT 1"
OLDEST_SESSION = "SELECT min(first_revision) FROM incarnations"
READ_SESSION = "SELECT incarnation, last_revision FROM incarnations WHERE incarnation = ?"

_WHERE_KEY = "type_group = ? AND kind = ? AND partition = ? AND namespace = ? AND name = ?"

CHECK_RESOURCE = f"SELECT uid, revision FROM resources WHERE {_WHERE_KEY}"
CHECK_ROW = f"SELECT uid, revision, seal, body FROM resources WHERE {_WHERE_KEY}"
PUT_RESOURCE = """
    INSERT INTO resources (type_group, kind, partition, namespace, name, uid, owner_uid, revision, seal, body)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (type_group, kind, partition, namespace, name) DO UPDATE
    SET uid = excluded.uid, owner_uid = excluded.owner_uid, revision = excluded.revision, seal = excluded.seal,
        body = excluded.body
"""
DELETE_RESOURCE = f"DELETE FROM resources WHERE {_WHERE_KEY}"
READ_RESOURCE = f"SELECT revision, seal, body FROM resources WHERE {_WHERE_KEY}"
COUNT_WITHIN = (
    "SELECT count(*), coalesce(sum(length(body)), 0) FROM resources WHERE type_group = ? AND kind = ? AND partition = ?"
)
OF_KIND = " FROM resources WHERE type_group = ? AND kind = ?"
ROWS = "SELECT revision, seal, body"
KEYS = "SELECT partition, namespace, name"
LIST_RESOURCES = ROWS + OF_KIND
COUNT_KINDS = "SELECT type_group, kind, count(*) FROM resources GROUP BY type_group, kind ORDER BY type_group, kind"
# A comparison of the pair (type_group, kind) would step through all rows of the kind.
NEXT_KIND = """
    SELECT * FROM (
        SELECT type_group, kind FROM resources WHERE type_group = ?1 AND kind > ?2 ORDER BY kind LIMIT 1)
    UNION ALL SELECT * FROM (
        SELECT type_group, kind FROM resources WHERE type_group > ?1 ORDER BY type_group, kind LIMIT 1)
    LIMIT 1
"""
_ANY_PARTITION = "SELECT partition FROM resources WHERE type_group = ? AND kind = ? AND partition"
FIRST_PARTITION = f"{_ANY_PARTITION} >= ? ORDER BY partition LIMIT 1"
NEXT_PARTITION = f"{_ANY_PARTITION} > ? ORDER BY partition LIMIT 1"
OWNED = " FROM resources WHERE owner_uid = ? AND owner_uid <> ''"
FULL_KEY = "type_group, kind, partition, namespace, name"
OWNS_SOMETHING = "SELECT 1 FROM resources WHERE owner_uid = ? AND owner_uid <> '' LIMIT 1"

INSERT_HISTORY = """
    INSERT INTO history (revision, seq, type_group, kind, deleted, version, time, seal, body)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
INSERT_FORMER = "INSERT INTO formers (revision, seq, version, seal, body) VALUES (?, ?, ?, ?, ?)"
READ_FORMERS = "SELECT revision, seq, version, seal, body FROM formers WHERE revision > ? ORDER BY revision, seq"
TRIM_HISTORY = "DELETE FROM history WHERE revision <= ?"
TRIM_FORMERS = "DELETE FROM formers WHERE revision <= ?"
# SQLite knows the length of a body without reading it.
SIZES_OF_HISTORY = """
    SELECT revision, count(*), min(time), sum(length(body)) FROM history WHERE revision > ? GROUP BY revision
    ORDER BY revision
"""
READ_HISTORY = (
    "SELECT revision, type_group, kind, deleted, version, time, seal, body FROM history"
    " WHERE revision > ? ORDER BY revision, seq"
)
READ_CHANGES = """
    SELECT revision, deleted, history.version, history.seal, history.body, formers.version, formers.seal, formers.body
    FROM history LEFT JOIN formers USING (revision, seq)
    WHERE revision > ? AND revision <= ? AND type_group = ? AND kind = ? ORDER BY revision, seq
"""
READ_FLOOR = "SELECT value FROM meta WHERE key = 'history_floor'"

READ_TERM_FLOOR = "SELECT value FROM meta WHERE key = 'term_floor'"
READ_FENCE = "SELECT term, number, settled FROM fences WHERE controller = ? AND member = ?"
READ_TERMS = "SELECT member, term FROM fences WHERE controller = ?"
READ_CHECKPOINTS = "SELECT member, settled FROM fences WHERE controller = ? AND settled > 0"
LIST_FENCES = "SELECT controller, member, term, number FROM fences ORDER BY controller, member"
WRITE_FENCE = """
    INSERT INTO fences (controller, member, term, number, settled) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (controller, member) DO UPDATE
    SET term = excluded.term, number = excluded.number, settled = excluded.settled
"""

READ_LEASE = "SELECT holder, term, ttl, attempt, acquired_at FROM leases WHERE controller = ? AND member = ?"
READ_LEASES = "SELECT controller, member, holder, term, ttl, attempt, acquired_at FROM leases"
WRITE_LEASE = """
    INSERT OR REPLACE INTO leases (controller, member, holder, term, ttl, attempt, acquired_at)
    VALUES (?, ?, ?, ?, ?, ?, ?)
"""
DELETE_LEASE = "DELETE FROM leases WHERE controller = ? AND member = ?"

HIGHEST_REVISION = """
    SELECT max((SELECT coalesce(max(revision), 0) FROM resources), (SELECT coalesce(max(revision), 0) FROM history))
"""


def read_meta(connection: sqlite3.Connection) -> dict[str, Any]:
    """Return the table meta."""
    return dict(connection.execute("SELECT key, value FROM meta").fetchall())


def migrate(connection: sqlite3.Connection) -> None:
    """Upgrade the file to `FORMAT`. Call this in a transaction; it takes effect with the commit."""
    for found in range(format_of(connection), FORMAT):
        _STEPS[found](connection)
        connection.execute(f"PRAGMA user_version = {found + 1}")


def format_of(connection: sqlite3.Connection) -> int:
    """Return the format of a file as of its last commit. The header may be older than the write-ahead log."""
    (found,) = connection.execute("PRAGMA user_version").fetchone()
    assert isinstance(found, int)
    return found


def _seal_rows(connection: sqlite3.Connection) -> None:
    """Upgrade from 1 to 2."""
    connection.create_function("seal", 2, seal, deterministic=True)
    connection.execute("DROP INDEX resources_by_owner")
    for table, statement, version in (
        ("resources", RESOURCES_TABLE, "revision"),
        ("history", HISTORY_TABLE, "version"),
    ):
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        connection.execute(f"ALTER TABLE {table} RENAME TO unsealed")
        connection.execute(statement)
        names = ", ".join(columns)
        connection.execute(f"INSERT INTO {table} ({names}, seal) SELECT {names}, seal({version}, body) FROM unsealed")
        connection.execute("DROP TABLE unsealed")
    connection.execute(RESOURCES_BY_OWNER)
    connection.execute(LEASES_TABLE)
    connection.execute(INSERT_META, ("term_floor", 0))


def _keep_formers(connection: sqlite3.Connection) -> None:
    """Upgrade from 2 to 3."""
    connection.execute(FORMERS_TABLE)
    connection.execute(INSERT_META, ("formers_floor", read_meta(connection)["head"]))


_STEPS: dict[int, Callable[[sqlite3.Connection], None]] = {1: _seal_rows, 2: _keep_formers}
