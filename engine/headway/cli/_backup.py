"""The commands `headway backup` and `headway restore`, which open a store by its URL instead of through a server."""

from __future__ import annotations

import click

from headway.cli._exits import Usage
from headway.cli._running import run
from headway.errors import InvalidArgument
from headway.storage import backup_store, restore_store


@click.command()
@click.argument("url")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--replace", is_flag=True, help="Replace an existing FILE, once the new backup is complete.")
def backup(url: str, file: str, replace: bool) -> None:
    """Back up the store at URL to FILE, even while a server uses it.

    URL must be sqlite:PATH. FILE appears only when it is complete and has been checked.
    """

    async def back_up() -> None:
        try:
            made = await backup_store(url, file, replace=replace)
        except InvalidArgument as error:
            raise Usage(str(error)) from error
        click.echo(f"{file}: store {made.store_id} up to revision {made.revision}, {made.size} bytes")

    run(back_up)


@click.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.argument("url")
@click.option("--replace", is_flag=True, help="Replace an existing store; its file is kept as PATH.replaced.")
def restore(file: str, url: str, replace: bool) -> None:
    """Create a store at URL from FILE, a backup.

    URL must be sqlite:PATH, and no server may use it. The restored store is a new store with a new id, so every client
    starts over with its content.
    """

    async def bring_back() -> None:
        try:
            made = await restore_store(file, url, replace=replace)
        except InvalidArgument as error:
            raise Usage(str(error)) from error
        click.echo(
            f"{url}: store {made.store_id}, which begins at revision {made.revision}, "
            f"with what store {made.from_store} had at {made.from_revision}"
        )
        if made.replaced:
            click.echo(f"what was there is in {made.replaced}")

    run(bring_back)
