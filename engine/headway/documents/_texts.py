"""Texts: decode them, find out their format, and parse them into documents."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from headway.documents._nodes import Format, Node, Place, Problems, Unreadable
from headway.errors import ManifestError, Problem

_SUFFIXES: dict[str, Format] = {".yaml": "YAML", ".yml": "YAML", ".json": "JSON", ".hcl": "HCL"}
_COMMENTS = re.compile(r"(\s|#[^\n]*(\n|\Z)|//[^\n]*(\n|\Z)|/\*.*?\*/)*", re.DOTALL)
# Beginnings that no YAML manifest has.
_BEGINS_HCL = re.compile(r'[A-Za-z_][\w-]*(\s*=|[ \t]*("[^"\n]*"[ \t]*)?\{)')
_BEGINS_JSON = re.compile(r'(\[\s*)?\{\s*"')


def decode(content: bytes, source: str) -> str:
    """Return the text of a file in UTF-8. Raises ManifestError with the place of a byte that is invalid."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        before = content[: error.start].decode().split("\n")
        message = "this byte is not UTF-8: save the file as UTF-8"
        raise ManifestError([Problem(source, len(before), len(before[-1]) + 1, "", message)]) from error


def format_of(text: str, path: str | os.PathLike[str] = "") -> Format:
    """Return the format of a text: by the suffix of its path, or else by its beginning."""
    if (format := _SUFFIXES.get(Path(path).suffix.lower())) is not None:
        return format
    text = text.removeprefix("\ufeff")
    if _BEGINS_JSON.match(text.lstrip()):
        return "JSON"
    comments = _COMMENTS.match(text)
    return "HCL" if _BEGINS_HCL.match(text, comments.end() if comments else 0) else "YAML"


def parse(text: str, format: Format, problems: Problems, *, aliases: bool = True) -> list[Node]:
    """Return the documents of a text, up to the first that cannot be parsed. Empty ones are left out.

    With ``aliases=False``, an alias in YAML is a problem.
    """
    documents: list[Node] = []
    try:
        for node in _documents(text, format, problems, aliases=aliases):
            documents.append(node)
    except Unreadable:
        # Its problem has been added.
        pass
    return documents


def _documents(text: str, format: Format, problems: Problems, *, aliases: bool) -> Iterator[Node]:
    # Each parser is imported when it is first needed, because each needs another library.
    if format == "JSON":
        from headway.documents._json import read_json

        return read_json(text, problems)
    if format == "YAML":
        from headway.documents._yaml import read_yaml

        return read_yaml(text, problems, aliases=aliases)
    try:
        from headway.documents._hcl import read_hcl
    except ModuleNotFoundError as error:
        missing = f"cannot read HCL because {error.name} is not installed: pip install 'headway[hcl]'"
        raise problems.unreadable(Place(1, 1), "", missing) from error
    return read_hcl(text, problems)
