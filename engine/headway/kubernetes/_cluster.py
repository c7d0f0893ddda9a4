"""What the services share: the API server, the types of the program, and the objects that are known here."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import trio

from headway.api import of_call
from headway.errors import InvalidArgument, NotFound
from headway.kubernetes._applied import Applied
from headway.kubernetes._http import ApiServer
from headway.kubernetes._objects import PARTITION, id_path, resource_of, revision_of
from headway.kubernetes._types import CORE, KubernetesType
from headway.kubernetes._watch import SIDE_SECONDS, TypeWatch
from headway.kubernetes._watched import METADATA_LIST
from headway.resource import Key, Position, Registry, TypeName, Within, pb, resource_key, selected, type_name

_MOST_REPLIED = 1_000
_CONTINUED = 120.0
"""The seconds within which a stream may continue the last one of the same objects."""
_CLUSTER = "/api/v1/namespaces/kube-system"


class Cluster:
    """A cluster, as one process sees it.

    Args:
        namespace: the namespace of the program's leases.
        only_namespace: True if objects of other namespaces are left alone.

    Attributes:
        server: the API server.
        registry: the types of the program.
        store_id: the uid of the namespace kube-system, which stands for the cluster; empty before `identify`.
        applied: what is known of applies.
    """

    def __init__(self, server: ApiServer, registry: Registry, namespace: str, *, only_namespace: bool = False) -> None:
        self.server = server
        self.registry = registry
        self.namespace = namespace
        self._everywhere = namespace if only_namespace else "*"
        self.store_id = ""
        self.applied = Applied()
        self._identified = 0.0
        # Watches that have ended, and when.
        self._last: dict[tuple[TypeName, Within, int], tuple[float, TypeWatch]] = {}
        self._watches: dict[TypeName, set[TypeWatch]] = {}
        # The replies to this process's own writes, which may be newer than what its watches have delivered.
        self._replied: OrderedDict[tuple[TypeName, Key], tuple[int, pb.Resource | None]] = OrderedDict()

    async def identify(self, within: float = 0.0) -> str:
        """Return the id of the cluster that the server belongs to, as it was at most so many seconds ago."""
        if self.store_id and trio.current_time() - self._identified < within:
            return self.store_id
        self._identified = trio.current_time()
        found = await self.server.call("GET", _CLUSTER)
        self.store_id = found["metadata"]["uid"]
        return self.store_id

    async def now(self) -> int:
        """Return the revision of a consistent read, which includes every acknowledged write of any type."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"
        found = await self.server.call("GET", path, params={"limit": "1"}, accept=METADATA_LIST)
        return revision_of(found["metadata"].get("resourceVersion"))

    def type_of(self, name: pb.Type | TypeName | None) -> KubernetesType[Any]:
        """Return a type of the program. Raises InvalidArgument for one that is not of Kubernetes."""
        found = self.registry.resolve(name if isinstance(name, TypeName) else type_name(name))
        if not isinstance(found, KubernetesType):
            raise InvalidArgument(
                f"{found.name} is not a type of Kubernetes: declare it with headway.kubernetes.resource(...) or "
                "builtin(...), or use a store of Headway for it"
            )
        return found

    def type_of_object(self, api_version: str, kind: str) -> KubernetesType[Any] | None:
        """Return the type of the program for an object's apiVersion and kind, in any version, or None."""
        group, _, version = api_version.rpartition("/")
        found = self.registry.find((group or CORE, version, kind))
        if found is None:
            found = next((each for each in self.registry if each.kind == (group or CORE, kind)), None)
        return found if isinstance(found, KubernetesType) else None

    def range(self, tenancy: pb.Tenancy | None, name_prefix: str, selector: str) -> Within:
        """Return the objects that a request asks for."""
        asked = "" if tenancy is None else tenancy.namespace
        namespace = self._everywhere if asked in ("", "*") else asked
        return Within("*", namespace, name_prefix, selected(selector))

    def namespace_problem(self, id: pb.Id) -> str | None:
        """Return the problem with the namespace of an object, or None. What is not watched would be cached for ever."""
        namespace = "" if id.tenancy is None else id.tenancy.namespace
        if self._everywhere in ("*", namespace):
            return None
        return f"namespace {namespace!r} must be {self._everywhere!r}: the program has only_namespace=True"

    def position(self, revision: int) -> Position:
        """Return a revision as a position in this cluster."""
        return Position(self.store_id, "", revision)

    def resource(self, type: KubernetesType[Any], object: dict[str, Any]) -> pb.Resource:
        """Return an object of an answer as a resource, and remember it."""
        made = resource_of(type, object, self.type_of_object)
        self.note(type, resource_key(made), int(made.version), made)
        return made

    def delivered(self, type: KubernetesType[Any], object: dict[str, Any], deleted: bool) -> pb.Resource:
        """Return an object of a stream as a resource: the one of the reply, if this process has written it.

        One that has left a selector comes as deleted, in the state before the write.
        """
        meta = object["metadata"]
        namespace = meta.get("namespace", "")
        name = (type.name, (PARTITION if namespace else "", namespace, meta["name"]))
        self.applied.saw(type, name, meta, deleted=deleted)
        _, replied = self._replied.get(name, (0, None))
        if deleted or replied is None or replied.version != meta["resourceVersion"]:
            return resource_of(type, object, self.type_of_object)
        del self._replied[name]
        return replied

    # What is known here.

    @contextmanager
    def watched(self, type: KubernetesType[Any], range: Within, watch: TypeWatch) -> Iterator[None]:
        """Find the objects of a watch while the block lasts."""
        if not watch.frontier:
            # A new snapshot may be of older data.
            self._replied.clear()
        now = trio.current_time()
        # Those have objects in memory that nobody will ask for.
        self._last = {key: each for key, each in self._last.items() if now - each[0] < _CONTINUED}
        watches = self._watches.setdefault(type.name, set())
        watches.add(watch)
        try:
            yield
        finally:
            watches.discard(watch)
            self._last[type.name, range, watch.read] = trio.current_time(), watch

    def last_watch(self, type: KubernetesType[Any], range: Within, read: int) -> TypeWatch | None:
        """Return the watch of these objects that has ended last after it was read up to a revision, once."""
        return self._last.pop((type.name, range, read), (0.0, None))[1]

    def begins(self, type: KubernetesType[Any], range: Within, revision: int) -> None:
        """Note that a stream has begun with a snapshot, which replaces what earlier ones have not delivered.

        The history before it may be gone, as after a change of a CRD. A checkpoint is above that once the other types
        are complete up to there, too.
        """
        self._last = {key: each for key, each in self._last.items() if key[:2] != (type.name, range)}
        for each in (each for of_type in self._watches.values() for each in of_type):
            if each.frontier:
                each.ask(revision)

    async def proven(self, revision: int) -> int:
        """Return the revision, or a lower one if a stream may still bring a change up to it. May take seconds."""
        open = [each for of_type in self._watches.values() for each in of_type]
        if trio.current_effective_deadline() > trio.current_time() + SIDE_SECONDS:
            async with trio.open_nursery() as nursery:
                for each in open:
                    if each.sure(revision) < revision:
                        nursery.start_soon(each.prove, revision)
        ended = [watch for since, watch in self._last.values() if trio.current_time() - since < _CONTINUED]
        return min([each.sure(revision) for each in (*open, *ended)], default=revision)

    def note(self, type: KubernetesType[Any], key: Key, revision: int, resource: pb.Resource | None) -> None:
        """Remember the state of an object at a revision, if the type is watched. None: it is not there."""
        if not self._watches.get(type.name):
            return
        name = (type.name, key)
        if (known := self._replied.get(name)) is not None and known[0] > revision:
            return
        self._replied[name] = revision, resource
        self._replied.move_to_end(name)
        if len(self._replied) > _MOST_REPLIED:
            self._replied.popitem(last=False)

    def find(self, type: KubernetesType[Any], key: Key) -> pb.Resource | None:
        """Return the newest state of an object that is known here, which may be old, or None."""
        name, watches = (type.name, key), self._watches.get(type.name, ())
        revision, found = self._replied.get(name, (0, None))
        if any(watch.frontier >= revision for watch in watches):
            # What the stream has delivered is newer, also if that is nothing.
            self._replied.pop(name, None)
            revision, found = 0, None
        for watch in watches:
            known = watch.delivered.get(key)
            if known is not None and int(known.version) > revision:
                revision, found = int(known.version), known
        return found

    def is_absent(self, type: KubernetesType[Any], key: Key) -> bool:
        """Return True if a stream would have delivered an object of this name, if it were there."""
        return (type.name, key) not in self._replied and any(
            each.has_no(key) for each in self._watches.get(type.name, ())
        )

    async def read(self, type: KubernetesType[Any], id: pb.Id) -> pb.Resource | None:
        """Read an object by its name, or return None."""
        try:
            found = await self.server.call("GET", id_path(type, id), accept=type.accept())
        except NotFound:
            return None
        return self.resource(type, found)

    async def read_at(self, type: KubernetesType[Any], id: pb.Id) -> tuple[pb.Resource | None, int]:
        """Read an object by its name, and the revision of the read, which includes every acknowledged write."""
        namespace = "" if id.tenancy is None else id.tenancy.namespace
        params = {"fieldSelector": f"metadata.name={id.name}"}
        found = await self.server.call("GET", type.path(namespace), params=params, accept=type.accept("List"))
        items = found.get("items") or ()
        return (self.resource(type, items[0]) if items else None), int(found["metadata"]["resourceVersion"])


def not_found(type: KubernetesType[Any], id: pb.Id) -> NotFound:
    """Return the error for an object that is not there."""
    of = f" with uid {id.uid}" if id.uid else ""
    return of_call(NotFound(f"{type.name.kind} {id.name}{of} not found"))
