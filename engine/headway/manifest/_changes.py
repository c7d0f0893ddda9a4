"""Read a merge patch (RFC 7396) of a document: its members by the names that the stored document has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from betterproto2.casing import camel_case

from headway.base import Steps
from headway.documents import Mapping, Node, Problems, Scalar, below, text_scalar
from headway.manifest._document import document_entries
from headway.manifest._dump import json_key
from headway.manifest._fields import Element, fields_of
from headway.manifest._payload import read_entries, read_map_key, read_text
from headway.resource import ResourceType


def read_changes(node: Mapping, type: ResourceType[Any], problems: Problems) -> Steps[Mapping]:
    """Return the changes of a resource's JSON document, with each field of the payload by its name in JSON.

    A merge ignores a null for a member that does not exist. So an unknown field, and a field by another spelling than
    the stored one, have to be found before it.

    Args:
        node: the document of the changes.
        type: the type of the resource.
        problems: collects what is wrong with the names of members, and with a version and a uid.
    """
    entries = document_entries(node, problems)
    for name in ("version", "uid"):
        if name in entries:
            read_text(entries[name].value, entries[name].path, problems)
    made: list[tuple[Scalar, Node]] = []
    for key, value in node.entries:
        if key.text == "data" and "data" in entries:
            value = yield from _named(type.payload, value, entries["data"].path, problems)
        made.append((key, value))
    return replace(node, entries=tuple(made))


def _named(cls: type[Any], node: Node, path: str, problems: Problems) -> Steps[Node]:
    """Return the node of a message with the names of its fields in JSON. Any other node stays as it is."""
    yield
    if not isinstance(node, Mapping):
        return node
    fields = fields_of(cls)
    made: list[tuple[Scalar, Node]] = []
    for name, entry in read_entries(node, path, problems, of=cls.__name__, spellings=fields.spellings).items():
        field, value = fields.by_name[name], entry.value
        if field.key is not None:
            value = yield from _named_values(field.key, field.element, value, entry.path, problems)
        elif field.shape != "repeated" and field.element.message is not None:
            value = yield from _named(field.element.message, value, entry.path, problems)
        made.append((text_scalar(entry.place, camel_case(name), "JSON"), value))
    return replace(node, entries=tuple(made))


def _named_values(key: Element, element: Element, node: Node, path: str, problems: Problems) -> Steps[Node]:
    """Return the node of a map, whose values may be messages. Its keys stay as they are stored."""
    if not isinstance(node, Mapping):
        return node
    made: list[tuple[Scalar, Node]] = []
    for name, value in node.entries:
        yield
        read = read_map_key(key, name, path, problems)
        where = below(path, name.text)
        if read is not None and name.text != json_key(read):
            problems.add(name.place, where, f"as a key, {name} must be '{json_key(read)}', as it is stored")
        if element.message is not None:
            value = yield from _named(element.message, value, where, problems)
        made.append((name, value))
    return replace(node, entries=tuple(made))
