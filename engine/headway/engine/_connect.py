"""`connect`, which opens a client of engines on the network, and the channel that workers open as well."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import trio
from typing_extensions import Unpack

from headway.base import async_block, check_options, check_text, check_token, check_trio, repr_text
from headway.client import Client, LeaseClient
from headway.controller import App
from headway.engine._arguments import combine_apps, combine_topics, is_tls
from headway.engine._around import tracing_by
from headway.engine._built_in import comparison_of, stream_decoders
from headway.engine._given import ConnectionOptions
from headway.errors import HeadwayError, InvalidArgument, NotHeadway, RemoteError
from headway.events import CallDelayed, Report
from headway.queue import Backoff
from headway.rpc import Channel, StreamDecoder, Token, addresses, plain_text_host, readable

if TYPE_CHECKING:
    from ssl import SSLContext

    from opentelemetry.trace import TracerProvider

    from headway.rpc import Admits

_PAUSES = Backoff(0.5, 30.0)
"""The delays between requests to a server that does not answer."""


@check_options(ConnectionOptions.__annotations__)
@async_block
async def connect(
    endpoints: str | Sequence[str],
    *apps: App,
    tracing: TracerProvider | None = None,
    **options: Unpack[ConnectionOptions],
) -> AsyncIterator[Client]:
    """``async with headway.connect("10.0.0.1:9000,10.0.0.2:9000", app) as client: ...``

    Return a client of engines that listen on the network. No connection is made before the first call. That call raises
    NotHeadway if the server is not an engine. The first call on each connection compares the types and topics, and
    raises SchemaMismatch if the server and this program would misread each other's resources or events. So does the
    first call that uses a type or topic to which the token had no rights before.

    Args:
        endpoints: the addresses of engines on one store; any one of them suffices.
        apps: the apps whose types and topics the client uses. Their controllers do not run here.
        tls: the TLS context for TCP endpoints, from `headway.rpc.client_tls`.
        server_name: the name that the certificates must have. Default: the endpoint's host.
        token: the token for engines that authenticate clients, or a function that returns it, such as
            `headway.rpc.token_file`. The function is called for each call to an engine, and must not block.
        insecure: allow sending the token to other hosts over plain TCP, where others may read it on the way.
        timeout: the timeout of a call, in seconds, unless the caller's own deadline is shorter.
        tracing: the OpenTelemetry provider of the tracer. Default: the one that the program has configured, if any.
            It needs ``pip install 'headway[otel]'``.

    Raises InvalidArgument if an argument is invalid, or a token would be sent to another host without ``tls`` and
    without ``insecure``.
    """
    check_trio("headway.connect")
    registry, _ = combine_apps(apps)
    connection = Connection.of(options)
    comparison = comparison_of(registry, combine_topics(apps).values())
    async with connection.open(endpoints, comparison) as channel:
        used = tracing_by(tracing).channel(channel, remote=True)
        yield Client(used, registry, token=connection.token)


@dataclass(frozen=True, kw_only=True)
class Connection:
    """The options of connections to engines, which `connect` describes.

    Raises InvalidArgument for an invalid one.
    """

    tls: SSLContext | None = None
    server_name: str | None = None
    token: Token = ""
    insecure: bool = False
    timeout: float = 30.0

    @classmethod
    def of(cls, options: ConnectionOptions) -> Connection:
        """Return the connection of some options, which may have others as well."""
        return cls(**{name: given for name, given in options.items() if name in ConnectionOptions.__annotations__})  # type: ignore[arg-type]  # by their names

    def __post_init__(self) -> None:
        check_token(self.token() if callable(self.token) else self.token)
        if not is_tls(self.tls):
            raise InvalidArgument(
                f"tls must be a TLS context, such as headway.rpc.client_tls(...), not {repr_text(self.tls)}"
            )
        if self.server_name is not None:
            check_text("server_name", self.server_name, "'engine.example.com'")
        insecure: object = self.insecure
        if not isinstance(insecure, bool):
            raise InvalidArgument(f"insecure must be True or False, not {repr_text(insecure)}")
        given: object = self.timeout
        if isinstance(given, bool) or not isinstance(given, int | float) or not given > 0:
            raise InvalidArgument(f"timeout must be > 0 seconds, not {given!r}")

    def open(
        self,
        endpoints: str | Sequence[str],
        comparison: Admits,
        decoders: Mapping[str, Callable[[], StreamDecoder]] = MappingProxyType({}),
    ) -> AbstractAsyncContextManager[Channel]:
        """Return a channel to engines that can also watch resources, with further decoders by path.

        Raises InvalidArgument, before anything is opened, for a token that others could read on its way.
        """
        # Checked here as well as at the first call, because workers would repeat that call as long as it fails.
        if self.token and not self.insecure and (host := plain_text_host(addresses(endpoints), self.tls)):
            raise InvalidArgument(readable("a token", host, "use tls=headway.rpc.client_tls(...), or insecure=True"))
        from headway.rpc import open_channel

        return open_channel(
            endpoints,
            tls=self.tls,
            server_name=self.server_name,
            decoders={**stream_decoders(), **decoders},
            timeout=self.timeout,
            admits=comparison,
            insecure=self.insecure,
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
