"""Read a map whose keys are names that are known beforehand: a document, a type, an owner, a message."""

from __future__ import annotations

from collections.abc import Mapping as Known
from dataclasses import dataclass

from headway.manifest._nodes import Mapping, Node, Place, Problems, Scalar, below, misplaced
from headway.manifest._scalars import Unfit, text_of
from headway.resource import did_you_mean


@dataclass(frozen=True, slots=True)
class Entry:
    """A field as it was given: where its name stands, its path and its value."""

    place: Place
    path: str
    value: Node


def read_entries(
    node: Mapping,
    path: str,
    problems: Problems,
    *,
    of: str,
    spellings: Known[str, str],
    refused: Known[str, str] | None = None,
) -> dict[str, Entry]:
    """The entries by name; what is unknown, refused (with the sentence why) or given twice is a problem."""
    entries: dict[str, Entry] = {}
    for key, value in node.entries:
        where = below(path, key.text)
        name = spellings.get(key.text) if key.kind == "text" else None
        if refused and key.text in refused:
            problems.add(key.place, where, refused[key.text])
        elif name is None:
            shown = key if key.kind == "text" else f"{key} ({key.kind})"
            hint = did_you_mean(key.text, set(spellings.values()))
            problems.add(key.place, where, f"{of} has no field {shown}{hint}")
        elif name in entries:
            problems.add(
                key.place, where, f"{name} was given before, at {entries[name].place}, in another spelling: keep one"
            )
        else:
            entries[name] = Entry(key.place, where, value)
    return entries


def read_text(node: Node, path: str, problems: Problems) -> str | None:
    """The text that a node is, or None once the problem is noted."""
    if not isinstance(node, Scalar):
        problems.add(node.place, path, misplaced(node, "text"))
        return None
    try:
        return text_of(node)
    except Unfit as unfit:
        problems.add(node.place, path, str(unfit))
        return None
