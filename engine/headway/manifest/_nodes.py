"""The nodes of a parsed document: scalars, lists and maps, each with its place.

Every format is parsed into these nodes, and all further processing uses only them. To add a format, write a parser like
`_yaml.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from headway.errors import ManifestError, Problem

Kind = Literal["nothing", "a boolean", "a whole number", "a number", "a date", "text"]
"""The kind of a scalar in its format, as worded in problems."""

Format = Literal["YAML", "JSON", "HCL"]
"""The format of a text. Some rules for values depend on it: JSON needs quotes for long numbers."""

# The nesting limit of protobuf's own parsers.
DEPTH_LIMIT = 100

_SHOWN = 60
_PLAIN_KEY = re.compile(r"[\w-]+\Z")


class Place(NamedTuple):
    """A position in a text. The line and the column count from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value. ``value`` is None for null, for dates, and for a number that only YAML 1.1 reads as a number."""

    place: Place
    kind: Kind
    text: str
    value: bool | int | float | str | None
    quoted: bool = False
    format: Format = "YAML"

    def __str__(self) -> str:
        shown = self.text if len(self.text) <= _SHOWN else f"{self.text[:_SHOWN]}…"
        return repr(shown) if self.kind == "text" else shown or "nothing"


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list."""

    place: Place
    items: tuple[Node, ...]

    def __str__(self) -> str:
        return "a list"


@dataclass(frozen=True, slots=True)
class Mapping:
    """A map, in the order of the text, without duplicate keys.

    ``block`` is True for an HCL block, which can also be an item of a list. ``again`` has the further blocks with the
    same name.
    """

    place: Place
    entries: tuple[tuple[Scalar, Node], ...]
    block: bool = False
    again: tuple[Mapping, ...] = ()

    def __str__(self) -> str:
        return "a map"


Node = Scalar | Sequence | Mapping


def described(scalar: Scalar) -> str:
    """Describe the kind of a scalar in its format: ``'three' is text``, ``yes is read as a boolean``."""
    return f"{scalar} is {'' if scalar.kind == 'text' else 'read as '}{scalar.kind}"


def misplaced(node: Node, right: str, empty: str = "") -> str:
    """Return the message for a node of the wrong shape. ``empty`` is how to write an empty value of the right shape."""
    hint = f"; write {empty} for an empty one" if empty and isinstance(node, Scalar) and node.kind == "nothing" else ""
    return f"expected {right}, got {node}{hint}"


def in_quotes(scalar: Scalar, text: str) -> str:
    """Return a text in quotes, in the format of the scalar."""
    return repr(text) if scalar.format == "YAML" else json.dumps(text, ensure_ascii=False)


def alone(block: Mapping) -> Mapping:
    """Return a block without the further blocks of the same name."""
    return replace(block, again=())


def one_of(node: Mapping, path: str, problems: Problems) -> Mapping:
    """Return a node where only one map is allowed. Further blocks of the same name are problems."""
    for other in node.again:
        problems.add(other.place, path, f"this block was already given at {node.place}: keep one of them")
    return node


def inner(node: Node) -> Iterator[Node]:
    """Yield the direct children of a node."""
    if isinstance(node, Sequence):
        yield from node.items
    elif isinstance(node, Mapping):
        for key, value in node.entries:
            yield key
            yield value


def below(path: str, key: str | int) -> str:
    """Return the path of the value at ``key``."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if not _PLAIN_KEY.match(key):
        return f"{path}[{key!r}]"
    return f"{path}.{key}" if path else key


class Problems:
    """Collects all problems of one text."""

    def __init__(self, source: str) -> None:
        self._source = source
        # A dict removes duplicates and keeps the order: two aliases of a value with the same path repeat its problems.
        self._found: dict[Problem, None] = {}

    def __len__(self) -> int:
        return len(self._found)

    def add(self, place: Place, path: str, message: str) -> None:
        """Add a problem."""
        # Messages of other libraries may quote line breaks of the text, but a problem must be one line.
        sentence = " ".join(message.splitlines())
        self._found[Problem(self._source, place.line, place.column, path, sentence)] = None

    def raise_if_any(self) -> None:
        """Raise ManifestError with all problems, in the order of the text."""
        if self._found:
            raise ManifestError(sorted(self._found, key=lambda problem: (problem.line, problem.column)))
