"""The types service: it describes the types of this server."""

from __future__ import annotations

from collections.abc import Callable

from grpclib.const import Handler

from headway._gen.headway.types import v1 as types_pb
from headway.resource import Registry, TypeName, describe
from headway.service._handlers import unary_handlers


class TypesService:
    """List over a registry. Its methods are grpclib handlers.

    Args:
        may_know: returns True if the caller may know of a type; without it, every caller may know all types.
    """

    def __init__(self, registry: Registry, may_know: Callable[[TypeName], bool] | None = None) -> None:
        self._registry = registry
        self._may_know = may_know
        self._answer: types_pb.ListResponse | None = None

    async def list(self, message: types_pb.ListRequest) -> types_pb.ListResponse:  # noqa: ARG002 - it asks nothing
        """Return the types that the caller may know, and the messages that they contain.

        The types are the same for as long as the server runs.
        """
        may_know = self._may_know
        if may_know is not None:
            return describe(type for type in self._registry if may_know(type.name))
        if self._answer is None:
            self._answer = describe(self._registry)
        return self._answer

    def __mapping__(self) -> dict[str, Handler]:
        """Return the handlers by path."""
        return unary_handlers(
            "headway.types.v1.TypesService", List=(self.list, types_pb.ListRequest, types_pb.ListResponse)
        )
