"""The fields of manifests as those of a manager, for `headway apply` and `headway diff`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from headway.cli._exits import Usage
from headway.client import Client
from headway.errors import FieldConflict
from headway.manifest import Document
from headway.resource import Resource

if TYPE_CHECKING:
    from headway.fields import Applied, Merged

MANAGER = "cli"
"""The manager of the fields of manifests. It is the same for all users, who share manifests."""


class Manager(NamedTuple):
    """The name under which a command applies fields, if a type has owned fields, and whether it takes fields over."""

    name: str
    force: bool

    def applied(self, document: Document) -> Applied[Any]:
        """Return the fields of a document to apply."""
        from headway.fields import Applied

        return Applied(document.resource, document.fields, self.name, force=self.force)

    async def create(self, client: Client, document: Document) -> Resource[Any]:
        """Create the resource of a document, with its fields as those of the manager."""
        return await client.create(self.applied(document).over(None).to_write())

    async def apply(self, client: Client, document: Document) -> Resource[Any]:
        """Apply the fields of a document."""
        from headway.fields import apply_fields

        with _advice():
            return await apply_fields(client, None, self.applied(document), knows_hooks=False)

    async def preview(
        self, client: Client, document: Document, current: Resource[Any] | None
    ) -> tuple[Resource[Any], bool]:
        """Return the resource as it would be stored, and whether it differs from the current one."""
        merged: Merged[Any] = self.applied(document).over(current)
        after = await client.validate(merged.resource)
        if not self.force:
            with _advice():
                merged.check(after)
        return merged.stored(after), not merged.changes_nothing(after)


@contextmanager
def _advice() -> Iterator[None]:
    """Let a conflict name the option of the command line in place of the argument."""
    try:
        yield
    except FieldConflict as error:
        text = str(error)
        if text.endswith(argument := "force=True"):
            text = f"{text.removesuffix(argument)}--force"
        raise FieldConflict(text, error.conflicts) from error


def manager_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the manager to a command, as ``field_manager`` and ``force``."""
    force = click.option("--force", is_flag=True, help="Take over fields that belong to other managers.")
    named = f"The owner of the fields, for types with owned fields. Default: {MANAGER}."
    name = click.option("--field-manager", metavar="NAME", help=named)
    return name(force(function))


def manager_of(documents: Sequence[Document], name: str | None, *, force: bool) -> Manager:
    """Return the manager of a command. Raises Usage if an option has no meaning for these documents."""
    if (force or name is not None) and not any(each.resource.type.owned_fields for each in documents):
        option = "--force" if force else "--field-manager"
        raise Usage(f"{option}: no type of these manifests has owned fields, so nothing in them has an owner")
    return Manager(MANAGER if name is None else name, force)
