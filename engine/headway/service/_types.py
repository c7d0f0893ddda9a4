"""The types of a server: described to clients, as descriptor files, and those that are stored but not registered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headway._gen.headway.types import v1 as types_pb
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

_SERVICE = "headway.types.v1.TypesService"
TYPES = f"/{_SERVICE}/List"
TypesRequest = types_pb.ListRequest


class TypesService:
    """List over a registry. Its methods are grpclib handlers.

    Args:
        topics: the topics, by name.
        may_know: returns True if the caller may know of a type; without it, every caller may know all types.
        may_know_topic: the same for the name of a topic.
    """

    def __init__(
        self,
        registry: Registry,
        topics: Mapping[str, Topic[Any]] | None = None,
        may_know: Callable[[TypeName], bool] | None = None,
        may_know_topic: Callable[[str], bool] | None = None,
    ) -> None:
        self._registry = registry
        self._topics = topics or {}
        self._may_know = may_know
        self._may_know_topic = may_know_topic
        self._answer: types_pb.ListResponse | None = None

    async def list(self, message: types_pb.ListRequest) -> types_pb.ListResponse:  # noqa: ARG002 - it asks nothing
        """Return the types and topics that the caller may know, and the messages that they contain.

        Types and topics are the same for as long as the server runs.
        """
        if self._answer is None:
            may_know, may_know_topic = self._may_know, self._may_know_topic
            self._answer = describe(
                [type for type in self._registry if may_know is None or may_know(type.name)],
                [
                    topic.described()
                    for name, topic in self._topics.items()
                    if may_know_topic is None or may_know_topic(name)
                ],
            )
        return self._answer

    def __mapping__(self) -> Handlers:
        """Return the handlers by path."""
        return unary_handlers(_SERVICE, List=(self.list, types_pb.ListRequest, types_pb.ListResponse))


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
        self._topics = {name: topic.described() for name, topic in (topics or {}).items()}
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
            # Imported here, because they import descriptors and the network code, which many programs never need.
            from headway.protobuf import payload_files
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
