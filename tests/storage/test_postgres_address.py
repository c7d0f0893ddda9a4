"""Addresses of stores in PostgreSQL: their options, and the errors that name the wrong part."""

from pathlib import Path

import pytest

from headway.errors import InvalidArgument, StoreUnusable
from headway.storage import PostgresBackend, check_store, open_store, postgres_address, store_exists
from tests.helpers.secret_files import write_secret


def test_address_has_the_options_of_libpq_and_of_the_store(tmp_path: Path) -> None:
    write_secret(tmp_path / "password", "s3cret\n")
    read = postgres_address(
        f"postgresql://st%40ff@db1:5433,db2:5434/staff?schema=a%20b&sslmode=verify-full&password_file={tmp_path}/password"
        "&max_changes=5&max_age=2.5&max_bytes=7"
    )
    connecting = read.connecting()
    assert (connecting["user"], connecting["host"], connecting["port"]) == ("st@ff", "db1,db2", "5433,5434")
    assert (connecting["dbname"], connecting["sslmode"], connecting["password"]) == ("staff", "verify-full", "s3cret")
    assert connecting["target_session_attrs"] == "read-write"
    assert (read.schema, read.max_changes, read.max_age, read.max_bytes) == ("a b", 5, 2.5, 7)
    assert str(read) == "postgresql://db1:5433,db2:5434/staff?schema=a b"
    assert str(postgres_address("postgresql:///d?service=staff")) == "postgresql://staff/d?schema=headway"
    assert postgres_address("postgres:///?service=staff").parameters["service"] == "staff"
    assert postgres_address("postgresql://h/d").schema == "headway"
    assert postgres_address("postgresql:///d?user=a@b&hostaddr=127.0.0.1,::1").parameters["user"] == "a@b"
    assert isinstance(open_store("postgresql://h/d"), PostgresBackend)
    with pytest.raises(StoreUnusable, match="password_file '/nowhere'"):
        postgres_address("postgresql://h/d?password_file=/nowhere").connecting()


def test_password_is_never_shown() -> None:
    read = postgres_address("postgresql://staff:s3cret@h/d")
    assert "s3cret" not in str(read) + repr(read)
    named = postgres_address("postgresql://h/d?dbname=postgresql%3A%2F%2Fstaff%3As3cret%40h%2Fd")
    assert "s3cret" not in str(named) + repr(named)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://staff:s3cret@h:x/d?bogus=1",
        "postgresql:/staff:s3cret@h/d",
        "postgresql://staff:s3cret@h/d?password_file=/x",
        "postgresql://staff:s3cret@[::1/d",
        "postgres:/d?password=s3cret",
        "postgresql://staff:s3c?s3cret@h/d",
        "postgresql://staff:s3c?s3c=s3c@h/d",
        "postgresql://staff:s3c/s3cret@h/d",
        "postgresql://staff:s3cr@s3cret@h/d",
        "postgresql://staff:s3c%zz@h/d",
        "postgresql://staff:s3c@h:99999999/d",
    ],
)
async def test_password_in_an_invalid_url_is_never_shown(url: str) -> None:
    for refuse in (open_store, postgres_address):
        with pytest.raises(InvalidArgument) as error:
            refuse(url)
        assert "s3c" not in str(error.value)
        assert error.value.__cause__ is None
    for refuse_later in (store_exists, check_store):
        with pytest.raises(InvalidArgument) as error:
            await refuse_later(url)
        assert "s3c" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "names"),
    [
        ("postgresql:h/d", "is not a URL of PostgreSQL"),
        ("postgresql://h/d?bogus=1", "the option 'bogus' is unknown; its own are schema, password_file"),
        ("postgresql://a@h/d?passwordfile=/x", "'passwordfile' is unknown; did you mean 'password_file'"),
        ("postgresql://a@h:abc/d", 'invalid integer value "abc" .* "port"'),
        ("postgresql://a@h:99999999/d", 'invalid port number: "99999999"'),
        ("postgresql://a@g,h/d?port=1,2,3", "3 port numbers to 2 hosts"),
        ("postgresql://a@h/d?sslmode=verifyfull", 'invalid sslmode value: "verifyfull"'),
        ("postgresql://a@h/d?target_session_attrs=writable", "invalid target_session_attrs value"),
        ("postgresql://a:b/c@h/d", "write %40 for '@', %2F for '/'"),
        ("postgresql://h/d?schema=pg_x", "no 'pg_' at its beginning, got 'pg_x'"),
        ("postgresql://h/d?schema=a%25b", "no '%'"),
        ("postgresql://h/d?schema=", "'schema' .* must have a value"),
        (f"postgresql://h/d?schema={'s' * 56}", "at most 55 bytes"),
        ("postgresql://h/d?max_changes=0", "'max_changes' .* a whole number above 0, got '0'"),
        ("postgresql://h/d?max_age=x", "'max_age' .* a number of seconds above 0, got 'x'"),
        ("postgresql://h/d?schema=a&schema=b", "the option 'schema' more than once"),
    ],
)
def test_invalid_address_is_refused_with_its_part(url: str, names: str) -> None:
    with pytest.raises(InvalidArgument, match=names):
        postgres_address(url)
