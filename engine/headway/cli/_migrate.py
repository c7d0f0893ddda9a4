"""The command `headway store migrate`, which rewrites stored resources in the storage versions of their types."""

from __future__ import annotations

import sys
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import click

from headway._gen.headway.migration import v1 as migration_pb
from headway.api import FAILED, Call, Code, code_of
from headway.base import plain
from headway.cli._arguments import apps_at, check_store_exists, named_store
from headway.cli._connection import Connection, Target, current_target, open_connection
from headway.cli._output import Details, counted, details_option, json_text, position_object
from headway.cli._running import Exit, Usage, fail, run
from headway.client import client_error
from headway.engine import combine_apps
from headway.errors import DeclarationError, HeadwayError
from headway.resource import Kind, Position, Registry, position, resource_id
from headway.storage import Backend, refuse_unfinished
from headway.versions import Migrated, MigrationApi, chains_in, migrate, record_schemas


@click.command("migrate")
@click.argument("app", required=False)
@click.option(
    "--store", "url", metavar="URL", help="sqlite:PATH or etcd://HOST:PORT,HOST:PORT/PREFIX, instead of a server."
)
@details_option
def migrate_command(app: str | None, url: str | None, output: Details) -> None:
    """Rewrite stored resources in the storage versions of their types.

    This affects only types with converters. Generations, statuses, finalizers and deletion marks are preserved. The
    command can be interrupted and run again. Exits with 7 if a resource stays in another version than the storage
    version.

    By default, the server of --server rewrites its own store, with its own types, while it serves. With --store, this
    command opens the store itself, and uses the types of APP (module:attribute). It rejects an APP that would misread
    the store. Servers may keep running on etcd; a SQLite store must not be open elsewhere.
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
