"""The nodes of a parsed document: scalars, lists and maps, each with its place; and the problems found in them.

Every format is parsed into these nodes, and all further processing uses only them. To add a format, write a parser like
`_yaml.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from headway.base import bounded
from headway.errors import ManifestError, Problem

Kind = Literal["nothing", "a boolean", "a whole number", "a number", "a date", "text"]
"""The kind of a scalar in its format, as worded in problems."""

Format = Literal["YAML", "JSON", "HCL"]
"""The format of a text. Some rules for values depend on it: JSON needs quotes for long numbers."""

# The nesting limit of protobuf's own parsers.
DEPTH_LIMIT = 100

# Longer numbers are always out of range, and Python refuses to parse very long ones.
LONGEST_NUMBER = 400
_SHOWN = 60
# The limits on the problems that are kept of a text, because a stranger may have written it.
_MOST_PROBLEMS = 100
_LONGEST_MESSAGE = 1_000
_LONGEST_PATH = 400
# A path is made for each value, so a long key must not be copied into the paths of all values below it.
_LONGEST_KEY = 100
# Also one that `below` has cut off.
_PLAIN_KEY = re.compile(r"[\w-]+…?\Z")
_WHOLE = re.compile(r"[-+]?\d+\Z", re.ASCII)
_JSON_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?\Z", re.ASCII)
# Each digit can match in one way only. Otherwise a long text that is not a number would take quadratic time.
_DECIMAL = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?\Z")
_YAML_ENDLESS = {".inf": "inf", "+.inf": "inf", "-.inf": "-inf", ".nan": "nan"}
_JSON_ENDLESS = ("NaN", "Infinity", "-Infinity")
# The words of JSON and HCL.
_LITERALS: dict[str, tuple[Kind, bool | None]] = {
    "null": ("nothing", None),
    "true": ("a boolean", True),
    "false": ("a boolean", False),
}


class Place(NamedTuple):
    """A position in a text. The line and the column count from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}" if self.line else "a place outside of this text"


ELSEWHERE = Place(0, 0)
"""The place of a value that is in no text."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value. ``value`` is None for null, for dates, and for a number that only YAML 1.1 reads as a number.

    If it is ``withheld``, problems don't quote it: it may be a secret.
    """

    place: Place
    kind: Kind
    text: str
    value: bool | int | float | str | None
    quoted: bool = False
    format: Format = "YAML"
    withheld: bool = False

    def __str__(self) -> str:
        if self.withheld and self.kind != "nothing":
            return "this value"
        shown = self.text if len(self.text) <= _SHOWN else f"{self.text[:_SHOWN]}…"
        return repr(shown) if self.kind == "text" else shown or "nothing"

    def described(self) -> str:
        """Describe the value and its kind: ``'three' is text``, ``yes is read as a boolean``."""
        return f"{self} is {'' if self.kind == 'text' else 'read as '}{self.kind}"

    def in_quotes(self, unit: str = "") -> str:
        """Return the value in quotes, as its format writes them, with a unit after it."""
        text = f"{'…' if self.withheld else self.text}{unit}"
        return repr(text) if self.format == "YAML" else json.dumps(text, ensure_ascii=False)

    def unquoted(self) -> Scalar:
        """Return a number or boolean without its quotes, where the format requires them.

        The keys of JSON and HCL are always quoted, and so are 64-bit and non-finite numbers in protobuf's JSON form.
        """
        text = self.text
        if self.kind != "text" or not self.quoted:
            return self
        kind: Kind = self.kind
        value: bool | int | float | str | None = self.value
        if text in ("true", "false"):
            kind, value = _LITERALS[text]
        elif text in _JSON_ENDLESS:
            kind, value = "a number", float(text)
        elif _WHOLE.match(text):
            kind, value = "a whole number", whole_number(text)
        elif _JSON_NUMBER.match(text):
            kind, value = "a number", float(text)
        return replace(self, kind=kind, value=value, quoted=False)


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


def text_scalar(place: Place, text: str, format: Format) -> Scalar:
    """Return a text in the quotes of JSON or HCL."""
    return Scalar(place, "text", text, text, quoted=True, format=format)


def number_scalar(place: Place, written: str, format: Format) -> Scalar:
    """Return a decimal number, as JSON and HCL write it."""
    if written.removeprefix("-").isdigit():
        return Scalar(place, "a whole number", written, whole_number(written), format=format)
    return Scalar(place, "a number", written, float(written), format=format)


def literal_scalar(place: Place, word: str, format: Format) -> Scalar | None:
    """Return the value of ``null``, ``true`` or ``false`` in JSON and HCL, or None for another word."""
    if word not in _LITERALS:
        return None
    kind, value = _LITERALS[word]
    return Scalar(place, kind, word, value, format=format)


def whole_number(text: str) -> int | None:
    """Return a whole number, or None if it is so long that every field rejects it."""
    return int(text) if len(text) < LONGEST_NUMBER else None


def decimal(text: str) -> float | None:
    """Return the decimal number in a text of YAML, or None. PyYAML takes some of these numbers for text."""
    endless = _YAML_ENDLESS.get(text.lower())
    return float(endless or text) if endless or _DECIMAL.match(text) else None


def alone(block: Mapping) -> Mapping:
    """Return a block without the further blocks of the same name."""
    return replace(block, again=())


def withheld(node: Node) -> Node:
    """Return a copy of a node whose values are not quoted in problems. The keys of its maps are."""
    if isinstance(node, Scalar):
        return replace(node, withheld=True)
    if isinstance(node, Sequence):
        return replace(node, items=tuple(map(withheld, node.items)))
    return _withheld_map(node)


def _withheld_map(node: Mapping) -> Mapping:
    entries = tuple((key, withheld(value)) for key, value in node.entries)
    return replace(node, entries=entries, again=tuple(map(_withheld_map, node.again)))


def one_of(node: Mapping, path: str, problems: Problems) -> Mapping:
    """Return a node where only one map is allowed. Further blocks of the same name are problems."""
    for other in node.again:
        problems.add(other.place, path, f"this block was already given at {node.place}: keep one of them")
    return node


def below(path: str, key: str | int) -> str:
    """Return the path of the value at ``key``. Of a long key it has the beginning."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if len(key) > _LONGEST_KEY:
        # The beginning is kept, because secrets are recognized by how they begin.
        key = f"{key[:_LONGEST_KEY]}…"
    if not _PLAIN_KEY.match(key):
        return f"{path}[{key!r}]"
    return f"{path}.{key}" if path else key


class Unreadable(Exception):
    """The rest of a text cannot be parsed. Its problem has been added."""


class TooManyValues(Exception):
    """A text has more values than its reader allows."""


class Problems:
    """Collects the problems of one text: the first 100, and the number of the others.

    Long messages and paths are cut off.

    Args:
        source: the name of the text.
        redact: removes secrets from a message or a path.
    """

    def __init__(self, source: str, redact: Callable[[str], str] = str) -> None:
        self._source = source
        self._redact = redact
        # A dict removes duplicates and keeps the order: two aliases of a value with the same path repeat its problems.
        self._found: dict[Problem, None] = {}
        self._more = 0

    def __len__(self) -> int:
        return len(self._found) + self._more

    @property
    def full(self) -> bool:
        """True if further problems are only counted, so that their messages need not be made."""
        return len(self._found) >= _MOST_PROBLEMS

    def add(self, place: Place, path: str, message: str) -> None:
        """Add a problem, or only count it if there are too many."""
        if self.full:
            self._more += 1
            return
        # Messages of other libraries may quote line breaks of the text, but a problem must be one line.
        sentence = " ".join(self._redact(message).splitlines())
        sentence = bounded(sentence, _LONGEST_MESSAGE)
        where = self._redact(path)
        if len(where) > _LONGEST_PATH:
            # The end says the most.
            where = f"…{where[-_LONGEST_PATH:]}"
        self._found[Problem(self._source, place.line, place.column, where, sentence)] = None

    def add_misplaced(self, node: Node, path: str, right: str, empty: str = "") -> None:
        """Add the problem of a node of the wrong shape. ``empty`` is how to write an empty value of the right shape."""
        nothing = isinstance(node, Scalar) and node.kind == "nothing"
        hint = f"; write {empty} for an empty one" if empty and nothing else ""
        self.add(node.place, path, f"expected {right}, got {node}{hint}")

    def unreadable(self, place: Place, path: str, message: str) -> Unreadable:
        """Add a problem after which the text cannot be parsed any further, and return the exception to raise."""
        self.add(place, path, message)
        return Unreadable(message)

    def raise_if_any(self) -> None:
        """Raise ManifestError with the problems, in the order of the text."""
        if self._found:
            raise ManifestError(sorted(self._found, key=lambda problem: (problem.line, problem.column)), self._more)


_UNPRINTABLE = re.compile("[^\t\n\r -~\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


def end_of(text: str) -> Place:
    """Return the position after the last character of a text."""
    lines = _BREAK.split(text)
    return Place(len(lines), len(lines[-1]) + 1)


def check_characters(text: str, problems: Problems) -> None:
    """Raise Unreadable at the first character that is not allowed in YAML or HCL."""
    # A byte order mark at the very beginning is not part of the text.
    found = _UNPRINTABLE.search(text.removeprefix("\ufeff"))
    if found is not None:
        place = end_of(found.string[: found.start()])
        message = f"the character U+{ord(found.group()):04X} is not allowed: write it as an escape in double quotes"
        raise problems.unreadable(place, "", message)
