"""Read a merge patch (RFC 7396) of a document: its members by the names that the stored document has."""

from __future__ import annotations

from typing import Any

from betterproto2.casing import camel_case

from headway.documents import Mapping, Node, Problems, below
from headway.manifest._document import document_entries
from headway.manifest._dump import json_key
from headway.manifest._fields import Element, fields_of
from headway.manifest._payload import read_entries, read_map_key, read_text
from headway.resource import ResourceType


def read_changes(node: Mapping, changes: dict[str, Any], type: ResourceType[Any], problems: Problems) -> dict[str, Any]:
    """Return the changes of a resource's JSON document, with each field of the payload by its name in JSON.

    A merge ignores a null for a member that does not exist. So an unknown field, and a field by another spelling than
    the stored one, have to be found before it.

    Args:
        node: the document of the changes.
        changes: its value.
        type: the type of the resource.
        problems: collects what is wrong with the names of members, and with a version and a uid.
    """
    entries = document_entries(node, problems)
    for name in ("version", "uid"):
        if name in entries:
            read_text(entries[name].value, entries[name].path, problems)
    data = entries.get("data")
    if data is None:
        return changes
    return {**changes, "data": _named(type.payload, data.value, changes["data"], data.path, problems)}


def _named(cls: type[Any], node: Node, value: Any, path: str, problems: Problems) -> Any:
    """Return the value of a message with the names of its fields in JSON. Any other value stays as it is."""
    if not isinstance(node, Mapping):
        return value
    fields = fields_of(cls)
    entries = read_entries(node, path, problems, of=cls.__name__, spellings=fields.spellings)
    made: dict[str, Any] = {}
    for spelling, change in value.items():
        name = fields.spellings.get(spelling)
        if name is None or name not in entries:
            continue
        entry, field = entries[name], fields.by_name[name]
        if field.key is not None:
            change = _named_values(field.key, field.element, entry.value, change, entry.path, problems)
        elif field.shape != "repeated" and field.element.message is not None:
            change = _named(field.element.message, entry.value, change, entry.path, problems)
        made[camel_case(name)] = change
    return made


def _named_values(key: Element, element: Element, node: Node, value: Any, path: str, problems: Problems) -> Any:
    """Return the value of a map, whose values may be messages. Its keys stay as they are stored."""
    if not isinstance(node, Mapping):
        return value
    made: dict[str, Any] = {}
    for name, each in node.entries:
        read = read_map_key(key, name, path, problems)
        where, change = below(path, name.text), value[name.text]
        if read is not None and name.text != json_key(read):
            problems.add(name.place, where, f"as a key, {name} must be '{json_key(read)}', as it is stored")
        if element.message is not None:
            change = _named(element.message, each, change, where, problems)
        made[name.text] = change
    return made
