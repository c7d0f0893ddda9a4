"""The proxies that are connected to this process: their streams, and what they have answered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import trio

import headway
from headway.errors import HeadwayError, PermissionDenied
from headway.resource import DEFAULT_UNIT
from mesh.proxies.names import LOCAL
from mesh.types import PROXY_STATE_TEMPLATE
from mesh.xds import Answers, Feedback, Kind, Publish, Rejection, Resource, Snapshot
from mesh.xds.messages import Node
from mesh.xds.translation import roots_secret

Key = tuple[str, str, str]
May = Callable[[headway.ResourceId], bool]
"""Returns True if the caller of a stream may write a resource."""

_SHOWN = 5


def template_of(node: Node) -> headway.ResourceId:
    """Return the id of the template of a node, whose metadata may have ``partition`` and ``namespace``.

    Raises:
        InvalidArgument: it cannot be the name of a template.
    """
    fields = node.metadata.fields if node.metadata is not None else {}
    units = {unit: fields[unit].string_value if unit in fields else None for unit in ("partition", "namespace")}
    return PROXY_STATE_TEMPLATE.id(
        node.id, partition=units["partition"] or DEFAULT_UNIT, namespace=units["namespace"] or DEFAULT_UNIT
    )


class Connected:
    """One stream of a proxy.

    Args:
        publish: gives the stream a snapshot.
        may: the rights of its caller.

    Attributes:
        is_awaited: True if the status of the template waits for the answer of the proxy.
    """

    def __init__(self, publish: Publish, may: May) -> None:
        self._publish = publish
        self._may = may
        self._latest: Snapshot | None = None
        self._answered: Snapshot | None = None
        self._answers: Answers | None = None
        self._words: dict[tuple[Kind, str], tuple[str, str]] = {}
        self._told: dict[tuple[Kind, str], tuple[str, str]] = {}
        self.is_awaited = False

    def publish(self, identity: headway.ResourceId, snapshot: Snapshot) -> None:
        """Give the proxy a snapshot, if its caller has the right to the identity. Otherwise, its stream ends."""
        if not self._may(identity):
            self._publish(denied())
            return
        latest = self._latest
        if latest is None or any(latest[kind] != snapshot[kind] for kind in Kind):
            self._latest = snapshot
            self._publish(snapshot)

    @property
    def has_answered(self) -> bool:
        """True if the proxy has accepted or rejected all of the latest snapshot."""
        return self._latest is not None and self._answered is self._latest

    def has_accepted(self, resource: Resource) -> bool:
        """Return True if the proxy has accepted this version of a resource, or needs none of the name."""
        need = resource.kind, resource.name
        if self._latest is None:
            return False
        if all(need not in each.needs for each in self._latest):
            return True
        return self._answers is not None and self._answers.accepted(*need) == resource.version

    def note_rejected(self, rejection: Rejection) -> None:
        """Keep the proxy's words."""
        for name, version in rejection.versions.items():
            self._words[rejection.kind, name] = version, rejection.words

    def note_synced(self, answers: Answers) -> bool:
        """Note that the proxy has answered everything. Return True if the status may change by it."""
        self._answers, rejected = answers, answers.rejected
        # Those of a version that was replaced, or accepted when it was sent alone, are no longer true.
        words = {
            (kind, name): said
            for (kind, name), said in self._words.items()
            if rejected.get(kind, {}).get(name) == said[0]
        }
        changes = self.is_awaited or words != self._told
        self._answered, self._words, self._told, self.is_awaited = self._latest, words, dict(words), False
        return changes

    def rejections(self) -> list[str]:
        """Return what the proxy has rejected, in its words."""
        ordered = sorted(self._words.items(), key=lambda each: (each[0][0].name, each[0][1]))
        return [f"{kind.name.lower()} {name}: {words}" for (kind, name), (_, words) in ordered[:_SHOWN]]


def denied() -> HeadwayError:
    """Return the error of a caller without the right to the identity of a proxy."""
    return PermissionDenied("permission denied: you may not write the WorkloadIdentity of this proxy")


class Proxies:
    """The proxies that are connected to this process."""

    def __init__(self) -> None:
        self._streams: dict[Key, list[Connected]] = {}
        self._enqueue: Callable[[headway.ResourceId], None] = lambda _: None

    def __contains__(self, id: headway.ResourceId) -> bool:
        """Return True if the proxy of a template is connected."""
        return id.key in self._streams

    def streams(self, id: headway.ResourceId) -> list[Connected]:
        """Return the streams of the proxy of a template. For a while, it may have two."""
        return list(self._streams.get(id.key, ()))

    def __iter__(self) -> Iterator[headway.ResourceId]:
        """Iterate over the templates of the proxies."""
        for partition, namespace, name in list(self._streams):
            yield PROXY_STATE_TEMPLATE.id(name, partition=partition, namespace=namespace)

    def all_have(self, roots: tuple[str, ...]) -> bool:
        """Return True if each connected proxy has accepted these roots, in PEM and in this order."""
        bundle = Resource.of(roots_secret(LOCAL, roots))
        return all(each.has_accepted(bundle) for streams in self._streams.values() for each in streams)

    @asynccontextmanager
    async def open(self, node: Node, publish: Publish, may: May) -> AsyncIterator[Feedback]:
        """Publish to a stream of a node, until the end of the block."""
        id = template_of(node)
        one = Connected(publish, may)
        self._streams.setdefault(id.key, []).append(one)
        self._enqueue(id)
        try:
            yield Feedback(
                rejected=one.note_rejected,
                synced=lambda answers: self._enqueue(id) if one.note_synced(answers) else None,
            )
        finally:
            # Only this stream: the proxy may have connected anew before.
            streams = self._streams[id.key]
            streams.remove(one)
            if not streams:
                del self._streams[id.key]
                self._enqueue(id)

    async def follow(self, _: headway.Runtime, enqueue: headway.sources.Enqueue) -> None:
        """Reconcile the templates of proxies that come, go or answer: a source of the controller."""
        self._enqueue = enqueue
        try:
            for each in self:
                enqueue(each)
            await trio.sleep_forever()
        finally:
            self._enqueue = lambda _: None
