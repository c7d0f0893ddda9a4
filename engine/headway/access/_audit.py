"""Reports of calls that were not served: failed authentications, denied calls, and calls that a limit has refused."""

from __future__ import annotations

from typing import NoReturn

import trio

from headway.access._authorizer import Authorizer, Denial, Identity
from headway.access._limiter import Counted, Exceeded
from headway.access._tokens import redacted
from headway.api import Call
from headway.base import BoundedReport
from headway.events import AuthenticationFailed, CallDenied, CallLimited, LoginRefused, Report
from headway.rpc import peer_of

UNKNOWN = "unknown"
"""The name of a caller whose token does not exist."""

# The maximum length of the description of a call: it contains the caller's own text.
_LONGEST = 200


class Audit:
    """Reports failed authentications, denied calls and limited ones, at a bounded rate.

    Calls with a valid token have a bound of their own. Other callers can't suppress reports about them.
    """

    def __init__(self, report: Report) -> None:
        self._strangers = BoundedReport(report)
        self._known = BoundedReport(report)

    def failed(self, authorizer: Authorizer, path: str, call: Call) -> None:
        """Report a call whose token is not valid."""
        refusal = authorizer.refusal(call.metadata)
        caller, why = refusal.caller or UNKNOWN, refusal.why
        # A token's name is public, so a caller without a valid token can cause this under any name.
        self._strangers(AuthenticationFailed, caller=caller, why=why, path=_called(path, call), peer=_peer(call))
        if reason := refusal.reason:
            # There are few issuers and few reasons, so each is counted for itself.
            issuer = refusal.issuer
            self._strangers(LoginRefused, of=(issuer, reason), issuer=issuer, reason=reason)

    def denied(self, identity: Identity, path: str, call: Call) -> None:
        """Report a call that no rule of its caller allows."""
        what = "" if identity.denied is None else _described(identity.denied)
        bounded = self._strangers if identity.token is None else self._known
        bounded(CallDenied, caller=identity.name, what=what, path=_called(path, call), peer=_peer(call))

    def limited(self, exceeded: Exceeded, counted: Counted, identity: Identity, path: str, call: Call) -> None:
        """Report a call that a limit refuses."""
        name = exceeded.limit.name
        bounded = self._strangers if identity.token is None else self._known
        bounded(
            CallLimited,
            of=(name, counted.category),
            limit=name,
            category=counted.category,
            caller=identity.name,
            path=_called(path, call),
            peer=_peer(call),
            seconds=exceeded.seconds,
        )

    async def report_rest(self) -> NoReturn:
        """Report the events that a burst left unreported, until canceled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._strangers.report_rest)
            await self._known.report_rest()


def _described(denied: Denial) -> str:
    where = "/".join(unit for unit in (denied.partition, denied.namespace) if unit)
    return _printable(f"{denied.verb} of {denied.type}{f' in {where}' if where else ''}")


def _called(path: str, call: Call) -> str:
    """Return what the caller has called: over HTTP a method and a path, which may make calls of several services."""
    return _printable(call.called) or path


def _printable(text: str) -> str:
    # A caller may have written a token at a wrong place, such as into the path.
    text = redacted(text)[:_LONGEST]
    return text if text.isprintable() else ascii(text)


def host_of(call: Call) -> str:
    """Return the host or network that a call came from; empty for a Unix socket and for in-process calls."""
    peer = call.peer
    return "" if peer is None else peer_of(peer.addr())


def _peer(call: Call) -> str:
    """Return the address that a call came from; empty for in-process calls."""
    peer = call.peer
    if peer is None:
        return ""
    address = peer.addr()
    if isinstance(address, tuple) and len(address) > 1:
        host, port = address[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return "unix socket"
