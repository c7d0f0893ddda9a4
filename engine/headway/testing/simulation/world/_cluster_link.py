"""The connection of a process to a modeled API server: the calls that reconcilers cause are steps, as on any link."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, cast

import trio
from typing_extensions import override

from headway.api import Code, NotBegun
from headway.controller import App
from headway.errors import HeadwayError
from headway.kubernetes._leases import NAME
from headway.kubernetes._open import open_channel
from headway.resource import Kind
from headway.rpc import Channel
from headway.testing.kubernetes import Front
from headway.testing.simulation import faults
from headway.testing.simulation._trace import Delivered
from headway.testing.simulation.world._cluster import NAMESPACE, ClusterServer, Writer, written_by
from headway.testing.simulation.world._link import Link
from headway.testing.simulation.world._process import Process
from headway.testing.simulation.world._streams import Streams
from headway.testing.simulation.world._traced_app import RECONCILE
from headway.testing.simulation.world._wire import WireBroken, WireStream

_AGAIN = 1.0
_VERBS = {"GET": "read", "POST": "create", "PUT": "replace", "DELETE": "delete", "PATCH": "patch"}
_APPLY = "application/apply-patch+yaml"
_END = "k8s.io/initial-events-end"


class ClusterLink(Link):
    """A connection with the methods of `headway.kubernetes`' client. `opened` opens a channel over it."""

    @property
    def _cluster(self) -> ClusterServer:
        return cast("ClusterServer", self._server)

    @property
    def _front(self) -> Front:
        return self._cluster.front

    @override
    @asynccontextmanager
    async def opened(self, app: App) -> AsyncIterator[Channel]:
        """Open a channel, which a program that cannot reach the cluster tries again."""
        self._cluster.check_watched(type for each in app.controllers.values() for type in each.types)
        while True:
            async with AsyncExitStack() as stack:
                try:
                    opened = open_channel(self, app.registry, NAMESPACE)  # type: ignore[arg-type]  # the same methods
                    channel = await stack.enter_async_context(opened)
                except HeadwayError:
                    pass
                else:
                    yield channel
                    return
            await trio.sleep(_AGAIN)

    async def call(self, method: str, path: str, *, body: Any = None, **options: Any) -> Any:
        """Make a call, as a numbered step if a reconciler causes it."""
        # Written now, because a late call must send what the caller passed.
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        reconcile, write = RECONCILE.get(), method != "GET"
        lease, holder = _acquired(body) if reconcile is None and write else ("", "")
        manager = str((options.get("params") or {}).get("fieldManager", ""))
        writer = Writer(manager.rpartition("/")[2] if "/" in manager else "", 1)
        if reconcile is not None:
            writer = Writer(reconcile.controller, reconcile.term)

        async def call() -> Any:
            if lease:
                await self._cluster.store.wait_turn(lease, holder)
            with written_by(writer):
                reply = await self._front.call(method, path, body=sent, **options)
            if lease:
                self._cluster.store.acquired(lease, holder)
            return reply

        try:
            if reconcile is None:
                return await self.beside(call)
            target = self._cluster.servers[0].target(path)
            name = target.name or (str(body["metadata"].get("name", "")) if isinstance(body, dict) else "")
            kind, key = self._cluster.place_of(target.stored._replace(name=name), target.kind.kind)
            what = (
                "apply" if options.get("content_type") == _APPLY else _VERBS[method] if target.name or write else "list"
            )
            what += f" the {target.subresource} of" if target.subresource else ""
            return await self.step(reconcile, what, kind, key, call, write=write)
        except WireBroken as error:
            if write:
                raise
            raise NotBegun(Code.UNAVAILABLE, str(error)) from error

    @asynccontextmanager
    async def watch(
        self, path: str, params: Mapping[str, Any] | None = None, **options: Any
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch over the wire, and record what the process receives."""
        try:
            await self.through(trio.lowlevel.checkpoint)
            target = self._cluster.servers[0].target(path)
            kind, _ = self._cluster.place_of(target.stored, target.kind.kind)
            # The objects of a snapshot are not recorded.
            note = partial(self._note_line, kind, [not (params or {}).get("sendInitialEvents")])
            async with WireStream(self, self._front.watch(path, params, **options), note) as lines:
                yield lines
        except WireBroken as error:
            raise NotBegun(Code.UNAVAILABLE, str(error)) from error

    def _note_line(self, kind: Kind, begun: list[bool], line: bytes) -> None:
        if self.dead:
            return
        self.passed += 1
        event = json.loads(line)
        meta = event["object"].get("metadata") or {}
        if event["type"] == "BOOKMARK":
            ends = _END in (meta.get("annotations") or {})
            begun[0] = begun[0] or ends
            what = "the end of a snapshot" if ends else "a bookmark"
        elif event["type"] == "ERROR":
            return
        else:
            what = f"{meta['name']} {'deleted' if event['type'] == 'DELETED' else 'stored'}"
        if begun[0]:
            revision = int(meta["resourceVersion"])
            self._injector.trace.add(Delivered(trio.current_time(), self._process, kind, what, revision))

    @override
    def strike_server(self, fault: faults.ApiServerFault) -> None:
        """Let the API servers behave otherwise for some seconds."""
        self._cluster.strike(fault)

    @override
    def answer(self, reply: Any) -> str:
        """Return the versions of what was read."""
        items = reply.get("items", [reply])
        return " ".join(f"{each['metadata'].get('name')} {each['metadata'].get('resourceVersion')}" for each in items)


def _acquired(body: Any) -> tuple[str, str]:
    """Return the name and the holder of the program's lease that a write acquires or renews, if it does."""
    if not isinstance(body, dict) or not (holder := (body.get("spec") or {}).get("holderIdentity", "")):
        return "", ""
    return body["metadata"].get("annotations", {}).get(NAME, ""), holder


class ClusterStreams(Streams):
    """The faults of the streams of a cluster: those of the watch caches of its API servers."""

    server: ClusterServer

    @override
    def harm(self, kind: Kind, fault: faults.ChangeFault) -> None:
        """Apply a fault, now that its change has been committed."""
        if isinstance(fault, faults.GarbageLate):
            self.server.delay_garbage(fault.seconds)
        else:
            if isinstance(fault, faults.Missed):
                self._evict(None)
            super().harm(kind, fault)

    @override
    def begin(self, process: Process, link: Link) -> None:
        """Do nothing: a fault of an API server is the same for a process that begins a life."""

    @override
    def _lose(self, kind: Kind) -> None:
        self._evict(kind)
        self._drop(kind)

    def _evict(self, kind: Kind | None) -> None:
        for each in self.server.servers:
            each.cache.evict(None if kind is None else self.server.kind_of(kind))

    @override
    def _drop(self, kind: Kind) -> None:
        self.server.front.server.cut(self.server.kind_of(kind))

    @override
    def _hold(self, kind: Kind) -> None:
        self._held[kind] += 1
        for each in self.server.servers:
            each.cache.hold(self.server.kind_of(kind), self.server.model.revision - 1)

    @override
    def _release(self, kind: Kind) -> None:
        self._held[kind] -= 1
        if not self._held[kind]:
            for each in self.server.servers:
                each.cache.release(self.server.kind_of(kind))
