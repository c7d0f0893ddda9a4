"""Who may open a store in PostgreSQL, and by which ways: roles, TLS, service files, and what is refused."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import trio
import trustme

from headway.errors import InvalidArgument, StoreUnusable, Unavailable
from headway.storage import PostgresBackend, store_exists, verify_store
from headway.storage.postgres import _follow, script
from headway.storage.postgres._connection import Connection
from headway.testing.conformance import names, put, reading, thing
from tests.helpers.postgres_server import PostgresServer, need_postgres
from tests.storage.etcd_kit import until


def headway(*arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headway.cli", *arguments]
    environment = {**os.environ, **({} if path is None else {"PYTHONPATH": str(path)})}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


async def test_least_role_uses_a_store_that_an_administrator_has_made(postgres: PostgresServer) -> None:
    """It may create nothing. Without the administrator's script, the error says to run it."""
    postgres.sql("CREATE ROLE least LOGIN")
    postgres.sql("CREATE DATABASE least")
    postgres.sql("REVOKE ALL ON SCHEMA public FROM PUBLIC", "least")
    postgres.sql("REVOKE TEMPORARY ON DATABASE least FROM PUBLIC")
    url = f"postgresql://least@127.0.0.1:{postgres.port}/least?schema=staff"
    assert not await store_exists(url)
    with pytest.raises(StoreUnusable, match="an administrator run what `headway store sql` prints"):
        async with PostgresBackend(url):
            pass

    printed = await trio.to_thread.run_sync(headway, "store", "sql", url, "--role", "least")
    postgres.sql(printed.stdout, "least")

    assert await store_exists(url)
    async with PostgresBackend(url) as store, PostgresBackend(url) as other:
        at = await put(store, thing("a"))
        assert await names(other) == ["a"]
        acquired = await store.acquire_lease("c", "me", 10.0)
        await store.keep_lease("c", "me", acquired.held.lease.term)
        assert (await verify_store(store)).problems == []
        assert at.revision < acquired.position.revision
    with pytest.raises(AssertionError, match="must be owner"):
        postgres.sql("SET ROLE least; DROP TABLE staff.store", "least")
    postgres.sql("REVOKE INSERT ON staff.history FROM least", "least")
    with pytest.raises(StoreUnusable, match="does not permit it: permission denied for table history;"):
        async with PostgresBackend(url) as store:
            await put(store, thing("b"))


async def test_open_store_can_be_used_again_once_a_right_is_granted_again(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a restore in place, which grants at its end. Watches go on."""
    monkeypatch.setattr(_follow, "SILENCE", 0.1)
    postgres.sql("CREATE ROLE restored LOGIN")
    postgres.sql(script("restored", "restored"))
    url = f"postgresql://restored@127.0.0.1:{postgres.port}/postgres?schema=restored"
    async with PostgresBackend(url) as store:
        reader = await reading(store)
        await put(store, thing("a"))
        postgres.sql("REVOKE USAGE ON SCHEMA restored FROM restored")
        ended = store.counts["followers ended"]
        await until(lambda: store.counts["followers ended"] > ended + 1)
        with pytest.raises(Unavailable, match="does not permit it: permission denied for schema restored;"):
            await names(store)
        postgres.sql("GRANT USAGE ON SCHEMA restored TO restored")
        at = await put(store, thing("b"))
        await reader.until(at.revision)
        assert await names(store) == ["a", "b"]


async def test_password_is_read_again_for_each_connection(secured: tuple[PostgresServer, Path], tmp_path: Path) -> None:
    """So a change of it in its file needs no restart."""
    server, folder = secured
    socket = f"postgresql://postgres@/postgres?host={server.data.parent}&port={server.port}"

    def sql(statement: str) -> None:
        psql = [str(server.binaries / "psql"), "-d", socket, "-c", statement]
        subprocess.run(psql, check=True, capture_output=True, timeout=30)

    password = tmp_path / "password"
    password.write_text("first\n")
    password.chmod(0o600)
    sql("CREATE ROLE rotated LOGIN SUPERUSER PASSWORD 'first'")
    url = f"postgresql://rotated@localhost:{server.port}/postgres?sslrootcert={folder}/ca.pem&password_file={password}"
    async with PostgresBackend(f"{url}&sslmode=verify-full&schema=rotated") as store:
        await put(store, thing("a"))
        sql("ALTER ROLE rotated PASSWORD 'second'")
        password.unlink()
        sql("SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity WHERE usename = 'rotated'")
        with pytest.raises(Unavailable, match=r"password_file .* can't be read"):
            await put(store, thing("b"))
        password.write_text("second\n")
        password.chmod(0o600)
        await put(store, thing("b"))
        assert await names(store) == ["a", "b"]


async def test_stores_of_one_database_have_nothing_in_common(postgres: PostgresServer) -> None:
    """Each has its schema, also one with a name that SQL would read otherwise."""
    odd = postgres.dsn() + '?schema=Odd"; DROP%20'
    async with PostgresBackend(postgres.new_url()) as one, PostgresBackend(odd) as other:
        await put(one, thing("a"))
        await put(other, thing("b"))
        assert (await names(one), await names(other)) == (["a"], ["b"])
        assert one.position.store_id != other.position.store_id
        assert await store_exists(odd)


async def test_store_of_a_newer_program_is_refused(postgres: PostgresServer) -> None:
    url = postgres.new_url()
    async with PostgresBackend(url):
        pass
    postgres.sql(f"UPDATE {url.partition('schema=')[2]}.store SET format = 99")
    with pytest.raises(StoreUnusable, match="has format 99, and this program knows format 1: use a newer Headway"):
        async with PostgresBackend(url):
            pass


async def test_store_that_has_lost_its_row_is_refused(postgres: PostgresServer) -> None:
    """A new one would begin at revision 0 beside the resources of the old one."""
    url = postgres.new_url()
    async with PostgresBackend(url):
        pass
    postgres.sql(f"DELETE FROM {url.partition('schema=')[2]}.store")
    with pytest.raises(StoreUnusable, match=r'the table "store" at .* has lost its row'):
        async with PostgresBackend(url):
            pass


async def test_schema_may_have_as_many_bytes_as_a_channel_takes(postgres: PostgresServer) -> None:
    async with PostgresBackend(f"{postgres.dsn()}?schema={'s' * 55}") as store:
        await put(store, thing("a"))


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
async def test_database_of_another_encoding_is_refused(postgres: PostgresServer, encoding: str) -> None:
    postgres.sql(f"CREATE DATABASE {encoding} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    url = postgres.new_url().replace("/postgres?", f"/{encoding.lower()}?")
    with pytest.raises(StoreUnusable, match=f"has the encoding {encoding}: create one with ENCODING 'UTF8'"):
        async with PostgresBackend(url):
            pass


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (("/postgres?", "/nowhere?"), StoreUnusable, 'database "nowhere" does not exist'),
        (("postgres@", "nobody@"), StoreUnusable, 'role "nobody" does not exist'),
        (("127.0.0.1:{port}", "127.0.0.1:1"), Unavailable, "refused"),
        (("127.0.0.1:{port}", "nowhere.invalid:1"), Unavailable, "nowhere.invalid"),
        (("schema=", "sslmode=require&schema="), Unavailable, "SSL"),
    ],
)
async def test_error_of_a_connection_says_why(
    postgres: PostgresServer, change: tuple[str, str], error: type[Exception], says: str
) -> None:
    old, new = change
    url = postgres.new_url().replace(old.format(port=postgres.port), new)
    with pytest.raises(error, match=says) as refused:
        async with PostgresBackend(url):
            pass
    assert "can't be reached" in str(refused.value)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PostgresServer, Path]]:
    """A server with TLS and passwords, and the folder with the certificate of its authority."""
    folder = tmp_path_factory.mktemp("secured")
    server = PostgresServer(need_postgres(), folder)
    server.create()
    authority, other = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    other.cert_pem.write_to_path(folder / "other.pem")
    issued = authority.issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(server.data / "server.crt")
    issued.private_key_pem.write_to_path(server.data / "server.key")
    (server.data / "server.key").chmod(0o600)
    (server.data / "pg_hba.conf").write_text("local all all trust\nhostssl all all all scram-sha-256\n")
    owner = server.data.stat()
    for each in ("server.crt", "server.key"):
        os.chown(server.data / each, owner.st_uid, owner.st_gid)
    server.configure("ssl=on", "fsync=off", f"unix_socket_directories={server.data.parent}")
    server.start()
    try:
        try:
            server.wait_healthy()
        except RuntimeError as error:
            if "SSL is not supported by this build" in str(error):
                pytest.skip(f"{server.binaries} is a PostgreSQL without TLS: install another one")
            raise
        socket = f"postgresql://postgres@/postgres?host={server.data.parent}&port={server.port}"
        subprocess.run(
            [server.binaries / "psql", "-d", socket, "-c", "CREATE ROLE staff LOGIN SUPERUSER PASSWORD 's3cret'"],
            check=True,
            capture_output=True,
            timeout=30,
        )
        yield server, folder
    finally:
        server.stop()


async def test_tls_is_verified_and_passwords_come_from_files(
    secured: tuple[PostgresServer, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the store's own option, by libpq's, and by a service file. A wrong one is named, and no password is shown."""
    server, folder = secured
    password, passfile, services = tmp_path / "password", tmp_path / "pgpass", tmp_path / "services"
    password.write_text("s3cret\n")
    passfile.write_text("*:*:*:staff:s3cret\n")
    services.write_text(
        f"[staff]\nhost=localhost\nport={server.port}\nuser=staff\ndbname=postgres\nsslmode=verify-full\n"
        f"sslrootcert={folder}/ca.pem\npassfile={passfile}\n"
    )
    for each in (password, passfile):
        each.chmod(0o600)
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    given = f"postgresql://staff@localhost:{server.port}/postgres?sslmode=verify-full&sslrootcert={folder}"
    for url in (
        f"{given}/ca.pem&password_file={password}&schema=a",
        f"{given}/ca.pem&passfile={passfile}&schema=a",
        "postgresql:///?service=staff&schema=a",
    ):
        async with PostgresBackend(url) as store:
            await put(store, thing("a"), "") if not await names(store) else None
            assert await names(store) == ["a"]

    password.write_text("wr0ng\n")
    for url, error, says in (
        (f"{given}/ca.pem&password_file={password}", StoreUnusable, "password authentication failed"),
        (f"{given}/ca.pem", StoreUnusable, "no password supplied"),
        (f"{given}/other.pem&passfile={passfile}", Unavailable, "certificate verify failed"),
        (f"{given.replace('localhost', '127.0.0.1')}/ca.pem&passfile={passfile}", Unavailable, "does not match host"),
    ):
        with pytest.raises(error, match=says) as refused:
            async with PostgresBackend(url):
                pass
        assert "wr0ng" not in str(refused.value)
        assert "s3cret" not in str(refused.value)


async def test_pooler_is_refused_with_the_reason(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers with a process id of its own, as PgBouncer does: its clients have no session on the server."""
    monkeypatch.setattr(Connection, "process", 1)
    with pytest.raises(StoreUnusable, match=r"a pooler such as PgBouncer .* notifications \(LISTEN\)"):
        async with PostgresBackend(postgres.new_url()):
            pass


def test_psycopg_has_the_names_that_its_documentation_lacks() -> None:
    assert callable(psycopg.errors.error_from_result)


@pytest.mark.parametrize(
    "arguments",
    [
        ("store", "check", "postgresql://h/d"),
        ("store", "sql", "postgresql://h/d", "--role", "staff"),
        ("serve", "examples.fleet.app:app", "--store", "postgresql://h/d"),
        ("schema", "show", "--store", "postgresql://h/d"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize(
    "lacks",
    [
        "ModuleNotFoundError('No module named psycopg')",
        pytest.param("ImportError('no libpq')", marks=pytest.mark.wide),
    ],
)
def test_command_without_the_extra_says_to_install_it(tmp_path: Path, lacks: str, arguments: tuple[str, ...]) -> None:
    (tmp_path / "psycopg.py").write_text(f"raise {lacks}\n")
    done = headway(*arguments, path=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: a store in PostgreSQL needs psycopg: pip install 'headway[postgres]' (")
    assert done.stderr.count("\n") == 1


def test_script_quotes_its_names() -> None:
    assert 'GRANT USAGE ON SCHEMA "a""b" TO "c""d";' in script('a"b', 'c"d')
    with pytest.raises(InvalidArgument, match="the name of a role, got ''"):
        script("a", "")
