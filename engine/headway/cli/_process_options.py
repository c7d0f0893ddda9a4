"""The options of the commands that run controllers: process name, metrics pages, logging, shutdown and collections."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import click

from headway.cli._arguments import combined
from headway.cli._exits import Usage
from headway.cli._log import configure_log
from headway.cli._sibling import Sibling
from headway.engine import Engine, worker_name
from headway.errors import DeclarationError, InvalidArgument
from headway.events import Report
from headway.http import host_and_port
from headway.observe import Metrics, Pages, PagesService, log_report, open_pages, reports
from headway.quotas import quotas_now
from headway.rpc import is_loopback
from headway.why import beside_siblings


class ProcessOptions(NamedTuple):
    """The values of the options."""

    metrics: str | None
    public_metrics: bool
    process: str | None
    hard_exit: float
    gc_freeze: bool
    journal: str | None
    log: str | None
    verbose: bool

    def name(self) -> str:
        """Return the name of the process, which is generated unless it is given. Raises Usage if it is invalid."""
        try:
            return worker_name(self.process)
        except DeclarationError as error:
            raise Usage(f"--process: {error}") from error

    def check_pages(self) -> None:
        """Raise Usage if the address of the pages is invalid, or if others can reach it without --public-metrics."""
        if self.metrics is None:
            if self.public_metrics:
                raise Usage("--public-metrics requires --metrics: it only allows others to read those pages")
            return
        try:
            host, _ = host_and_port(self.metrics)
        except InvalidArgument as error:
            raise Usage(f"--metrics: {error}") from error
        if not self.public_metrics and not is_loopback(host):
            raise Usage(
                f"--metrics {self.metrics}: others can reach this address, and read what the controllers do. "
                "Use 127.0.0.1, or give --public-metrics"
            )

    def report(self) -> tuple[Report, Metrics | None]:
        """Return the report for an engine, and the metrics that it updates if there are pages. Configures the log."""
        configure_log(self.log)
        log = log_report(verbose=self.verbose)
        if self.metrics is None:
            return log, None
        metrics = Metrics()
        return reports(log, metrics), metrics

    @asynccontextmanager
    async def open_pages(
        self, engine: Engine, metrics: Metrics | None, sibling: Sibling | None = None
    ) -> AsyncIterator[str | None]:
        """Serve metrics and health pages if an address is given. Yields the sentence that announces them, or None.

        One of several processes hands them to its supervisor, and answers the questions of the others.
        """
        if metrics is not None:
            metrics.watch(engine.status)
            metrics.watch_quotas(functools.partial(quotas_now, engine))
        if sibling is not None:
            pages = PagesService(Pages(engine.status, metrics, lambda: engine.store_problem))
            async with beside_siblings(engine, sibling.process, sibling.own, sibling.others, pages):
                yield None
            return
        if self.metrics is None or metrics is None:
            yield None
            return
        opened = open_pages(
            self.metrics, engine.status, metrics, lambda: engine.store_problem, public=self.public_metrics
        )
        async with opened as served:
            yield f"metrics and health at http://{served}/metrics, /healthz and /readyz"


def process_options(name_help: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds the options to a command, which gets their values as ``options``.

    ``name_help`` is the help of `--process`, which differs by command.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_options(*arguments: Any, **given: Any) -> None:
            options = ProcessOptions(**{name: given.pop(name) for name in ProcessOptions._fields})
            command(*arguments, options=options, **given)

        decorated: Callable[..., None] = add(with_options)
        return decorated

    add = combined(
        click.option(
            "--metrics",
            metavar="HOST:PORT",
            help="Serve metrics and health pages here. Anyone who can connect can read them.",
        ),
        click.option("--public-metrics", is_flag=True, help="Allow an address for these pages that others can reach."),
        click.option("--process", metavar="NAME", help=name_help),
        click.option(
            "--hard-exit",
            type=click.FloatRange(min=0, min_open=True),
            default=20.0,
            show_default=True,
            metavar="SECONDS",
            help="Kill the process this long after SIGINT or SIGTERM if it has not exited, and report what blocks it.",
        ),
        click.option(
            "--gc-freeze/--no-gc-freeze",
            default=True,
            show_default=True,
            help="Make no full garbage collection until everything that exists at the start is reconciled, "
            "exclude that from later ones, and make them rarer.",
        ),
        click.option(
            "--journal",
            type=click.Path(dir_okay=False),
            help="Write what the controllers do to this file, one JSON object a line. It is rotated.",
        ),
        click.option(
            "--log",
            type=click.Choice(["pretty", "json"]),
            help="Log for people, or one JSON object a line. Default: as APP configures structlog, or else pretty.",
        ),
        click.option("--verbose", is_flag=True, help="Log all events, and full tracebacks of errors."),
    )
    return decorate
