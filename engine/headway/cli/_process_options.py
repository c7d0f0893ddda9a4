"""The options of the commands that run an app's controllers: the process's name, its pages, its log and its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from headway._process import worker_name
from headway.cli._exits import Usage
from headway.cli._options import together
from headway.errors import DeclarationError, InvalidArgument
from headway.observe import check_pages_address
from headway.rpc import is_loopback


def process_options(name_help: str) -> Callable[[Any], Any]:
    """``name_help``: what `--process` means for the command."""
    return together(
        click.option(
            "--metrics", metavar="HOST:PORT", help="Pages of metrics and health; whoever can connect reads them."
        ),
        click.option("--public-metrics", is_flag=True, help="Offer these pages where others can reach them."),
        click.option("--process", metavar="NAME", help=name_help),
        click.option(
            "--hard-exit",
            type=click.FloatRange(min=0, min_open=True),
            default=20.0,
            show_default=True,
            metavar="SECONDS",
            help="End the process so long after SIGINT or SIGTERM, and say what blocks it, "
            "if it has not ended by itself.",
        ),
        click.option(
            "--gc-freeze/--no-gc-freeze",
            default=True,
            show_default=True,
            help="Collect no garbage until all is reconciled that is there at the start, "
            "and leave that out of collections.",
        ),
        click.option(
            "--verbose", is_flag=True, help="Log everything that happens, and errors with all of their frames."
        ),
    )


def check_process(name: str) -> None:
    """Raise Usage for a name that a process can't have."""
    try:
        worker_name(name)
    except DeclarationError as error:
        raise Usage(f"--process: {error}") from error


def check_pages(address: str | None, *, public: bool) -> None:
    """Raise Usage for an address of the pages that is none, or that others can reach without ``public``."""
    if address is None:
        if public:
            raise Usage("--public-metrics goes with --metrics, and only says that others may read those pages")
        return
    try:
        host, _ = check_pages_address(address)
    except InvalidArgument as error:
        raise Usage(f"--metrics: {error}") from error
    if not public and not is_loopback(host):
        raise Usage(
            f"--metrics {address}: others can reach this address, and read there what the controllers do. "
            "Use 127.0.0.1, or say --public-metrics"
        )
