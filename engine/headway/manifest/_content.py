"""Read the content of one resource whose id is known: its metadata, owner and payload, what was read back, and a merge
patch (RFC 7396) of them, by the names that the stored document has.
"""

from __future__ import annotations

from collections.abc import Mapping as Texts
from dataclasses import replace
from typing import Any, NamedTuple

from betterproto2.casing import camel_case

from headway.base import Steps
from headway.documents import Mapping, Node, Problems, Scalar, below, text_scalar
from headway.manifest._document import Identity, document_entries, metadata_of, owner_of, type_of
from headway.manifest._dump import json_key
from headway.manifest._fields import Element, fields_of
from headway.manifest._payload import Entry, read_entries, read_map_key, read_message, read_text
from headway.resource import Registry, ResourceId, ResourceType


class Content(NamedTuple):
    """The content of a document.

    Attributes:
        data: the payload; None if the document has none.
        version: the version that the document was read at; empty if it names none.
        uid: the uid of the incarnation that was read; empty if it names none.
    """

    metadata: Texts[str, str]
    owner: ResourceId | None
    data: Any
    version: str
    uid: str


def read_content(
    node: Mapping, type: ResourceType[Any], id: ResourceId, registry: Registry, problems: Problems
) -> Steps[Content | None]:
    """Return the content of the document of a resource, or None after adding its problems.

    The document may contain the id, and everything that the store assigns, as it was read. An id must be ``id``.

    Args:
        node: the document.
        type: the type of the resource.
        id: the complete id of the resource, except for its uid.
        registry: the known types, for the owner.
        problems: collects what is wrong.
    """
    before = len(problems)
    entries = document_entries(node, problems)
    _check_same(entries, id, registry, problems)
    near = Identity(type, id.name, id.partition, id.namespace)
    metadata = metadata_of(entries["metadata"], type, problems, marked=True) if "metadata" in entries else {}
    owner = owner_of(entries["owner"], near, registry, problems) if "owner" in entries else None
    data = None
    if "data" in entries:
        data = yield from read_message(type.payload, entries["data"].value, entries["data"].path, problems)
    version, uid = _text(entries, "version", problems), _text(entries, "uid", problems)
    return Content(metadata, owner, data, version, uid) if len(problems) == before else None


def read_payload(cls: type[Any], node: Mapping, problems: Problems) -> Steps[Any]:
    """Return the message of a document that has only its fields, or None after adding its problems."""
    return read_message(cls, node, "", problems)


def _check_same(entries: Texts[str, Entry], id: ResourceId, registry: Registry, problems: Problems) -> None:
    """Add a problem for each part of an id that is another one than the known id."""
    for part in ("name", "partition", "namespace"):
        given, known = _text(entries, part, problems), getattr(id, part)
        if given and given != known:
            entry = entries[part]
            problems.add(entry.value.place, entry.path, f"expected {known!r} as in the request, got {given!r}")
    if "type" in entries:
        entry = entries["type"]
        type = type_of(entry, registry, problems)
        if type is not None and type.name != id.type:
            problems.add(entry.value.place, entry.path, f"expected {id.type} as in the request, got {type.name}")


def _text(entries: Texts[str, Entry], name: str, problems: Problems) -> str:
    if name not in entries:
        return ""
    return read_text(entries[name].value, entries[name].path, problems) or ""


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
