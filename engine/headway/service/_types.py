"""The types of a server: described to clients, as descriptor files, and those that are stored but not registered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from typing_extensions import override

from headway._gen.headway.types import v1 as types_pb
from headway.api import Call, TypesApi
from headway.protobuf import encode
from headway.resource import Registry, TypeName, describe, type_name
from headway.rpc import Encoded
from headway.storage import Backend, Within
from headway.subscription import Topic

if TYPE_CHECKING:
    from headway.rpc import DescribedFiles

_SERVICE = "headway.types.v1.TypesService"
TYPES = f"/{_SERVICE}/List"
TypesRequest = types_pb.ListRequest


_KEPT = 32
"""The number of type sets for which something is cached. There are as many sets as combinations of policies with
different rights.
"""

_MadeT = TypeVar("_MadeT")
MayKnow = Callable[[TypeName], bool]
MayKnowTopic = Callable[[str], bool]


class _OfSets(Generic[_MadeT]):
    """What is made of the types and topics that a caller may know. It is made once for each set of them.

    Args:
        make: makes it of a description.
    """

    def __init__(
        self,
        registry: Registry,
        topics: Mapping[str, Topic[Any]] | None,
        make: Callable[[types_pb.ListResponse], _MadeT],
    ) -> None:
        self._registry = registry
        self._topics = topics or {}
        self._make = make
        self._made: dict[frozenset[TypeName | str], _MadeT] = {}

    def of(self, may_know: MayKnow | None = None, may_know_topic: MayKnowTopic | None = None) -> _MadeT:
        """Return what is made of all types and topics, or of those that the caller may know by the two functions."""
        types = [type for type in self._registry if may_know is None or may_know(type.name)]
        topics = [name for name in self._topics if may_know_topic is None or may_know_topic(name)]
        names: frozenset[TypeName | str] = frozenset((*(type.name for type in types), *topics))
        made = self._made.pop(names, None)
        if made is None:
            made = self._make(describe(types, [self._topics[name].described() for name in topics]))
            if len(self._made) >= _KEPT:
                # Evict the least recently used set.
                del self._made[next(iter(self._made))]
        self._made[names] = made
        return made


class EncodedTypes(Encoded):
    """The reply to List, which the network sends as it is.

    Attributes:
        message: the reply. It is shared and must not be changed.
    """

    __slots__ = ("message",)

    def __init__(self, message: types_pb.ListResponse) -> None:
        super().__init__([encode(message)])
        self.message = message


class DescribedTypes(_OfSets[EncodedTypes]):
    """The replies to List. A server makes a new service for each call, and describing 100 types takes milliseconds."""

    def __init__(self, registry: Registry, topics: Mapping[str, Topic[Any]] | None = None) -> None:
        super().__init__(registry, topics, EncodedTypes)


class TypesService(TypesApi):
    """List over a registry.

    Args:
        topics: the topics, by name.
        may_know: returns True if the caller may know of a type; without it, every caller may know all types.
        may_know_topic: the same for the name of a topic.
        replies: the replies to List, shared with the services of other calls.
    """

    def __init__(
        self,
        registry: Registry,
        topics: Mapping[str, Topic[Any]] | None = None,
        may_know: MayKnow | None = None,
        may_know_topic: MayKnowTopic | None = None,
        *,
        replies: DescribedTypes | None = None,
    ) -> None:
        self._may_know = may_know
        self._may_know_topic = may_know_topic
        self._replies = replies or DescribedTypes(registry, topics)

    @override
    async def list(self, call: Call, request: types_pb.ListRequest) -> types_pb.ListResponse | Encoded:
        """Return the types and topics that the caller may know, and the messages that they contain.

        Types and topics are the same for as long as the server runs.
        """
        reply = self._replies.of(self._may_know, self._may_know_topic)
        return reply if call.encodes else reply.message


class DescribedPayloads(_OfSets["DescribedFiles"]):
    """The descriptor files of the payloads of a registry and of topics. They build on the files of the services."""

    def __init__(
        self, registry: Registry, services: DescribedFiles, topics: Mapping[str, Topic[Any]] | None = None
    ) -> None:
        super().__init__(registry, topics, self._described)
        self._services = services

    def _described(self, described: types_pb.ListResponse) -> DescribedFiles:
        # Imported here, because they import descriptors and the network code, which many programs never need.
        from headway.protobuf import payload_files
        from headway.rpc import DescribedFiles

        return DescribedFiles(payload_files(described, self._services.symbols), self._services)


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
