"""Load the resources of a text or a file, or report all of its problems.

The parser of a format is imported when it is first needed, since each one needs another library.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from headway.errors import ManifestError, Problem
from headway.manifest._document import read_document
from headway.manifest._nodes import Format, Node, Place, Problems
from headway.resource import Key, Kind, Registry, Resource

_SUFFIXES: dict[str, Format] = {".yaml": "YAML", ".yml": "YAML", ".json": "JSON", ".hcl": "HCL"}
_COMMENTS = re.compile(r"(\s|#[^\n]*(\n|\Z)|//[^\n]*(\n|\Z)|/\*.*?\*/)*", re.DOTALL)
# Beginnings that no YAML manifest has.
_BEGINS_HCL = re.compile(r'[A-Za-z_][\w-]*(\s*=|[ \t]*("[^"\n]*"[ \t]*)?\{)')
_BEGINS_JSON = re.compile(r'(\[\s*)?\{\s*"')


def format_of(text: str) -> Format:
    """Guess the format of a text without a file name from its beginning."""
    text = text.removeprefix("\ufeff")
    if _BEGINS_JSON.match(text.lstrip()):
        return "JSON"
    comments = _COMMENTS.match(text)
    return "HCL" if _BEGINS_HCL.match(text, comments.end() if comments else 0) else "YAML"


def load(
    text: str, registry: Registry, *, source: str = "<text>", format: Format | None = "YAML"
) -> list[Resource[Any]]:
    """Return the resources of all documents in a text, in their order.

    Args:
        text: the manifests.
        registry: the known types.
        source: the name of the text in problems.
        format: "YAML", "JSON" or "HCL". With None, it is guessed from the beginning of the text.

    Raises:
        ManifestError: The text has problems. The error lists all of them.
    """
    problems = Problems(source)
    resources: list[Resource[Any]] = []
    places: dict[tuple[Kind, Key], Place] = {}
    for node in _documents(text, format or format_of(text), source, problems):
        resource = read_document(node, registry, problems)
        if resource is None:
            continue
        # All versions of a kind share one set of names.
        first = places.setdefault((resource.type.kind, resource.id.key), node.place)
        if first is not node.place:
            problems.add(node.place, "", f"{resource.id} was already given at {first}: keep one of them")
        resources.append(resource)
    problems.raise_if_any()
    return resources


def _documents(text: str, format: Format, source: str, problems: Problems) -> list[Node]:
    if format == "JSON":
        from headway.manifest._json import read_json

        return read_json(text, problems)
    if format == "HCL":
        try:
            from headway.manifest._hcl import read_hcl
        except ModuleNotFoundError as error:
            missing = f"cannot read HCL because {error.name} is not installed: pip install 'headway[hcl]'"
            raise ManifestError([Problem(source, 1, 1, "", missing)]) from error
        return read_hcl(text, problems)
    from headway.manifest._yaml import read_yaml

    return read_yaml(text, problems)


def load_file(path: str | os.PathLike[str], registry: Registry) -> list[Resource[Any]]:
    """Return the resources of a file in UTF-8, like `load`.

    The format follows from the suffix (.yaml, .yml, .json, .hcl), or else from the beginning of the text.

    Raises:
        OSError: The file cannot be read.
        ManifestError: The text has problems. The error lists all of them.
    """
    source = os.fspath(path)
    content = Path(path).read_bytes()
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        before = content[: error.start].decode().split("\n")
        message = f"the byte 0x{content[error.start]:02x} is not UTF-8 ({error.reason}): save the file as UTF-8"
        raise ManifestError([Problem(source, len(before), len(before[-1]) + 1, "", message)]) from error
    return load(text, registry, source=source, format=_SUFFIXES.get(Path(path).suffix.lower()))
