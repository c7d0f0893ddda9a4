"""Read a map with a fixed set of keys: a document, a type, an owner or a message."""

from __future__ import annotations

from collections.abc import Mapping as Known
from dataclasses import dataclass
from functools import lru_cache

from headway.manifest._nodes import Mapping, Node, Place, Problems, Scalar, below, misplaced, one_of
from headway.manifest._scalars import Unfit, text_of
from headway.resource import did_you_mean


@dataclass(frozen=True, slots=True)
class Entry:
    """A field of a map: the place of its name, its path and its value."""

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
    """Return the entries by name.

    Unknown fields, duplicate fields and those in ``refused``, which maps names to error messages, are problems.
    """
    entries: dict[str, Entry] = {}
    for key, value in one_of(node, path, problems).entries:
        where = below(path, key.text)
        name = _name(key, spellings)
        if refused and key.text in refused:
            problems.add(key.place, where, refused[key.text])
        elif name is None:
            shown = key if key.kind == "text" else f"{key} ({key.kind})"
            hint = did_you_mean(key.text, _known(key, spellings))
            problems.add(key.place, where, f"{of} has no field {shown}{hint}")
        elif name in entries:
            problems.add(
                key.place, where, f"{name} was already given at {entries[name].place} in another spelling: keep one"
            )
        else:
            entries[name] = Entry(key.place, where, value)
    return entries


def _name(key: Scalar, spellings: Known[str, str]) -> str | None:
    if key.kind != "text":
        return None
    name = spellings.get(key.text)
    if name is None and key.format == "HCL":
        name = _capitalised(tuple(spellings.items())).get(key.text)
    return name


def _known(key: Scalar, spellings: Known[str, str]) -> set[str]:
    if key.format == "HCL" and key.text[:1].isupper():
        # Suggest the spelling that such a file uses.
        return set(_capitalised(tuple((name, name) for name in spellings.values())))
    return set(spellings.values())


@lru_cache(maxsize=256)
def _capitalised(spellings: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Return the names in the Go style of HCL files: ClusterID for cluster_id, and ClusterId too."""
    names: dict[str, str] = {}
    for spelling, name in spellings:
        words = [word for word in spelling.split("_") if word]
        names["".join(word[:1].upper() + word[1:] for word in words)] = name
        names["".join(word.upper() if word in _ACRONYMS else word[:1].upper() + word[1:] for word in words)] = name
    return names


_ACRONYMS = {"id", "tcp", "udp", "http"}


def read_text(node: Node, path: str, problems: Problems) -> str | None:
    """Return the text of a node, or None after adding a problem."""
    if not isinstance(node, Scalar):
        problems.add(node.place, path, misplaced(node, "text"))
        return None
    try:
        return text_of(node)
    except Unfit as unfit:
        problems.add(node.place, path, str(unfit))
        return None
