"""Read the nodes of maps with known fields: any such map as entries, and the map under ``data`` as a payload."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping as Known
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from headway.base import Steps
from headway.documents import Mapping, Node, Place, Problems, Scalar, Sequence, alone, below, one_of, withheld
from headway.manifest._fields import Element, Field, fields_of
from headway.manifest._scalars import Unfit, convert, expected
from headway.protobuf import holds_secrets, secret_fields, secret_values, without_secrets
from headway.resource import did_you_mean

_TEXT = Element("string")


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
            hint = "" if problems.full else did_you_mean(key.text, _known(key, spellings))
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
        problems.add_misplaced(node, path, "text")
        return None
    try:
        text: str = convert(_TEXT, node)
    except Unfit as unfit:
        problems.add(node.place, path, str(unfit))
        return None
    return text


def read_key(key: Scalar, path: str, problems: Problems, element: Element = _TEXT) -> Any:
    """Return the value of a key of the map at a path, or None after adding a problem."""
    try:
        return convert(element, key)
    except Unfit as unfit:
        problems.add(key.place, below(path, key.text), f"as a key, {unfit}")
        return None


def read_message(cls: type[Any], node: Node, path: str, problems: Problems) -> Steps[Any]:
    """Return the message of a node, or None after adding its problems. There is a step for each value.

    The problems quote no values if the class has secrets: a secret may be in the wrong field.
    """
    return _read_message(cls, withheld(node) if holds_secrets(cls) else node, path, problems)


def _read_message(cls: type[Any], node: Node, path: str, problems: Problems) -> Steps[Any]:
    yield
    if not isinstance(node, Mapping):
        problems.add_misplaced(node, path, f"a map of {cls.__name__}'s fields", "{}")
        return None
    before = len(problems)
    fields = fields_of(cls)
    entries = read_entries(node, path, problems, of=cls.__name__, spellings=fields.spellings)
    values: dict[str, Any] = {}
    arms: dict[str, str] = {}
    for name, entry in entries.items():
        field = fields.by_name[name]
        if is_unset(field, entry.value):
            continue
        if field.group is not None and (rival := arms.setdefault(field.group, name)) != name:
            problems.add(
                entry.place,
                entry.path,
                f"only one of {field.group} can be set, and {rival} is set at {entries[rival].place}: keep one of them",
            )
        values[name] = yield from _field(field, entry, problems)
    return None if len(problems) > before else _made(cls, values, node, path, problems)


def is_unset(field: Field, node: Node) -> bool:
    """Return True if a node says that a field is not set."""
    # In JSON, null is the default of any field, as for protobuf's own parsers.
    if not isinstance(node, Scalar) or node.kind != "nothing":
        return False
    return field.shape == "optional" or node.format == "JSON"


def _made(cls: type[Any], values: dict[str, Any], node: Node, path: str, problems: Problems) -> Any:
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:
        # A class may validate its fields in its constructor, and quote them.
        secrets = [each for name in secret_fields(cls) for each in _flat(values.get(name))]
        secrets += [each for value in values.values() for held in _flat(value) for each in secret_values(held).values()]
        text = without_secrets(str(error), secrets)
        problems.add(node.place, path, f"{cls.__name__} rejected these fields: {text}")
        return None


def _flat(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*value.values()]
    return value if isinstance(value, list) else [value]


def _field(field: Field, entry: Entry, problems: Problems) -> Steps[Any]:
    if not field.secret:
        return (yield from _read_field(field, entry, problems))
    # The problem of a secret must not quote it.
    own = Problems("")
    read = yield from _read_field(field, entry, own)
    if len(own):
        shape = {"repeated": "a list of ", "map": "a map with values such as "}.get(field.shape, "")
        right = f"expected {shape}{expected(field.element)}"
        problems.add(entry.place, entry.path, f"{right}; the value is secret, and is not quoted here")
    return read


def _read_field(field: Field, entry: Entry, problems: Problems) -> Steps[Any]:
    node, path = entry.value, entry.path
    if field.shape == "repeated":
        if isinstance(node, Mapping) and node.block:
            node = Sequence(node.place, (alone(node), *node.again))
        if not isinstance(node, Sequence):
            problems.add_misplaced(node, path, "a list", "[]")
            return None
        made: list[Any] = []
        for n, item in enumerate(node.items):
            made.append((yield from _element(field.element, item, below(path, n), problems)))
        return made
    if field.key is not None:
        if not isinstance(node, Mapping):
            problems.add_misplaced(node, path, "a map", "{}")
            return None
        pairs = one_of(node, path, problems).entries
        return (yield from _map(field.key, field.element, pairs, path, problems))
    return (yield from _element(field.element, node, path, problems))


def _map(
    key: Element, element: Element, pairs: Iterable[tuple[Scalar, Node]], path: str, problems: Problems
) -> Steps[dict[Any, Any]]:
    made: dict[Any, Any] = {}
    places: dict[Any, Place] = {}
    for name, value in pairs:
        where = below(path, name.text)
        read = read_map_key(key, name, path, problems)
        item = yield from _element(element, value, where, problems)
        # The parser finds the same text twice, but 1 and 01 in quotes are the same number.
        if read is not None and (first := places.setdefault(read, name.place)) is not name.place:
            problems.add(name.place, where, f"{read} was already given at {first} in another spelling: keep one")
        made[read] = item
    return made


def read_map_key(key: Element, name: Scalar, path: str, problems: Problems) -> Any:
    """Return the key of an entry in a map of a message, or None after adding a problem."""
    written = name if key.kind == "string" or name.format == "YAML" else name.unquoted()
    return read_key(written, path, problems, key)


def _element(element: Element, node: Node, path: str, problems: Problems) -> Steps[Any]:
    if element.message is not None:
        message = yield from _read_message(element.message, node, path, problems)
        return message.to_wrapped() if element.wrapped and message is not None else message
    yield
    if not isinstance(node, Scalar):
        problems.add(node.place, path, f"expected a single value, got {node}; write {expected(element)}")
        return None
    try:
        return convert(element, node)
    except Unfit as unfit:
        problems.add(node.place, path, str(unfit))
        return None
