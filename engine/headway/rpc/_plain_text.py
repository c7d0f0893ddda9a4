"""Tokens and passwords stay on this machine where a connection is not encrypted. Pure."""

from __future__ import annotations

import ssl
from collections.abc import Iterable

from headway.rpc._addresses import Address, is_loopback

_SECRETS = frozenset(("x-consul-token", "authorization", "token"))


def plain_text_host(endpoints: Iterable[Address], tls: ssl.SSLContext | None) -> Address | None:
    """Return the first endpoint that is asked over plain TCP and is on another host, if there is one.

    Others may read on the way what is sent there. A Unix socket and a loopback address are this machine.
    """
    if tls is not None:
        return None
    return next((each for each in endpoints if not each.path and not is_loopback(each.host)), None)


def has_secret(metadata: Iterable[tuple[str, str]]) -> bool:
    """Return True if a call's metadata holds a token. Clients made for Consul send an empty one for none."""
    return any(value and name.lower() in _SECRETS for name, value in metadata)


def readable(what: str, host: Address, remedy: str) -> str:
    """Return an error message: ``what`` would be readable on its way to the host."""
    return f"{host}: {what} sent to another host over plain TCP can be read on the way: {remedy}"
