"""The command `headway top`, which shows the controllers and queues of running processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial

import click
import trio

from headway.base import plain
from headway.cli._exits import Usage
from headway.cli._output import Details, details_option, json_text, table
from headway.cli._progress import is_terminal
from headway.cli._running import run
from headway.cli._scrape import page_address
from headway.cli._top_shown import HEADS, Shown, cells
from headway.errors import InvalidArgument, Unavailable


@click.command()
@click.argument("addresses", nargs=-1, metavar="[HOST:PORT]...")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1, max=3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="The time between two looks.",
)
@click.option(
    "--once", is_flag=True, help="Look twice, print a table, and end. This is the default without a terminal."
)
@details_option
def top(addresses: Sequence[str], interval: float, once: bool, output: Details) -> None:
    """Show the controllers and queues of running processes, live.

    HOST:PORT is what `serve --metrics` or `work --metrics` was given; 127.0.0.1:9090 by default. With several, the
    processes are shown together.

    On a terminal, `q` or Ctrl-C ends it.
    """
    addresses = addresses or ("127.0.0.1:9090",)
    try:
        for each in addresses:
            page_address(each)
    except InvalidArgument as error:
        raise Usage(str(error)) from error
    shown = Shown(addresses, interval)
    if once or output == "json" or not is_terminal(sys.stdout):
        run(partial(_once, shown, output))
    else:
        run(partial(_live, shown))


async def _once(shown: Shown, output: Details) -> None:
    await shown.look()
    if shown.states:
        await trio.sleep(shown.interval)
        await shown.look()
    if not shown.states:
        # With several processes, one that answers is worth showing.
        raise Unavailable("; ".join(shown.problems.values()))
    for problem in shown.problems.values():
        click.echo(plain(problem), err=True)
    if output == "json":
        click.echo(json_text([asdict(state) for state in shown.all], indent=2))
        return
    rows = [[state.process, *cells(state)] if shown.several else cells(state) for state in shown.all]
    click.echo(table(("PROCESS", *HEADS) if shown.several else HEADS, rows))


async def _live(shown: Shown) -> None:
    from headway.cli._live import open_live
    from headway.cli._top_screen import screen

    await shown.look()
    async with open_live(partial(screen, shown), stderr=False, screen=True), trio.open_nursery() as nursery:
        nursery.start_soon(shown.keep_looking)
        await _until_q()
        nursery.cancel_scope.cancel()


async def _until_q() -> None:
    """Wait until the key q is pressed, without waiting for a line. The terminal is restored at the end."""
    if not sys.stdin.isatty():
        await trio.sleep_forever()
    # Not on every system.
    import termios
    import tty

    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    tty.setcbreak(number)
    try:
        while True:
            await trio.lowlevel.wait_readable(number)
            key = os.read(number, 1)
            if key in (b"q", b"Q"):
                return
            if not key:
                # The terminal is gone, and its signal is on the way.
                await trio.sleep_forever()
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)
