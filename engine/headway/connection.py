"""`connect`, which opens a client of engines that listen on the network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from headway._arguments import together
from headway._compared import ComparedChannel
from headway._endpoints import open_remote
from headway._keywords import check_keywords
from headway._trio import check_trio
from headway.client import Client
from headway.controller import App

if TYPE_CHECKING:
    from ssl import SSLContext


@check_keywords
@asynccontextmanager
async def connect(
    endpoints: str | Sequence[str],
    *apps: App,
    tls: SSLContext | None = None,
    server_name: str | None = None,
    token: str = "",
    insecure: bool = False,
    timeout: float = 30.0,
) -> AsyncIterator[Client]:
    """``async with headway.connect("10.0.0.1:9000,10.0.0.2:9000", app) as client: ...``

    Return a client of engines that listen on the network. No connection is made before the first call. That call raises
    NotHeadway if the server is not an engine, and SchemaMismatch if the server and this program would misread each
    other's resources.

    Args:
        endpoints: the addresses of engines on one store; any one of them suffices.
        apps: the apps whose types the client uses. Their controllers do not run here.
        tls: the TLS context for TCP endpoints, from `headway.rpc.client_tls`.
        server_name: the name that the certificates must have. Default: the endpoint's host.
        token: the token for engines that authenticate clients.
        insecure: allow sending the token to other hosts over plain TCP, where others may read it on the way.
        timeout: the timeout of a call, in seconds, unless the caller's own deadline is shorter.

    Raises InvalidArgument if a token would be sent to another host without ``tls`` and without ``insecure``.
    """
    check_trio("headway.connect")
    registry, _ = together(apps)
    async with open_remote(endpoints, tls, server_name, timeout, token, insecure=insecure) as channel:
        yield Client(ComparedChannel(channel, registry), registry, token=token)
