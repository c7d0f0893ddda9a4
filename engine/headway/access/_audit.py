"""Audit events for a server's operator: failed authentications and denied calls, with the names of the callers."""

from __future__ import annotations

from typing import Any, NoReturn

import trio

from headway._bounded_report import BoundedReport
from headway.access._authorizer import Authorizer, Identity, Question
from headway.events import AuthenticationFailed, CallDenied, Report

UNKNOWN = "unknown"
"""The name of a caller whose token does not exist."""

# The maximum length of the description of a call: it contains the caller's own text.
_LONGEST = 200


class Audit:
    """Reports failed authentications and denied calls, at a bounded rate.

    Each of the two has its own bound, so that callers without a token cannot hide what is done with one.
    """

    def __init__(self, report: Report) -> None:
        self._strangers = BoundedReport(report)
        self._known = BoundedReport(report)

    def failed(self, authorizer: Authorizer, path: str, stream: Any) -> None:
        """Report a call whose token is not valid."""
        caller, why = authorizer.refusal(stream.metadata)
        # A token's name is public, so a caller without a valid token can cause this under any name.
        self._strangers(AuthenticationFailed, caller=caller or UNKNOWN, why=why, path=path, peer=_peer(stream))

    def denied(self, identity: Identity, path: str, stream: Any) -> None:
        """Report a call that no rule of its caller allows."""
        what = "" if identity.denied is None else _printable(identity.denied)
        bounded = self._strangers if identity.token is None else self._known
        bounded(CallDenied, caller=identity.name, what=what, path=path, peer=_peer(stream))

    async def report_rest(self) -> NoReturn:
        """Report the events that a burst left unreported, until canceled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._strangers.report_rest)
            await self._known.report_rest()


def _printable(asked: Question) -> str:
    where = "/".join(unit for unit in (asked.partition, asked.namespace) if unit)
    text = f"{asked.verb} of {asked.type}{f' in {where}' if where else ''}"[:_LONGEST]
    return text if text.isprintable() else ascii(text)


def _peer(stream: Any) -> str:
    """Return the address that a call came from; empty for in-process calls."""
    peer = getattr(stream, "peer", None)
    if peer is None:
        return ""
    address = peer.addr()
    if isinstance(address, tuple) and len(address) > 1:
        host, port = address[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return "unix socket"
