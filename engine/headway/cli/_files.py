"""The manifests that a command is given: files, or stdin."""

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
    help="A manifest; - is stdin. Repeatable.",
)


def load_all(files: Sequence[str], registry: Registry) -> list[Resource[Any]]:
    """The resources of all files. Raises ManifestError with the problems of all of them.

    Ends the command when there is none in any: a file that was not filled in must not look applied.
    """
    resources: list[Resource[Any]] = []
    problems: list[Problem] = []
    for file in files:
        try:
            resources += _load(file, registry)
        except ManifestError as error:
            problems += error.problems
        except OSError as error:
            fail(Exit.MANIFEST, f"{file}: it can't be read: {error.strerror}")
    if problems:
        raise ManifestError(problems)
    if not resources:
        names = ", ".join("<stdin>" if file == "-" else file for file in files)
        fail(Exit.MANIFEST, f"{names}: there is no document in it")
    return resources


def _load(file: str, registry: Registry) -> list[Resource[Any]]:
    if file != "-":
        return manifest.load_file(file, registry)
    try:
        text = sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise ManifestError([Problem("<stdin>", 1, 1, "", f"this is not UTF-8: {error.reason}")]) from error
    return manifest.load(text, registry, source="<stdin>", format=None)
