"""Parse JSON into nodes, with the place of every value.

The standard library only parses strings here, with its error messages: it doesn't report the places of valid values. A
text may contain several documents in sequence, on separate lines or not. The items of a top-level list are documents
too.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from itertools import count

from headway.base import Steps, finished
from headway.documents._nodes import (
    DEPTH_LIMIT,
    Mapping,
    Node,
    Place,
    Problems,
    Scalar,
    Sequence,
    TooManyValues,
    Unreadable,
    below,
    literal_scalar,
    number_scalar,
    text_scalar,
)

_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?(?![\w.+-])")
_WORD = re.compile(r"[^\s,:{}\[\]\"]+")
# Error messages of the standard library, and their replacements.
_STRING_WORDS = (
    ("Unterminated string", "the text ends inside quotes"),
    (
        "Invalid control character",
        r"a line break or another control character is not allowed in quotes: write it as \n",
    ),
    ("Invalid \\escape", r"unknown escape: write \\ for a backslash"),
    ("Invalid \\uXXXX", r"\u must be followed by four hexadecimal digits"),
)
_STRINGS = json.JSONDecoder()
_SURROGATE = re.compile("[\ud800-\udfff]")
# Words that only dialects of JSON have.
_FOREIGN = {"NaN": '"NaN"', "Infinity": '"Infinity"', "-Infinity": '"-Infinity"', "None": "null"}


def read_json(text: str, problems: Problems) -> Iterator[Node]:
    """Yield the documents of a text. Raises Unreadable at one that cannot be parsed."""
    return _Reader(text, problems).documents()


def read_only_json(text: str, problems: Problems, most: float) -> Steps[Node]:
    """Return the only document of a text.

    Args:
        text: the document.
        problems: collects what is wrong.
        most: the number of values that the lists and maps may have.

    Raises:
        Unreadable: it cannot be parsed, or something follows it.
        TooManyValues: there are more values than ``most``. Nothing after them has been parsed.
    """
    return _Reader(text, problems, most).only()


class _Reader:
    def __init__(self, text: str, problems: Problems, most: float = math.inf) -> None:
        self._text = text
        self._problems = problems
        # The number of further values.
        self._left = most
        # A byte order mark is not part of the text.
        self._at = 1 if text.startswith("\ufeff") else 0
        self._line, self._line_starts = 1, self._at
        # The index up to which lines have been counted.
        self._counted = self._at

    def documents(self) -> Iterator[Node]:
        while self._next():
            node = finished(self._node(1, ""))
            if isinstance(node, Sequence):
                yield from node.items
            else:
                yield node

    def only(self) -> Steps[Node]:
        node = yield from self._node(1, "")
        if self._next():
            raise self._refuse("expected the end of the text: only one JSON object is allowed here", "")
        return node

    def _next(self) -> str:
        """Skip blanks, and return the first character of the next token, or an empty string at the end."""
        found = _SPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._text[self._at : self._at + 1]

    def _place(self, at: int | None = None) -> Place:
        at = self._at if at is None else at
        # Places are requested in ascending order, so each part of the text is scanned only once.
        lines = self._text.count("\n", self._counted, at)
        if lines:
            self._line += lines
            self._line_starts = self._text.rindex("\n", self._counted, at) + 1
        self._counted = at
        return Place(self._line, at - self._line_starts + 1)

    def _count(self) -> None:
        """Count a value of a list or map. An empty one counts as one with a value."""
        self._left -= 1
        if self._left < 0:
            raise TooManyValues

    def _node(self, depth: int, path: str) -> Steps[Node]:
        yield
        first = self._next()
        place = self._place()
        if depth > DEPTH_LIMIT:
            raise self._refuse(f"this is nested deeper than {DEPTH_LIMIT} levels", path)
        if first == "{":
            return Mapping(place, tuple((yield from self._entries(depth, path))))
        if first == "[":
            return Sequence(place, tuple((yield from self._items(depth, path))))
        return self._string(place, path) if first == '"' else self._plain(place, path)

    def _items(self, depth: int, path: str) -> Steps[list[Node]]:
        self._at += 1
        self._count()
        items: list[Node] = []
        while not self._closed("]", first=not items, path=path):
            items.append((yield from self._node(depth + 1, below(path, len(items)))))
        return items

    def _entries(self, depth: int, path: str) -> Steps[list[tuple[Scalar, Node]]]:
        self._at += 1
        self._count()
        entries: list[tuple[Scalar, Node]] = []
        seen: dict[str, Place] = {}
        for number in count():
            if self._closed("}", first=number == 0, path=path):
                break
            if self._next() != '"':
                raise self._refuse('expected a key in "double quotes"', path)
            key = self._string(self._place(), path)
            where = below(path, key.text)
            if self._next() != ":":
                raise self._refuse("expected ':' after the key", where)
            self._at += 1
            value = yield from self._node(depth + 1, where)
            if (first := seen.setdefault(key.text, key.place)) is not key.place:
                self._problems.add(key.place, where, f"the key {key} was already given at {first}: keep one of them")
            else:
                entries.append((key, value))
        return entries

    def _closed(self, end: str, *, first: bool, path: str) -> bool:
        """Return True if a list or map ends here. Otherwise, consume the comma before its next item."""
        found = self._next()
        if found == end:
            self._at += 1
            return True
        if not first:
            if found != ",":
                raise self._refuse(f"expected ',' or '{end}'", path)
            self._at += 1
            self._count()
            if self._next() == end:
                raise self._refuse(f"unexpected ',' before '{end}': remove it", path)
        return False

    def _string(self, place: Place, path: str) -> Scalar:
        try:
            text, end = _STRINGS.raw_decode(self._text, self._at)
        except json.JSONDecodeError as error:
            words = next((words for part, words in _STRING_WORDS if part in error.msg), "this is not JSON")
            raise self._refuse(words, path, self._place(min(error.pos, len(self._text)))) from error
        if not text.isascii() and _SURROGATE.search(text):
            # It was written as an escape, or was invalid UTF-8.
            self._problems.add(
                place, path, r"half of a surrogate pair is not a character: write both, such as \ud83d\ude00"
            )
            # Not by the expression, which takes a microsecond for each.
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        self._at = end
        return text_scalar(place, text, "JSON")

    def _plain(self, place: Place, path: str) -> Scalar:
        found = _NUMBER.match(self._text, self._at)
        if found:
            self._at = found.end()
            return number_scalar(place, found.group(), "JSON")
        word = _WORD.match(self._text, self._at)
        written = word.group() if word else ""
        if (literal := literal_scalar(place, written, "JSON")) is not None:
            self._at += len(written)
            return literal
        raise self._refuse(_no_value(written, self._next()), path)

    def _refuse(self, message: str, path: str, place: Place | None = None) -> Unreadable:
        return self._problems.unreadable(place or self._place(), path, message)


def _no_value(written: str, first: str) -> str:
    if not first:
        return "expected a value, got the end of the text"
    if not written:
        return f"expected a value, got {first!r}"
    if written in _FOREIGN:
        return f"{written!r} is not JSON: write {_FOREIGN[written]}"
    if written.lower() in ("null", "true", "false"):
        return f"{written!r} is not JSON: write {written.lower()}"
    if written.startswith(("//", "/*", "#")):
        return "JSON has no comments: remove it, or write YAML"
    if written[0] in "0123456789-+.":
        return (
            "this is not a valid number in JSON: "
            "write it in decimal, without leading zeros and with digits around a point"
        )
    # Any other word may be a secret without its quotes.
    return 'this is not a valid value: write text in "double quotes"'
