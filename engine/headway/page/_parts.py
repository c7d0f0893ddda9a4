"""The resources of a type, in parts: of a store, or as the calls of a channel list them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from headway.api import Call, ResourceApi
from headway.errors import HistoryCompacted, InvalidArgument
from headway.resource import Key, Kind, ResourceType, pb, resource_key
from headway.storage import Backend, Within, list_part

CANNOT_GO_ON = "cursor: this search cannot go on; begin it again"


class Place(NamedTuple):
    """Where a list goes on: after a key, within the page of this token."""

    after: Key | None = None
    token: str = ""


class Part(NamedTuple):
    """Some resources in order of key, the token of their page, and where the list goes on; None at its end."""

    resources: Sequence[pb.Resource]
    token: str
    rest: Place | None


class Parts(Protocol):
    """Reads the resources of a type in parts."""

    async def part(self, type: ResourceType[Any], within: Within, place: Place, most: int) -> Part:
        """Return the next resources of the whole kind: ``most``, or a few more or less."""
        ...

    async def counts(self) -> Mapping[Kind, int] | None:
        """Return the number of resources of each kind, or None if counting them takes reading them all."""
        ...


class StoreParts:
    """The resources of a store."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def part(self, type: ResourceType[Any], within: Within, place: Place, most: int) -> Part:
        """Return the next resources."""
        found, after, _ = await list_part(self._backend, type.kind, within, place.after, most)
        return Part(found, "", None if after is None else Place(after))

    async def counts(self) -> Mapping[Kind, int] | None:
        """Return the numbers, if the store has them."""
        count = getattr(self._backend, "count_kinds", None)
        return None if count is None else await count()


class CalledParts:
    """The resources that a program's own calls list, with its rights. It counts none."""

    def __init__(self, api: ResourceApi) -> None:
        self._api = api

    async def part(self, type: ResourceType[Any], within: Within, place: Place, most: int) -> Part:
        """Return the rest of a page. Raises InvalidArgument if the list cannot go on there any more."""
        request = pb.ListRequest(
            type=type.message,
            tenancy=pb.Tenancy(partition=within.partition, namespace=within.namespace),
            page_size=most,
            page_token=place.token,
        )
        try:
            reply = await self._api.list(Call(), request)
        except HistoryCompacted:
            raise InvalidArgument(CANNOT_GO_ON) from None
        found = [each for each in reply.resources if place.after is None or resource_key(each) > place.after]
        return Part(found, place.token, Place(token=reply.next_page_token) if reply.next_page_token else None)

    async def counts(self) -> None:
        """Return None."""
