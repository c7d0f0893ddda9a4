"""The server of a run on Kubernetes: a modeled cluster with two API servers, and what the simulation reads of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import trio
from typing_extensions import override

from headway.client import Client
from headway.controller import App
from headway.errors import CallerError, DeclarationError, NotFound
from headway.kubernetes import KubernetesType, crds
from headway.kubernetes._cluster import Cluster
from headway.kubernetes._leases import NAME, object_name
from headway.kubernetes._objects import PARTITION, resource_of
from headway.kubernetes._open import open_channel
from headway.kubernetes._types import CORE
from headway.kubernetes._verbs import ask_for, taken_verb
from headway.protobuf import copy_message
from headway.resource import Key, Kind, Position, Registry, Resource, ResourceId, ResourceType, Scope, pb
from headway.testing.kubernetes import (
    Commit,
    Front,
    ModelCluster,
    ModelServer,
    Name,
    Options,
    Target,
    collect_garbage,
    copied,
    end_namespaces,
    has_work,
)
from headway.testing.kubernetes import Kind as ModelKind
from headway.testing.simulation import faults
from headway.testing.simulation._trace import Committed, Happened
from headway.testing.simulation.oracles import ROLLED_BACK
from headway.testing.simulation.world._injector import Injector
from headway.testing.simulation.world._server import ANOTHER_WRITER
from headway.testing.simulation.world._store import LONGEST_HANDOVER, Resources, asked_again
from headway.versions import chain_of

NAMESPACE = "default"
"""The namespace of the leases."""

_GARBAGE = 1.0
"""The number of seconds after which the garbage collector works."""
_BUMP = 1000
_ASKS = 30
_OF_OBJECT = ("apply", "write", "delete")
"""The wishes of users of which only the last one counts."""

_OPEN_SCHEMA = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


Wish = tuple[str, Resource[Any] | ResourceId]
"""What users have asked for: the verb, with what it is about."""


class Writer(NamedTuple):
    """The one that makes a call: a controller in a term. A user has neither; Headway and Kubernetes have a term."""

    by: str = ""
    term: int = 0


_USER = Writer()
WRITER: ContextVar[Writer] = ContextVar("headway.simulation.writer", default=_USER)


@contextmanager
def written_by(writer: Writer) -> Iterator[None]:
    """Attribute what is committed while the block runs."""
    token = WRITER.set(writer)
    try:
        yield
    finally:
        WRITER.reset(token)


class ClusterStore:
    """The objects of the program's types in a modeled cluster, as resources, and the leases of the program.

    It has what the simulation uses of a `SimulatedStore`.
    """

    def __init__(self, model: ModelCluster, store_id: str) -> None:
        self.model = model
        self._store_id = store_id
        self.now: Resources = {}
        self._history: list[tuple[int, Resources]] = [(0, {})]
        # The processes that are to acquire leases next, by the lease's name.
        self._heirs: dict[str, str] = {}
        self._handed_over = trio.lowlevel.ParkingLot()

    @property
    def position(self) -> Position:
        """The position of the last change of the program's types."""
        return Position(self._store_id, "", self._history[-1][0])

    def note(self, revision: int, kind: Kind, key: Key, new: pb.Resource | None) -> pb.Resource | None:
        """Note a change, and return the state before it."""
        old = self.now.get((kind, key))
        self.now = {place: each for place, each in self.now.items() if place != (kind, key)}
        if new is not None:
            self.now[kind, key] = new
        self._history.append((revision, self.now))
        return old

    def restore(self, revision: int) -> None:
        """Put the state of a revision back, at a later revision."""
        self.now = next(there for made, there in reversed(self._history) if made <= revision)
        self.model.restore(revision, _BUMP + self.model.revision - revision)
        self._history.append((self.model.revision, self.now))

    # Leases.

    def _leases(self) -> Iterator[tuple[str, Target, str]]:
        kind = self.model.kind("coordination.k8s.io", "Lease")
        for name, each in list(self.model.objects.items()):
            if name.plural == kind.plural and (holder := each["spec"].get("holderIdentity")):
                lease = (each["metadata"].get("annotations") or {}).get(NAME)
                if lease and name.name == object_name("lease", lease):
                    yield lease, Target(kind, name.namespace, name.name), holder

    def _end(self, lease: Target) -> None:
        def make(object: dict[str, Any]) -> dict[str, Any]:
            del object["spec"]["holderIdentity"]
            return object

        self.model.update(lease, make, Options("another"))

    def end_leases(self) -> None:
        """Take every lease from its holder."""
        for _, lease, _ in self._leases():
            self._end(lease)

    async def begin_terms(self) -> None:
        """Take every lease from its holder, and wait until it has acquired it again."""
        for name, lease, holder in self._leases():
            self._heirs[name] = holder
            self._end(lease)
        with trio.move_on_after(LONGEST_HANDOVER):
            await self.wait_handed_over()

    def hand_over(self, names: Iterable[str], leader: str) -> None:
        """Take these leases from their holders, unless it is this process, so that it acquires them next."""
        held = {name: (lease, holder) for name, lease, holder in self._leases()}
        for name in names:
            lease, holder = held.get(name, (None, ""))
            if holder != leader:
                self._heirs[name] = leader
                if lease is not None:
                    self._end(lease)

    async def wait_handed_over(self) -> None:
        """Wait until every process has acquired what it was handed."""
        while self._heirs:
            await self._handed_over.park()

    async def wait_turn(self, name: str, holder: str) -> None:
        """Wait while a lease is being handed to another process, for some seconds."""
        with trio.move_on_after(LONGEST_HANDOVER):
            while self._heirs.get(name, holder) != holder:
                await self._handed_over.park()

    def acquired(self, name: str, holder: str) -> None:
        """Note that a process has acquired a lease."""
        if self._heirs.get(name) == holder:
            del self._heirs[name]
            self._handed_over.unpark_all()


class ClusterServer:
    """The modeled cluster of a run. It has what the simulation uses of a `Server`.

    Attributes:
        store: the objects as resources.
        client: reads and writes as a user, without faults.
        front: the address of the API servers for the processes of the program.

    Args:
        types: the types of the program.
        now: the time in seconds.
        on_restart: called when the API servers restart, to break the connections to them.
        harm_streams: called with the fault of a change that was committed.
    """

    client: UsersClient

    def __init__(
        self,
        injector: Injector,
        types: Registry,
        *,
        now: Callable[[], float],
        on_restart: Callable[[], None],
        harm_streams: Callable[[Kind, faults.ChangeFault], None],
    ) -> None:
        self._injector = injector
        self._on_restart = on_restart
        self._harm_streams = harm_streams
        self.model = ModelCluster(now=now)
        # Each has a watch cache of its own.
        self.servers = [ModelServer(self.model), ModelServer(self.model)]
        self.front = Front(self.servers[0])
        self._users = ModelServer(self.model)
        self._cluster = Cluster(self._users, types, NAMESPACE)  # type: ignore[arg-type]  # the same methods
        self._define(types)
        self.model.on_commit = self._committed
        system = Target(self.model.kind("", "Namespace"), "", "kube-system")
        self.store = ClusterStore(self.model, self.model.read(system)["metadata"]["uid"])
        self._sweeps = False
        self._garbage_due = 0.0

    def _define(self, types: Registry) -> None:
        """Let the cluster serve the types of the program."""
        app = App("types")
        app.registry = types
        self._cluster.registry = types
        self._types: dict[tuple[str, str], KubernetesType[Any]] = {}
        model, kind = self.model, self.model.kind("apiextensions.k8s.io", "CustomResourceDefinition")
        for each in crds(app):
            target = Target(kind, "", each["metadata"]["name"])
            if target.stored not in model.objects:
                model.create(target, each, Options())
            elif model.objects[target.stored]["spec"] != each["spec"]:
                model.update(target, lambda old, spec=each["spec"]: {**old, "spec": spec}, Options())  # type: ignore[misc]
        for type in types:
            if not isinstance(type, KubernetesType):
                continue
            group, *_ = place = _place(type)
            stored = type.crd is None or type.crd[1].stored
            if stored or (group, type.plural) not in self._types:
                self._types[group, type.plural] = type
            if place not in model.kinds:
                # A type of another program, whose schema is not known here.
                made = ModelKind(
                    group,
                    type.name.version,
                    type.name.kind,
                    type.plural,
                    namespaced=type.scope is Scope.NAMESPACE,
                    status=True,
                    generation=True,
                    put_needs_version=True,
                    schema=_OPEN_SCHEMA,
                )
                model.kinds[place] = made
        for type in types:
            if isinstance(type, KubernetesType) and chain_of(types, type.kind) is not None:
                self._check_version(type, self._types[type.name.group, type.plural])
        model.any_namespace = ("", "namespaces") not in self._types

    def _check_version(self, type: KubernetesType[Any], stored: KubernetesType[Any]) -> None:
        """Refuse a version that the cluster would have to convert, and an upgrade that changes the stored version."""
        place, advice = _place(type), f"a simulation on Kubernetes converts no objects: use the stored {stored.name}"
        if type is not stored:
            kind = self.model.kinds[place]
            self.model.kinds[place] = dataclasses.replace(kind, unserved=f"{type.name}: {advice}")
        for name, each in self.model.objects.items():
            if (name.group, name.plural) == place[::2] and each["apiVersion"] != stored.api_version:
                raise DeclarationError(f"{stored.name} {name.name} is stored as {each['apiVersion']}: {advice}")

    def check_watched(self, types: Iterable[object]) -> None:
        """Raise DeclarationError if a controller watches a version that the cluster would have to convert."""
        for type in types:
            if isinstance(type, KubernetesType) and (kind := self.model.kinds[_place(type)]).unserved:
                raise DeclarationError(kind.unserved)

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve users."""
        async with open_channel(self._users, self._cluster.registry, NAMESPACE) as channel:  # type: ignore[arg-type]
            self.client = UsersClient(channel, self._cluster.registry)
            task_status.started()
            await trio.sleep_forever()

    async def serve_beside(self) -> None:
        """Do nothing: no engine shares a cluster."""

    async def serve_types(self, types: Registry) -> None:
        """Let the cluster serve other types."""
        self._define(types)
        self.client._registry = types

    async def restart(self) -> None:
        """Restart the API servers. Their watch caches begin anew."""
        for each in self.servers:
            each.restart()
        self._on_restart()
        await trio.lowlevel.checkpoint()

    async def wait_up(self) -> None:
        """Return: users always reach the cluster."""
        await trio.lowlevel.checkpoint()

    async def wait_idle(self) -> None:
        """Return: the injector knows of work that is due."""
        await trio.lowlevel.checkpoint()

    def strike(self, fault: faults.ApiServerFault) -> None:
        """Let the API servers behave otherwise for some seconds."""
        if isinstance(fault, faults.Throttled):
            self._throttle(429)
            self._injector.after(fault.seconds, lambda: self._throttle(0))
        else:
            present = self.front.server
            other = next(each for each in self.servers if each is not present)
            other.cache.hold()
            self.front.fail_over(other)
            self._injector.after(fault.seconds, other.cache.release)

    def _throttle(self, code: int) -> None:
        for each in self.servers:
            each.refuses = code

    async def restore(self, revision: int) -> None:
        """Restore etcd from a backup. Then users ask again for what is lost."""
        self.store.restore(revision)
        self._injector.trace.add(Happened(trio.current_time(), ROLLED_BACK))
        self._on_restart()
        for wish in self.client.wishes():
            try:
                await self.client.ask_again(*wish)
            except CallerError:
                self._injector.begin_pending()
                self._injector.nursery.start_soon(self._ask_later, wish)
        self._sweep()

    async def _ask_later(self, wish: Wish) -> None:
        """Ask for something, such as a label of an object, when the program may have made the object again."""
        for _ in range(_ASKS):
            await trio.sleep(1)
            try:
                await self.client.ask_again(*wish)
            except CallerError:
                continue
            break
        self._injector.end_pending()

    async def overtake(self, kind: Kind, key: Key) -> bool:
        """Write a resource as another writer, who adds a label. Return False if it does not exist."""
        await trio.lowlevel.checkpoint()
        target = self._target(kind, key)
        if target is None or target.stored not in self.model.objects:
            return False

        def make(object: dict[str, Any]) -> dict[str, Any]:
            object["metadata"].setdefault("labels", {})[ANOTHER_WRITER] = "was-first"
            return object

        self.model.update(target, make, Options(ANOTHER_WRITER))
        return True

    def kind_of(self, kind: Kind) -> ModelKind | None:
        """Return the model's type of a type of the program."""
        type = next((each for each in self._types.values() if each.kind == kind), None)
        if type is None:
            return None
        return self.model.kinds.get(_place(type))

    def _target(self, kind: Kind, key: Key) -> Target | None:
        found = self.kind_of(kind)
        return None if found is None else Target(found, key[1], key[2])

    def place_of(self, name: Name, kind: str) -> tuple[Kind, Key]:
        """Return the type and the key of an object."""
        return (name.group or CORE, kind), (PARTITION if name.namespace else "", name.namespace, name.name)

    def _committed(self, commit: Commit) -> None:
        type = self._types.get(commit.name[:2])
        found = commit.object or commit.before
        if type is None or found is None or NAME in (found["metadata"].get("annotations") or {}):
            # The leases of the program are no objects of its types.
            return
        kind, key = self.place_of(commit.name, type.name.kind)
        new = None
        if commit.object is not None:
            new = resource_of(type, copied(commit.object), self._cluster.type_of_object)
        old = self.store.note(commit.revision, kind, key, new)
        by, term = WRITER.get()
        injector, revision = self._injector, commit.revision
        if (step := injector.writer_of(kind, key)) is not None:
            step.revision = revision
            if old is None and step.outcome.startswith("on its way") and self.model.created[commit.name] > 1:
                # It was made, deleted, and is made by the late call: the exception of C5 on Kubernetes.
                by, term = "", 1
        injector.trace.add(Committed(trio.current_time(), revision, kind, key, old, new, by, term))
        injector.reach(revision)
        if (fault := injector.strike_change(kind, revision)) is not None:
            self._harm_streams(kind, fault)
        self._sweep()

    # Garbage.

    def delay_garbage(self, seconds: float) -> None:
        """Let the garbage collector do nothing for some seconds."""
        self._garbage_due = trio.current_time() + seconds

    def _sweep(self) -> None:
        """Let the garbage collector work soon, unless it will."""
        if not self._sweeps and has_work(self.model):
            self._sweeps = True
            self._injector.after(max(_GARBAGE, self._garbage_due - trio.current_time()), self._collect)

    def _collect(self) -> None:
        self._sweeps = False
        with written_by(Writer(term=1)):
            # One at a time: controllers see what is between.
            if not collect_garbage(self.model, 1):
                end_namespaces(self.model)
        self._sweep()


def _place(type: KubernetesType[Any]) -> tuple[str, str, str]:
    """Return the place of a type in the model's types."""
    return "" if type.name.group == CORE else type.name.group, type.name.version, type.plural


class UsersClient(Client):
    """The client of users, who ask again for what they want after their cluster was restored from a backup."""

    def __init__(self, channel: Any, registry: Registry) -> None:
        super().__init__(channel, registry)
        # The last wish of each kind for each object, by the name of the object and what it is about.
        self._wishes: dict[tuple[object, str], Resource[Any] | ResourceId] = {}

    def _wish(self, what: str, resource: Resource[Any] | ResourceId) -> None:
        of = (resource.id if isinstance(resource, Resource) else resource).without_uid()
        outlived = _OF_OBJECT if what in _OF_OBJECT else (what,)
        for each in (*outlived, "status", "scale") if what == "delete" else outlived:
            self._wishes.pop((of, each), None)
        self._wishes[of, what] = resource.copy() if isinstance(resource, Resource) else resource

    @override
    async def apply(self, resource: Resource[Any], **options: Any) -> Resource[Any]:
        self._wish("apply", resource)
        return await super().apply(resource, **options)

    @override
    async def create(self, resource: Resource[Any]) -> Resource[Any]:
        self._wish("write", resource)
        return await super().create(resource)

    @override
    async def write(self, resource: Resource[Any]) -> Resource[Any]:
        self._wish("write", resource)
        return await super().write(resource)

    @override
    async def delete(self, resource: Resource[Any] | ResourceId, *, version: str = "*") -> Resource[Any] | None:
        self._wish("delete", resource)
        return await super().delete(resource, version=version)

    @override
    async def _write(self, type: ResourceType[Any], message: pb.Resource, *more: Any, **named: Any) -> Resource[Any]:
        verb = taken_verb(dict(message.metadata))
        if verb is not None and verb.name != "apply":
            self._wish(verb.name, type.view(copy_message(message)))
        return await super()._write(type, message, *more, **named)

    def wishes(self) -> list[Wish]:
        """Return what users have asked for, in order."""
        return [(what, wish) for (_, what), wish in self._wishes.items()]

    async def ask_again(self, what: str, wish: Resource[Any] | ResourceId) -> None:
        """Ask for something again."""
        id = (wish.id if isinstance(wish, Resource) else wish).without_uid()
        if what == "delete" or not isinstance(wish, Resource):
            await super().delete(id)
            return
        message, there = wish.message(), await self.get(wish.type, id)
        if what == "apply":
            await super().apply(wish.type.view(asked_again(message)), force=True)
        elif what == "write" and there is None:
            await super().create(wish.type.view(asked_again(message)))
        elif there is None:
            raise NotFound(f"{id} not found")
        else:
            asked = there.message()
            assert isinstance(wish.type, KubernetesType)
            assert message.data is not None
            assert asked.data is not None
            wanted, body = wish.type.body_of(message.data.value), wish.type.body_of(asked.data.value)
            verb = taken_verb(message.metadata)
            if verb is not None:
                ask_for(asked, verb)
            asked.data.value = wish.type.payload_of({**body, "status": wanted.get("status")} if verb else wanted)
            await super()._write(wish.type, asked)


def check_no_peers(peers: object) -> None:
    """Raise DeclarationError if a program on Kubernetes has peers."""
    if peers:
        raise DeclarationError("peers: an engine with peers has a store of Headway, and not a cluster")
