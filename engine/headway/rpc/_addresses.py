"""Addresses of servers, and which of them no secret may be sent to over plain TCP. No I/O.

An address is written ``127.0.0.1:9000``, ``[::1]:9000``, ``host:9000`` or ``unix:/run/headway.sock``.
"""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Iterable
from typing import NamedTuple

from headway.api import TOKEN_HEADER
from headway.base import repr_text
from headway.errors import InvalidArgument

_SECRETS = frozenset((TOKEN_HEADER, "authorization", "token"))


class Address(NamedTuple):
    """The address of a server: a path, or a host and a port."""

    host: str
    port: int
    path: str

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def is_loopback(host: str) -> bool:
    """Return True if the host is certainly this machine: a loopback address, or the name ``localhost``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        # Any other name may resolve to any address, and to a different one tomorrow.
        return False


def address(text: str) -> Address:
    """Parse one address.

    Raises:
        InvalidArgument: the text is not an address. The message shows the valid forms.
    """
    if text.startswith("unix:"):
        path = text.removeprefix("unix:").removeprefix("//")
        if path:
            return Address("", 0, path)
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    if colon and host and (bracketed or ":" not in host) and port.isascii() and port.isdigit() and int(port) < 1 << 16:
        return Address(host, int(port), "")
    raise InvalidArgument(f"{text!r} is not an address; write '127.0.0.1:9000', '[::1]:9000' or 'unix:/path/to/socket'")


def named(peer: object) -> str:
    """Return the address of a socket's peer as text."""
    return str(Address(peer[0], peer[1], "")) if isinstance(peer, tuple) else "a Unix socket"


def addresses(text: str | Iterable[str]) -> list[Address]:
    """Parse several addresses. A string holds them separated by commas.

    Raises:
        InvalidArgument: the string is empty, or a part is not an address.
    """
    try:
        parts = [part.strip() for part in (text.split(",") if isinstance(text, str) else text)]
    except (TypeError, AttributeError):
        raise InvalidArgument(
            f"expected addresses, such as '127.0.0.1:9000' or ['unix:/path/to/socket'], got {repr_text(text)}"
        ) from None
    if not parts:
        raise InvalidArgument(
            "expected at least one address, such as '127.0.0.1:9000', but got none: "
            "an engine has one if it is opened with network=headway.Network(['127.0.0.1:9000'], ...)"
        )
    return [address(part) for part in parts]


def plain_text_host(endpoints: Iterable[Address], tls: ssl.SSLContext | None) -> Address | None:
    """Return the first endpoint on another host that is reached over plain TCP, or None.

    Anything sent to such an endpoint can be read on the way. Unix sockets and loopback addresses are on this machine.
    """
    if tls is not None:
        return None
    return next((each for each in endpoints if not each.path and not is_loopback(each.host)), None)


def has_secret(metadata: Iterable[tuple[str, str]]) -> bool:
    """Return True if a call's metadata holds a token. Consul's clients send an empty token if they have none."""
    return any(value and name.lower() in _SECRETS for name, value in metadata)


def readable(what: str, host: Address, remedy: str) -> str:
    """Return an error message that says that ``what`` could be read on its way to the host."""
    return f"{host}: {what} sent to another host over plain TCP can be read on the way: {remedy}"
