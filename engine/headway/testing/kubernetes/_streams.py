"""The stream of a watch of a `ModelServer`."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Self

import trio

from headway.errors import HeadwayError
from headway.testing.kubernetes._cluster import Commit, ModelCluster, Name, Object, Target
from headway.testing.kubernetes._kinds import Kind
from headway.testing.kubernetes._refused import Refused, expired, of, too_large
from headway.testing.kubernetes._values import selects

_BOOKMARKS = 60.0
_BEFORE_END = 2.0
_LONGEST = 1800.0
_PATIENCE = 3.0
"""The seconds for which a server waits until its cache has a revision."""

_FIELDS = ("metadata.name", "metadata.namespace")


class Cache:
    """The watch cache of a server. It may lag, or lack the history, for all types or for one."""

    def __init__(self, cluster: ModelCluster) -> None:
        self.cluster = cluster
        self.clear()

    def clear(self) -> None:
        """Begin anew at the present state."""
        # By type; None stands for all types.
        self._floors: dict[Kind | None, int] = {None: self.cluster.revision}
        self._held: dict[Kind | None, int] = {}
        self._progress: dict[Kind, int] = {}

    def hold(self, kind: Kind | None = None, at: int | None = None) -> None:
        """Stay behind, at a revision (default: the present one), until `release`."""
        self._held.setdefault(kind, self.cluster.revision if at is None else at)

    def release(self, kind: Kind | None = None) -> None:
        """Catch up."""
        self._held.pop(kind, None)
        self.cluster.wake()

    def evict(self, kind: Kind | None = None) -> None:
        """Forget the history: a watch from an older revision gets 410."""
        self._floors[kind] = self.cluster.revision

    def floor(self, kind: Kind) -> int:
        """Return the revision from which on it has the history of a type."""
        return max(self._floors[None], self._floors.get(kind, 0))

    def visible(self, kind: Kind) -> int:
        """Return the revision up to which it has a type."""
        return min(self._held.get(each, self.cluster.revision) for each in (None, kind))

    def note_read(self, kind: Kind) -> None:
        """Note a consistent read, after which a bookmark of the type is current."""
        self._progress[kind] = self.visible(kind)

    async def caught_up(self, kind: Kind, wanted: int) -> int:
        """Wait until the cache of a type has a revision, and return its own. Raises Refused if that takes too long."""
        with trio.move_on_after(_PATIENCE):
            while self.visible(kind) < wanted:
                await self.cluster.moved.wait()
        if (visible := self.visible(kind)) < wanted:
            raise too_large(wanted, visible)
        return visible

    def bookmark_of(self, kind: Kind, least: int) -> int:
        """Return the revision that the cache of a type has processed."""
        return max(least, self._progress.get(kind, 0))


class Selection:
    """What a list or a watch selects of a type. Raises Refused for a selector that is invalid."""

    def __init__(self, target: Target, params: Mapping[str, str]) -> None:
        self.kind = target.kind
        self.labels = params.get("labelSelector", "")
        self.fields = dict(each.split("=", 1) for each in params.get("fieldSelector", "").split(",") if each)
        self._namespace, self._name = target.namespace, target.name
        if wrong := self.fields.keys() - set(_FIELDS):
            raise of(400, "BadRequest", f"field label not supported: {min(wrong)}")
        try:
            selects(self.labels, {})
        except ValueError as error:
            raise of(400, "BadRequest", f"unable to parse requirement: {error}") from error

    def has(self, name: Name, object: Object | None) -> bool:
        """Return True if an object is selected."""
        if object is None or name[:2] != (self.kind.group, self.kind.plural):
            return False
        if self._namespace and name.namespace != self._namespace:
            return False
        own = {"metadata.name": name.name, "metadata.namespace": name.namespace}
        if any(own[key] != value for key, value in self.fields.items()):
            return False
        return selects(self.labels, object["metadata"].get("labels") or {})


class Stream:
    """The lines of a watch, which is a part of what its server's cache has."""

    def __init__(
        self,
        cache: Cache,
        path: str,
        selection: Selection,
        seen: Callable[[Object], Object],
        params: Mapping[str, str],
    ) -> None:
        self.path = path
        self.kind = selection.kind
        self._cache = cache
        self._cluster = cache.cluster
        self._selection = selection
        self._seen = seen
        self._bookmarks = params.get("allowWatchBookmarks") == "true"
        self._version = params.get("resourceVersion", "")
        self._initial = params.get("sendInitialEvents") == "true"
        self._lines = deque[bytes]()
        self._begun = self._ended = False
        self._error: HeadwayError | None = None
        self._at = 0
        # What a consistent read must have, for a list as a part of the watch.
        self._wanted = int(self._version or self._cluster.revision)
        now = trio.current_time()
        self._deadline = now + float(params.get("timeoutSeconds") or _LONGEST)
        self._next = self._after(now)

    def end(self, error: HeadwayError | None) -> None:
        """End the stream, cleanly or by an error."""
        if not self._ended:
            self._ended, self._error = True, error
            self._cluster.wake()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if not self._begun and not self._ended:
            self._begun = True
            try:
                await self._begin()
            except Refused as error:
                self._put("ERROR", error.status)
                self._ended = True
        while not self._lines:
            if self._error is not None:
                raise self._error
            if self._ended or not self._gather():
                raise StopAsyncIteration
            if not self._lines:
                await self._wait()
        return self._lines.popleft()

    async def _begin(self) -> None:
        cache, kind = self._cache, self._selection.kind
        if self._initial or self._version in ("", "0"):
            self._at = await cache.caught_up(kind, self._wanted) if self._initial else cache.visible(kind)
            for name, each in self._cluster.at(self._at, kind).items():
                if self._selection.has(name, each):
                    self._put("ADDED", self._seen(each))
            if self._initial and self._bookmarks:
                cache.note_read(kind)
                self._bookmark(self._at, {"k8s.io/initial-events-end": "true"})
        else:
            self._at = int(self._version)
            if self._at < (floor := cache.floor(kind)):
                raise expired(f"too old resource version: {self._at} ({floor})")

    def _gather(self) -> bool:
        """Take what the cache has. Return False at the end of the watch."""
        kind, now = self._selection.kind, trio.current_time()
        if self._cluster.kinds.get((kind.group, kind.version, kind.plural)) is not kind:
            return False
        latest = self._cache.visible(kind)
        for commit in self._commits(latest):
            self._take(commit)
        if self._bookmarks and now >= self._next:
            self._next = self._after(now)
            self._bookmark(self._cache.bookmark_of(kind, self._at), {})
        return now < self._deadline or bool(self._lines)

    def _commits(self, latest: int) -> Iterator[Commit]:
        log = self._cluster.log
        start = bisect_right(log, self._at, key=lambda each: each.revision)
        return iter(log[start : bisect_right(log, latest, key=lambda each: each.revision)])

    def _take(self, commit: Commit) -> None:
        before = self._selection.has(commit.name, commit.before)
        now = self._selection.has(commit.name, commit.object)
        if commit.name[:2] == (self._selection.kind.group, self._selection.kind.plural):
            self._at = commit.revision
        if now and commit.object is not None:
            self._put("MODIFIED" if before else "ADDED", self._seen(commit.object))
        elif before and commit.before is not None:
            meta = {**commit.before["metadata"], "resourceVersion": str(commit.revision)}
            self._put("DELETED", self._seen({**commit.before, "metadata": meta}))

    async def _wait(self) -> None:
        until = min(self._deadline, self._next if self._bookmarks else math.inf)
        with trio.move_on_at(until):
            await self._cluster.moved.wait()

    def _after(self, now: float) -> float:
        """Return when the next bookmark is due."""
        before_end = self._deadline - _BEFORE_END
        return before_end if now < before_end < now + _BOOKMARKS else now + _BOOKMARKS

    def _bookmark(self, revision: int, annotations: Mapping[str, str]) -> None:
        kind = self._selection.kind
        meta = {"resourceVersion": str(revision), **({"annotations": annotations} if annotations else {})}
        self._put("BOOKMARK", self._seen({"kind": kind.kind, "apiVersion": kind.api_version, "metadata": meta}))

    def _put(self, kind: str, object: Mapping[str, object]) -> None:
        self._lines.append(json.dumps({"type": kind, "object": object}).encode())
