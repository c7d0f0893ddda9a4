"""The command `headway store`, which checks and copies stores, and tests store implementations."""

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
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json has all details.",
)


@click.group()
def store() -> None:
    """Check, copy or migrate a store, or test a store of your own.

    These commands open the store itself. A server with exclusive access must not have it open, except for `check`,
    which then reads the file, and for `migrate`, which can ask the server to rewrite its own store.
    """


store.add_command(migrate_command)


@store.command()
@click.argument("url")
@_output
def check(url: str, output: Output) -> None:
    """Check that the store at URL is consistent. Writes no resource.

    This compares its lists, reads, owned resources, watches and history with each other. If an SQLite file can't be
    opened because a server has it open, the file is read in its current state. Exits with 7 if there are problems.
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
            progress(f"reading the file in its current state, since it can't be opened: {error}")
            found = await verify_file(url)
        else:
            found = await verify_store(backend, progress=progress)
    if output == "json":
        click.echo(json_text(_verified(found), indent=2))
    else:
        for problem in found.problems:
            click.echo(plain(problem))
        wrong = f"problems found: {len(found.problems)}" if found.problems else "no problems found"
        if not found.position.store_id:
            click.echo(f"the store's id can't be read; {wrong}")
            sys.exit(Exit.DIFFERENT)
        click.echo(
            f"store {found.position.store_id} at revision {found.position.revision}, history from {found.oldest}: "
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
    """Copy the store FROM to the empty store TO, and compare the two.

    Uids, generations, owners, statuses, metadata and finalizers are preserved. Versions and the store's id are new, so
    every watch starts over. Stop everything that writes to FROM first. An interrupted copy continues when it is run
    again; no server serves TO until the copy is complete.
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
        f"store {copied.source.store_id} copied to store {copied.target.store_id}, and compared: "
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
              help="Time limit for each check.")  # fmt: skip
@click.option(
    "--only", multiple=True, metavar="WORD", help="Only run checks whose names contain this. May be repeated."
)
@_output
def conformance(reference: str, seconds: float, only: tuple[str, ...], output: Output) -> None:
    """Run the conformance checks on the store that MODULE:NAME opens.

    NAME is a function that opens a store at a path, or a headway.testing.StoreUnderTest. Prints one line per check.
    Exits with 7 if a check fails.
    """
    from headway.cli._conformance import hold

    run(partial(hold, _loaded(reference), seconds, only, output))


def _loaded(reference: str) -> object:
    module, colon, name = reference.partition(":")
    if not (module and colon and name):
        raise Usage(f"{reference!r} is not a store; write module:name, such as mystore:open_my_store")
    # Like `python -m`, find modules in the working directory.
    sys.path.insert(0, os.getcwd())
    try:
        found: object = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise Usage(f"{reference}: module {error.name!r} not found here or among installed packages") from error
        raise
    for part in name.split("."):
        if not hasattr(found, part):
            raise Usage(f"{reference}: {module} has no {name!r}")
        found = getattr(found, part)
    return found


async def must_be_there(argument: str, url: str) -> None:
    """Raise Usage if there is no store at a URL: opening it would create one."""
    if not await store_exists(url):
        # Shown without the password that the URL may contain.
        raise Usage(f"{argument}: no store found at {etcd_address(url) if url.startswith('etcd:') else url}")


def named_store(argument: str, url: str) -> AbstractAsyncContextManager[Backend]:
    if url == "memory:":
        raise Usage(
            f'{argument}: "memory:" is a new, empty store for each process; give a lasting one, such as sqlite:PATH'
        )
    try:
        return open_store(url)
    except InvalidArgument as error:
        raise Usage(f"{argument}: {error}") from error
