"""The channel to engines on the network, for clients and for workers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from headway.errors import InvalidArgument
from headway.rpc import Channel, addresses, plain_text_host, readable
from headway.service import WATCH_LIST, WatchDecoder

if TYPE_CHECKING:
    from ssl import SSLContext


def open_remote(
    endpoints: str | Sequence[str],
    tls: SSLContext | None,
    server_name: str | None,
    timeout: float,
    token: str,
    *,
    insecure: bool,
) -> AbstractAsyncContextManager[Channel]:
    """A channel to engines, over which resources can be watched.

    Raises InvalidArgument, before anything is opened, for a token that others could read on its way.
    """
    # Here and not only at the first call, because workers would repeat that call for as long as it fails.
    if token and not insecure and (host := plain_text_host(addresses(endpoints), tls)):
        raise InvalidArgument(readable("a token", host, "use tls=headway.rpc.client_tls(...), or insecure=True"))
    from headway.rpc import open_channel

    decoders = {WATCH_LIST: WatchDecoder}
    return open_channel(
        endpoints, tls=tls, server_name=server_name, decoders=decoders, timeout=timeout, insecure=insecure
    )
