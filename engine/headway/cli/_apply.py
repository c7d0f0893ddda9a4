"""The commands `headway apply` and `headway diff`: load manifests, preview what the server would store, and store it.

A preview has the server's defaults and checks, because only the server knows the hooks of its types.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from headway import manifest
from headway.cli._awaited import CONDITION_HELP, Awaited, Wanted
from headway.cli._connection import Connection, connected
from headway.cli._exits import Exit, Usage, fail
from headway.cli._output import Output, output_option, show_all
from headway.cli._owned import Manager, manager_of, manager_options
from headway.cli._running import code_of, read_stdin
from headway.cli._waiting import wait_for
from headway.client import Client, keep_stored, merge_and_compare
from headway.documents import decode
from headway.errors import AlreadyExists, HeadwayError, ManifestError, OutcomeUnknown, Problem
from headway.manifest import Document
from headway.resource import NAMESPACE, PARTITION, Registry, Resource, redacted_resource

_files_option: Callable[[Any], Any] = click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    required=True,
    metavar="FILE",
    help="A manifest; - is stdin. May be repeated.",
)


@click.command()
@_files_option
@click.option("--dry-run", is_flag=True, help="Only show what would be stored. Exits with 7 if anything would.")
@click.option("--create-only", is_flag=True, help="Only create resources. Fail if a name already exists.")
@manager_options
@click.option("--wait", "wanted", metavar="CONDITION", help=f"Then wait for all resources. {CONDITION_HELP}")
@click.option("--within", type=click.FloatRange(min=0), help="Timeout of --wait in seconds. Default: none.")
@output_option("yaml and json show the resources as stored, or with --dry-run as they would be stored.")
@connected
async def apply(
    connection: Connection,
    files: Sequence[str],
    dry_run: bool,
    create_only: bool,
    field_manager: str | None,
    force: bool,
    wanted: str | None,
    within: float | None,
    output: Output,
) -> None:
    """Create or update the resources in manifests.

    A resource that is stored already and does not differ is left alone. Of a type with owned fields, only the fields
    that the manifest lists are applied, and those that it no longer lists are removed. All documents of all files are
    checked before the first is stored. They are stored in order, and the command stops at the first one that the server
    rejects.
    """
    if dry_run and create_only:
        raise Usage("--create-only and --dry-run exclude each other: only a write can find out whether a name exists")
    condition = _condition(wanted, within, dry_run=dry_run)
    documents = await _load_all(files, connection.registry)
    manager = manager_of(documents, field_manager, force=force)
    if dry_run:
        await _dry_run(connection.client, documents, manager, output)
        return
    stored: list[Resource[Any]] = []
    for number, document in enumerate(documents):
        resource = document.resource
        try:
            after, done = await _apply_one(connection.client, document, manager, create_only=create_only)
        except HeadwayError as error:
            show_all(stored, output)
            left = len(documents) - number - 1
            again = "; apply again to find out" if isinstance(error, OutcomeUnknown) else ""
            rest = f"{again} ({left} more not applied)" if left else again
            fail(code_of(error), f"Error: {_named(resource, error)}{rest}")
        if output == "table":
            click.echo(f"{resource.id} {done}")
        stored.append(after)
    show_all(stored, output)
    if condition is not None:
        awaited = [Awaited(each.type, each.id, condition) for each in stored]
        await wait_for(connection.client, awaited, within, silent=output != "table")


def _condition(wanted: str | None, within: float | None, *, dry_run: bool) -> Wanted | None:
    """Return what --wait asks for. Raises Usage if the options contradict each other."""
    if wanted is None:
        if within is not None:
            raise Usage("--within requires --wait: give the condition to wait for, such as --wait Ready")
        return None
    if dry_run:
        raise Usage("--wait and --dry-run exclude each other: a dry run stores nothing that could be waited for")
    if wanted == "deleted":
        raise Usage("--wait deleted: an applied resource is not deleted; give a condition, such as Ready")
    return Wanted.parse(wanted, "--wait")


def _named(resource: Resource[Any], error: HeadwayError) -> str:
    """Return the text of an error, with the resource's name in front unless the text has it there already."""
    id, text = str(resource.id), str(error)
    return text if text.startswith((f"{id}: ", f"{id} ")) else f"{id}: {text}"


async def _apply_one(
    client: Client, document: Document, manager: Manager, *, create_only: bool
) -> tuple[Resource[Any], str]:
    resource, owned = document.resource, document.resource.type.owned_fields
    if create_only:
        try:
            return await (manager.create(client, document) if owned else client.create(resource)), "created"
        except AlreadyExists as error:
            raise AlreadyExists("it already exists; leave --create-only out to replace it") from error
    before = await client.get(resource.type, resource.id)
    if owned:
        if before is None and not document.fields:
            # It has no owner. An apply of no fields would give up those that there are.
            return await manager.create(client, document), "created"
        stored = await manager.apply(client, document)
        return stored, _outcome(before, stored)
    if before is None:
        return await client.apply(resource), "created"
    if not (await _preview_over(client, before, resource)).differs:
        return before, "unchanged"
    stored = await client.apply(resource)
    return stored, _outcome(before, stored)


def _outcome(before: Resource[Any] | None, stored: Resource[Any]) -> str:
    if before is None:
        return "created"
    return "unchanged" if before.version == stored.version else "changed"


async def _dry_run(client: Client, documents: Sequence[Document], manager: Manager, output: Output) -> None:
    wanted: list[Resource[Any]] = []
    different = False
    async for preview in _previews(client, documents, manager):
        if output == "table":
            click.echo(f"{preview.wanted.id} {preview.outcome}")
        wanted.append(preview.wanted)
        different |= preview.differs
    show_all(wanted, output)
    if different:
        sys.exit(Exit.DIFFERENT)


@click.command()
@_files_option
@manager_options
@connected
async def diff(connection: Connection, files: Sequence[str], field_manager: str | None, force: bool) -> None:
    """Show what `apply` would change, without storing anything.

    The output is a unified diff of manifests, which includes the defaults that the server would fill in. Exits with 7
    if there is a difference.
    """
    different = False
    documents = await _load_all(files, connection.registry)
    manager = manager_of(documents, field_manager, force=force)
    async for preview in _previews(connection.client, documents, manager):
        if preview.differs:
            different = True
            for line in _difference(preview):
                click.echo(line)
    if different:
        sys.exit(Exit.DIFFERENT)


def _difference(preview: _Preview) -> Iterator[str]:
    # A secret that differs is shown as changed.
    wanted = redacted_resource(preview.wanted, preview.stored)
    before = "" if preview.stored is None else manifest.dump(redacted_resource(preview.stored))
    name = str(preview.wanted.id)
    return difflib.unified_diff(
        before.splitlines(),
        manifest.dump(wanted).splitlines(),
        fromfile=f"stored: {name}" if preview.stored is not None else "stored: nothing",
        tofile=f"given: {name}",
        lineterm="",
    )


async def _load_all(files: Sequence[str], registry: Registry) -> list[Document]:
    """Return the documents of all files. Raises ManifestError with the problems of all files.

    If no file contains a resource, the command fails: an empty file must not look as if it had been applied.
    """
    documents: list[Document] = []
    problems: list[Problem] = []
    more = 0
    for file in files:
        try:
            documents += await _load(file, registry)
        except ManifestError as error:
            problems += error.problems
            more += error.more
        except OSError as error:
            fail(Exit.MANIFEST, f"{file}: cannot be read: {error.strerror}")
    if problems:
        raise ManifestError(problems, more)
    if not documents:
        names = ", ".join("<stdin>" if file == "-" else file for file in files)
        fail(Exit.MANIFEST, f"{names}: no document found")
    return documents


async def _load(file: str, registry: Registry) -> list[Document]:
    if file != "-":
        return manifest.documents_of_file(file, registry)
    text = decode(await read_stdin(), "<stdin>")
    return manifest.documents(text, registry, source="<stdin>", format=None)


@dataclass(frozen=True)
class _Preview:
    """The stored resource, and the resource that would be stored."""

    stored: Resource[Any] | None
    wanted: Resource[Any]
    differs: bool

    @property
    def outcome(self) -> str:
        """The outcome, as printed by `apply --dry-run`."""
        if not self.differs:
            return "unchanged"
        return "would be created" if self.stored is None else "would be changed"


async def _previews(client: Client, documents: Sequence[Document], manager: Manager) -> AsyncIterator[_Preview]:
    """Yield a preview of each resource. Exit at the first one that the server rejects."""
    coming: set[tuple[str, str]] = set()
    for document in documents:
        resource = document.resource
        try:
            yield await _preview(client, document, manager, coming)
        except HeadwayError as error:
            fail(code_of(error), f"Error: {_named(resource, error)}")
        id = resource.id
        if resource.type.kind == NAMESPACE.kind:
            coming.add((id.partition, id.name))
        elif resource.type.kind == PARTITION.kind:
            coming.add((id.name, ""))


async def _preview_over(client: Client, stored: Resource[Any], resource: Resource[Any]) -> _Preview:
    """Return a preview for a resource whose stored form is known."""
    type, there, wanted = resource.type, stored.message(), resource.message()
    keep_stored(type, there, wanted)
    filled = (await client.validate(type.view(wanted))).message()
    same = merge_and_compare(type, there, filled)
    return _Preview(stored, type.view(filled), differs=not same)


async def _preview(client: Client, document: Document, manager: Manager, coming: set[tuple[str, str]]) -> _Preview:
    resource = document.resource
    stored = await client.get(resource.type, resource.id)
    if stored is None:
        id = resource.id
        if (id.partition, id.namespace) in coming or (id.partition, "") in coming:
            # The server would reject it, since its namespace doesn't exist yet. An earlier document creates it.
            return _Preview(None, resource, differs=True)
    if resource.type.owned_fields:
        return _Preview(stored, *await manager.preview(client, document, stored))
    if stored is None:
        return _Preview(None, await client.validate(resource), differs=True)
    return await _preview_over(client, stored, resource)
