"""The message of every scenario: a Resource with one metadata entry and a payload of 120 bytes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import headway
from headway import field
from headway.protobuf import encode
from headway.resource import AnyMessage, ResourceType, pb, resource_key
from headway.storage import MemoryBackend, Put

GROUPS = 10
"""The number of values of the metadata entry ``group``, and so of groups in the secondary index."""


@headway.message(name="bench.Note")
class Note:
    """A payload with one text. The tag and the length of the text are 2 of the 120 bytes."""

    text: str = field(1)


TEXT = "n" * 118
assert len(encode(Note(text=TEXT))) == 120


class Texts(NamedTuple):
    """The texts that differ from resource to resource."""

    name: str
    uid: str
    generation: str
    group: str


def texts(number: int) -> Texts:
    """Return the texts of one resource."""
    return Texts(f"note-{number:06d}", f"01HZ{number:022d}", f"01HY{number:022d}", f"group-{number % GROUPS}")


def type_message(type: ResourceType[Note]) -> pb.Type:
    """Return the name of a type as a new message."""
    return pb.Type(group=type.name.group, group_version=type.name.version, kind=type.name.kind)


def tenancy() -> pb.Tenancy:
    """Return the default tenancy as a new message."""
    return pb.Tenancy(partition="default", namespace="default")


def built(
    type: ResourceType[Note], text: Texts, value: bytes, shared: tuple[pb.Type, pb.Tenancy] | None = None
) -> pb.Resource:
    """Return a stored resource without its version, made by betterproto2's own constructors.

    Args:
        shared: The type and tenancy messages, if several resources share them.
    """
    of_type, within = shared or (type_message(type), tenancy())
    return pb.Resource(
        id=pb.Id(uid=text.uid, name=text.name, type=of_type, tenancy=within),
        generation=text.generation,
        metadata={"group": text.group},
        data=AnyMessage(type_url=type.type_url, value=value),
    )


def built_many(type: ResourceType[Note], count: int) -> list[pb.Resource]:
    """Return ``count`` resources, each with a payload of its own."""
    return [built(type, texts(number), encode(note(number))) for number in range(count)]


def note(number: int) -> Note:
    """Return the payload of one resource."""
    return Note(text=f"{TEXT[:-6]}{number:06d}")


def put(type: ResourceType[Note], resource: pb.Resource) -> Put:
    """Return the operation that creates a resource in a backend."""
    return Put(type.kind, resource_key(resource), resource, "")


async def fill(backend: MemoryBackend, type: ResourceType[Note], resources: Iterable[pb.Resource]) -> None:
    """Store the resources in one commit."""
    await backend.commit([put(type, resource) for resource in resources])
