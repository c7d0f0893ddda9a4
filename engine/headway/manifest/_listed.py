"""The fields that a document lists, as the paths that `Client.apply` takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headway.documents import Mapping, Node, Problems, one_of
from headway.manifest._dump import json_key
from headway.manifest._fields import Field, fields_of
from headway.manifest._payload import is_unset, read_entries, read_map_key


def listed_fields(cls: type[Any], node: Node) -> Iterator[str]:
    """Yield the paths of the fields that a valid map of a message's fields lists.

    Messages count by their fields, and maps by their entries. An empty message counts if it says that it is set.
    """
    if not isinstance(node, Mapping):
        return
    fields = fields_of(cls)
    for name, entry in read_entries(node, "", Problems(""), of="", spellings=fields.spellings).items():
        field = fields.by_name[name]
        if not is_unset(field, entry.value):
            within = list(_within(field, entry.value))
            yield from (f"{name}.{each}" for each in within)
            if not within and not _is_empty(field, entry.value):
                yield name


def _within(field: Field, node: Node) -> Iterator[str]:
    """Yield what a field lists within itself."""
    if field.shape == "repeated" or not isinstance(node, Mapping):
        return
    problems = Problems("")
    if field.key is not None:
        for key, _ in one_of(node, "", problems).entries:
            yield json_key(read_map_key(field.key, key, "", problems))
    elif field.element.message is not None and not field.element.wrapped:
        yield from listed_fields(field.element.message, node)


def _is_empty(field: Field, node: Node) -> bool:
    """Return True for a map, or a message that is never absent. An empty one is the same as none."""
    has_more = field.key is not None or (field.shape == "single" and field.element.message is not None)
    return has_more and isinstance(node, Mapping) and not node.entries
