"""Merge patches (RFC 7396) of documents, as nodes: what is changed keeps its place in the text of the changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headway.base import Steps
from headway.documents._nodes import (
    DEPTH_LIMIT,
    ELSEWHERE,
    Mapping,
    Node,
    Problems,
    Scalar,
    Sequence,
    literal_scalar,
    number_scalar,
    text_scalar,
)


def node_of(value: Any, problems: Problems, depth: int = 1) -> Steps[Node]:
    """Return the node of a value that JSON has, with no place. Raises Unreadable if it is nested too deep."""
    yield
    if depth > DEPTH_LIMIT:
        raise problems.unreadable(ELSEWHERE, "", f"this is nested deeper than {DEPTH_LIMIT} levels")
    if isinstance(value, dict):
        entries: list[tuple[Scalar, Node]] = []
        for key, held in value.items():
            entries.append((text_scalar(ELSEWHERE, key, "JSON"), (yield from node_of(held, problems, depth + 1))))
        return Mapping(ELSEWHERE, tuple(entries))
    if isinstance(value, list):
        items: list[Node] = []
        for held in value:
            items.append((yield from node_of(held, problems, depth + 1)))
        return Sequence(ELSEWHERE, tuple(items))
    if isinstance(value, str):
        return text_scalar(ELSEWHERE, value, "JSON")
    word = "null" if value is None else str(value).lower() if isinstance(value, bool) else ""
    return literal_scalar(ELSEWHERE, word, "JSON") or number_scalar(ELSEWHERE, repr(value), "JSON")


def merged(stored: Node | None, changes: Node) -> Node:
    """Return a node with the changes of a merge patch: null removes a member, and objects are merged."""
    if not isinstance(changes, Mapping):
        return changes
    entries = {key.text: (key, value) for key, value in stored.entries} if isinstance(stored, Mapping) else {}
    for key, change in changes.entries:
        if isinstance(change, Scalar) and change.kind == "nothing":
            entries.pop(key.text, None)
        else:
            _, before = entries.get(key.text, (key, None))
            entries[key.text] = key, merged(before, change)
    return replace(changes, entries=tuple(entries.values()))


def count_values(node: Node) -> int:
    """Return the number of values in lists and maps. An empty one counts as one with a value."""
    if isinstance(node, Scalar):
        return 0
    held = node.items if isinstance(node, Sequence) else [value for _, value in node.entries]
    return max(len(held), 1) + sum(map(count_values, held))
