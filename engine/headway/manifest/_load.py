"""Load the resources of a text or a file, or say everything that is wrong with it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from headway.errors import ManifestError, Problem
from headway.manifest._document import read_document
from headway.manifest._nodes import Place, Problems
from headway.manifest._yaml import read_yaml
from headway.resource import Key, Kind, Registry, Resource


def load(text: str, registry: Registry, *, source: str = "<text>") -> list[Resource[Any]]:
    """The resources of all documents in a YAML text, in its order.

    Raises ManifestError with every problem of the text; ``source`` is what they call it.
    """
    problems = Problems(source)
    resources: list[Resource[Any]] = []
    places: dict[tuple[Kind, Key], Place] = {}
    for node in read_yaml(text, problems):
        resource = read_document(node, registry, problems)
        if resource is None:
            continue
        # All versions of a kind share one name space.
        first = places.setdefault((resource.type.kind, resource.id.key), node.place)
        if first is not node.place:
            problems.add(node.place, "", f"{resource.id} was given before, at {first}: keep one of them")
        resources.append(resource)
    problems.raise_if_any()
    return resources


def load_file(path: str | os.PathLike[str], registry: Registry) -> list[Resource[Any]]:
    """The resources of a file in UTF-8, as ``load`` has them. Raises OSError when it can't be read."""
    source = os.fspath(path)
    content = Path(path).read_bytes()
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        before = content[: error.start].decode().split("\n")
        message = f"the byte 0x{content[error.start]:02x} is not UTF-8 ({error.reason}): save the file as UTF-8"
        raise ManifestError([Problem(source, len(before), len(before[-1]) + 1, "", message)]) from error
    return load(text, registry, source=source)
