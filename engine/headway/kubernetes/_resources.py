"""The resource service over an API server: reads, lists and watches. `_writing.py` has the writes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from typing import Any

import trio
from typing_extensions import override

from headway.api import Call, ResourceApi, Stream
from headway.errors import InvalidArgument, NotFound, PermissionDenied, StoreChanged
from headway.kubernetes._cluster import Cluster, not_found
from headway.kubernetes._objects import resource_of
from headway.kubernetes._types import KubernetesType
from headway.kubernetes._watch import TypeWatch
from headway.kubernetes._watched import METADATA_LIST, Watched
from headway.kubernetes._writing import Writing
from headway.resource import (
    EVENT,
    Bookmark,
    EndOfSnapshot,
    ScopeConfirmed,
    StreamItem,
    pb,
    position,
    resource_id,
    resource_key,
    type_name,
)


class Resources(Writing, ResourceApi):
    """The resources of a cluster."""

    @override
    async def read(self, call: Call, request: pb.ReadRequest, /) -> pb.ReadResponse:
        """Return one resource by its id, as it is at the time of the call or later."""
        if request.id is not None and type_name(request.id.type) == EVENT.name:
            raise NotFound(f"{resource_id(request.id)} not found: events are in the cluster's own")
        type, id = self._named(request.id)
        if request.min_revision:
            found, revision = await self._cluster.read_at(type, id)
        else:
            found = await self._cluster.read(type, id)
            revision = 0 if found is None else int(found.version)
        if found is None or found.id is None or (id.uid and found.id.uid != id.uid):
            raise not_found(type, id)
        return pb.ReadResponse(resource=found, position=self._position(revision))

    @override
    async def list(self, call: Call, request: pb.ListRequest, /) -> pb.ListResponse:
        """Return the resources of a type, or one page of them."""
        return await self._listed(request)

    async def _listed(self, request: pb.ListRequest, accept: str = "") -> pb.ListResponse:
        type = self._cluster.type_of(request.type)
        range = self._cluster.range(request.tenancy, request.name_prefix, request.metadata_filter)
        watched = Watched(type, range)
        params = {**watched.params, "limit": str(request.page_size or 500), "continue": request.page_token}
        accept = accept or type.accept("List")
        resources: list[pb.Resource] = []
        while True:
            found = await self._cluster.server.call("GET", watched.path, params=params, accept=accept)
            made = [resource_of(type, each, self._cluster.type_of_object) for each in found.get("items") or ()]
            resources += [each for each in made if range.matches(resource_key(each))]
            params["continue"] = found["metadata"].get("continue", "")
            if request.page_size or not params["continue"]:
                break
        revision = int(found["metadata"]["resourceVersion"])
        return pb.ListResponse(
            resources=sorted(resources, key=resource_key),
            position=self._position(revision),
            next_page_token=params["continue"],
        )

    @override
    async def list_by_owner(self, call: Call, request: pb.ListByOwnerRequest, /) -> pb.ListByOwnerResponse:
        """Return the resources of the program's types that an object owns as their controller.

        A call with ``view`` in its metadata is for a person: payloads are read of events alone, and a type that the
        program may not list, or that the cluster does not have, hides no other.
        """
        owner, view = request.owner, "view" in call.metadata
        if owner is None or not owner.uid:
            raise InvalidArgument("owner must be an id with a uid")
        found: list[pb.Resource] = []
        revision = 0
        kinds = {each.kind: each for each in self._cluster.registry if isinstance(each, KubernetesType)}
        for type in kinds.values():
            tenancy = owner.tenancy if type.tenancy.namespace else None
            accept = METADATA_LIST if view and type.name.kind != EVENT.name.kind else ""
            with suppress(*((PermissionDenied, NotFound) if view else ())):
                listed = await self._listed(pb.ListRequest(type=type.message, tenancy=tenancy), accept)
                assert listed.position is not None
                revision = listed.position.revision
                found += [each for each in listed.resources if each.owner is not None and each.owner.uid == owner.uid]
        return pb.ListByOwnerResponse(resources=found, position=self._position(revision))

    @override
    def watch_list(self, call: Call, request: pb.WatchListRequest, /) -> Stream[StreamItem | ScopeConfirmed]:
        """Send a snapshot of a type, its end, and then every change."""
        return self._watch(call, request)

    @asynccontextmanager
    async def _watch(self, call: Call, request: pb.WatchListRequest) -> AsyncIterator[AsyncIterator[Any]]:
        cluster = self._cluster
        store_id = await cluster.identify()
        known = position(request.known) or position(request.resume_after)
        if known is not None and known.store_id != store_id:
            raise StoreChanged(f"the cluster is now {store_id}, no longer {known.store_id}")
        type = cluster.registry.resolve(type_name(request.type))
        if not isinstance(type, KubernetesType):
            asked = _Asked()
            call.ask = asked
            async with aclosing(_of_no_object(cluster, asked, request)) as nothing:
                yield nothing
            return
        range = cluster.range(request.tenancy, request.name_prefix, request.metadata_filter)
        resume = position(request.resume_after)
        watch = TypeWatch(
            cluster.server,
            Watched(type, range),
            partial(cluster.delivered, type),
            store_id,
            resume=None if resume is None else resume.revision,
            before=None if resume is None else cluster.last_watch(type, range, resume.revision),
        )
        if known is not None and resume is None and (here := await watch.position()) < known.revision:
            raise StoreChanged(f"{type.name} is at {here}, but {known.revision} was known")
        with cluster.watched(type, range, watch):
            async with watch.items() as items:
                call.ask = watch.ask
                begins = partial(cluster.begins, type, range)
                async with aclosing(_begun(items, request, call, watch, begins)) as begun:
                    yield begun


async def _begun(
    items: AsyncIterator[StreamItem],
    request: pb.WatchListRequest,
    call: Call,
    watch: TypeWatch,
    begins: Callable[[int], None],
) -> AsyncGenerator[Any, None]:
    """Yield the items of a stream, after the confirmation of a scope, up to the end of the snapshot if wanted."""
    if request.metadata_filter:
        yield ScopeConfirmed(request.metadata_filter)
    if request.resume_after is not None and not call.asks:
        # Its reader waits for what has happened up to now, and cannot ask.
        await watch.ask_now()
    async for item in items:
        yield item
        if isinstance(item, EndOfSnapshot):
            if request.snapshot_only:
                return
            if call.asks:
                # It feeds a cache.
                begins(item.position.revision)


class _Asked:
    """The highest revision that a reader has asked for."""

    def __init__(self) -> None:
        self.wanted = 0
        self.changed = trio.Event()

    def __call__(self, revision: int) -> None:
        self.wanted = max(self.wanted, revision)
        self.changed.set()


async def _of_no_object(cluster: Cluster, asked: _Asked, request: pb.WatchListRequest) -> AsyncGenerator[Any, None]:
    """Yield the stream of one of Headway's own types, which a cluster does not have."""
    resume = position(request.resume_after)
    revision = await cluster.now() if resume is None else resume.revision
    at = cluster.position(revision)
    yield EndOfSnapshot(at) if resume is None else Bookmark(at, resumed=True)
    while not request.snapshot_only:
        await asked.changed.wait()
        asked.changed = trio.Event()
        if revision < asked.wanted:
            revision = await cluster.now()
            yield Bookmark(cluster.position(revision))
