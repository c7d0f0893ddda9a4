"""Options of the commands that run controllers: process name, metrics pages, logging and shutdown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from headway.cli._exits import Usage
from headway.cli._options import together
from headway.engine import worker_name
from headway.errors import DeclarationError, InvalidArgument
from headway.observe import check_pages_address
from headway.rpc import is_loopback


def process_options(name_help: str) -> Callable[[Any], Any]:
    """Return the options. ``name_help`` is the help of `--process`, which differs by command."""
    return together(
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
            help="Disable garbage collection until everything that exists at the start is reconciled, "
            "and exclude that from later collections.",
        ),
        click.option("--verbose", is_flag=True, help="Log all events, and full tracebacks of errors."),
    )


def check_process(name: str) -> None:
    """Raise Usage if the name of a process is invalid."""
    try:
        worker_name(name)
    except DeclarationError as error:
        raise Usage(f"--process: {error}") from error


def check_pages(address: str | None, *, public: bool) -> None:
    """Raise Usage if the address of the pages is invalid, or if others can reach it and ``public`` is False."""
    if address is None:
        if public:
            raise Usage("--public-metrics goes with --metrics, and only allows others to read those pages")
        return
    try:
        host, _ = check_pages_address(address)
    except InvalidArgument as error:
        raise Usage(f"--metrics: {error}") from error
    if not public and not is_loopback(host):
        raise Usage(
            f"--metrics {address}: others can reach this address, and read what the controllers do. "
            "Use 127.0.0.1, or say --public-metrics"
        )
