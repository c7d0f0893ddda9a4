"""Checks that tokens and passwords are not sent to other machines over unencrypted connections. No I/O."""

from __future__ import annotations

import ssl
from collections.abc import Iterable

from headway.rpc._addresses import Address, is_loopback

_SECRETS = frozenset(("x-consul-token", "authorization", "token"))


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
