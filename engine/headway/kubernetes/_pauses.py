"""Pauses on a cluster: Leases with a label, in the namespace of the program's leases.

The resources of the type `PAUSE` are the labeled Leases there. So `headway pause`, the live page and
``kubectl label lease NAME headway.dev/paused=REASON`` do the same, with the rights to leases.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from typing_extensions import override

from headway._gen.headway.pause.v1 import Pause
from headway.api import Call, Stream, Wrapper
from headway.errors import NotFound, StoreChanged
from headway.kubernetes._cluster import Cluster
from headway.kubernetes._leases import MANAGED_BY, NAME, object_name
from headway.kubernetes._manifest import Manifest
from headway.kubernetes._resources import Resources
from headway.kubernetes._types import KubernetesType
from headway.kubernetes._watch import TypeWatch
from headway.kubernetes._watched import Watched
from headway.pauses import PAUSE, is_of_pauses, pause_name
from headway.resource import Key, Position, Within, pb, position

PAUSED = "headway.dev/paused"
_REASON = "headway.dev/pause-reason"
_LEASE = KubernetesType("coordination.k8s.io", "v1", "Lease", Manifest, metadata_only=True)


class _WatchedPauses(Watched):
    @override
    def key_of(self, meta: Mapping[str, Any]) -> Key:
        # Pauses have no namespace.
        return ("", "", meta["name"])


class WithPauses(Wrapper):
    """The resources of a cluster, and its pauses."""

    def __init__(self, inner: Resources, cluster: Cluster) -> None:
        super().__init__(inner)
        self._cluster = cluster
        self._path = _LEASE.path(cluster.namespace)

    @override
    async def unary(self, path: str, answer: Callable[[Call, Any], Awaitable[Any]], call: Call, request: Any) -> Any:
        own: dict[str, Callable[[Any], Awaitable[Any]]]
        own = {"Read": self._read, "List": self._list, "Write": self._write, "Delete": self._delete}
        verb = own.get(path.rpartition("/")[2]) if is_of_pauses(request) else None
        return await (answer(call, request) if verb is None else verb(request))

    @override
    def streaming(self, path: str, opened: Callable[[Call, Any], Stream[Any]], call: Call, request: Any) -> Stream[Any]:
        return self._watch(call, request) if is_of_pauses(request) else opened(call, request)

    @asynccontextmanager
    async def _watch(self, call: Call, request: pb.WatchListRequest) -> AsyncIterator[AsyncIterator[Any]]:
        cluster, resume = self._cluster, position(request.resume_after)
        store_id = await cluster.identify()
        known = position(request.known) or resume
        if known is not None and known.store_id != store_id:
            raise StoreChanged(f"the cluster is now {store_id}, no longer {known.store_id}")
        watched = _WatchedPauses(_LEASE, Within("*", cluster.namespace))
        watched.params = {"labelSelector": PAUSED}
        revision = None if resume is None else resume.revision
        watch = TypeWatch(cluster.server, watched, _pause, store_id, resume=revision)
        async with watch.items() as items:
            call.ask = watch.ask
            yield items

    async def _paused(self) -> tuple[list[dict[str, Any]], Position]:
        """Return the Leases with the label, and the position of the list."""
        found = await self._cluster.server.call("GET", self._path, params={"labelSelector": PAUSED})
        return found.get("items") or [], self._cluster.position(int(found["metadata"]["resourceVersion"]))

    async def _list(self, _: pb.ListRequest) -> pb.ListResponse:
        found, here = await self._paused()
        return pb.ListResponse(resources=[_pause(each, False) for each in found], position=here.message())

    async def _read(self, request: pb.ReadRequest) -> pb.ReadResponse:
        found, here = await self._paused()
        for each in found:
            if request.id is not None and request.id.name in _names(each["metadata"]):
                return pb.ReadResponse(resource=_pause(each, False), position=here.message())
        raise NotFound(f"pause {request.id.name if request.id else ''} not found")

    async def _write(self, request: pb.WriteRequest) -> pb.WriteResponse:
        assert request.resource is not None
        pause = PAUSE.view(request.resource).data
        name = object_name("pause", pause.controller)
        labels = {MANAGED_BY: "headway", PAUSED: "true"}
        notes = {NAME: pause.controller, _REASON: pause.reason}
        body = {"metadata": {"name": name, "labels": labels, "annotations": notes}}
        try:
            made = await self._patch(name, body)
        except NotFound:
            made = await self._cluster.server.call("POST", self._path, body=body)
        here = self._cluster.position(int(made["metadata"]["resourceVersion"]))
        return pb.WriteResponse(resource=_pause(made, False), position=here.message())

    async def _delete(self, request: pb.DeleteRequest) -> pb.DeleteResponse:
        found, here = await self._paused()
        for each in found:
            if request.id is not None and request.id.name in _names(each["metadata"]):
                gone = {"labels": {PAUSED: None}, "annotations": {_REASON: None}}
                await self._patch(each["metadata"]["name"], {"metadata": gone})
        return pb.DeleteResponse(position=here.message())

    async def _patch(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        path, kind = f"{self._path}/{name}", "application/merge-patch+json"
        made: dict[str, Any] = await self._cluster.server.call("PATCH", path, body=body, content_type=kind)
        return made


def _pause(object: dict[str, Any], _deleted: bool) -> pb.Resource:
    """Return a labeled Lease as a pause. The label is the reason. If it is "true", an annotation has the reason."""
    meta = object["metadata"]
    notes, label = meta.get("annotations") or {}, (meta.get("labels") or {}).get(PAUSED, "")
    pause = Pause(controller=_controller(meta), reason=notes.get(_REASON, "") if label == "true" else label)
    made = PAUSE.new("pause", pause).message()
    assert made.id is not None
    made.id.name, made.id.uid, made.version = meta["name"], meta["uid"], meta["resourceVersion"]
    return made


def _controller(meta: Mapping[str, Any]) -> str:
    """Return the controller of a Lease of Headway, without the shard or the process in its name."""
    name: str = (meta.get("annotations") or {}).get(NAME, "")
    return name.partition("#")[0]


def _names(meta: Mapping[str, Any]) -> tuple[str, str]:
    """Return the names of a pause: that of its Lease, and that of every pause of its controller."""
    return meta["name"], pause_name(_controller(meta))
