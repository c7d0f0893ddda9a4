"""``python -m catalog.demo``: run a catalog with three real services, kill one, and show what DNS answers."""

from __future__ import annotations

import argparse
import math
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import trio

from catalog.demo.fleet import Fleet, running
from catalog.demo.lookup import look_up, show

NAME = "web.service.consul"
STEP = 30.0
"""The seconds within which an answer must have changed."""


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(prog="python -m catalog.demo", description=__doc__)
    parser.add_argument("--for", dest="seconds", type=float, default=math.inf, help="end after so many seconds")
    return parser.parse_args()


async def demonstrate(fleet: Fleet, until: float) -> None:
    """Kill one service after another until the time is over, and wait for each change of the answers.

    Raises:
        trio.TooSlowError: an answer has not changed in time.
    """
    everyone = tuple(sorted(fleet.services))
    await _answered(fleet, everyone, "all three services are answered")
    while True:
        for host, service in sorted(fleet.services.items()):
            await service.kill()
            await _answered(fleet, tuple(each for each in everyone if each != host), f"{service.name} was killed")
            await service.start()
            await _answered(fleet, everyone, f"{service.name} was started again")
            if trio.current_time() >= until:
                return
            await trio.sleep(min(3.0, max(0.0, until - trio.current_time())))


async def _answered(fleet: Fleet, wanted: tuple[str, ...], why: str) -> None:
    began = trio.current_time()
    with trio.fail_after(STEP):
        while (await look_up(fleet.dns_port, NAME)).addresses != wanted:  # noqa: ASYNC110  # the answer of a process
            await trio.sleep(0.05)
    print(f"{why}; the answer followed after {trio.current_time() - began:.1f} s", flush=True)
    print(await show(fleet.dns_port, NAME), flush=True)


async def main(options: argparse.Namespace) -> int:
    """Run until the time is over, or until SIGINT or SIGTERM.

    Return the exit status: 0 if all was as it should be, 1 if not, and 130 after a signal.
    """
    status = 130
    until = trio.current_time() + options.seconds
    with (
        tempfile.TemporaryDirectory(prefix="catalog-") as folder,
        trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals,
    ):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_at_signal, signals, nursery.cancel_scope)
            try:
                async with running(Path(folder)) as fleet:
                    await demonstrate(fleet, until)
                    status = 0
            except* (trio.TooSlowError, RuntimeError) as errors:
                print(f"catalog.demo: {errors.exceptions[0]!r}", file=sys.stderr, flush=True)
                status = 1
            nursery.cancel_scope.cancel()
    return status


async def _cancel_at_signal(signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
    async for _ in signals:
        scope.cancel()


if __name__ == "__main__":
    sys.exit(trio.run(main, arguments()))
