"""The channel of clients and workers to engines on the network."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import trio

from headway.client import LeaseClient
from headway.errors import HeadwayError, InvalidArgument, NotHeadway, RemoteError
from headway.events import CallDelayed, Report
from headway.queue import Backoff
from headway.rpc import Channel, addresses, plain_text_host, readable
from headway.service import WATCH_LIST, WatchDecoder

if TYPE_CHECKING:
    from ssl import SSLContext

_PAUSES = Backoff(0.5, 30.0)
"""The delays between requests to a server that does not answer."""


def open_remote(
    endpoints: str | Sequence[str],
    tls: SSLContext | None,
    server_name: str | None,
    timeout: float,
    token: str,
    *,
    insecure: bool,
) -> AbstractAsyncContextManager[Channel]:
    """Return a channel to engines that can also watch resources.

    Raises InvalidArgument, before anything is opened, for a token that others could read on its way.
    """
    # Checked here as well as at the first call, because workers would repeat that call as long as it fails.
    if token and not insecure and (host := plain_text_host(addresses(endpoints), tls)):
        raise InvalidArgument(readable("a token", host, "use tls=headway.rpc.client_tls(...), or insecure=True"))
    from headway.rpc import open_channel

    decoders = {WATCH_LIST: WatchDecoder}
    return open_channel(
        endpoints, tls=tls, server_name=server_name, decoders=decoders, timeout=timeout, insecure=insecure
    )


async def find_engine(channel: Channel, report: Report) -> None:
    """Wait until an engine has answered. Used in a process whose controllers make no calls.

    Raises NotHeadway if the server is not an engine. Until then, report each failure and try again.
    """
    failures = 0
    while True:
        try:
            await LeaseClient(channel).list()
        except NotHeadway:
            raise
        except RemoteError as error:
            delay = _PAUSES.delay(failures)
            failures += 1
            report(CallDelayed("", "List", error, delay))
            await trio.sleep(delay)
            continue
        except HeadwayError:
            # A refusal is an answer as well.
            pass
        return
