"""Convert the nodes under ``data`` to a payload."""

from __future__ import annotations

from typing import Any

from headway.manifest._entries import Entry, read_entries
from headway.manifest._fields import Element, Field, fields_of
from headway.manifest._nodes import Mapping, Node, Problems, Scalar, Sequence, alone, below, misplaced, one_of
from headway.manifest._scalars import Unfit, convert, expected, unquoted


def read_message(cls: type[Any], node: Node, path: str, problems: Problems) -> Any:
    """Return the message of a node, or None after adding its problems."""
    if not isinstance(node, Mapping):
        problems.add(node.place, path, misplaced(node, f"a map of {cls.__name__}'s fields", "{}"))
        return None
    before = len(problems)
    fields = fields_of(cls)
    entries = read_entries(node, path, problems, of=cls.__name__, spellings=fields.spellings)
    values: dict[str, Any] = {}
    arms: dict[str, str] = {}
    for name, entry in entries.items():
        field = fields.by_name[name]
        if field.shape == "optional" and isinstance(entry.value, Scalar) and entry.value.kind == "nothing":
            continue
        if field.group is not None and (rival := arms.setdefault(field.group, name)) != name:
            problems.add(
                entry.place,
                entry.path,
                f"only one of {field.group} can be set, and {rival} is set at {entries[rival].place}: keep one of them",
            )
        values[name] = _field(field, entry, problems)
    return None if len(problems) > before else _made(cls, values, node, path, problems)


def _made(cls: type[Any], values: dict[str, Any], node: Node, path: str, problems: Problems) -> Any:
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:
        # A class may validate its fields in its constructor.
        problems.add(node.place, path, f"{cls.__name__} rejected these fields: {error}")
        return None


def _field(field: Field, entry: Entry, problems: Problems) -> Any:
    node, path = entry.value, entry.path
    if field.shape == "repeated":
        if isinstance(node, Mapping) and node.block:
            node = Sequence(node.place, (alone(node), *node.again))
        if not isinstance(node, Sequence):
            problems.add(node.place, path, misplaced(node, "a list", "[]"))
            return None
        return [_element(field.element, item, below(path, n), problems) for n, item in enumerate(node.items)]
    if field.key is not None:
        if not isinstance(node, Mapping):
            problems.add(node.place, path, misplaced(node, "a map", "{}"))
            return None
        pairs = one_of(node, path, problems).entries
        return dict(_map_entry(field.key, field.element, *pair, path, problems) for pair in pairs)
    return _element(field.element, node, path, problems)


def _map_entry(
    key: Element, element: Element, name: Scalar, value: Node, path: str, problems: Problems
) -> tuple[Any, Any]:
    inside = below(path, name.text)
    made = None
    try:
        made = convert(key, name if key.kind == "string" or name.format == "YAML" else unquoted(name))
    except Unfit as unfit:
        problems.add(name.place, inside, f"as a key, {unfit}")
    return made, _element(element, value, inside, problems)


def _element(element: Element, node: Node, path: str, problems: Problems) -> Any:
    if element.message is not None:
        message = read_message(element.message, node, path, problems)
        return message.to_wrapped() if element.wrapped and message is not None else message
    if not isinstance(node, Scalar):
        problems.add(node.place, path, f"{misplaced(node, 'a single value')}; write {expected(element)}")
        return None
    try:
        return convert(element, node)
    except Unfit as unfit:
        problems.add(node.place, path, str(unfit))
        return None
