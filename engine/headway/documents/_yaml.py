"""Parse YAML into nodes, with the places that the scanner reports.

The tree is built here from PyYAML's events, so that nesting and aliases are limited before they are followed. An alias
refers to its node and is never a copy. The number of nodes that aliases add is limited.

A scalar has the kind that the rules of YAML 1.1 in PyYAML give it, but it has a value only if the value is unambiguous.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from typing import Any, cast

import yaml
from yaml.resolver import Resolver

from headway.documents._nodes import (
    DEPTH_LIMIT,
    LONGEST_NUMBER,
    Kind,
    Mapping,
    Node,
    Place,
    Problems,
    Scalar,
    Sequence,
    below,
    check_characters,
    decimal,
    end_of,
)

# The number of nodes that aliases may add. Nine lines of nine aliases each ("a billion laughs") would add 10^9.
_ALIASED_LIMIT = 10_000

_TAG = "tag:yaml.org,2002:"
# A secret may begin with one of these characters, so neither a tag nor the name of an alias is quoted.
_BAD_TAG = "a tag is not allowed: remove it, or put text that begins with '!' in quotes"
_UNDEFINED = "this alias has no anchor before it: put text that begins with '*' in quotes"
_KINDS: dict[str, Kind] = {
    f"{_TAG}null": "nothing",
    f"{_TAG}bool": "a boolean",
    f"{_TAG}int": "a whole number",
    f"{_TAG}float": "a number",
    f"{_TAG}timestamp": "a date",
    f"{_TAG}str": "text",
    # `<<` and `=` are text as values. As a key, `<<` is rejected when a map is read.
    f"{_TAG}merge": "text",
    f"{_TAG}value": "text",
}
# Without `012` (octal), `1:30` (ninety) and `1_000`, which other YAML parsers interpret differently.
_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]*|0x[0-9a-fA-F]+)\Z")

# Any, because the methods are untyped in PyYAML's stubs.
_RESOLVER: Any = Resolver()


def read_yaml(text: str, problems: Problems, *, aliases: bool) -> Iterator[Node]:
    """Yield the documents of a text, without empty ones. Raises Unreadable at one that cannot be parsed."""
    check_characters(text, problems)
    try:
        for node in _Composer(text, problems, aliases=aliases).documents():
            if not (isinstance(node, Scalar) and node.kind == "nothing"):
                yield node
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        # The scanners put the end on its own line, which may not exist in the text.
        end = end_of(text)
        problems.add(min(_place(mark), end) if mark else end, "", _syntax_message(error))
    except yaml.YAMLError:
        problems.add(Place(1, 1), "", "this is not YAML")


def _place(mark: Any) -> Place:
    return Place(mark.line + 1, mark.column + 1)


class _Composer:
    def __init__(self, text: str, problems: Problems, *, aliases: bool) -> None:
        # libyaml is ten times as fast. Both loaders are safe, since they only produce events.
        loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        self._events: Iterator[yaml.Event] = yaml.parse(text, Loader=loader)
        self._problems = problems
        self._may_alias = aliases
        # The value is None while the anchored node is being read.
        self._anchors: dict[str, Node | None] = {}
        self._aliased = 0

    def documents(self) -> Iterator[Node]:
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                self._anchors = {}
                yield self._node(next(self._events), 1, "")

    def _node(self, event: Any, depth: int, path: str) -> Node:
        place = _place(event.start_mark)
        if depth > DEPTH_LIMIT:
            raise self._problems.unreadable(place, path, f"this is nested deeper than {DEPTH_LIMIT} levels")
        if isinstance(event, yaml.AliasEvent):
            return self._alias(cast("str", event.anchor), place, depth, path)
        anchor: str | None = event.anchor
        if anchor is not None:
            self._anchors[anchor] = None
        node: Node
        if isinstance(event, yaml.ScalarEvent):
            node = self._scalar(event, place, path)
        elif isinstance(event, yaml.SequenceStartEvent):
            self._check_tag(event, "seq", place, path)
            node = Sequence(place, tuple(self._items(depth + 1, path)))
        else:
            self._check_tag(event, "map", place, path)
            node = Mapping(place, tuple(self._entries(depth + 1, path)))
        if anchor is not None:
            self._anchors[anchor] = node
        return node

    def _items(self, depth: int, path: str) -> Iterator[Node]:
        for number in count():
            event = next(self._events)
            if isinstance(event, yaml.SequenceEndEvent):
                return
            yield self._node(event, depth, below(path, number))

    def _entries(self, depth: int, path: str) -> Iterator[tuple[Scalar, Node]]:
        seen: dict[tuple[str, object], Place] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            # If the key is an alias, its place is the place of the alias.
            place = _place(event.start_mark)
            key = self._node(event, depth, path)
            where = below(path, key.text) if isinstance(key, Scalar) else path
            value = self._node(next(self._events), depth, where)
            if not isinstance(key, Scalar):
                self._problems.add(place, path, f"{key} can't be a key; use text, a number or a boolean")
            elif key.text == "<<" and not key.quoted:
                self._problems.add(place, path, "merging with '<<' is not supported: write the fields out")
            elif (first := seen.setdefault(_identity(key), place)) is not place:
                self._problems.add(place, where, f"the key {key} was already given at {first}: keep one of them")
            else:
                yield key, value

    def _scalar(self, event: Any, place: Place, path: str) -> Scalar:
        text: str = event.value
        kind = _kind(event)
        if kind is None:
            self._problems.add(place, path, _BAD_TAG)
            kind = "text"
        return Scalar(place, kind, text, _value(kind, text), quoted=event.tag is not None or not event.implicit[0])

    def _check_tag(self, event: Any, right: str, place: Place, path: str) -> None:
        if event.tag not in (None, "!", _TAG + right):
            self._problems.add(place, path, _BAD_TAG)

    def _alias(self, anchor: str, place: Place, depth: int, path: str) -> Node:
        if not self._may_alias:
            message = "an alias is not allowed here: text that begins with '*' must be in quotes"
            raise self._problems.unreadable(place, path, message)
        if anchor not in self._anchors:
            raise self._problems.unreadable(place, path, _UNDEFINED)
        node = self._anchors[anchor]
        if node is None:
            raise self._problems.unreadable(place, path, "this alias is inside the value that it refers to")
        self._weigh(node, place, depth, path)
        return node

    def _weigh(self, node: Node, place: Place, depth: int, path: str) -> None:
        """Count the nodes that an alias adds. Counting stops at the limits, however many there are."""
        self._aliased += 1
        if self._aliased > _ALIASED_LIMIT:
            raise self._problems.unreadable(place, path, f"aliases add more than {_ALIASED_LIMIT} values to this text")
        if depth > DEPTH_LIMIT:
            raise self._problems.unreadable(
                place, path, f"with its aliases this is nested deeper than {DEPTH_LIMIT} levels"
            )
        for held in _children(node):
            self._weigh(held, place, depth + 1, path)


def _children(node: Node) -> Iterator[Node]:
    if isinstance(node, Sequence):
        yield from node.items
    elif isinstance(node, Mapping):
        for key, value in node.entries:
            yield key
            yield value


def _identity(key: Scalar) -> tuple[str, object]:
    return key.kind, key.text if key.value is None else key.value


def _kind(event: Any) -> Kind | None:
    """Return the kind of a scalar, or None if its tag requires another kind."""
    implied: str = _RESOLVER.resolve(yaml.ScalarNode, event.value, (True, False))
    if event.tag is None:
        if not event.implicit[0]:
            return "text"
        # `1e3` and `08` are text in YAML 1.1, but people read them as numbers.
        kind = _KINDS[implied]
        return "a number" if kind == "text" and decimal(event.value) is not None else kind
    if event.tag in ("!", f"{_TAG}str"):
        return "text"
    # PyYAML has one more kind, for `*`, `&` and `!`, which only a tag can give.
    return _KINDS.get(implied) if event.tag == implied else None


def _value(kind: Kind, text: str) -> bool | int | float | str | None:
    if kind == "text":
        return text
    if kind == "a boolean":
        return text.lower() in ("yes", "true", "on")
    if kind == "a whole number":
        return int(text, 0) if _WHOLE.match(text) and len(text) < LONGEST_NUMBER else None
    return decimal(text) if kind == "a number" else None


# The first phrase found in the original message decides. PyYAML's two scanners word some errors differently.
_WORDS = (
    (
        "mapping values are not allowed",
        "unexpected ': ': quote the text that contains it, or fix the indentation",
    ),
    ("block sequence entries are not allowed", "unexpected '- ': start the list on its own line"),
    ("unexpected ':'", "unexpected ':': quote the text that contains it, or write a space after it"),
    ("cannot start any token", "a value can't begin with this character: quote the value (tabs can't indent)"),
    ("expected ',' or ']'", "expected ',' or ']' in a list in brackets"),
    ("expected ',' or '}'", "expected ',' or '}' in a map in braces"),
    ("unexpected end of stream", "the text ends inside quotes"),
    # The scanner reads ahead of the events. A newer libyaml has a limit of its own, above ours.
    ("maximum nesting depth", f"this is nested deeper than {DEPTH_LIMIT} levels"),
    ("could not find expected ':'", "expected ':' after a key"),
    (
        "expected '-' indicator",
        "expected '- ' for the next item of a list, or the indentation differs from the lines above",
    ),
    ("expected key", "unexpected key: the indentation differs from the lines above, or a quote is missing"),
    ("expected <block end>", "the indentation differs from the lines above, or a quote is missing"),
    ("expected node content", "expected a value"),
    ("expected the node content", "expected a value"),
    ("unknown escape character", 'unknown escape in "double quotes": write \\\\ for a backslash, or use single quotes'),
    ("invalid Unicode character", "this escape is not a valid character"),
    ("expected hexdecimal number", "expected hexadecimal digits in this escape"),
    ("undefined tag handle", "only plain values are allowed: remove the tag, or quote the text"),
    ("expected <document start>", "expected '---' on its own line before a new document"),
    ("expected alphabetic or numeric character", "expected a name after '&' or '*': quote the text"),
    ("tab character", "tabs can't indent: use spaces"),
    ("incompatible YAML document", "this version of YAML is not supported: remove the line with %YAML"),
)


def _syntax_message(error: yaml.MarkedYAMLError) -> str:
    """Return the message for a syntax error, with the place where the invalid value began, if it is another."""
    problem = error.problem or error.context or "it cannot be parsed"
    # No other problem of the library is told, because it may quote the text.
    words = next((words for part, words in _WORDS if part in problem), "this is not YAML")
    begun, found = error.context_mark, error.problem_mark
    if begun is None or found is None or (begun.line, begun.column) == (found.line, found.column):
        return words
    return f"{words} (it began at {Place(begun.line + 1, begun.column + 1)})"
