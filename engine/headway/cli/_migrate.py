"""`headway store migrate`: rewrite what is stored to the storage versions of an app's types."""

from __future__ import annotations

import sys
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Literal

import click

from headway._together import together
from headway.cli._app_at import apps_at
from headway.cli._exits import Exit, Usage, fail
from headway.cli._running import run
from headway.cli._text import json_text, plain
from headway.errors import DeclarationError, InvalidArgument
from headway.resource import Kind, Position, Registry
from headway.service import Migrated, migrate
from headway.storage import Backend, etcd_address, open_store, record_schemas, refuse_unfinished, store_exists


@click.command("migrate")
@click.argument("app")
@click.option("--store", "url", required=True, help="sqlite:PATH or etcd://HOST:PORT,HOST:PORT/PREFIX.")
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="json is all of it."
)
def migrate_command(app: str, url: str, output: Literal["text", "json"]) -> None:
    """Rewrite what the store holds to the storage versions of the types of APP (module:attribute).

    Concerns the types that have converters. Generations, statuses, finalizers and deletion marks stay as they are. It
    can be stopped and run again. An APP that would misread the store is refused, as it is by a server. On etcd it works
    beside running servers; a SQLite store must not be open elsewhere. Ends with 7 when a resource could not be
    rewritten.
    """
    try:
        registry, _ = together(apps_at(app))
    except DeclarationError as error:
        fail(Exit.REFUSED, f"Error: {error}")
    if not registry.chains:
        raise Usage(f"{app} declares no converter, so there is nothing to rewrite")
    if url == "memory:":
        raise Usage(
            '--store: "memory:" is a new, empty store for each process; give a lasting one, such as sqlite:PATH'
        )
    try:
        opening = open_store(url)
    except InvalidArgument as error:
        raise Usage(f"--store: {error}") from error
    run(partial(_migrate, url, opening, registry, output))


async def _migrate(url: str, opening: AbstractAsyncContextManager[Backend], registry: Registry, output: str) -> None:
    if not await store_exists(url):
        raise Usage(f"--store: there is no store at {etcd_address(url) if url.startswith('etcd:') else url}")
    async with opening as backend:
        await refuse_unfinished(backend)
        # As an engine does: data that the program would misread would be converted, and so be lost for good.
        await record_schemas(backend, registry)
        done = await migrate(backend, registry, progress=_progress if output == "text" else lambda *_: None)
    if output == "json":
        click.echo(json_text(_object(done), indent=2))
    else:
        _show(done)
    if done.left:
        sys.exit(Exit.DIFFERENT)


def _progress(kind: Kind, looked_at: int, rewritten: int) -> None:
    click.echo(f"{plain('.'.join(kind))}: {looked_at} looked at, {rewritten} rewritten", err=True)


def _show(done: Migrated) -> None:
    for id, why in done.left:
        click.echo(plain(f"{id.type} {'/'.join(filter(None, id.key))} is left as it is: {why}"))
    for version, count in sorted(done.apart.items()):
        click.echo(plain(f"{count} resources are stored as {version}, which no converter reaches"))
    others = done.looked_at - done.rewritten - len(done.left) - done.apart.total()
    click.echo(
        f"store {done.position.store_id} at revision {done.position.revision}: {done.rewritten} of {done.looked_at} "
        f"resources rewritten, {others} were in their storage version"
    )


def place(position: Position) -> dict[str, Any]:
    """Return a place in a store's history as JSON has it."""
    return {"store_id": position.store_id, "incarnation": position.incarnation, "revision": position.revision}


def _object(done: Migrated) -> dict[str, Any]:
    return {
        **place(done.position),
        "looked_at": done.looked_at,
        "rewritten": done.rewritten,
        "apart": dict(done.apart),
        "left": [{"type": str(id.type), "key": "/".join(filter(None, id.key)), "why": why} for id, why in done.left],
    }
