"""What of a change of CustomResourceDefinitions a cluster would refuse, for `headway schema diff --kubernetes`."""

from __future__ import annotations

import sys
from typing import IO

import click
import yaml

from headway.base import plain
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
        read = [each for each in yaml.safe_load_all(old) if each]
    except yaml.YAMLError as error:
        raise Usage(f"{old.name} is not YAML: {error}") from error
    listed = [item for each in read for item in (each.get("items") or [each])]
    before = {each["metadata"]["name"]: each for each in listed if each.get("kind") == "CustomResourceDefinition"}
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
