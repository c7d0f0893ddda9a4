"""The tables of a store in PostgreSQL, and the statements that are run on them.

A store is a schema of a database. The row of `store` is locked by each commit: it makes the order of revisions the
order of commits, whichever engine makes them. A body never holds its version, which is the row's revision.

The row names the transaction that has written it. A restore of the tables writes a row that names another one.

A change of the tables, or of the meaning of their rows, increases `FORMAT`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from headway.errors import InvalidArgument
from headway.resource import Key, Kind
from headway.storage.postgres._connection import Texts

FORMAT = 1

ANSWER_BYTES = 4 << 20
"""The bytes of bodies at which an answer ends, and a resource or a commit more."""

# The column `metadata` is for scopes: it finds the resources that have some entries. It is null if there are none.
#
# Names are compared as bytes, as everywhere in Headway. Rows that change often leave room in their pages, so that
# PostgreSQL keeps their new versions there and cleans up without a vacuum (HOT). History is only ever appended to and
# deleted from its beginning, so its dead rows are in whole pages, and a vacuum of a few thousand of them is cheap.
_TABLES = """
CREATE TABLE {s}.store (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    id text NOT NULL,
    format int NOT NULL,
    revision bigint NOT NULL,
    session text NOT NULL,
    floor bigint NOT NULL,
    writer xid NOT NULL
) WITH (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
CREATE TABLE {s}.sessions (
    id text PRIMARY KEY,
    first_revision bigint NOT NULL,
    server text NOT NULL,
    opened_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE {s}.resources (
    type_group text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    partition text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    uid text NOT NULL,
    owner_uid text NOT NULL,
    form text NOT NULL,
    metadata jsonb,
    revision bigint NOT NULL,
    body bytea NOT NULL,
    PRIMARY KEY (type_group, kind, partition, namespace, name)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX resources_by_owner ON {s}.resources (owner_uid) WHERE owner_uid <> '';
CREATE INDEX resources_by_metadata ON {s}.resources USING gin (metadata jsonb_path_ops) WITH (fastupdate = off)
    WHERE metadata IS NOT NULL;
CREATE TABLE {s}.history (
    revision bigint NOT NULL,
    seq int NOT NULL,
    type_group text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    deleted boolean NOT NULL,
    version bigint NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    added int NOT NULL,
    grown int NOT NULL,
    body bytea NOT NULL,
    former_version bigint,
    former bytea,
    PRIMARY KEY (revision, seq)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE TABLE {s}.fences (
    controller text COLLATE "C" NOT NULL,
    member text COLLATE "C" NOT NULL,
    term bigint NOT NULL,
    number bigint NOT NULL,
    settled bigint NOT NULL,
    PRIMARY KEY (controller, member)
) WITH (fillfactor = 50);
CREATE TABLE {s}.leases (
    controller text COLLATE "C" NOT NULL,
    member text COLLATE "C" NOT NULL,
    holder text NOT NULL,
    term bigint NOT NULL,
    ttl double precision NOT NULL,
    attempt text NOT NULL,
    acquired_at double precision NOT NULL,
    renewed boolean NOT NULL,
    expires timestamptz NOT NULL,
    PRIMARY KEY (controller, member)
) WITH (fillfactor = 50);
"""

BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
BEGIN_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
COMMIT = "COMMIT"
ROLLBACK = "ROLLBACK"

_KEY = "type_group, kind, partition, namespace, name"
_KEYS = "%(groups)s::text[], %(kinds)s::text[], %(partitions)s::text[], %(namespaces)s::text[], %(names)s::text[]"
_ASKED = f"unnest({_KEYS})"
_GIVEN = (
    f"%(revisions)s::bigint[], %(seqs)s::int[], {_KEYS}, %(uids)s::text[], %(owners)s::text[], %(forms)s::text[],"
    " %(metadata)s::text[], %(added)s::int[], %(grown)s::int[], %(bodies)s::bytea[]"
)
_LEASE = "controller, member, holder, term, ttl, attempt, acquired_at, renewed"
_LOGGED = "revision, type_group, kind, deleted, version, added, grown, body, former_version, former"
_WRITER = "pg_current_xact_id()::xid"
_CLOCK = "extract(epoch FROM clock_timestamp())::double precision"
_REMAINING = "extract(epoch FROM expires - clock_timestamp())::double precision"


class Statements:
    """The statements for a schema.

    Args:
        schema: its name.
    """

    def __init__(self, schema: str) -> None:
        s = _quoted(schema)
        self.tables = tuple(each.strip().format(s=s) for each in _TABLES.split(";") if each.strip())
        self.store = f"{s}.store"
        self.schema = s
        self.create_schema = f"CREATE SCHEMA {s}"
        self.found = (
            f"INSERT INTO {s}.store (id, format, revision, session, floor, writer)"
            f" VALUES (%(id)s, {FORMAT}, 0, '', 0, {_WRITER})"
        )

        self.standing = f"SELECT id, format, revision, session, floor, xmin = writer, {_CLOCK} FROM {s}.store"
        self.lock = f"SELECT revision, session, floor, xmin = writer, {_CLOCK} FROM {s}.store FOR UPDATE"
        self.advance = f"UPDATE {s}.store SET revision = %(revision)s, writer = {_WRITER}"
        self.sessions = f"SELECT first_revision, id, server FROM {s}.sessions ORDER BY first_revision"
        self.begin_session = (
            f"INSERT INTO {s}.sessions (id, first_revision, server) VALUES (%(id)s, %(revision)s, %(server)s)"
        )
        self.enter_session = f"UPDATE {s}.store SET revision = %(revision)s, session = %(id)s, writer = {_WRITER}"
        self.forget_sessions = (
            f"DELETE FROM {s}.sessions WHERE first_revision <"
            f" (SELECT min(first_revision) FROM (SELECT first_revision FROM {s}.sessions"
            "   ORDER BY first_revision DESC LIMIT %(most)s) AS kept)"
        )
        self.renew_all = (
            f"UPDATE {s}.leases SET expires = clock_timestamp() + make_interval(secs => ttl), renewed = false"
        )

        self.here = f"SELECT revision, session FROM {s}.store"
        rows = f"FROM {s}.resources"
        self.read = (
            f"SELECT s.revision, s.session, r.revision, r.body FROM {s}.store AS s CROSS JOIN {_ASKED}"
            f" WITH ORDINALITY AS a ({_KEY}, place) LEFT JOIN {s}.resources AS r USING ({_KEY}) ORDER BY a.place"
        )
        self.rows = f"SELECT revision, body, {_KEY} {rows} WHERE"
        self.kinds = (
            f"WITH RECURSIVE found AS ((SELECT type_group, kind {rows} ORDER BY type_group, kind LIMIT 1)"
            f" UNION ALL SELECT n.* FROM found, LATERAL (SELECT type_group, kind {rows}"
            "   WHERE (type_group, kind) > (found.type_group, found.kind) ORDER BY type_group, kind LIMIT 1) AS n)"
            " SELECT type_group, kind FROM found"
        )
        self.count_kinds = f"SELECT type_group, kind, count(*) {rows} GROUP BY type_group, kind"

        self.look = (
            f"SELECT {_KEY}, uid, form, revision, length(body) {rows} JOIN {_ASKED} AS a ({_KEY}) USING ({_KEY})"
        )
        self.owns = f"SELECT 1 {rows} WHERE owner_uid = %(uid)s AND owner_uid <> '' LIMIT 1"
        named = "JOIN unnest(%(controllers)s::text[], %(members)s::text[]) AS a (controller, member)"
        named += " USING (controller, member)"
        self.fences = f"SELECT controller, member, term, number, settled FROM {s}.fences {named}"
        self.fences_of = (
            f"SELECT controller, member, term, number, settled FROM {s}.fences WHERE controller = ANY(%(controllers)s)"
        )
        self.leases = f"SELECT {_LEASE}, {_REMAINING} FROM {s}.leases {named}"
        # Where a term may begin, the holder must not renew the one before.
        self.locked_leases = f"{self.leases} FOR UPDATE"
        self.expired = (
            f"SELECT controller, member FROM {s}.leases {named} WHERE expires <= clock_timestamp() FOR UPDATE"
        )
        self.list_fences = f"SELECT controller, member, term, number FROM {s}.fences ORDER BY controller, member"
        self.list_leases = (
            f"SELECT {_LEASE}, {_REMAINING} FROM {s}.leases WHERE expires > clock_timestamp()"
            " ORDER BY controller, member"
        )
        self.lease = (
            f"SELECT {_LEASE}, {_REMAINING} FROM unnest(%(controllers)s::text[], %(members)s::text[]) WITH ORDINALITY"
            f" AS a (controller, member, place) LEFT JOIN {s}.leases USING (controller, member) ORDER BY place"
        )
        self.keep_lease = (
            f"UPDATE {s}.leases SET expires = clock_timestamp() + make_interval(secs => ttl), renewed = true"
            " WHERE controller = %(controller)s AND member = %(member)s AND holder = %(holder)s AND term = %(term)s"
            " AND expires > clock_timestamp() RETURNING term"
        )

        # What is stored is logged before it is replaced.
        logged = f"INSERT INTO {s}.history (revision, seq, type_group, kind, deleted, version, added, grown, body"
        self.log_stored = (
            f"{logged}) SELECT a.revision, a.seq, r.type_group, r.kind, true, r.revision, -1, -length(r.body), r.body"
            f" FROM unnest(%(revisions)s::bigint[], %(seqs)s::int[], {_KEYS}) AS a (revision, seq, {_KEY})"
            f" JOIN {s}.resources AS r USING ({_KEY})"
        )
        given = (
            f"WITH given AS (SELECT * FROM unnest({_GIVEN}) AS a"
            f" (revision, seq, {_KEY}, uid, owner_uid, form, metadata, added, grown, body))"
        )
        put = (
            f" INSERT INTO {s}.resources ({_KEY}, uid, owner_uid, form, metadata, revision, body)"
            f" SELECT {_KEY}, uid, owner_uid, form, nullif(metadata, '')::jsonb, revision, body FROM given"
            f" ON CONFLICT ({_KEY}) DO UPDATE SET uid = excluded.uid, owner_uid = excluded.owner_uid,"
            " form = excluded.form, metadata = excluded.metadata, revision = excluded.revision, body = excluded.body"
        )
        self.put = (
            f"{given}, logged AS ({logged}) SELECT revision, seq, type_group, kind, false, revision, added, grown, body"
            f" FROM given){put}"
        )
        # The parts of a statement see what was stored before it.
        self.put_changed = (
            f"{given}, logged AS ({logged}, former_version, former) SELECT a.revision, a.seq, type_group, kind, false,"
            f" a.revision, a.added, a.grown, a.body, r.revision, r.body FROM given AS a JOIN {s}.resources AS r"
            f" USING ({_KEY})){put}"
        )
        self.delete = f"DELETE {rows} USING {_ASKED} AS a ({_KEY}) WHERE {_same('resources', 'a')}"
        self.write_fences = (
            f"INSERT INTO {s}.fences (controller, member, term, number, settled) SELECT * FROM"
            " unnest(%(controllers)s::text[], %(members)s::text[], %(terms)s::bigint[], %(numbers)s::bigint[],"
            " %(settled)s::bigint[]) ON CONFLICT (controller, member) DO UPDATE SET term = excluded.term,"
            " number = excluded.number, settled = excluded.settled"
        )
        self.write_lease = (
            f"INSERT INTO {s}.leases ({_LEASE}, expires) VALUES (%(controller)s, %(member)s, %(holder)s, %(term)s,"
            " %(ttl)s, %(attempt)s, %(acquired_at)s, false, clock_timestamp() + make_interval(secs => %(ttl)s))"
            " ON CONFLICT (controller, member) DO UPDATE SET holder = excluded.holder, term = excluded.term,"
            " ttl = excluded.ttl, attempt = excluded.attempt, acquired_at = excluded.acquired_at,"
            " renewed = excluded.renewed, expires = excluded.expires"
        )
        # Above its ttl, the clock was set back.
        self.shorten_lease = (
            f"UPDATE {s}.leases SET expires = clock_timestamp() + make_interval(secs => ttl)"
            " WHERE controller = %(controller)s AND member = %(member)s"
            " AND expires > clock_timestamp() + make_interval(secs => ttl)"
        )
        self.delete_lease = f"DELETE FROM {s}.leases WHERE controller = %(controller)s AND member = %(member)s"

        age = "extract(epoch FROM clock_timestamp() - at)::double precision"
        self.follow = _first_commits(f"{_LOGGED}, {age}", f"{s}.history WHERE revision > %(after)s")
        self.since = _first_commits(
            "revision, type_group, kind, deleted, version, body, added, grown",
            f"{s}.history WHERE revision > %(after)s AND (%(active)s OR (type_group, kind) IN"
            " (SELECT * FROM unnest(%(groups)s::text[], %(kinds)s::text[])))",
            "length(body)",
        )
        self.of_kinds = (
            f"SELECT type_group, kind, revision, body {rows} WHERE (type_group, kind) IN"
            " (SELECT * FROM unnest(%(groups)s::text[], %(kinds)s::text[]))"
        )
        self.sizes_within = (
            f"SELECT type_group, kind, partition, namespace, count(*), sum(length(body))::bigint {rows}"
            " GROUP BY type_group, kind, partition, namespace"
        )
        self.page = _first_commits(
            "revision, deleted, version, body, former_version, former",
            f"{s}.history WHERE revision > %(after)s AND revision <= %(through)s AND type_group = %(group)s"
            " AND kind = %(kind)s",
        )
        self.floor = f"SELECT floor FROM {s}.store"
        self.sizes = (
            f"SELECT revision, count(*), max({age}), sum(length(body) + coalesce(length(former), 0))::bigint"
            f" FROM {s}.history WHERE revision > %(after)s GROUP BY revision ORDER BY revision"
        )
        self.trim = (
            f"WITH gone AS (DELETE FROM {s}.history WHERE revision <= %(floor)s AND revision <="
            f" (SELECT max(revision) FROM (SELECT revision FROM {s}.history ORDER BY revision LIMIT %(most)s) AS f)"
            " RETURNING 1) SELECT count(*) FROM gone"
        )
        self.raise_floor = f"UPDATE {s}.store SET floor = greatest(floor, %(floor)s), writer = {_WRITER}"
        self.channel = f"headway {schema}"
        self.listen = f"LISTEN {_quoted(self.channel)}"
        self.notify = "SELECT pg_notify(%(channel)s, %(payload)s)"


def bounded(columns: str, found: str, size: str, order: str) -> str:
    """Return a query for the first of the rows that another query finds, up to about a number of bytes."""
    window = f"OVER (ORDER BY {order} GROUPS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    return (
        f"SELECT {columns} FROM (SELECT *, sum({size}) {window} AS before FROM ({found}) AS found) AS sized"
        " WHERE coalesce(before, 0) < %(bytes)s"
    )


def _first_commits(columns: str, found: str, size: str = "length(body) + coalesce(length(former), 0)") -> str:
    # With ties, so that the last commit is whole.
    found = f"SELECT * FROM {found} ORDER BY revision FETCH FIRST %(most)s ROWS WITH TIES"
    return f"{bounded(columns, found, size, 'revision')} ORDER BY revision, seq"


def _same(one: str, other: str) -> str:
    return " AND ".join(f"{one}.{column} = {other}.{column}" for column in _KEY.split(", "))


@lru_cache
def statements(schema: str) -> Statements:
    """Return the statements for a schema."""
    return Statements(schema)


_NEW_ID = "replace(gen_random_uuid()::text, '-', '')"


def script(schema: str, role: str) -> str:
    """Return what an administrator runs to create a store, so that a role without further rights can use it.

    Raises InvalidArgument if it is no name of a role.
    """
    if not role or "\0" in role:
        raise InvalidArgument(f"expected the name of a role, got {role!r}")
    s, of = _quoted(schema), _quoted(role)
    given = statements(schema)
    tables = ";\n".join(given.tables)
    return (
        f"BEGIN;\n{given.create_schema};\n{tables};\n"
        f"{given.found.replace('%(id)s', _NEW_ID)};\n"
        f"GRANT USAGE ON SCHEMA {s} TO {of};\n"
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {s} TO {of};\nCOMMIT;"
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


SERVER = """
SELECT pg_is_in_recovery(), current_setting('server_encoding'),
    pg_backend_pid(), concat_ws(' ', extract(epoch FROM pg_postmaster_start_time()),
    extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()),
    CASE WHEN pg_is_in_recovery() THEN '' ELSE substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) END)
"""
"""What tells one server of a database from another, and from itself after a restart.

A postmaster resets its statistics after it has ended and restarted its processes, because one of them has crashed.
"""

SEARCH_PATH = "SET search_path TO pg_catalog"
"""The setting of a connection before all others. Whoever may create a function could otherwise replace one of theirs.

Everything that is not PostgreSQL's own is named with its schema.
"""

SETTINGS = """
SELECT set_config('idle_in_transaction_session_timeout', '5s', false), set_config('tcp_user_timeout', '20s', false),
    set_config('idle_session_timeout', '0', false), set_config('statement_timeout', '0', false),
    set_config('lock_timeout', '0', false), CASE WHEN current_setting('transaction_timeout', true) IS NOT NULL
        THEN set_config('transaction_timeout', '0', false) END,
    set_config('row_security', 'off', false), set_config('client_min_messages', 'error', false),
    set_config('default_transaction_isolation', 'read committed', false),
    set_config('plan_cache_mode', 'force_custom_plan', false),
    CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', false) END
"""
"""Settings of a connection, whatever its role and its database have.

An engine that is frozen or cut off in a transaction holds the lock of the store, so the server ends such a transaction.
A call has its own bound of time.
A policy that hides rows is an error. What it hides would otherwise seem to be deleted.
What the server acknowledges has to be on its disk.
A plan that is kept would be one for the few rows that a young table has had.
"""

HEARD = "SELECT set_config('client_min_messages', 'warning', true)"
"""The last statement of a transaction that writes. Its COMMIT warns if it is acknowledged without its replica.

Warnings of other statements, such as that of a NOTIFY whose queue fills, say nothing about the commit.
"""


def scopes(of: Iterable[tuple[str, str]]) -> dict[str, Texts]:
    """Return the parameters for fences or leases by their controllers and members."""
    controllers, members = zip(*of, strict=True)
    return {"controllers": Texts(controllers), "members": Texts(members)}


def places(keys: Iterable[tuple[Kind, Key]]) -> dict[str, Texts]:
    """Return the parameters for resources by their kinds and keys."""
    found = {name: Texts() for name in ("groups", "kinds", "partitions", "namespaces", "names")}
    groups, kinds, partitions, namespaces, names = found.values()
    for (group, kind), (partition, namespace, name) in keys:
        groups.append(group)
        kinds.append(kind)
        partitions.append(partition)
        namespaces.append(namespace)
        names.append(name)
    return found
