"""An engine that serves its resources over HTTP, with the live page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from ssl import SSLContext
from typing import Any

import trio

from headway.base import BoundedReport, block_nursery
from headway.controller import App
from headway.engine import Host, Network
from headway.errors import DeclarationError
from headway.events import CertificateRefused, CertificateRenewed, HandlerFailed, Report
from headway.http import Bounds, RequestLimits, check_hypercorn
from headway.page._host import PageHost
from headway.page._parts import StoreParts
from headway.page._service import PageService
from headway.rpc import Budget, Limits, MemoryReturn, ServerTls, Services, free_descriptors
from headway.why import observer_of

_MOST = 512
"""The maximum number of connections."""

_WORTH = 32 << 20
"""The bytes of replies that have been read since memory was last returned to the system, at least."""


def http_connections() -> int:
    """Return the maximum number of connections: a quarter of the descriptors that servers may use, if that is less."""
    free = free_descriptors()
    return _MOST if free is None else max(8, min(_MOST, free // 4))


def beside_http(limits: Limits) -> Limits:
    """Return the limits of a server of gRPC in the same process, which leaves the descriptors of HTTP's connections."""
    free = free_descriptors()
    return limits if free is None else replace(limits, connections=min(limits.connections, free - http_connections()))


@asynccontextmanager
async def serving_http(
    host: Host, apps: Sequence[App], services: Services, guard: Callable[..., Any] | None, nursery: trio.Nursery
) -> AsyncIterator[tuple[str, Budget]]:
    """Serve these services and the live page over HTTP at the address of the network, guarded as over gRPC.

    Yield it with its actual port, and the budget for unread replies, which a server of gRPC in the same process shares.

    Raises:
        DeclarationError: the libraries are not installed.
        OSError: the address cannot be bound.
    """
    network, access = host.network, host.network.access
    page = PageHost(
        apps,
        observer_of(host),
        host.registry,
        StoreParts(host.backend),
        writes=network.http_writes,
        report=host.report,
        refused=tuple if access is None else access.limiter.refused,
    )
    async with served(page, network, host.report, services, nursery, guard=guard) as opened:
        yield opened


@asynccontextmanager
async def served(
    page: PageHost,
    network: Network,
    report: Report,
    services: Services,
    nursery: trio.Nursery,
    *,
    guard: Callable[..., Any] | None = None,
    json_api: bool = True,
) -> AsyncIterator[tuple[str, Budget]]:
    """Serve a page and these services at the address of the network, and look at the controllers in the nursery."""
    assert network.http is not None
    try:
        check_hypercorn()
        from headway.http import Offered, open_http
        from headway.page._paths import page_paths
    except ModuleNotFoundError as error:
        raise DeclarationError(f"http= needs {error.name}: pip install 'headway[http]'") from error
    nursery.start_soon(page.follow, name="the numbers of the page")
    limits = network.limits or Limits()
    bounded = BoundedReport(report)

    def failed(path: str, error: BaseException) -> None:
        bounded(HandlerFailed, path=path, error=error)

    most = http_connections()
    bounds = Bounds(
        connections=most,
        peer_connections=max(1, most * 3 // 4),
        patience=limits.request_timeout,
        stall=limits.wire.stall_timeout,
        header_size=limits.wire.header_size,
        handshakes=limits.handshakes,
        peer_handshakes=limits.peer_handshakes,
        handshake=limits.handshake_timeout,
        handshake_size=limits.wire.handshake_size,
    )
    requests = RequestLimits(
        head_size=limits.wire.header_size,
        body_size=limits.message_size,
        bodies_size=limits.wire.requests_size,
        request_timeout=limits.request_timeout,
        small_timeout=limits.handshake_timeout,
    )
    memory = MemoryReturn(_WORTH)
    replies = Budget(limits.server_replies_size, freed=memory.freed)
    offered = Offered(services, page.registry, network.access, failed, requests, replies)
    served_page = partial(PageService, page, page.registry)
    pages = Services(services, served_page() if guard is None else guard(served_page))
    further = page_paths(offered._replace(services=pages), writes=network.http_writes)
    context = None if network.tls is None else partial(_current, _for_http(network.tls), report)
    async with block_nursery() as tasks:
        tasks.start_soon(bounded.report_rest, name="refused HTTP requests")
        tasks.start_soon(memory.run, name="memory of HTTP")
        async with open_http(network.http, offered, bounds, context, further, json_api=json_api) as served:
            yield served, replies
        tasks.cancel_scope.cancel()


def _for_http(tls: SSLContext) -> ServerTls:
    # `Network` has refused any other context.
    assert isinstance(tls, ServerTls)
    return tls.speaking("http/1.1")


def _current(tls: ServerTls, report: Report) -> SSLContext:
    """Return the context for a new connection, with the files as they are now."""
    try:
        if tls.follow():
            report(CertificateRenewed(tls.certificate))
    except OSError as error:
        report(CertificateRefused(tls.certificate, error))
    return tls.current
