"""Load the resources of a text: the type, id, owner, metadata and payload of each document."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from headway.base import finished
from headway.documents import Format, Mapping, Node, Place, Problems, below, decode, format_of, one_of, parse, withheld
from headway.errors import InvalidArgument, PayloadError
from headway.manifest._listed import listed_fields
from headway.manifest._payload import Entry, read_entries, read_key, read_message, read_text
from headway.protobuf import holds_secrets
from headway.resource import (
    DEFAULT_TENANCY,
    DELETION_TIMESTAMP,
    FIELD_OWNERS,
    FINALIZERS,
    Key,
    Kind,
    Registry,
    Resource,
    ResourceId,
    ResourceType,
    Scope,
    TypeName,
    did_you_mean,
    name_problem,
    quoted,
)

_ID = ("type", "name", "partition", "namespace")
_OWNER = {name: name for name in _ID}
_FIELDS = {name: name for name in (*_ID, "metadata", "owner", "data")}
_ASSIGNED = {"uid": "the store assigns the uid when it creates a resource: leave it out"}
_REFUSED = _ASSIGNED | {
    "status": "a status is written by controllers, never by a manifest: leave it out",
    "version": "the store assigns the version with every change: leave it out",
    "generation": "the store assigns the generation with every write: leave it out",
    "undecodable": "the server's payload could not be read, and is missing here: remove the cause, and read it again",
    "id": "write an id as its parts: type, name, and namespace and partition if they are not the default",
    # Fields that users of Kubernetes may try first.
    "spec": "the payload's fields go under data",
    "kind": "the kind goes into type, such as 'type: staff.v1.Team'",
    "apiVersion": "group and version go into type, such as 'type: staff.v1.Team'",
}

# Fields in JSON that was read from a server. They are accepted and ignored, since the store assigns all of them.
_READ_BACK = {name: name for name in ("uid", "version", "generation", "status")}
# The form of an id that nests all of its parts, like the wire messages.
_WHOLE_ID = _OWNER | {"tenancy": "tenancy"}
_TENANCY = {"partition": "partition", "namespace": "namespace"}
_TYPE = {"group": "group", "version": "version", "kind": "kind", "group_version": "version", "groupVersion": "version"}


class Document(NamedTuple):
    """A document of a manifest.

    Attributes:
        fields: the paths of the fields that it lists, if its type has owned fields; otherwise none.
    """

    resource: Resource[Any]
    fields: list[str]


def load(
    text: str, registry: Registry, *, source: str = "<text>", format: Format | None = "YAML"
) -> list[Resource[Any]]:
    """Return the resources of all documents in a text, in their order. It takes and raises what `documents` does."""
    return [each.resource for each in documents(text, registry, source=source, format=format)]


def documents(
    text: str, registry: Registry, *, source: str = "<text>", format: Format | None = "YAML"
) -> list[Document]:
    """Return all documents in a text, in their order.

    Args:
        text: the manifests.
        registry: the known types.
        source: the name of the text in problems.
        format: "YAML", "JSON" or "HCL". With None, it is guessed from the beginning of the text.

    Raises:
        ManifestError: The text has problems. The error lists the first 100.
    """
    problems = Problems(source)
    found: list[Document] = []
    places: dict[tuple[Kind, Key], Place] = {}
    for node in parse(text, format or format_of(text), problems):
        document = _read_document(node, registry, problems)
        if document is None:
            continue
        resource = document.resource
        # All versions of a kind share one set of names.
        first = places.setdefault((resource.type.kind, resource.id.key), node.place)
        if first is not node.place:
            problems.add(node.place, "", f"{resource.id} was already given at {first}: keep one of them")
        found.append(document)
    problems.raise_if_any()
    return found


def load_file(path: str | os.PathLike[str], registry: Registry) -> list[Resource[Any]]:
    """Return the resources of a file in UTF-8, like `load`. It takes and raises what `documents_of_file` does."""
    return [each.resource for each in documents_of_file(path, registry)]


def documents_of_file(path: str | os.PathLike[str], registry: Registry) -> list[Document]:
    """Return the documents of a file in UTF-8, like `documents`.

    The format follows from the suffix (.yaml, .yml, .json, .hcl), or else from the beginning of the text.

    Raises:
        OSError: The file cannot be read.
        ManifestError: The text has problems. The error lists the first 100.
    """
    source = os.fspath(path)
    text = decode(Path(path).read_bytes(), source)
    return documents(text, registry, source=source, format=format_of(text, path))


class Identity(NamedTuple):
    type: ResourceType[Any] | None
    name: str | None
    partition: str
    namespace: str


def _read_document(node: Node, registry: Registry, problems: Problems) -> Document | None:
    """Return a document, or None after adding its problems."""
    if not isinstance(node, Mapping):
        problems.add_misplaced(withheld(node), "", "a map with type, name and data")
        return None
    before = len(problems)
    entries = document_entries(node, problems)
    identity = _identity(entries, node.place, "", registry, problems)
    metadata = metadata_of(entries["metadata"], identity.type, problems) if "metadata" in entries else {}
    owner = owner_of(entries["owner"], identity, registry, problems) if "owner" in entries else None
    data = None
    if identity.type is not None and "data" in entries:
        entry = entries["data"]
        data = finished(read_message(identity.type.payload, entry.value, entry.path, problems))
    if len(problems) > before or identity.type is None or identity.name is None:
        return None
    fields: list[str] = []
    if identity.type.owned_fields:
        fields += [f"metadata:{key}" for key in metadata if key not in (FIELD_OWNERS, FINALIZERS)]
        if data is not None:
            fields += listed_fields(identity.type.payload, entries["data"].value)
    try:
        resource = identity.type.new(
            identity.name,
            data,
            partition=identity.partition,
            namespace=identity.namespace,
            owner=owner,
            metadata=metadata,
        )
        return Document(resource, fields)
    except (InvalidArgument, PayloadError) as error:
        problems.add(node.place, "", str(error))
        return None


def document_entries(node: Mapping, problems: Problems) -> dict[str, Entry]:
    format = _format(node)
    spellings, refused = _FIELDS, _REFUSED
    if format != "YAML":
        spellings = spellings | {"id": "id"}
        refused = {name: why for name, why in refused.items() if name != "id"}
    if format == "JSON":
        spellings = spellings | _READ_BACK
        refused = {name: why for name, why in refused.items() if name not in _READ_BACK}
    entries = read_entries(node, "", problems, of="a document", spellings=spellings, refused=refused)
    return _with_parts(entries, problems)


def _format(node: Mapping) -> Format:
    return node.entries[0][0].format if node.entries else "YAML"


def _with_parts(entries: dict[str, Entry], problems: Problems) -> dict[str, Entry]:
    """Return the entries, with a nested id replaced by its parts."""
    whole = entries.pop("id", None)
    if whole is None:
        return entries
    for name in _ID:
        if name in entries:
            problems.add(entries[name].place, entries[name].path, f"{name} is in {whole.path} too: keep one of them")
    return entries | _parts(whole, problems)


def _parts(whole: Entry, problems: Problems) -> dict[str, Entry]:
    """Return the type, name, partition and namespace of a nested id, whose tenancy is a map."""
    node = whole.value
    if not isinstance(node, Mapping):
        problems.add_misplaced(node, whole.path, "a map with type, name and tenancy")
        return {}
    spellings, refused = _WHOLE_ID, _ASSIGNED
    if _format(node) == "JSON":
        spellings, refused = spellings | {"uid": "uid"}, {}
    parts = read_entries(node, whole.path, problems, of="an id", spellings=spellings, refused=refused)
    tenancy = parts.pop("tenancy", None)
    if tenancy is None:
        return parts
    if not isinstance(tenancy.value, Mapping):
        problems.add_misplaced(tenancy.value, tenancy.path, "a map with partition and namespace", "{}")
        return parts
    units = read_entries(tenancy.value, tenancy.path, problems, of="a tenancy", spellings=_TENANCY)
    return parts | units


def _identity(
    entries: dict[str, Entry],
    place: Place,
    path: str,
    registry: Registry,
    problems: Problems,
    near: Identity | None = None,
) -> Identity:
    """Read the type, name and tenancy. Omitted tenancy units are taken from ``near``, or else are the defaults."""
    for name in ("type", "name"):
        if name not in entries:
            problems.add(place, path, f"{name} is required")
    type = type_of(entries["type"], registry, problems) if "type" in entries else None
    own_name = _checked_name(entries["name"], problems) if "name" in entries else None
    partition = namespace = ""
    if type is not None:
        partition, namespace = _default_units(type, near)
    for unit in ("partition", "namespace"):
        if unit not in entries:
            continue
        entry = entries[unit]
        given = read_text(entry.value, entry.path, problems)
        problem = _unit_problem(type, unit, given) if type is not None and given else None
        if problem:
            problems.add(entry.value.place, entry.path, problem)
        elif given and unit == "partition":
            partition = given
        elif given:
            namespace = given
    return Identity(type, own_name, partition, namespace)


def _unit_problem(type: ResourceType[Any], unit: str, given: str) -> str | None:
    # Check each unit with the default of the other, so that a problem gets the place of the invalid unit.
    partition, namespace = DEFAULT_TENANCY[type.scope]
    units = (given, namespace) if unit == "partition" else (partition, given)
    return _below_path(type.tenancy_problem(*units), unit, given)


def _below_path(problem: str | None, field: str, given: str) -> str | None:
    """Return the problem of a name without the name of its field, which the path in front of it ends with."""
    named = f"{field} {quoted(given)}"
    if problem and problem.startswith((f"{named} is ", f"{named} must ")):
        return problem.removeprefix(f"{field} ")
    return problem


def _default_units(type: ResourceType[Any], near: Identity | None) -> tuple[str, str]:
    partition, namespace = DEFAULT_TENANCY[type.scope]
    if near is None or type.scope is Scope.CLUSTER:
        return partition, namespace
    partition = near.partition or partition
    return partition, near.namespace or namespace if type.scope is Scope.NAMESPACE else namespace


def _checked_name(entry: Entry, problems: Problems) -> str | None:
    name = read_text(entry.value, entry.path, problems)
    problem = _below_path(name_problem("name", name), "name", name) if name is not None else None
    if problem:
        problems.add(entry.value.place, entry.path, problem)
    return name


def type_of(entry: Entry, registry: Registry, problems: Problems) -> ResourceType[Any] | None:
    name: str | tuple[str, str, str] | None
    if isinstance(entry.value, Mapping):
        name = _type_parts(entry.value, entry.path, problems)
    else:
        name = read_text(entry.value, entry.path, problems)
    if name is None:
        return None
    try:
        return _resolve(name, registry)
    except InvalidArgument as error:
        problems.add(entry.value.place, entry.path, str(error))
        return None


def _resolve(written: str | tuple[str, str, str], registry: Registry) -> ResourceType[Any]:
    """Return the type with a full name, with three parts of a name, or with a unique kind. Raises InvalidArgument."""
    parts = tuple(written.split(".")) if isinstance(written, str) else written
    if len(parts) == 3:
        return registry.resolve(TypeName(*parts))
    bearers = sorted((type for type in registry if type.name.kind == written), key=lambda bearer: bearer.name)
    if len(bearers) == 1:
        return bearers[0]
    if bearers:
        names = ", ".join(str(type.name) for type in bearers)
        raise InvalidArgument(f"several types have the kind {written!r}; write one of {names}")
    known = [str(type.name) for type in registry]
    # Compare a kind only with kinds, since it is never similar to a full name.
    closest = did_you_mean(str(written), known if len(parts) > 1 else [type.name.kind for type in registry])
    raise InvalidArgument(f"type {written!r} is not registered; write it as group.version.Kind{closest}")


def _type_parts(node: Mapping, path: str, problems: Problems) -> tuple[str, str, str] | None:
    parts = ("group", "version", "kind")
    entries = read_entries(node, path, problems, of="a type", spellings=_TYPE)
    for part in parts:
        if part not in entries:
            problems.add(node.place, path, f"{part} is required")
    texts = [read_text(entries[part].value, entries[part].path, problems) for part in parts if part in entries]
    present = [text for text in texts if text is not None]
    return (present[0], present[1], present[2]) if len(present) == len(parts) else None


def owner_of(entry: Entry, owned: Identity, registry: Registry, problems: Problems) -> ResourceId | None:
    node = entry.value
    if not isinstance(node, Mapping):
        problems.add_misplaced(node, entry.path, "a map with type and name")
        return None
    if _format(node) == "YAML":
        entries = read_entries(node, entry.path, problems, of="an owner", spellings=_OWNER, refused=_ASSIGNED)
    else:
        entries = _parts(entry, problems)
    found = _identity(entries, node.place, entry.path, registry, problems, near=owned)
    if found.type is None or found.name is None:
        return None
    return ResourceId(found.type.name, found.name, found.partition, found.namespace)


def metadata_of(
    entry: Entry, type: ResourceType[Any] | None, problems: Problems, *, marked: bool = False
) -> dict[str, str]:
    """Return the metadata of an entry. With ``marked``, it may contain the mark of a resource that was read.

    Problems quote no values if the type has secrets or is not known: a field of the payload may be in the wrong place.
    """
    node = withheld(entry.value) if type is None or holds_secrets(type.payload) else entry.value
    if not isinstance(node, Mapping):
        problems.add_misplaced(node, entry.path, "a map", "{}")
        return {}
    metadata: dict[str, str] = {}
    for key, value in one_of(node, entry.path, problems).entries:
        name = read_key(key, entry.path, problems)
        path = below(entry.path, key.text)
        if name == DELETION_TIMESTAMP and not marked:
            problems.add(key.place, path, "only the store sets this: delete the resource instead")
        text = read_text(value, path, problems)
        metadata[name or ""] = text or ""
    return metadata
