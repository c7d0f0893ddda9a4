"""The command `headway work`, which runs controllers in a separate process from the server with the store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import replace
from functools import partial

import click
import trio

from headway.cli._exits import Exit, Usage
from headway.cli._log import announce
from headway.cli._named import apps_at
from headway.cli._process_options import ProcessOptions, process_options
from headway.cli._reload import hangups, held_hangups, reload_at_hangups
from headway.cli._running import fail_to_serve, run
from headway.cli._target import Target
from headway.controller import App
from headway.engine import Engine, Timing, open_workers
from headway.errors import DeclarationError, InvalidArgument
from headway.events import Report
from headway.login import kept_fresh
from headway.rpc import addresses
from headway.why import answering


@click.command()
@click.argument("app")
@click.option("--server", help="The server's address, or several, separated by commas. Overrides `headway --server`.")
@process_options("A unique name. By default it is the host's name and some random digits.")
@click.option(
    "--lease-ttl",
    type=click.FloatRange(min=1, max=3600),
    default=15.0,
    show_default=True,
    metavar="SECONDS",
    help="Another process takes over this long after this one has died.",
)
@click.pass_obj
@held_hangups()
def work(target: Target, app: str, server: str | None, options: ProcessOptions, lease_ttl: float) -> None:
    """Run the controllers of APP (module:attribute) against a server that has the store.

    The server must know APP's types. Any number of processes may work for it at once; the placement of a controller
    decides which of them run it. If the server can't be reached, the command keeps trying.

    Stop it with Ctrl-C.
    """
    if server is not None:
        target = replace(target, server=server)
    try:
        addresses(target.server)
    except InvalidArgument as error:
        raise Usage(f"--server: {error}") from error
    options = options._replace(process=options.name())
    options.check_pages()
    # Here the options are still checked: a wrong path is wrong usage.
    tls, token = target.context(), target.token
    apps = apps_with_work(app)

    @asynccontextmanager
    async def opened(report: Report) -> AsyncIterator[Engine]:
        workers = open_workers(
            target.server,
            *apps,
            process=options.process,
            token=token,
            tls=tls,
            insecure=target.insecure,
            timeout=target.timeout,
            report=report,
            timing=Timing(lease_ttl=lease_ttl, hard_exit=options.hard_exit),
            gc_freeze=options.gc_freeze,
            journal=options.journal,
        )
        async with kept_fresh(token), workers as engine:
            yield engine

    working = partial(work_for, target.server, opened, options)
    run(working, interrupted=Exit.DONE, hard_exit=options.hard_exit)


def apps_with_work(reference: str) -> Sequence[App]:
    """Return the apps at ``module:attribute``. Raises Usage if none of them has a controller."""
    apps = apps_at(reference)
    if not any(each.controllers for each in apps):
        names = ", ".join(repr(each.name) for each in apps)
        raise Usage(
            f"{reference}: app {names} has no controllers, so there is nothing to do: name the app that declares them, "
            "and import the modules with its @app.controller functions before it is used"
        )
    return apps


async def work_for(
    what: str,
    opened: Callable[[Report], AbstractAsyncContextManager[Engine]],
    options: ProcessOptions,
    listen: Sequence[str] = (),
    http: str | None = None,
    page: Callable[[Engine], AbstractAsyncContextManager[str | None]] = lambda _: nullcontext(),
) -> None:
    """Run the controllers that ``opened`` opens, for a server or a cluster, until the process is told to stop.

    At the addresses ``listen``, it answers questions about itself. ``page`` serves its live page at ``http``.
    """
    report, metrics = options.report()
    try:
        async with (
            hangups() as signals,
            opened(report) as workers,
            trio.open_nursery() as nursery,
            options.open_pages(workers, metrics) as pages,
            answering(workers, listen) if listen else nullcontext(()) as asked,
            page(workers) as served,
        ):
            nursery.start_soon(reload_at_hangups, signals, {}, options.log)
            announce(options.log, f"working for {what} as {options.process}")
            if pages is not None:
                announce(options.log, pages)
            for each in asked:
                announce(options.log, f"answering headway why at {each}")
            if served is not None:
                announce(options.log, f"the live page at http://{served}")
            await trio.sleep_forever()
    except (OSError, DeclarationError) as error:
        fail_to_serve(error, http=http, metrics=options.metrics)
