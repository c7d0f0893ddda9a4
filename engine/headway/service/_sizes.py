"""The sizes of resources, on the wire and in memory. Pure."""

from __future__ import annotations

from headway.resource import pb

# Bytes of a stored resource without its names and contents: tags, lengths, version and generation.
_LEAST = 40
# The same for an entry of a map.
_ENTRY = 4
# Bytes of memory of an entry of a map or of a condition, without its texts: the object, and its slots.
_OBJECT = 300


def least_size(resource: pb.Resource) -> int:
    """Return a lower bound, close to the real value, of the number of bytes that a resource takes on the wire."""
    size = _LEAST + _id_size(resource.id) + _id_size(resource.owner)
    if resource.data is not None:
        size += len(resource.data.type_url) + len(resource.data.value)
    for key, value in resource.metadata.items():
        size += _ENTRY + len(key) + len(value)
    for key, status in resource.status.items():
        size += _ENTRY + len(key)
        for condition in status.conditions:
            size += len(condition.type) + len(condition.reason) + len(condition.message)
            if condition.resource is not None:
                size += _reference_size(condition.resource)
    return size


def memory_size(resource: pb.Resource) -> int:
    """Return about how many bytes of memory the contents of a resource take. Small parts are mostly their objects."""
    objects = len(resource.metadata) + len(resource.status)
    objects += sum(len(status.conditions) for status in resource.status.values())
    return least_size(resource) + _OBJECT * objects


def _reference_size(reference: pb.Reference) -> int:
    size = len(reference.name) + len(reference.section)
    if reference.type is not None:
        size += _type_size(reference.type)
    if reference.tenancy is not None:
        size += len(reference.tenancy.partition) + len(reference.tenancy.namespace)
    return size


def _type_size(type: pb.Type) -> int:
    return len(type.group) + len(type.group_version) + len(type.kind)


def _id_size(id: pb.Id | None) -> int:
    if id is None or id.type is None or id.tenancy is None:
        return 0
    units = len(id.tenancy.partition) + len(id.tenancy.namespace)
    return len(id.uid) + len(id.name) + _type_size(id.type) + units
