"""A store in PostgreSQL under a role with settings, policies and functions that could change what its engine reads."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from headway.errors import StoreUnusable, Unavailable
from headway.storage import PostgresBackend, Within, store_exists
from headway.testing.conformance import KIND, names, put, refused, thing
from tests.helpers.postgres_server import PostgresServer

WITHIN = Within()


@pytest.fixture
def role(postgres: PostgresServer) -> str:
    """A role that may create stores."""
    name = f"r{uuid.uuid4().hex[:12]}"
    postgres.sql(f"CREATE ROLE {name} LOGIN; GRANT CREATE ON DATABASE postgres TO {name}")
    return name


def url_of(postgres: PostgresServer, role: str) -> str:
    return postgres.new_url().replace("postgres@", f"{role}@")


SETTINGS = (
    "statement_timeout = '500ms'",
    "idle_session_timeout = '500ms'",
    "idle_in_transaction_session_timeout = 0",
    "default_transaction_deferrable = on",
    "default_transaction_isolation = serializable",
    "bytea_output = escape",
    "DateStyle = 'German, DMY'",
    "IntervalStyle = sql_standard",
    "TimeZone = 'Asia/Kathmandu'",
    "extra_float_digits = -15",
    "client_encoding = LATIN1",
    "standard_conforming_strings = off",
    "client_min_messages = notice",
    "transform_null_equals = on",
)


async def test_settings_of_a_role_change_nothing(postgres: PostgresServer, role: str) -> None:
    for setting in SETTINGS:
        postgres.sql(f"ALTER ROLE {role} SET {setting}")
    url = url_of(postgres, role)
    async with PostgresBackend(url) as store, PostgresBackend(url) as other:
        await put(store, thing("a", "\u00e9\\000"))
        taken = await store.acquire_lease("x", "web-1", 10.0)
        [lease], _ = await other.list_leases()
        assert lease.remaining > 5
        assert (lease.lease.holder, lease.lease.term) == ("web-1", taken.held.lease.term)
        found, _ = await other.read(KIND, ("default", "default", "a"))
        wanted, _ = await store.read(KIND, ("default", "default", "a"))
        assert found == wanted
        assert found is not None
        for pool in (store._use().readers, other._use().scans):
            for name, value in (("statement_timeout", "0"), ("idle_session_timeout", "0"), ("row_security", "off")):
                assert await pool.ask((f"SHOW {name}", {})) == [[(value,)]]


FUNCTIONS = """
CREATE FUNCTION {s}.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT timestamptz '2000-01-01' $$;
CREATE FUNCTION {s}.set_config(text, text, boolean) RETURNS text LANGUAGE sql AS $$ SELECT $2 $$;
CREATE FUNCTION {s}.concat_ws(text, numeric, numeric, text) RETURNS text LANGUAGE sql
    AS $$ SELECT random()::text $$;
CREATE FUNCTION {s}.length(bytea) RETURNS int LANGUAGE sql AS $$ SELECT 7 $$;
CREATE FUNCTION {s}.pg_notify(text, text) RETURNS void LANGUAGE sql AS $$ SELECT $$;
"""


async def test_functions_of_others_are_not_called(postgres: PostgresServer, role: str) -> None:
    """Not even if the path of the role names their schema first, or one of them fits an argument better."""
    postgres.sql(f"CREATE SCHEMA {role}; GRANT USAGE ON SCHEMA {role} TO {role};{FUNCTIONS.format(s=role)}")
    postgres.sql(f"ALTER ROLE {role} SET search_path = {role}, pg_catalog")
    url = url_of(postgres, role)
    async with PostgresBackend(url) as store, PostgresBackend(url) as other:
        position = await put(store, thing("a"))
        await store.acquire_lease("x", "web-1", 10.0)
        await other._use().until_reached(other._use().history, position.revision)
        assert await names(other) == ["a"]
        assert not store.counts["other servers"] + other.counts["other servers"]
        assert await store._use().readers.ask(("SHOW lock_timeout", {})) == [[("0",)]]
        schema = store._use().sql.schema
        assert postgres.sql(f"SELECT max(at) > '2001-01-01' FROM {schema}.history") == "t"


def policy(postgres: PostgresServer, schema: str, table: str, role: str, *, owner: bool) -> Callable[[str], object]:
    """Return a function that hides or shows the rows of a table."""

    def to(verb: str) -> None:
        postgres.sql(f"ALTER TABLE {schema}.{table} {verb} ROW LEVEL SECURITY")
        if owner:
            postgres.sql(f"ALTER TABLE {schema}.{table} {'' if verb == 'ENABLE' else 'NO '}FORCE ROW LEVEL SECURITY")
        else:
            postgres.sql(f"ALTER TABLE {schema}.{table} OWNER TO {'postgres' if verb == 'ENABLE' else role}")

    return to


@pytest.mark.parametrize("owner", [False, True], ids=["other role", "owner"])
@pytest.mark.parametrize("table", ["store", "sessions", "resources", "history", "fences", "leases"])
async def test_policy_that_hides_rows_is_refused(postgres: PostgresServer, role: str, table: str, owner: bool) -> None:
    """What it hides would otherwise seem to be deleted, or to have never been there."""
    url = url_of(postgres, role)
    schema = url.partition("schema=")[2]
    async with PostgresBackend(url) as store:
        await put(store, thing("a"))
        await store.acquire_lease("x", "web-1", 60.0)
    postgres.sql(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role}")
    rows = policy(postgres, schema, table, role, owner=owner)
    rows("ENABLE")
    says = f'row-level security policy for table "{table}"'

    async def use() -> None:
        async with PostgresBackend(url) as store:
            await store.list(KIND, WITHIN)
            await store.list_leases()
            await store.list_fences()

    assert says in str(await refused(StoreUnusable, use(), f"a use without the rows of {table}"))
    if table == "store":
        assert says in str(await refused(StoreUnusable, store_exists(url), "a look for a store without its row"))
    if table == "resources":
        async with PostgresBackend(url) as store:
            for call in (
                store.watch(KIND, WITHIN),
                store.read(KIND, ("default", "default", "a")),
                store.list_by_owner("uid"),
                store.kinds(),
                put(store, thing("b")),
            ):
                assert says in str(await refused(StoreUnusable, call, "a call without the rows"))
    rows("DISABLE")
    async with PostgresBackend(url) as store:
        assert await names(store) == ["a"]


async def test_role_that_may_only_read_is_refused_with_the_reason(postgres: PostgresServer, role: str) -> None:
    url = url_of(postgres, role)
    postgres.sql(f"ALTER ROLE {role} SET default_transaction_read_only = on")
    with pytest.raises(Unavailable, match="session is read-only"):
        async with PostgresBackend(url):
            pass


async def test_warning_of_a_trigger_leaves_no_commit_unknown(postgres: PostgresServer) -> None:
    """Only those of the COMMIT itself say that it may not be on a replica."""
    async with PostgresBackend(postgres.new_url()) as store:
        schema = store._use().sql.schema
        postgres.sql(
            f"CREATE FUNCTION {schema}.warn() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE WARNING 'it is watched'; RETURN new; END $$;"
            f"CREATE TRIGGER warn BEFORE INSERT ON {schema}.resources EXECUTE FUNCTION {schema}.warn()"
        )
        for name in "ab":
            await put(store, thing(name))
