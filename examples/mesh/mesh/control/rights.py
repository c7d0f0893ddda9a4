"""The caller that may be a proxy: one with the right to the identity of its workload."""

from __future__ import annotations

import ipaddress
from contextlib import AbstractAsyncContextManager

import headway
from catalog.types import WORKLOAD_IDENTITY
from headway.access import Caller
from headway.api import Call
from headway.engine import Host
from headway.errors import NotFound, PermissionDenied
from mesh.control.connected import Proxies, denied, template_of
from mesh.messages import ProxyState
from mesh.types import PROXY_STATE_TEMPLATE
from mesh.xds import Feedback, Publish
from mesh.xds.messages import Node


def identity_of(state: ProxyState | None) -> headway.ResourceId | None:
    """Return the workload identity of a proxy, or None if its state has none."""
    ref = state.identity if state is not None else None
    if ref is None or not ref.name:
        return None
    units = (ref.tenancy.partition, ref.tenancy.namespace) if ref.tenancy is not None else ("", "")
    return WORKLOAD_IDENTITY.id(ref.name, partition=units[0], namespace=units[1])


class ForCaller:
    """The proxies, for one caller.

    Args:
        proxies: the proxies.
        host: the engine.
        caller: the rights of the caller; None if everyone may do everything.
    """

    def __init__(self, proxies: Proxies, host: Host, caller: Caller | None) -> None:
        self._proxies = proxies
        self._host = host
        self._caller = caller

    def may(self, identity: headway.ResourceId) -> bool:
        """Return True if the caller may be a proxy with this identity."""
        return self._caller is None or self._caller.may_write(identity)

    async def authenticate(self, call: Call, node: Node) -> None:
        """Raise PermissionDenied unless the caller may be this node."""
        if not is_private(call):
            raise PermissionDenied(
                "permission denied: proxies get private keys, and this connection is neither encrypted nor of this "
                "host: serve with TLS, and give the proxy the authority's certificate"
            )
        try:
            template = await self._host.client.read(PROXY_STATE_TEMPLATE, template_of(node))
        except NotFound:
            # It gets nothing before it has a template, and is checked then.
            return
        identity = identity_of(template.data.proxy_state)
        if identity is not None and not self.may(identity):
            raise denied()

    def open(self, node: Node, publish: Publish) -> AbstractAsyncContextManager[Feedback]:
        """Publish to a stream of a node, until the end of the block."""
        return self._proxies.open(node, publish, self.may)


def is_private(call: Call) -> bool:
    """Return True if nobody on a network can read what is sent to the caller."""
    if call.encrypted or call.peer is None:
        return True
    address = call.peer.addr()
    if isinstance(address, str):
        return True  # a Unix socket
    try:
        return ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback
    except (TypeError, ValueError, IndexError):
        return False
