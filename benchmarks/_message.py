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
"""How many values the metadata entry ``group`` has, and so the secondary index."""


@headway.message(name="bench.Note")
class Note:
    """A payload: one text, whose tag and length take 2 bytes of the 120."""

    text: str = field(1)


TEXT = "n" * 118
assert len(encode(Note(text=TEXT))) == 120


class Texts(NamedTuple):
    """What differs from resource to resource."""

    name: str
    uid: str
    generation: str
    group: str


def texts(number: int) -> Texts:
    """The texts of one resource."""
    return Texts(f"note-{number:06d}", f"01HZ{number:022d}", f"01HY{number:022d}", f"group-{number % GROUPS}")


def type_message(type: ResourceType[Note]) -> pb.Type:
    """A type's name as a message of its own."""
    return pb.Type(group=type.name.group, group_version=type.name.version, kind=type.name.kind)


def tenancy() -> pb.Tenancy:
    """The default one, as a message of its own."""
    return pb.Tenancy(partition="default", namespace="default")


def built(
    type: ResourceType[Note], text: Texts, value: bytes, shared: tuple[pb.Type, pb.Tenancy] | None = None
) -> pb.Resource:
    """A whole stored resource but for its version, as betterproto2's own constructors build it.

    ``shared``: the messages of its type and tenancy, where many resources have the same ones.
    """
    of_type, within = shared or (type_message(type), tenancy())
    return pb.Resource(
        id=pb.Id(uid=text.uid, name=text.name, type=of_type, tenancy=within),
        generation=text.generation,
        metadata={"group": text.group},
        data=AnyMessage(type_url=type.type_url, value=value),
    )


def built_many(type: ResourceType[Note], count: int) -> list[pb.Resource]:
    """``count`` of them, with a payload of their own each."""
    return [built(type, texts(number), encode(note(number))) for number in range(count)]


def note(number: int) -> Note:
    """The payload of one resource."""
    return Note(text=f"{TEXT[:-6]}{number:06d}")


def put(type: ResourceType[Note], resource: pb.Resource) -> Put:
    """The creation of a resource, for a backend."""
    return Put(type.kind, resource_key(resource), resource, "")


async def fill(backend: MemoryBackend, type: ResourceType[Note], resources: Iterable[pb.Resource]) -> None:
    """Store the resources in one commit."""
    await backend.commit([put(type, resource) for resource in resources])
