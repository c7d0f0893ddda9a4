"""The types of a server: described to clients, as descriptor files, and those that are stored but not registered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headway._gen.headway.types import v1 as types_pb
from headway.protobuf import payload_files
from headway.resource import (
    Registry,
    TypeName,
    describe,
    type_name,
)
from headway.service._handlers import Handlers, unary_handlers
from headway.storage import Backend, Within
from headway.subscription import Topic

if TYPE_CHECKING:
    from headway.rpc import DescribedFiles


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

    def __mapping__(self) -> Handlers:
        """Return the handlers by path."""
        return unary_handlers(
            "headway.types.v1.TypesService", List=(self.list, types_pb.ListRequest, types_pb.ListResponse)
        )


_KEPT = 32
"""The number of type sets whose files are cached. There are as many sets as combinations of policies with different
rights.
"""


class DescribedPayloads:
    """The descriptor files of the payloads of a registry and of topics. They build on the files of the services."""

    def __init__(
        self, registry: Registry, services: DescribedFiles, topics: Mapping[str, Topic[Any]] | None = None
    ) -> None:
        self._registry = registry
        self._services = services
        self._topics = {name: topic.payload for name, topic in (topics or {}).items() if topic.payload is not None}
        self._files: dict[frozenset[TypeName | str], DescribedFiles] = {}

    def files(
        self,
        may_know: Callable[[TypeName], bool] | None = None,
        may_know_topic: Callable[[str], bool] | None = None,
    ) -> DescribedFiles:
        """Return the files of all types and topics, or of those that the caller may know by the two functions."""
        types = [type for type in self._registry if may_know is None or may_know(type.name)]
        topics = [name for name in self._topics if may_know_topic is None or may_know_topic(name)]
        names: frozenset[TypeName | str] = frozenset((*(type.name for type in types), *topics))
        files = self._files.pop(names, None)
        if files is None:
            # Imported here, because it imports the network code, which many programs never need.
            from headway.rpc import DescribedFiles

            described = describe(types, [self._topics[name] for name in topics])
            made = payload_files(described, self._services.symbols)
            files = DescribedFiles(made, self._services)
            if len(self._files) >= _KEPT:
                # Evict the least recently used set.
                del self._files[next(iter(self._files))]
        self._files[names] = files
        return files


async def unregistered(backend: Backend, registry: Registry, partition: str, namespace: str) -> Counter[str]:
    """Return the number of resources in a tenancy by type, for types that are not registered.

    Each version of a kind counts separately: a list does not find resources stored as an unregistered version.
    """
    counts: Counter[str] = Counter()
    for kind in await backend.kinds():
        found, _ = await backend.list(kind, Within(partition, namespace))
        names = (type_name(resource.id.type if resource.id is not None else None) for resource in found)
        counts.update(str(name) for name in names if name not in registry)
    return counts
