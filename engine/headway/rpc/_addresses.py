"""Addresses of servers: ``127.0.0.1:9000``, ``[::1]:9000``, ``host:9000``, ``unix:/run/headway.sock``. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import NamedTuple

from headway.errors import InvalidArgument


class Address(NamedTuple):
    """Where a server listens: a path, or a host and a port."""

    host: str
    port: int
    path: str

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def is_loopback(host: str) -> bool:
    """Return True if only this machine can be meant by the host: a loopback address, or the name ``localhost``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        # Another name may mean any address, and another one tomorrow.
        return False


def address(text: str) -> Address:
    """Read one address. Raises InvalidArgument that shows the right forms."""
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
    raise InvalidArgument(f"{text!r} is no address; write '127.0.0.1:9000', '[::1]:9000' or 'unix:/path/to/socket'")


def named(peer: object) -> str:
    """Return the address of an accepted socket as text."""
    return str(Address(peer[0], peer[1], "")) if isinstance(peer, tuple) else "a Unix socket"


def addresses(text: str | Iterable[str]) -> list[Address]:
    """Read addresses, separated by commas where they are one string."""
    parts = text.split(",") if isinstance(text, str) else text
    return [address(part.strip()) for part in parts]
