"""The URL of a store in PostgreSQL: ``postgresql://user@host:port,host:port/database?schema=staff``.

It may have every option of libpq, such as ``service``, ``sslmode=verify-full``, ``sslrootcert`` and ``passfile``, and
these of Headway:

- ``schema=NAME``: the schema of the store. "headway" by default.
- ``password_file=PATH``: read the password from a file, to keep it out of the URL.
- ``max_changes``, ``max_age`` and ``max_bytes``: as in `PostgresBackend`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import parse_qsl

from headway.base import did_you_mean, read_secret, without_password
from headway.errors import InvalidArgument, StoreUnusable
from headway.storage.postgres._connection import checked_parameters, known_options, refused_value

Number = TypeVar("Number", int, float)

FORM = "postgresql://user@host:port/database?schema=NAME, like postgresql://staff@10.0.0.1/staff"
_SCHEMES = ("postgresql", "postgres")
_OWN = ("schema", "password_file", "max_changes", "max_age", "max_bytes")
_DEFAULTS = {
    "application_name": "headway",
    "target_session_attrs": "read-write",
    "client_encoding": "UTF8",
    # A connection that a firewall has dropped is found out about.
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """The address of a store in PostgreSQL.

    Attributes:
        parameters: what libpq connects with, without a password that is in a file.
        schema: the schema of the store.
        max_changes, max_age, max_bytes: as in `PostgresBackend`.
    """

    parameters: dict[str, str] = field(repr=False)
    schema: str = "headway"
    password_file: str | None = None
    max_changes: int | None = None
    max_age: float | None = None
    max_bytes: int | None = None

    def __str__(self) -> str:
        given = self.parameters
        hosts = given.get("host", given.get("hostaddr", "")).split(",")
        ports = given.get("port", "").split(",") * len(hosts)
        shown = [
            f"{host}:{port}" if port else host for host, port in zip(hosts, ports, strict=False) if host[:1] != "/"
        ]
        where = ",".join(shown) or given.get("service", "")
        return f"postgresql://{where}/{without_password(given.get('dbname', ''))}?schema={self.schema}"

    def connecting(self) -> dict[str, str]:
        """Return what libpq connects with. Raise StoreUnusable if the file of the password cannot be read."""
        if self.password_file is None:
            return self.parameters
        try:
            return {**self.parameters, "password": read_secret(self.password_file).rstrip("\r\n")}
        except (OSError, UnicodeDecodeError) as error:
            raise StoreUnusable(f"password_file {self.password_file!r} of {self} can't be read: {error}") from error


def postgres_address(url: str) -> PostgresAddress:
    """Parse a URL. Raise InvalidArgument with the part that is wrong, but without any part of a password."""
    scheme, found, rest = url.partition("://")
    if scheme not in _SCHEMES or not found:
        raise InvalidArgument(f"{without_password(url)!r} is not a URL of PostgreSQL; write {FORM}")
    rest, _, query = rest.partition("?")
    pairs = parse_qsl(query, keep_blank_values=True)
    options = dict(pairs)
    shown = without_password(url).partition("?")[0]
    authority, _, path = rest.partition("/")
    # What libpq takes for something else may then be a part of the password, which is not shown.
    encode = "write %40 for '@', %2F for '/' and %3F for '?' in a user, a password and a database"
    if authority.count("@") > 1 or "@" in path:
        raise InvalidArgument(f"{shown!r} is invalid: {encode}")
    hides = "@" in query and "@" not in authority
    names = [name for name, _ in pairs]
    if twice := [name for name in options if names.count(name) > 1]:
        raise InvalidArgument(f"{shown!r} has the option {', '.join(map(repr, twice))} more than once")
    known = {*_OWN, *known_options()}
    if unknown := [name for name in options if name not in known]:
        guess, _, lists_all = did_you_mean(unknown[0], known).partition("; known")
        hint = "; its own are " + ", ".join(_OWN) + ", and all others libpq's" if lists_all else guess
        why = encode if hides else f"the option {unknown[0]!r} is unknown{hint}"
        raise InvalidArgument(f"{shown!r} is invalid: {why}")
    own = {name: options.pop(name) for name in _OWN if name in options}
    for name, value in own.items():
        if not value or "\0" in value:
            raise InvalidArgument(f"the option {name!r} of {shown!r} must have a value")
    schema = own.get("schema", "")
    if len(schema.encode()) > 55 or "%" in schema or schema.startswith("pg_"):
        raise InvalidArgument(
            f"the schema of {shown!r} must have at most 55 bytes, no '%', and no 'pg_' at its beginning, got {schema!r}"
        )
    try:
        parameters = checked_parameters(f"{scheme}://{rest}", options)
    except InvalidArgument as error:
        # libpq repeats the URL, which may have a password.
        why = str(error) if "@" not in url else "it is not a URL of libpq"
        raise InvalidArgument(f"{shown!r} is invalid: {why}; write {FORM}") from None
    if why := refused_value(parameters):
        why = encode if hides else why
        raise InvalidArgument(f"{shown!r} is invalid: {why}; write {FORM}")
    if "password_file" in own and "password" in parameters:
        raise InvalidArgument(f"{shown!r} has a password and a password_file: give one of them")
    return PostgresAddress(
        {**_DEFAULTS, **parameters},
        own.get("schema", "headway"),
        own.get("password_file"),
        _number(shown, own, "max_changes", int),
        _number(shown, own, "max_age", float),
        _number(shown, own, "max_bytes", int),
    )


def _number(shown: str, options: dict[str, str], name: str, read: Callable[[str], Number]) -> Number | None:
    if name not in options:
        return None
    try:
        number = read(options[name])
        if 0 < number < math.inf:
            return number
    except ValueError:
        pass
    what = "a whole number" if read is int else "a number of seconds"
    raise InvalidArgument(f"the option {name!r} of {shown!r} must be {what} above 0, got {options[name]!r}")
