"""The commands that open a store by its URL: `headway backup`, `headway restore`, and `headway store` with its own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from headway._gen.headway.migration import v1 as migration_pb
from headway.api import FAILED, Call, Code, code_of
from headway.base import plain, repr_text
from headway.cli._connection import Connection, open_connection
from headway.cli._exits import Exit, Usage, fail
from headway.cli._named import apps_at, check_store_exists, named_store, object_at
from headway.cli._output import Details, counted, details_option, json_text, position_object
from headway.cli._progress import is_terminal, open_progress
from headway.cli._running import run
from headway.cli._target import Target, current_target
from headway.client import client_error
from headway.engine import combine_apps
from headway.errors import DeclarationError, HeadwayError, InvalidArgument, StoreUnusable
from headway.resource import Kind, Position, Registry, position, resource_id
from headway.storage import (
    Backend,
    Copied,
    OnlyReadable,
    Progress,
    Verified,
    backup_store,
    copy_store,
    refuse_unfinished,
    restore_store,
    verify_file,
    verify_store,
)
from headway.versions import Migrated, MigrationApi, chains_in, migrate, record_schemas

if TYPE_CHECKING:
    from headway.testing import Verdict


@click.command()
@click.argument("url")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--replace", is_flag=True, help="Replace an existing FILE, once the new backup is complete.")
def backup(url: str, file: str, replace: bool) -> None:
    """Back up the store at URL to FILE, even while a server uses it.

    URL must be sqlite:PATH. FILE appears only when it is complete and has been checked. On a terminal, bars show the
    progress.
    """

    async def back_up() -> None:
        try:
            if url.startswith("sqlite:"):
                await check_store_exists("URL", url)
            async with open_progress(silent=not is_terminal(sys.stderr)) as progress:
                made = await backup_store(url, file, replace=replace, progress=progress)
        except InvalidArgument as error:
            raise Usage(str(error)) from error
        click.echo(f"{file}: store {made.store_id} up to revision {made.revision}, {made.size} bytes")

    run(back_up)


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
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
            f"with the content of store {made.from_store} at revision {made.from_revision}"
        )
        if made.replaced:
            click.echo(f"the replaced store is in {made.replaced}")

    run(bring_back)


@click.group()
def store() -> None:
    """Check, copy or migrate a store, or test a store of your own.

    These commands open the store itself. A server with exclusive access must not have it open, except for `check`,
    which then reads the file, and for `migrate`, which can ask the server to rewrite its own store.
    """


@store.command()
@click.argument("url")
@details_option
def check(url: str, output: Details) -> None:
    """Check that the store at URL is consistent. Writes no resource.

    This compares its lists, reads, owned resources, watches and history with each other. If an SQLite file can't be
    opened because a server has it open, the file is read in its current state. Exits with 7 if there are problems.
    """
    run(partial(_check, url, named_store("URL", url), output))


async def _check(url: str, opening: AbstractAsyncContextManager[Backend], output: Details) -> None:
    await check_store_exists("URL", url)
    async with AsyncExitStack() as stack:
        progress = await stack.enter_async_context(open_progress(silent=output == "json"))
        try:
            backend = await stack.enter_async_context(opening)
        except StoreUnusable as error:
            if not url.startswith("sqlite:"):
                raise
            why = error.why if isinstance(error, OnlyReadable) else f"the store cannot be opened ({error})"
            progress(Progress(f"{why}, so its file is only read"))
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
@details_option
def copy(source: str, target: str, output: Details) -> None:
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
    output: Details,
) -> None:
    await check_store_exists("FROM", url)
    async with source as here, target as there, open_progress(silent=output == "json") as progress:
        copied = await copy_store(here, there, progress=progress)
    if output == "json":
        click.echo(json_text(_copied(copied), indent=2))
        return
    click.echo(
        f"store {copied.source.store_id} copied to store {copied.target.store_id}, and compared: "
        f"{_counted(copied.resources)}, {copied.written} written now; {counted(copied.fences, 'fence')} raised"
    )


def _copied(copied: Copied) -> dict[str, Any]:
    return {
        "from": position_object(copied.source),
        "to": position_object(copied.target),
        "resources": {".".join(kind): count for kind, count in copied.resources.items()},
        "written": copied.written,
        "fences": copied.fences,
    }


def _counted(resources: dict[Kind, int]) -> str:
    return f"{counted(sum(resources.values()), 'resource')} of {counted(len(resources), 'kind')}"


@store.command()
@click.argument("reference", metavar="MODULE:NAME")
@click.option("--seconds", type=click.FloatRange(min=0, min_open=True), default=30.0, show_default=True,
              help="Time limit for each check.")  # fmt: skip
@click.option(
    "--only", multiple=True, metavar="WORD", help="Only run checks whose names contain this. May be repeated."
)
@details_option
def conformance(reference: str, seconds: float, only: tuple[str, ...], output: Details) -> None:
    """Run the conformance checks on the store that MODULE:NAME opens.

    NAME is a function that opens a store at a path, or a headway.testing.StoreUnderTest. Prints one line per check.
    Exits with 7 if a check fails.
    """
    given = object_at(reference, "a store", "module:name, such as mystore:open_my_store")
    run(partial(_check_conformance, given, seconds, only, output))


async def _check_conformance(given: Any, seconds: float, only: Sequence[str], output: Details) -> None:
    # Imported here, because no other command needs it.
    from headway.testing import BACKEND_CHECKS, StoreUnderTest, claim_of, verdicts

    if not isinstance(given, StoreUnderTest) and not callable(given):
        raise Usage(
            f"{repr_text(given, 80)} cannot open a store: it must be a function, or a headway.testing.StoreUnderTest"
        )
    store = given if isinstance(given, StoreUnderTest) else StoreUnderTest(given)
    checks = [check for check in BACKEND_CHECKS if not only or any(word in claim_of(check)[0] for word in only)]
    if not checks:
        raise Usage(f"--only {' '.join(only)}: no name of a check contains this")
    found = await verdicts(store, checks, seconds=seconds, report=_show_verdict if output == "text" else None)
    broken = [each for each in found if each.failure]
    lacking = [each for each in found if each.lacks]
    if output == "json":
        click.echo(json_text([each._asdict() for each in found], indent=2))
    else:
        held = len(found) - len(broken) - len(lacking)
        click.echo(
            f"{held} of {counted(len(found), 'claim')} {'holds' if held == 1 else 'hold'}"
            + (", " + counted(len(broken), "doesn't", "don't") if broken else "")
            + (f", {len(lacking)} left out" if lacking else "")
        )
    if broken:
        sys.exit(Exit.DIFFERENT)


def _show_verdict(verdict: Verdict) -> None:
    word = "failed" if verdict.failure else "lacking" if verdict.lacks else "holds"
    click.echo(f"{word:<8}{verdict.seconds:7.2f} s  {verdict.claim}")
    if verdict.failure:
        click.echo(f"{'':19}claimed: {plain(verdict.sentence)}")
        click.echo(f"{'':19}but: {plain(verdict.failure)}")
    sys.stdout.flush()


@store.command("sql")
@click.argument("url")
@click.option("--role", required=True, metavar="NAME", help="The role that will use the store.")
def sql_command(url: str, role: str) -> None:
    """Print what an administrator of PostgreSQL runs to create the store at URL.

    The role then needs no right to create anything. Run it in the database of the URL:
    headway store sql postgresql://staff@db/staff --role staff | psql -v ON_ERROR_STOP=1 --dbname staff
    """
    try:
        from headway.storage.postgres import postgres_address, script

        click.echo(script(postgres_address(url).schema, role))
    except InvalidArgument as error:
        raise Usage(str(error)) from error
    except DeclarationError as error:
        fail(Exit.REFUSED, f"Error: {error}")


@store.command("migrate")
@click.argument("app", required=False)
@click.option(
    "--store",
    "url",
    metavar="URL",
    help="sqlite:PATH, etcd://HOST:PORT,HOST:PORT/PREFIX or postgresql://..., instead of a server.",
)
@details_option
def migrate_command(app: str | None, url: str | None, output: Details) -> None:
    """Rewrite stored resources in the storage versions of their types.

    This affects only types with converters. Generations, statuses, finalizers and deletion marks are preserved. The
    command can be interrupted and run again. Exits with 7 if a resource stays in another version than the storage
    version.

    By default, the server of --server rewrites its own store, with its own types, while it serves. With --store, this
    command opens the store itself, and uses the types of APP (module:attribute). It rejects an APP that would misread
    the store. Servers may keep running on etcd and PostgreSQL; a SQLite store must not be open elsewhere.
    """
    if url is None:
        if app is not None:
            raise Usage(f"{app} requires --store; a server migrates with its own types: leave the APP out")
        run(partial(_migrate_server, current_target(), output))
        return
    if app is None:
        raise Usage("--store requires an APP (module:attribute), whose types determine the storage versions")
    try:
        registry, _ = combine_apps(apps_at(app))
    except DeclarationError as error:
        fail(Exit.REFUSED, f"Error: {error}")
    run(partial(_migrate, url, app, named_store("--store", url), registry, output))


async def _migrate_server(target: Target, output: Details) -> None:
    async with open_connection(target) as connection:
        done = Migrated(Position("", "", 0))
        before: tuple[Kind, int, int] = (("", ""), 0, 0)
        token = ""
        while True:
            page = await _page(connection, target, token)
            kind = (page.group, page.kind)
            if not all(kind):
                _show_nothing(f"the types of {target.server} have no converters", output)
                return
            if kind != before[0]:
                before = (kind, done.looked_at, done.rewritten)
            done.looked_at += page.looked_at
            done.rewritten += page.rewritten
            done.forbidden += page.forbidden
            done.apart.update(page.apart)
            done.left += [(resource_id(each.id), each.why) for each in page.left]
            done.position = position(page.position) or done.position
            if output == "text":
                _progress(kind, done.looked_at - before[1], done.rewritten - before[2])
            if not (token := page.next_page_token):
                break
    _report(done, output)


async def _page(connection: Connection, target: Target, token: str) -> migration_pb.MigrateResponse:
    try:
        request = migration_pb.MigrateRequest(page_token=token)
        return await MigrationApi.over(connection.channel).migrate(Call(connection.metadata), request)
    except HeadwayError as error:
        if code_of(error) is Code.UNIMPLEMENTED:
            fail(
                Exit.REFUSED,
                f"Error: {target.server} runs an earlier version of Headway, which can't migrate: give APP and --store",
            )
        if isinstance(error, FAILED):
            raise client_error(error) from error
        raise


async def _migrate(
    url: str, app: str, opening: AbstractAsyncContextManager[Backend], registry: Registry, output: Details
) -> None:
    await check_store_exists("--store", url)
    if not chains_in(registry):
        _show_nothing(f"{app} declares no converter", output)
        return
    async with opening as backend:
        await refuse_unfinished(backend)
        # Check schemas like an engine: converting data that the program misreads would destroy it.
        await record_schemas(backend, registry)
        done = await migrate(backend, registry, progress=_progress if output == "text" else lambda *_: None)
    _report(done, output)


def _report(done: Migrated, output: Details) -> None:
    if output == "json":
        click.echo(json_text(_object(done), indent=2))
    else:
        _show(done)
    if done.left or done.forbidden or done.apart:
        sys.exit(Exit.DIFFERENT)


def _show_nothing(why: str, output: Details) -> None:
    if output == "json":
        click.echo(json_text(_object(Migrated(Position("", "", 0))), indent=2))
    else:
        click.echo(f"nothing to rewrite: {why}")


def _progress(kind: Kind, looked_at: int, rewritten: int) -> None:
    click.echo(f"{plain('.'.join(kind))}: {looked_at} examined, {rewritten} rewritten", err=True)


def _show(done: Migrated) -> None:
    for id, why in done.left:
        click.echo(plain(f"{id.type} {'/'.join(filter(None, id.key))} was not rewritten: {why}"))
    for version, count in sorted(done.apart.items()):
        click.echo(
            plain(f"{counted(count, 'resource is', 'resources are')} stored as {version}, which no converter reaches")
        )
    if done.forbidden:
        refused = counted(done.forbidden, "resource was", "resources were")
        click.echo(f"{refused} not rewritten: permission denied: read and write")
    others = done.looked_at - done.rewritten - len(done.left) - done.apart.total() - done.forbidden
    click.echo(
        f"store {done.position.store_id} at revision {done.position.revision}: {done.rewritten} of "
        f"{counted(done.looked_at, 'resource')} rewritten, "
        f"{counted(others, 'was in its storage version', 'were in their storage version')}"
    )


def _object(done: Migrated) -> dict[str, Any]:
    return {
        **position_object(done.position),
        "looked_at": done.looked_at,
        "rewritten": done.rewritten,
        "apart": dict(done.apart),
        "forbidden": done.forbidden,
        "left": [{"type": str(id.type), "key": "/".join(filter(None, id.key)), "why": why} for id, why in done.left],
    }
