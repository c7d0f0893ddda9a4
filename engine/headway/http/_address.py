"""Addresses of HTTP servers, and the hosts that a browser's request may name. No I/O."""

from __future__ import annotations

from headway.errors import InvalidArgument
from headway.rpc import is_loopback


def host_and_port(address: str, what: str = "pages", port: int = 9090) -> tuple[str, int]:
    """Return the host and the port of ``HOST:PORT``.

    Args:
        address: the address.
        what: what is served there, for the error.
        port: the port in the error's example.

    Raises:
        InvalidArgument: the address has another form.
    """
    host, colon, number = address.rpartition(":")
    if not (host and colon) or not (number.isascii() and number.isdecimal()) or int(number) > 65535:
        raise InvalidArgument(f"{address!r} is not a valid address for {what}: use HOST:PORT, such as 127.0.0.1:{port}")
    return host.strip("[]"), int(number)


def check_http_address(address: str, *, controlled: bool) -> tuple[str, int]:
    """Return the host and the port of an address for HTTP.

    Args:
        address: ``HOST:PORT``.
        controlled: True if an authorizer decides what callers may do.

    Raises:
        InvalidArgument: the address is invalid, or other hosts can reach it and nothing controls access.
    """
    host, port = host_and_port(address, "HTTP", 8080)
    if not controlled and not is_loopback(host):
        raise InvalidArgument(
            f"{address}: others can reach this address and read and write everything: "
            "use 127.0.0.1, or control access (access=, in the command --access)"
        )
    return host, port


def names_loopback(host_header: str) -> bool:
    """Return True if a request's Host names this machine by a loopback address or ``localhost``.

    Another site can point its own name at 127.0.0.1 (DNS rebinding). The browser then takes this server for that site,
    and sends the requests of the site's pages here. But their Host is the name of the site.
    """
    host, colon, port = host_header.rpartition(":")
    if not colon or not port.isdecimal():
        host = host_header
    return is_loopback(host.strip("[]").lower())
