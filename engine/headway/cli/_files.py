"""Load the manifests that a command gets: files, or stdin."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import click

from headway import manifest
from headway.cli._exits import Exit, fail
from headway.errors import ManifestError, Problem
from headway.resource import Registry, Resource

files_option: Callable[[Any], Any] = click.option(
    "-f",
    "--file",
    "files",
    multiple=True,
    required=True,
    metavar="FILE",
    help="A manifest; - is stdin. May be repeated.",
)


def load_all(files: Sequence[str], registry: Registry) -> list[Resource[Any]]:
    """Return the resources of all files. Raises ManifestError with the problems of all files.

    If no file contains a resource, the command fails: an empty file must not look as if it had been applied.
    """
    resources: list[Resource[Any]] = []
    problems: list[Problem] = []
    for file in files:
        try:
            resources += _load(file, registry)
        except ManifestError as error:
            problems += error.problems
        except OSError as error:
            fail(Exit.MANIFEST, f"{file}: cannot be read: {error.strerror}")
    if problems:
        raise ManifestError(problems)
    if not resources:
        names = ", ".join("<stdin>" if file == "-" else file for file in files)
        fail(Exit.MANIFEST, f"{names}: no document found")
    return resources


def _load(file: str, registry: Registry) -> list[Resource[Any]]:
    if file != "-":
        return manifest.load_file(file, registry)
    try:
        text = sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise ManifestError([Problem("<stdin>", 1, 1, "", f"this is not UTF-8: {error.reason}")]) from error
    return manifest.load(text, registry, source="<stdin>", format=None)
