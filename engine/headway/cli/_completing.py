"""Completion of types and names from the server.

Completion must never get in the way: it uses a short deadline, and is silent if the server does not answer.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import Any, cast

import click
import trio
from click.shell_completion import CompletionItem

from headway.base import only_error
from headway.cli._connection import Connection, open_connection
from headway.cli._exits import Usage
from headway.cli._names import find_type
from headway.cli._target import Target
from headway.errors import HeadwayError
from headway.resource import Resource

PATIENCE = 2.0
"""The deadline of a completion, in seconds."""
_MOST = 200


def complete_type(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the types whose names or kinds start with the typed text."""

    async def ask(connection: Connection) -> Iterable[str]:
        names = [each.name for each in connection.registry]
        kinds = [name.kind.lower() for name in names]
        # A kind that several types have would be ambiguous.
        return [*(kind for kind in kinds if kinds.count(kind) == 1), *map(str, names)]

    return _asked(context, incomplete, ask)


def complete_name(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names that start with the typed text, of the given type and in the given tenancy units."""

    async def ask(connection: Connection) -> Iterable[str]:
        given = context.params
        type = find_type(given.get("type") or "", connection.registry)
        pages = connection.client.pages(
            type,
            size=_MOST,
            partition=given.get("partition") or "default",
            namespace=given.get("namespace") or "default",
            name_prefix=incomplete,
        )
        # The first page has enough names to choose from.
        async with contextlib.aclosing(cast("AsyncGenerator[list[Resource[Any]]]", pages)):
            return [resource.id.name for resource in await anext(pages)]

    return _asked(context, incomplete, ask)


def _asked(
    context: click.Context, incomplete: str, ask: Callable[[Connection], Awaitable[Iterable[str]]]
) -> list[CompletionItem]:
    root = context.find_root()
    found: list[str] = []

    async def call() -> None:
        with trio.move_on_after(PATIENCE):
            async with open_connection(_target(root)) as connection:
                found.extend(await ask(connection))

    # Don't report errors for a pressed key: the command itself will report them.
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            trio.run(call)
        except (HeadwayError, Usage, SystemExit, BaseExceptionGroup) as error:
            if not isinstance(only_error(error), (HeadwayError, Usage, SystemExit)):
                raise
    wanted = incomplete.lower()
    return [CompletionItem(each) for each in sorted(set(found)) if each.lower().startswith(wanted)]


def _target(root: click.Context) -> Target:
    """Return the server of the typed options. On completion, click parses options but doesn't run the root command."""
    callback: Any = root.command.callback
    with root.scope(cleanup=False):
        callback(**root.params)
    target: Target = root.obj
    return target
