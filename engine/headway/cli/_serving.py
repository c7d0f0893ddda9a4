"""The servers that `headway serve` runs until it is interrupted: an engine, or a forwarder."""

from __future__ import annotations

import functools
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from ssl import SSLContext
from typing import NamedTuple

import click
import trio

from headway.access import Authorizer, load_access
from headway.cli._exits import Exit, fail
from headway.controller import App
from headway.engine import Engine, open_engine
from headway.errors import DeclarationError, ManifestError
from headway.observe import Metrics, log_report, open_pages, reports
from headway.rpc import Limits, ServerTls, free_descriptors, open_forwarder


class ProcessOptions(NamedTuple):
    """Options of a server process: its name on a shared store, shutdown, logging and garbage collection."""

    name: str | None
    hard_exit: float
    verbose: bool
    gc_freeze: bool


class Serving:
    """An engine that serves some apps. If it has an access file, SIGHUP reloads the file."""

    def __init__(
        self,
        apps: Sequence[App],
        store: str,
        listen: Sequence[str],
        tls: ServerTls | None,
        authorizer: Authorizer | None,
        access: str | None,
        pages: str | None = None,
        *,
        public: bool = False,
        options: ProcessOptions,
        limits: Limits,
    ) -> None:
        self._apps = apps
        self._store = store
        self._listen = listen
        self._tls = tls
        self._authorizer = authorizer
        self._access = access
        self._pages = pages
        self._public = public
        self._options = options
        self._limits = limits

    async def serve(self) -> None:
        """Serve until cancelled."""
        access = self._authorizer
        try:
            metrics = None if self._pages is None else Metrics()
            log = log_report(verbose=self._options.verbose)
            # Without an authorizer, everyone who can connect may do everything. This is safe: either no other host can
            # reach the addresses, or the user asked for it.
            async with (
                open_engine(
                    self._store,
                    *self._apps,
                    listen=self._listen,
                    tls=self._tls,
                    access=access,
                    insecure=access is None,
                    limits=self._limits,
                    report=log if metrics is None else reports(log, metrics),
                    process=self._options.name,
                    hard_exit=self._options.hard_exit,
                    gc_freeze=self._options.gc_freeze,
                ) as engine,
                trio.open_nursery() as nursery,
                open_watched(engine, self._pages, metrics, public=self._public) as pages,
            ):
                files = _of_certificate(self._tls)
                if access is not None and self._access is not None:
                    files[self._access] = functools.partial(_replace, access, self._access)
                await nursery.start(_read_again, files)
                _announce(engine.addresses, self._limits, pages)
                await trio.sleep_forever()
        except (OSError, DeclarationError) as error:
            fail(Exit.REFUSED, f"Error: {error}")


@asynccontextmanager
async def open_watched(
    engine: Engine, address: str | None, metrics: Metrics | None, *, public: bool
) -> AsyncIterator[str | None]:
    """Serve metrics and health pages if an address is given. Yields the address in use, or None."""
    if address is None or metrics is None:
        yield None
        return
    metrics.watch(engine.status)
    async with open_pages(address, engine.status, metrics, lambda: engine.store_problem, public=public) as served:
        yield served


class Forwarding:
    """A server that forwards all calls to other servers."""

    def __init__(
        self,
        endpoints: Sequence[str],
        upstream_tls: SSLContext | None,
        listen: Sequence[str],
        tls: ServerTls | None,
        *,
        limits: Limits,
        insecure: bool = False,
        verbose: bool = False,
    ) -> None:
        self._endpoints = endpoints
        self._upstream_tls = upstream_tls
        self._listen = listen
        self._tls = tls
        self._limits = limits
        self._insecure = insecure
        self._verbose = verbose

    async def serve(self) -> None:
        """Forward until cancelled."""
        report = log_report(verbose=self._verbose)
        try:
            async with (
                open_forwarder(
                    self._endpoints,
                    self._listen,
                    upstream_tls=self._upstream_tls,
                    tls=self._tls,
                    limits=self._limits,
                    notify=report,
                    insecure=self._insecure,
                ) as server,
                trio.open_nursery() as nursery,
            ):
                await nursery.start(_read_again, _of_certificate(self._tls))
                _announce(server.addresses, self._limits)
                await trio.sleep_forever()
        except OSError as error:
            fail(Exit.REFUSED, f"Error: {error}")


def _announce(addresses: Sequence[str], limits: Limits, pages: str | None = None) -> None:
    for each in addresses:
        click.echo(f"listening on {each}")
    most = free_descriptors()
    if most is not None and most < limits.connections and limits.connections != Limits().connections:
        click.echo(
            f"Warning: --max-connections {limits.connections}: the limit is {most}, because the process "
            "cannot open more files. Raise `ulimit -n`",
            err=True,
        )
    if pages is not None:
        click.echo(f"metrics and health at http://{pages}/metrics, /healthz and /readyz")
    sys.stdout.flush()


Files = dict[str, Callable[[], None]]
"""Functions that reload files at a SIGHUP, by the paths of the files."""


def _of_certificate(tls: ServerTls | None) -> Files:
    return {} if tls is None else {tls.certificate: tls.renew}


def _replace(authorizer: Authorizer, path: str) -> None:
    authorizer.replace(load_access(path))


async def _read_again(files: Files, *, task_status: trio.TaskStatus[None]) -> None:
    if not files or not hasattr(signal, "SIGHUP"):
        task_status.started()
        return
    with trio.open_signal_receiver(signal.SIGHUP) as signals:
        task_status.started()
        async for _ in signals:
            for path, read in files.items():
                try:
                    read()
                except (ManifestError, OSError) as error:
                    click.echo(f"{error}\n{path}: not reloaded; the previous content stays in effect", err=True)
                else:
                    click.echo(f"{path}: reloaded", err=True)
