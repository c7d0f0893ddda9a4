"""Addresses of servers: ``127.0.0.1:9000``, ``[::1]:9000``, ``host:9000``, ``unix:/run/headway.sock``. No I/O."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import NamedTuple

from headway.errors import InvalidArgument


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
    """Parse several addresses. A string holds them separated by commas."""
    parts = text.split(",") if isinstance(text, str) else text
    return [address(part.strip()) for part in parts]
