"""Keep a fleet of real processes as declared: ``python -m examples.fleet [--for SECONDS]``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

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
    parser.add_argument("--for", dest="seconds", type=float, help="end by itself after so many seconds")
    parser.add_argument("--folder", type=Path, default=Path("run"), help="where the store, locks and logs are (run)")
    parser.add_argument("--manifest", type=Path, default=HERE / "fleet.yaml", help="the fleet (the one shipped)")
    return parser.parse_args()


async def declare(client: headway.Client, path: Path) -> None:
    """Make the store's Apps those of the manifest."""
    declared = manifest.load_file(path, app.registry)
    for resource in declared:
        await client.apply(resource)
    names = {resource.name for resource in declared if resource.type is APP}
    for stored in await client.list(APP):
        if stored.name not in names:
            await client.delete(stored)


async def run(options: argparse.Namespace) -> bool:
    """Run the engine until the time is over or somebody stops it; returns whether the fleet is as declared."""
    store = f"sqlite:{options.folder / 'fleet.db'}"
    async with headway.open_engine(store, app, report=show.report) as engine:
        await declare(engine.client, options.manifest)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(show.show_instances, engine.client)
            nursery.start_soon(show.show_endpoints, engine.client)
            nursery.start_soon(_show_when_settled, engine.client)
            if options.seconds is None:
                await trio.sleep_forever()
            await trio.sleep(options.seconds)
            nursery.cancel_scope.cancel()
        show.say(await show.table(engine.client))
        return await show.is_as_declared(engine.client)


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
    """Run, and stop the processes at the end. Exit code 0: as declared; 1: not; 130: interrupted."""
    options.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    keeper = Keeper(options.folder / "processes")
    keeper.declare()
    code = 130
    try:
        code = 0 if await run(options) else 1
    finally:
        # The engine has ended, so nobody starts them again. After a `kill -9` this doesn't happen: they go on, and
        # the next engine adopts them.
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 10):
            await keeper.stop_all()
        show.say("stopped   the engine and all processes")
    return code


if __name__ == "__main__":
    controllers = (apps.apps, endpoints.endpoints)  # declared by their modules
    try:
        sys.exit(trio.run(main, arguments()))
    except KeyboardInterrupt:
        sys.exit(130)
    except headway.HeadwayError as error:
        sys.exit(f"fleet: {error}")
