"""Parse YAML into nodes, with the places that the scanner reports.

The tree is built here from PyYAML's events, so that nesting and aliases are limited before they are followed. An alias
refers to its node and is never a copy. The number of nodes that aliases add is limited.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any, cast

import yaml

from headway.manifest._characters import end_of, unprintable
from headway.manifest._nodes import DEPTH_LIMIT, Mapping, Node, Place, Problems, Scalar, Sequence, below, inner
from headway.manifest._yaml_scalars import TAG, scalar_kind, scalar_of
from headway.manifest._yaml_words import syntax_message

# The number of nodes that aliases may add. Nine lines of nine aliases each ("a billion laughs") would add 10^9.
ALIASED_LIMIT = 10_000

# libyaml is ten times as fast. Both loaders are safe, since they only produce events.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Unreadable(Exception):
    """The rest of the text cannot be parsed. The problem has been added already."""


def read_yaml(text: str, problems: Problems) -> list[Node]:
    """Return the documents of a text that could be parsed, without empty ones."""
    found = list(unprintable(text))
    for place, message in found:
        problems.add(place, "", message)
    if found:
        return []
    documents: list[Node] = []
    try:
        for node in _Composer(text, problems).documents():
            if not (isinstance(node, Scalar) and node.kind == "nothing"):
                documents.append(node)
    except _Unreadable:
        pass
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        # The scanners put the end on its own line, which may not exist in the text.
        end = end_of(text)
        problems.add(min(_place(mark), end) if mark else end, "", syntax_message(error))
    except yaml.YAMLError as error:
        problems.add(Place(1, 1), "", f"this is not YAML: {error}")
    return documents


def _place(mark: Any) -> Place:
    return Place(mark.line + 1, mark.column + 1)


class _Composer:
    def __init__(self, text: str, problems: Problems) -> None:
        self._events: Iterator[yaml.Event] = yaml.parse(text, Loader=_LOADER)
        self._problems = problems
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
            raise self._refuse(place, path, f"this is nested deeper than {DEPTH_LIMIT} levels")
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
        kind = scalar_kind(event)
        if kind is None:
            self._problems.add(place, path, _bad_tag(event.tag))
        return scalar_of(place, kind or "text", event)

    def _check_tag(self, event: Any, right: str, place: Place, path: str) -> None:
        if event.tag not in (None, "!", TAG + right):
            self._problems.add(place, path, _bad_tag(event.tag))

    def _alias(self, anchor: str, place: Place, depth: int, path: str) -> Node:
        if anchor not in self._anchors:
            raise self._refuse(place, path, f"the alias *{anchor} is undefined: no &{anchor} precedes it")
        node = self._anchors[anchor]
        if node is None:
            raise self._refuse(place, path, f"the alias *{anchor} is inside the value that it refers to")
        self._weigh(node, place, depth, path)
        return node

    def _weigh(self, node: Node, place: Place, depth: int, path: str) -> None:
        """Count the nodes that an alias adds. Counting stops at the limits, however many there are."""
        self._aliased += 1
        if self._aliased > ALIASED_LIMIT:
            raise self._refuse(place, path, f"aliases add more than {ALIASED_LIMIT} values to this text")
        if depth > DEPTH_LIMIT:
            raise self._refuse(place, path, f"with its aliases this is nested deeper than {DEPTH_LIMIT} levels")
        for held in inner(node):
            self._weigh(held, place, depth + 1, path)

    def _refuse(self, place: Place, path: str, message: str) -> _Unreadable:
        self._problems.add(place, path, message)
        return _Unreadable(message)


def _identity(key: Scalar) -> tuple[str, object]:
    return key.kind, key.text if key.value is None else key.value


def _bad_tag(tag: str) -> str:
    shown = tag.replace(TAG, "!!") if tag.startswith(TAG) else tag
    return f"the tag {shown} is not allowed: a manifest holds plain values only, so remove it"
