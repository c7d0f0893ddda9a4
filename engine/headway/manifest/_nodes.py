"""What a document is once its format is read: scalars, lists and maps, each with its place.

Every format is read into these and everything after the reading knows only these: a format is added by a
reader of its own beside `_yaml.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from headway.errors import ManifestError, Problem

Kind = Literal["nothing", "a boolean", "a whole number", "a number", "a date", "text"]
"""What a scalar is to its format, in the words of a message."""

Format = Literal["YAML", "JSON", "HCL"]
"""What a text is written in. What a value may be follows from it: JSON has no way to write a long number."""

# The depth to which protobuf's own readers follow messages.
DEPTH_LIMIT = 100

_SHOWN = 60
_PLAIN_KEY = re.compile(r"[\w-]+\Z")


class Place(NamedTuple):
    """Where something begins. Both count from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value. ``value`` is None for nothing, for dates, and for a number that only YAML 1.1 reads as one."""

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
    """A map, in the order of the text; no key is in it twice.

    A block of HCL is a list of one where a list should stand, and ``again`` has the further blocks of its name.
    """

    place: Place
    entries: tuple[tuple[Scalar, Node], ...]
    block: bool = False
    again: tuple[Mapping, ...] = ()

    def __str__(self) -> str:
        return "a map"


Node = Scalar | Sequence | Mapping


def described(scalar: Scalar) -> str:
    """What the format takes a scalar for: ``'three' is text``, ``yes is read as a boolean``."""
    return f"{scalar} is {'' if scalar.kind == 'text' else 'read as '}{scalar.kind}"


def misplaced(node: Node, right: str, empty: str = "") -> str:
    """The sentence for a node that is of another shape than what should stand there; ``empty`` is an empty such."""
    hint = f"; write {empty} for an empty one" if empty and isinstance(node, Scalar) and node.kind == "nothing" else ""
    return f"{node} stands where {right} should{hint}"


def in_quotes(scalar: Scalar, text: str) -> str:
    """A text as the format of the scalar has it."""
    return repr(text) if scalar.format == "YAML" else json.dumps(text, ensure_ascii=False)


def alone(block: Mapping) -> Mapping:
    """A block without the further ones of its name."""
    return replace(block, again=())


def one_of(node: Mapping, path: str, problems: Problems) -> Mapping:
    """The map that a node is, where only one can be; further blocks of its name are a problem."""
    for other in node.again:
        problems.add(other.place, path, f"this block was given before, at {node.place}: keep one of them")
    return node


def inner(node: Node) -> Iterator[Node]:
    """What a node directly holds."""
    if isinstance(node, Sequence):
        yield from node.items
    elif isinstance(node, Mapping):
        for key, value in node.entries:
            yield key
            yield value


def below(path: str, key: str | int) -> str:
    """The path of what stands under ``key``."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if not _PLAIN_KEY.match(key):
        return f"{path}[{key!r}]"
    return f"{path}.{key}" if path else key


class Problems:
    """Collects everything that is wrong with one text."""

    def __init__(self, source: str) -> None:
        self._source = source
        # A dict for its order: two aliases of one value repeat what is wrong with it, unless the paths differ.
        self._found: dict[Problem, None] = {}

    def __len__(self) -> int:
        return len(self._found)

    def add(self, place: Place, path: str, message: str) -> None:
        """Note a problem and go on."""
        # What others say may quote the text, line breaks and all; a problem is one line.
        sentence = " ".join(message.splitlines())
        self._found[Problem(self._source, place.line, place.column, path, sentence)] = None

    def raise_if_any(self) -> None:
        """Raise ManifestError with all problems, in the order of the text."""
        if self._found:
            raise ManifestError(sorted(self._found, key=lambda problem: (problem.line, problem.column)))
