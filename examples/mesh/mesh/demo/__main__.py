"""``python -m mesh.demo``: run a mesh with real Envoys under load, and let everything happen to it."""

from __future__ import annotations

import argparse
import math
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import trio

from catalog.program import leaves
from mesh.demo.load import Load
from mesh.demo.scenario import Scenario, UnexpectedError
from mesh.demo.site import running


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(prog="python -m mesh.demo", description=__doc__)
    parser.add_argument(
        "--for", dest="seconds", type=float, default=math.inf, help="end after so many seconds, and at least one round"
    )
    parser.add_argument("--folder", type=Path, help="keep the store and the logs of all processes in this folder")
    return parser.parse_args()


async def main(options: argparse.Namespace) -> int:
    """Run rounds until the time is over, or until SIGINT or SIGTERM.

    Return the exit status: 0 if all was as it should be, 1 if not, and 130 after a signal.
    """
    began = trio.current_time()

    def say(text: str) -> None:
        print(f"{trio.current_time() - began:5.1f} s  {text}", flush=True)

    status, load = 130, None
    with (
        tempfile.TemporaryDirectory(prefix="mesh-") as temporary,
        trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals,
    ):
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_at_signal, signals, nursery.cancel_scope)
            try:
                async with running(folder) as site, trio.open_nursery() as calling:
                    load = site.load
                    scenario = Scenario(site, say)
                    calling.start_soon(load.run)
                    await scenario.begin()
                    while True:
                        await scenario.round()
                        if trio.current_time() - began >= options.seconds:
                            break
                    status = 0
                    calling.cancel_scope.cancel()
            except* (UnexpectedError, RuntimeError) as errors:
                for each in leaves(errors):
                    print(f"mesh.demo: {each}", file=sys.stderr, flush=True)
                status = 1
            nursery.cancel_scope.cancel()
    return status if load is None else sum_up(load, status)


def sum_up(load: Load, status: int) -> int:
    """Print what came of the calls. Return 1 if one of them has failed that should not have, else the status."""
    print(f"{load.counts.total()} calls, of which {load.wrong} ended otherwise than they should have", flush=True)
    for each in load.faults:
        print(f"mesh.demo: {each}", file=sys.stderr, flush=True)
    return 1 if load.wrong else status


async def _cancel_at_signal(signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
    async for _ in signals:
        scope.cancel()


if __name__ == "__main__":
    sys.exit(trio.run(main, arguments()))
