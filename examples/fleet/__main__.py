"""Keep a fleet of real processes as declared: ``python -m examples.fleet [--for SECONDS]``."""

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import trio

import headway
from examples.fleet import apps, endpoints, show
from examples.fleet.declared import APP, app
from examples.fleet.instances import Keeper
from headway import manifest

HERE = Path(__file__).parent


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.fleet", description=__doc__)
    parser.add_argument(
        "--for", dest="seconds", type=float, default=math.inf, help="end by itself after so many seconds"
    )
    parser.add_argument("--folder", type=Path, default=Path("run"), help="where the store, locks and logs are (run)")
    parser.add_argument("--manifest", type=Path, default=HERE / "fleet.yaml", help="the fleet (the one shipped)")
    return parser.parse_args()


async def declare(client: headway.Client, declared: Sequence[headway.Resource[Any]]) -> None:
    """Make the store's Apps those of the manifest."""
    for resource in declared:
        await client.apply(resource)
    names = {resource.name for resource in declared if resource.type is APP}
    for stored in await client.list(APP):
        if stored.name not in names:
            await client.delete(stored)


async def run(options: argparse.Namespace) -> bool:
    """Run the engine until the time is over or somebody stops it; returns whether the fleet is as declared."""
    declared = manifest.load_file(options.manifest, app.registry)
    options.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    keeper = Keeper(options.folder / "processes")
    keeper.declare()
    opened = False
    try:
        async with headway.open_engine(f"sqlite:{options.folder / 'fleet.db'}", app, report=show.report) as engine:
            opened = True  # so the folder is ours: until here, its processes may be those of another engine
            show.say(f"engine    process {os.getpid()}, in folder {options.folder}")
            await declare(engine.client, declared)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(show.show_instances, engine.client)
                nursery.start_soon(show.show_endpoints, engine.client)
                nursery.start_soon(_show_when_settled, engine.client)
                await trio.sleep(options.seconds)
                nursery.cancel_scope.cancel()
            show.say(await show.table(engine.client))
            return await show.is_as_declared(engine.client)
    finally:
        if opened:
            # The engine has ended, so nobody starts them again. After a `kill -9` this doesn't happen: they go on, and
            # the next engine adopts them.
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 10):
                await keeper.stop_all()
            show.say("stopped   the engine and all processes")


async def _show_when_settled(client: headway.Client) -> None:
    """The table, once everything is as declared for the first time, and again whenever it has become so anew."""
    shown = False
    while True:
        settled = await show.is_as_declared(client)
        if settled and not shown:
            show.say(await show.table(client))
        shown = settled
        await trio.sleep(0.2)


async def main(options: argparse.Namespace) -> int:
    """Run until the end, or until Ctrl-C. Exit code 0: as declared; 1: not; 2: it could not run; 130: interrupted."""
    code = 130
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_at_signal, signals, nursery.cancel_scope)
            try:
                code = 0 if await run(options) else 1
            except (headway.HeadwayError, OSError) as error:
                print(f"fleet: {error}", file=sys.stderr, flush=True)
                code = 2
            nursery.cancel_scope.cancel()
    return code


async def _cancel_at_signal(signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
    async for _ in signals:
        scope.cancel()


if __name__ == "__main__":
    controllers = (apps.apps, endpoints.endpoints)  # declared by their modules
    sys.exit(trio.run(main, arguments()))
