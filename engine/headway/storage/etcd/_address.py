"""The URL of a store in etcd: ``etcd://user:password@host:port,host:port/prefix?ca=PATH``.

Options of the query:

- ``tls=1``: use TLS and trust the system's certificate authorities.
- ``ca=PATH``: trust these certificate authorities instead.
- ``certificate=PATH`` and ``key=PATH``: the client's certificate.
- ``server_name=NAME``: the name in the members' certificates, if it is not the host.
- ``password_file=PATH``: read the password from a file, to keep it out of the URL.
- ``insecure=1``: allow sending the password to other hosts over plain TCP.
- ``max_changes``, ``max_age``, ``max_bytes`` and ``max_txn_ops``: as in `EtcdBackend`.

Each of the first five turns TLS on.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import parse_qsl, unquote

from headway.base import read_secret, without_password
from headway.errors import InvalidArgument, StoreUnusable
from headway.rpc import Address, address

Number = TypeVar("Number", int, float)

FORM = "etcd://host:port,host:port/prefix, like etcd://10.0.0.1:2379,10.0.0.2:2379/staff"
_TLS = frozenset(("ca", "certificate", "key", "server_name"))
_NUMBERS = ("max_changes", "max_age", "max_bytes", "max_txn_ops")
_OPTIONS = ("tls", "ca", "certificate", "key", "server_name", "password_file", "insecure", *_NUMBERS)


@dataclass(frozen=True, slots=True)
class EtcdAddress:
    """The address of a store in etcd.

    Attributes:
        endpoints: members of one cluster. Any of them can serve.
        prefix: the prefix of the store's keys. It begins with a slash and ends without one.
        tls: True to use TLS.
        ca, certificate, key, server_name: as in `headway.rpc.client_tls` and `open_channel`.
        user: the user to authenticate as. Empty for no authentication.
        insecure: True if the password may be sent to other hosts over plain TCP.
        max_changes, max_age, max_bytes, max_txn_ops: as in `EtcdBackend`.
    """

    endpoints: tuple[Address, ...]
    prefix: str
    user: str = ""
    password: str = field(default="", repr=False)
    password_file: str | None = None
    tls: bool = False
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    server_name: str | None = None
    insecure: bool = False
    max_changes: int | None = None
    max_age: float | None = None
    max_bytes: int | None = None
    max_txn_ops: int | None = None

    def __str__(self) -> str:
        return f"etcd://{','.join(map(str, self.endpoints))}{self.prefix}"

    def secret(self) -> str:
        """Return the password. Raise StoreUnusable if its file cannot be read, or if other users can read it."""
        if self.password_file is None:
            return self.password
        try:
            return read_secret(self.password_file).rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise StoreUnusable(f"password_file {self.password_file!r} of {self} can't be read: {error}") from error


def etcd_address(url: str) -> EtcdAddress:
    """Parse a URL. Raise InvalidArgument with the part that is wrong, but without any part of a password."""
    try:
        return _parsed(url)
    except InvalidArgument:
        rest = url.partition("://")[2]
        if "@" in rest and "@" not in rest.partition("?")[0].partition("/")[0]:
            # Its user and password may end at the @, so the wrong part may belong to them.
            raise InvalidArgument(
                f"{without_password(url)!r} is invalid; write {FORM}, and '/' and '?' in a password as '%2F' and '%3F'"
            ) from None
        raise


def _parsed(url: str) -> EtcdAddress:
    scheme, found, rest = url.partition("://")
    if scheme != "etcd" or not found:
        raise InvalidArgument(f"{without_password(url)!r} is not an etcd URL; write {FORM}")
    rest, _, query = rest.partition("?")
    authority, _, path = rest.partition("/")
    credentials, at, hosts = authority.rpartition("@")
    user, _, password = credentials.partition(":")
    if at and not user:
        raise InvalidArgument(f"the user before @ in {without_password(url)!r} is empty; write etcd://user:password@…")
    options = _options(url, query)
    if "password_file" in options and (password or not user):
        why = "the url also has a password before @" if password else "the url has no user; write etcd://user@…"
        raise InvalidArgument(f"password_file in {without_password(url)!r} is invalid: {why}")
    return EtcdAddress(
        _endpoints(url, hosts),
        _prefix(url, path),
        user=unquote(user),
        password=unquote(password),
        password_file=options.get("password_file"),
        tls=options.get("tls") == "1" or bool(_TLS & options.keys()),
        ca=options.get("ca"),
        certificate=options.get("certificate"),
        key=options.get("key"),
        server_name=options.get("server_name"),
        insecure=options.get("insecure") == "1",
        max_changes=_number(url, options, "max_changes", int),
        max_age=_number(url, options, "max_age", float),
        max_bytes=_number(url, options, "max_bytes", int),
        max_txn_ops=_number(url, options, "max_txn_ops", int),
    )


def _endpoints(url: str, hosts: str) -> tuple[Address, ...]:
    if not hosts:
        raise InvalidArgument(f"{without_password(url)!r} has no host; write {FORM}")
    try:
        found = tuple(address(each) for each in hosts.split(","))
    except InvalidArgument as error:
        raise InvalidArgument(f"the hosts of {without_password(url)!r}: {error}") from error
    if len(set(found)) < len(found):
        raise InvalidArgument(f"the hosts of {without_password(url)!r}: {hosts!r} repeats a host")
    return found


def _prefix(url: str, path: str) -> str:
    path = unquote(path).removesuffix("/")
    if not path or "" in path.split("/") or "\0" in path:
        raise InvalidArgument(
            f"the prefix {f'/{path}'!r} of {without_password(url)!r} is invalid: it must not be empty, "
            f"and must have a name between any two slashes; write {FORM}"
        )
    return f"/{path}"


def _options(url: str, query: str) -> dict[str, str]:
    pairs = parse_qsl(query, keep_blank_values=True)
    options = dict(pairs)
    for name, value in pairs:
        if name not in _OPTIONS:
            raise InvalidArgument(
                f"unknown option {name!r} in {without_password(url)!r}; known are {', '.join(_OPTIONS)}"
            )
        switches = name in ("tls", "insecure")
        if not value or (switches and value not in ("0", "1")):
            wanted = f"must be 0 or 1, got {value!r}" if switches else "must have a value"
            raise InvalidArgument(f"the option {name!r} of {without_password(url)!r} {wanted}")
    if len(options) < len(pairs):
        raise InvalidArgument(f"duplicate option in {without_password(url)!r}")
    if options.get("tls") == "0" and _TLS & options.keys():
        raise InvalidArgument(f"tls=0 contradicts the other options of {without_password(url)!r}")
    if "key" in options and "certificate" not in options:
        raise InvalidArgument(f"the option 'key' of {without_password(url)!r} requires 'certificate'")
    return options


def _number(url: str, options: dict[str, str], name: str, read: Callable[[str], Number]) -> Number | None:
    if name not in options:
        return None
    try:
        number = read(options[name])
        if 0 < number < math.inf:
            return number
    except ValueError:
        pass
    what = "a whole number" if read is int else "a number of seconds"
    raise InvalidArgument(
        f"the option {name!r} of {without_password(url)!r} must be {what} above 0, got {options[name]!r}"
    )
