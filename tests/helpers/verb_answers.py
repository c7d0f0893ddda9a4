"""Calls of every verb of the service for one resource, with each answer reduced to a word."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from headway.errors import HeadwayError
from headway.protobuf import encode
from headway.resource import AnyMessage, EndOfSnapshot, ResourceType, SnapshotChunk, Tombstone, pb
from tests.helpers.calls import Calls
from tests.helpers.declared import NOTE, ULID, a_status, a_type, an_id, id_of
from tests.helpers.service_errors import status_of

VERBS = ("Read", "Write", "WriteStatus", "List", "ListByOwner", "Delete", "WatchList", "MutateAndValidate")

OK, FOUND, EMPTY, GONE, LEFT = "ok", "found", "empty", "gone", "left"
"""The words for successful answers. Any other answer is the name of a status."""


@dataclass(frozen=True)
class Difference:
    """A deliberate difference: the answers of Headway and of Consul, and the reason."""

    answer: str
    consul: str
    why: str


Cell = str | Difference


def expected_answer(cell: Cell) -> str:
    """Return the answer that Headway must give. A `Difference` must differ from Consul and have a reason."""
    if isinstance(cell, str):
        return cell
    assert cell.answer != cell.consul
    assert cell.why
    return cell.answer


@dataclass
class Arguments:
    """The arguments of a call. Verbs that expect a whole resource also get its data."""

    name: str = "one"
    type: ResourceType[Any] = NOTE
    partition: str = ""
    namespace: str = ""
    uid: str = ""
    version: str = ""
    text: str = ""
    generation: str = ULID
    metadata: dict[str, str] = field(default_factory=dict)

    @property
    def id(self) -> pb.Id:
        return an_id(self.name, self.type, partition=self.partition, namespace=self.namespace, uid=self.uid)

    @property
    def known_id(self) -> pb.Id:
        """The id with a uid, for verbs that require one."""
        id = self.id
        id.uid = id.uid or ULID
        return id

    @property
    def resource(self) -> pb.Resource:
        payload = self.type.payload() if self.type.payload is Tombstone else self.type.payload(text=self.text)
        data = AnyMessage(type_url=self.type.type_url, value=encode(payload))
        return pb.Resource(id=self.id, version=self.version, metadata=dict(self.metadata), data=data)

    @property
    def tenancy(self) -> pb.Tenancy:
        return pb.Tenancy(partition=self.partition, namespace=self.namespace)

    @property
    def prefix(self) -> str:
        """A name prefix that matches the name. It is the name itself."""
        return self.name

    def of(self, resource: pb.Resource) -> Arguments:
        """Take the uid and the generation of a stored incarnation; return self."""
        self.uid, self.generation = id_of(resource).uid, resource.generation
        return self


async def outcome(calls: Calls, verb: str, arguments: Arguments) -> str:
    """Return a verb's answer as a word: the status of its refusal, or the effect of its success."""
    try:
        return await _CALL[verb](calls, arguments)
    except HeadwayError as error:
        return status_of(error).name


async def _read(calls: Calls, arguments: Arguments) -> str:
    await calls.read(arguments.id)
    return OK


async def _write(calls: Calls, arguments: Arguments) -> str:
    await calls.write(arguments.resource)
    return OK


async def _write_status(calls: Calls, arguments: Arguments) -> str:
    await calls.write_status(arguments.known_id, a_status(arguments.generation), version=arguments.version)
    return OK


async def _list(calls: Calls, arguments: Arguments) -> str:
    reply = await calls.list_type(a_type(arguments.type), arguments.tenancy, arguments.prefix)
    return FOUND if reply.resources else EMPTY


async def _list_by_owner(calls: Calls, arguments: Arguments) -> str:
    return FOUND if (await calls.list_by_owner(arguments.known_id)).resources else EMPTY


async def _delete(calls: Calls, arguments: Arguments) -> str:
    return GONE if (await calls.delete(arguments.id, version=arguments.version)).resource is None else LEFT


async def _watch(calls: Calls, arguments: Arguments) -> str:
    found = EMPTY
    async with calls.watch(a_type(arguments.type), arguments.tenancy, arguments.prefix) as items:
        async for item in items:
            if isinstance(item, EndOfSnapshot):
                return found
            assert isinstance(item, SnapshotChunk)
            found = FOUND if item.resources else found
    return "ended"


async def _mutate_and_validate(calls: Calls, arguments: Arguments) -> str:
    await calls.mutate_and_validate(arguments.resource)
    return OK


_CALL: dict[str, Callable[[Calls, Arguments], Awaitable[str]]] = dict(
    zip(
        VERBS,
        (_read, _write, _write_status, _list, _list_by_owner, _delete, _watch, _mutate_and_validate),
        strict=True,
    )
)
