"""The rights of a process that attends: questions and answers may only name resources that its caller may read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import repeat
from typing import TypeVar

from headway._gen.headway.observe import v1 as observe_pb
from headway.api import ProgramFailed
from headway.base import give_way
from headway.resource import Kind, Registry, ResourceId, TypeName, pb, resource_id
from headway.service import AccessChecks, Decision, Permissions
from headway.versions import Versions

ReadStored = Callable[[ResourceId], Awaitable[pb.Resource | None]]
"""A function that returns a stored resource, or None."""
TURN = 50
"""The number of items of an answer to handle between two turns: some two milliseconds."""
_About = TypeVar("_About", observe_pb.StuckItem, observe_pb.Failing)


class AttendingRights:
    """The rights of one process: it neither learns nor mentions the name of a resource that its caller may not read.

    Controllers also answer about the types that they watch, so a process may be asked about more than the types that
    its controllers manage.

    Args:
        permissions: the permissions of the caller that runs the process.
        read: returns a stored resource, for a type whose content decides who may read it.
    """

    def __init__(self, permissions: Permissions, registry: Registry, read: ReadStored) -> None:
        self._permissions = permissions
        self._registry = registry
        self._read = read

    async def reduced(self, question: observe_pb.Question) -> observe_pb.Question | None:
        """Return the part of a question that the process may know, or None if it may know nothing of it."""
        if question.why is not None:
            return question if await self._may_read(resource_id(question.why)) else None
        if question.types:
            # An empty list would ask about all types.
            question.types = [each for each in question.types if self._knows(each)]
            return question if question.types else None
        return question

    async def corrected(
        self, answer: observe_pb.AnswerRequest, controllers: Mapping[str, Kind]
    ) -> observe_pb.AnswerRequest:
        """Return an answer without the resources that the process may not read."""
        if answer.stuck is not None:
            items = answer.stuck.items
            answer.stuck.items = await self._sayable(items, [controllers.get(each.controller) for each in items])
        for now in answer.now:
            now.failing = await self._sayable(now.failing, repeat(controllers.get(now.name)))
        return answer

    async def _sayable(self, items: Iterable[_About], manages: Iterable[Kind | None]) -> list[_About]:
        kept = []
        for number, (each, kind) in enumerate(zip(items, manages, strict=False), 1):
            if self._may_say(each, kind):
                kept.append(each)
            # A process may send thousands, and hundreds of processes answer at once.
            if number % TURN == 0:
                await give_way()
        return kept

    def _may_say(self, about: _About, manages: Kind | None) -> bool:
        resource = about.resource
        name = None if resource is None else _name(resource.type)
        if resource is None or name is None:
            return False
        if not resource.name:
            # The whole controller.
            return name.unversioned == manages
        id = ResourceId(name, resource.name, resource.partition, resource.namespace)
        return any(each is not Decision.DENIED for each in self._decisions(id))

    async def _may_read(self, id: ResourceId) -> bool:
        decisions = set(self._decisions(id))
        if Decision.ALLOWED in decisions or Decision.NEEDS_RESOURCE not in decisions:
            return Decision.ALLOWED in decisions
        stored = await self._read(id)
        shows = AccessChecks(self._permissions, self._registry).shows
        try:
            return stored is not None and any(map(shows, Versions(self._registry).views(stored)))
        except ProgramFailed:
            # The code of a type has failed. Don't fail the whole answer, because other processes may know more.
            return False

    def _decisions(self, id: ResourceId) -> Iterable[Decision]:
        """Yield the decision for each version of a resource: whether the caller may read it, by its id."""
        # A worker need not have the version that the question is about.
        for type in self._registry:
            if type.kind == id.type.unversioned:
                yield self._permissions.may_read(id._replace(type=type.name), None)

    def _knows(self, type: str) -> bool:
        name = _name(type)
        return name is not None and self._permissions.may_know(name)


def _name(type: str) -> TypeName | None:
    parts = type.rsplit(".", 2)
    return TypeName(*parts) if len(parts) == 3 else None
