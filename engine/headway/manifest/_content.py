"""Read the content of one resource whose id is known: its metadata, owner and payload, and what was read back."""

from __future__ import annotations

from collections.abc import Mapping as Texts
from typing import Any, NamedTuple

from headway.base import Steps
from headway.documents import Mapping, Problems
from headway.manifest._document import Identity, document_entries, metadata_of, owner_of, type_of
from headway.manifest._payload import Entry, read_message, read_text
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
