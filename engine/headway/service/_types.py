"""The types service: what the types of this server look like."""

from __future__ import annotations

from headway._gen.headway.types import v1 as types_pb
from headway._gen.headway.types.v1 import TypesServiceBase
from headway.resource import Registry, describe


class TypesService(TypesServiceBase):
    """List over a registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._answer: types_pb.ListResponse | None = None

    async def list(self, message: types_pb.ListRequest) -> types_pb.ListResponse:  # noqa: ARG002 - it asks nothing
        """All types, the same ones for as long as the server runs."""
        if self._answer is None:
            self._answer = describe(self._registry)
        return self._answer
