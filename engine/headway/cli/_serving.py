"""What `headway serve` runs until it is interrupted: an engine that listens, or a forwarder."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from ssl import SSLContext

import click
import trio

from headway.access import Authorizer, load_access
from headway.cli._exits import Exit, fail
from headway.controller import App
from headway.engine import Engine, open_engine
from headway.errors import DeclarationError, ManifestError
from headway.events import HandlerFailed
from headway.observe import Metrics, log_report, open_pages, reports
from headway.rpc import open_forwarder


class Serving:
    """An engine of some apps. With an authorizer, what that was read from is read again at every SIGHUP."""

    def __init__(
        self,
        apps: Sequence[App],
        store: str,
        listen: Sequence[str],
        tls: SSLContext | None,
        authorizer: Authorizer | None,
        access: str | None,
        pages: str | None = None,
    ) -> None:
        self._apps = apps
        self._store = store
        self._listen = listen
        self._tls = tls
        self._authorizer = authorizer
        self._access = access
        self._pages = pages

    async def serve(self) -> None:
        """Serve until cancelled."""
        access = self._authorizer
        try:
            metrics = None if self._pages is None else Metrics()
            # Without an authorizer who can connect may do everything: the addresses were checked to be nobody else's,
            # or that was asked for.
            async with (
                open_engine(
                    self._store,
                    *self._apps,
                    listen=self._listen,
                    tls=self._tls,
                    access=access,
                    insecure=access is None,
                    report=log_report() if metrics is None else reports(log_report(), metrics),
                ) as engine,
                trio.open_nursery() as nursery,
                _watched(engine, self._pages, metrics) as pages,
            ):
                if access is not None and self._access is not None:
                    await nursery.start(_read_again, access, self._access)
                _announce(engine.addresses, pages)
                await trio.sleep_forever()
        except (OSError, DeclarationError) as error:
            fail(Exit.REFUSED, f"Error: {error}")


@asynccontextmanager
async def _watched(engine: Engine, address: str | None, metrics: Metrics | None) -> AsyncIterator[str | None]:
    """Pages of metrics and health, where they are asked for; gives their address."""
    if address is None or metrics is None:
        yield None
        return
    metrics.watch(engine.status)
    async with open_pages(address, engine.status, metrics) as served:
        yield served


class Forwarding:
    """A forwarder to some servers."""

    def __init__(
        self, endpoints: Sequence[str], upstream_tls: SSLContext | None, listen: Sequence[str], tls: SSLContext | None
    ) -> None:
        self._endpoints = endpoints
        self._upstream_tls = upstream_tls
        self._listen = listen
        self._tls = tls

    async def serve(self) -> None:
        """Forward until cancelled."""
        report = log_report()
        try:
            async with open_forwarder(
                self._endpoints,
                self._listen,
                upstream_tls=self._upstream_tls,
                tls=self._tls,
                report=lambda path, error: report(HandlerFailed(path, error)),
                notify=report,
            ) as server:
                _announce(server.addresses)
                await trio.sleep_forever()
        except OSError as error:
            fail(Exit.REFUSED, f"Error: {error}")


def _announce(addresses: Sequence[str], pages: str | None = None) -> None:
    for each in addresses:
        click.echo(f"listening on {each}")
    if pages is not None:
        click.echo(f"metrics and health at http://{pages}/metrics, /healthz and /readyz")
    sys.stdout.flush()


async def _read_again(authorizer: Authorizer, path: str, *, task_status: trio.TaskStatus[None]) -> None:
    if not hasattr(signal, "SIGHUP"):
        task_status.started()
        return
    with trio.open_signal_receiver(signal.SIGHUP) as signals:
        task_status.started()
        async for _ in signals:
            try:
                authorizer.replace(load_access(path))
            except (ManifestError, OSError) as error:
                click.echo(f"{error}\n{path}: what held before goes on", err=True)
            else:
                click.echo(f"{path}: read again", err=True)
