"""`connect`: a client of engines that listen on the network."""

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

    A client of engines that listen on the network. Nothing is connected before the first call, which raises NotHeadway
    when what answers at the endpoints is not an engine, and SchemaMismatch when it and this program would misread each
    other's resources.

    Args:
        endpoints: addresses of engines on one store; any of them serves.
        apps: whose types; their controllers don't run here.
        tls: for those that are TCP, as `headway.rpc.client_tls` makes it.
        server_name: the name that the certificates must have, if it isn't the endpoint's host.
        token: what the engines know the caller by, where they ask.
        insecure: send the token to other hosts over plain TCP, where others may read it on the way.
        timeout: seconds for a call, where the caller's own deadline is no shorter.

    Raises InvalidArgument for a token that would be sent to another host without ``tls`` and without ``insecure``.
    """
    check_trio("headway.connect")
    registry, _ = together(apps)
    async with open_remote(endpoints, tls, server_name, timeout, token, insecure=insecure) as channel:
        yield Client(ComparedChannel(channel, registry), registry, token=token)
