"""What of a change of CustomResourceDefinitions a cluster would refuse, for `headway schema diff --kubernetes`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import IO, Any

import click
import yaml

from headway.base import plain, repr_text
from headway.cli._exits import Exit, Usage
from headway.cli._named import apps_at
from headway.cli._output import Details, json_text
from headway.errors import DeclarationError, InvalidArgument
from headway.kubernetes import crds, diff


def show_crd_diff(old: IO[str], app: str, webhooks_at: str | None, output: Details) -> None:
    """Show what of a change from these CustomResourceDefinitions would be refused, or would lose data.

    Exits with 7 if there is something.
    """
    try:
        read = [(f"document {number}", each) for number, each in enumerate(yaml.safe_load_all(old), 1) if each]
    except yaml.YAMLError as error:
        raise Usage(f"{old.name} is not YAML: {error}") from error
    before = {each["metadata"]["name"]: each for each in _definitions(old.name, read)}
    if not before:
        raise Usage(f"{old.name} has no CustomResourceDefinition: give what `kubectl get crd -o yaml` prints")
    try:
        after = crds(*apps_at(app), webhooks_at=webhooks_at)
    except (DeclarationError, InvalidArgument) as error:
        raise Usage(str(error)) from error
    problems = [
        {"name": name, "problem": sentence}
        for each in after
        if (name := each["metadata"]["name"]) in before
        for sentence in diff(before[name], each)
    ]
    if output == "json":
        click.echo(json_text({"problems": problems}, indent=2))
    else:
        for problem in problems:
            click.echo(plain(f"{problem['name']}: {problem['problem']}"))
        if not problems:
            click.echo("no differences")
    if problems:
        sys.exit(Exit.DIFFERENT)


def _definitions(file: str, read: Iterable[tuple[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the CustomResourceDefinitions among documents and items of lists. Raises Usage for what is no object."""
    for place, each in read:
        if not isinstance(each, dict):
            raise Usage(f"{file}, {place}: {repr_text(each)} must be an object with a kind, as kubectl prints it")
        if isinstance(items := each.get("items"), list):
            yield from _definitions(file, ((f"{place}, items[{index}]", item) for index, item in enumerate(items)))
        elif each.get("kind") == "CustomResourceDefinition":
            if not isinstance(each.get("metadata"), dict) or "name" not in each["metadata"]:
                raise Usage(f"{file}, {place}: metadata.name is required, such as websites.example.org")
            yield each
