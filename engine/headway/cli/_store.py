"""`headway store`: check a store, copy one into another, hold one of your own to its promises."""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import Any, Literal

import click

from headway.cli._exits import Exit, Usage
from headway.cli._migrate import migrate_command, place
from headway.cli._running import run
from headway.cli._text import json_text, plain
from headway.errors import InvalidArgument, StoreUnusable
from headway.resource import Kind
from headway.storage import (
    Backend,
    Copied,
    Verified,
    copy_store,
    etcd_address,
    open_store,
    store_exists,
    verify_file,
    verify_store,
)

Output = Literal["text", "json"]

_output = click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="json is all of it."
)


@click.group()
def store() -> None:
    """Check a store, copy or migrate one, or hold a store of your own to its promises.

    These open the store itself, so that no server may have it open that wants it alone. Only check reads beside it, and
    migrate has a server rewrite its own store.
    """


store.add_command(migrate_command)


@store.command()
@click.argument("url")
@_output
def check(url: str, output: Output) -> None:
    """Hold all that can be asked of the store at URL against each other. Writes no resource.

    Its lists against its reads, what its owners own, its watches and its history. An SQLite file that can't be opened,
    as a server has it, is read as it stands. Ends with 7 when something is wrong.
    """
    run(partial(_check, url, named_store("URL", url), output))


async def _check(url: str, opening: AbstractAsyncContextManager[Backend], output: Output) -> None:
    await must_be_there("URL", url)
    progress = _progress if output == "text" else lambda _: None
    async with AsyncExitStack() as stack:
        try:
            backend = await stack.enter_async_context(opening)
        except StoreUnusable as error:
            if not url.startswith("sqlite:"):
                raise
            progress(f"its file is read as it stands, since it can't be opened: {error}")
            found = await verify_file(url)
        else:
            found = await verify_store(backend, progress=progress)
    if output == "json":
        click.echo(json_text(_verified(found), indent=2))
    else:
        for problem in found.problems:
            click.echo(plain(problem))
        wrong = f"{len(found.problems)} things are wrong" if found.problems else "nothing is wrong"
        if not found.position.store_id:
            click.echo(f"what store that is can't be read; {wrong}")
            sys.exit(Exit.DIFFERENT)
        click.echo(
            f"store {found.position.store_id} at revision {found.position.revision}, history from {found.oldest} on: "
            f"{_counted(found.resources)}; {wrong}"
        )
    if found.problems:
        sys.exit(Exit.DIFFERENT)


def _verified(found: Verified) -> dict[str, Any]:
    return {
        "store_id": found.position.store_id,
        "revision": found.position.revision,
        "oldest": found.oldest,
        "resources": {".".join(kind): count for kind, count in found.resources.items()},
        "problems": found.problems,
    }


@store.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@_output
def copy(source: str, target: str, output: Output) -> None:
    """Make the empty store TO hold what the store FROM holds, and compare the two.

    Uids, generations, owners, statuses, metadata and finalizers stay; versions and the store's id are new, so that
    every watch begins anew. Stop what writes to FROM before. A copy that was stopped goes on when it is run again;
    until it has ended, no server serves TO.
    """
    run(partial(_copy, source, named_store("FROM", source), named_store("TO", target), output))


async def _copy(
    url: str,
    source: AbstractAsyncContextManager[Backend],
    target: AbstractAsyncContextManager[Backend],
    output: Output,
) -> None:
    await must_be_there("FROM", url)
    async with source as here, target as there:
        copied = await copy_store(here, there, progress=_copying if output == "text" else None)
    if output == "json":
        click.echo(json_text(_copied(copied), indent=2))
        return
    click.echo(
        f"store {copied.source.store_id} is in store {copied.target.store_id}, compared and the same: "
        f"{_counted(copied.resources)}, {copied.written} written now; {copied.fences} fences raised"
    )


def _copied(copied: Copied) -> dict[str, Any]:
    return {
        "from": place(copied.source),
        "to": place(copied.target),
        "resources": {".".join(kind): count for kind, count in copied.resources.items()},
        "written": copied.written,
        "fences": copied.fences,
    }


def _counted(resources: dict[Kind, int]) -> str:
    return f"{sum(resources.values())} resources of {len(resources)} kinds"


def _progress(what: str) -> None:
    click.echo(plain(what), err=True)


def _copying(kind: Kind, count: int) -> None:
    click.echo(f"{plain('.'.join(kind))}: {count}", err=True)


@store.command()
@click.argument("reference", metavar="MODULE:NAME")
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), default=30.0, show_default=True,
              help="For each check.")  # fmt: skip
@click.option("--only", multiple=True, metavar="WORD", help="Only the checks whose names hold this. May be repeated.")
@_output
def conformance(reference: str, seconds: float, only: tuple[str, ...], output: Output) -> None:
    """Hold the store that MODULE:NAME opens to every promise of a store, a line for each.

    NAME is a function that opens a store at a path, or a headway.testing.StoreUnderTest. Ends with 7 when the store
    breaks a promise.
    """
    from headway.cli._conformance import hold

    run(partial(hold, _loaded(reference), seconds, only, output))


def _loaded(reference: str) -> object:
    module, colon, name = reference.partition(":")
    if not (module and colon and name):
        raise Usage(f"{reference!r} is no store; write module:name, such as mystore:open_my_store")
    # As `python -m` has it: a module of the working directory is found.
    sys.path.insert(0, os.getcwd())
    try:
        found: object = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise Usage(f"{reference}: there is no module {error.name!r} here or among what is installed") from error
        raise
    for part in name.split("."):
        if not hasattr(found, part):
            raise Usage(f"{reference}: {module} has no {name!r}")
        found = getattr(found, part)
    return found


async def must_be_there(argument: str, url: str) -> None:
    """Refuse a url at which there is no store: opening it would make one."""
    if not await store_exists(url):
        # Without a password that the url may hold.
        raise Usage(f"{argument}: there is no store at {etcd_address(url) if url.startswith('etcd:') else url}")


def named_store(argument: str, url: str) -> AbstractAsyncContextManager[Backend]:
    if url == "memory:":
        raise Usage(
            f'{argument}: "memory:" is a new, empty store for each process; give a lasting one, such as sqlite:PATH'
        )
    try:
        return open_store(url)
    except InvalidArgument as error:
        raise Usage(f"{argument}: {error}") from error
