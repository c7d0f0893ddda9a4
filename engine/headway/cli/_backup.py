"""`headway backup` and `headway restore`: whole stores, by their urls and not through a server."""

from __future__ import annotations

import click

from headway.cli._exits import Usage
from headway.cli._running import run
from headway.errors import InvalidArgument
from headway.storage import backup_store, restore_store


@click.command()
@click.argument("url")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--replace", is_flag=True, help="Replace FILE if it is there, once the new backup is whole.")
def backup(url: str, file: str, replace: bool) -> None:
    """Back the store at URL up into FILE, also while a server runs on it.

    URL is that of a file: sqlite:PATH. FILE is whole, and has been checked, when it appears.
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
@click.option("--replace", is_flag=True, help="Replace the store that is there; its file is kept as PATH.replaced.")
def restore(file: str, url: str, replace: bool) -> None:
    """Make a store at URL of FILE, a backup.

    URL is that of a file, sqlite:PATH, on which no server runs. The store that is made is another one, with an id of
    its own: every client begins anew with what it has.
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
