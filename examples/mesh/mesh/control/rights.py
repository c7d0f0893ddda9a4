"""The caller that may be a proxy: one with the right to the identity of its workload."""

from __future__ import annotations

import ipaddress
from contextlib import AbstractAsyncContextManager

import trio

import headway
from headway.access import Caller
from headway.api import Call
from headway.errors import PermissionDenied
from mesh.control.connected import Proxies
from mesh.xds import Feedback, Publish
from mesh.xds.messages import Node


class ForCaller:
    """The proxies, for one caller.

    Args:
        proxies: the proxies.
        caller: the rights of the caller; None if everyone may do everything.
    """

    def __init__(self, proxies: Proxies, caller: Caller | None) -> None:
        self._proxies = proxies
        self._caller = caller

    def may(self, identity: headway.ResourceId) -> bool:
        """Return True if the caller may be a proxy with this identity."""
        return self._caller is None or self._caller.may_write(identity)

    async def authenticate(self, call: Call, _: Node) -> None:
        """Raise PermissionDenied unless keys may be sent over the connection.

        The right to an identity is checked with each snapshot, because a template may come later, and may change.
        """
        await trio.lowlevel.checkpoint()
        if not is_private(call):
            raise PermissionDenied(
                "permission denied: proxies get private keys, and this connection is neither encrypted nor of this "
                "host: serve with TLS, and give the proxy the authority's certificate"
            )

    def open(self, node: Node, publish: Publish) -> AbstractAsyncContextManager[Feedback]:
        """Publish to a stream of a node, until the end of the block."""
        return self._proxies.open(node, publish, self.may)


def is_private(call: Call) -> bool:
    """Return True if what is sent to the caller is encrypted, or stays on this host."""
    if call.encrypted or call.peer is None:
        return True
    address = call.peer.addr()
    if isinstance(address, str):
        return True  # a Unix socket
    try:
        return ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback
    except (TypeError, ValueError, IndexError):
        return False
