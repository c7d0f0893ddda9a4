"""`ModelServer`: an API server of a `ModelCluster`, with a watch cache of its own, which may lag, and with faults."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import httpx
import trio

from headway.api import LimitedWaits
from headway.kubernetes._errors import Limited, Request, failed, refused
from headway.kubernetes._merge_patch import patched
from headway.testing.kubernetes._cluster import ModelCluster, Name, Object, Options, Target
from headway.testing.kubernetes._fields import copied
from headway.testing.kubernetes._kinds import Kind
from headway.testing.kubernetes._refused import Refused, expired, invalid, not_found, of, other_uid
from headway.testing.kubernetes._streams import Cache, Selection, Stream
from headway.testing.kubernetes._values import Cause, json_patched, required, wrong

Params = Mapping[str, str | int | bool]

_JSON = "application/json"


class ModelServer:
    """An API server, in memory and in the time of Trio's clock. It has the methods of `headway.kubernetes`' client.

    Args:
        cluster: the objects that it serves. Several servers may share them.

    Attributes:
        timeout: the seconds that a call has, as in the client.
        refuses: the code with which it refuses every call for now, such as 429; 0 if it does not.
        cache: what its watches are served from.
        running: False while the server is stopped.
    """

    def __init__(self, cluster: ModelCluster, *, timeout: float = 30.0) -> None:
        self.cluster = cluster
        self.timeout = timeout
        self.refuses = 0
        self.running = True
        self.cache = Cache(cluster)
        # In the order in which they were opened.
        self._streams = dict[Stream, None]()
        cluster.on_restore.append(self.restart)

    # Faults.

    def cut(self, kind: Kind | None = None) -> None:
        """Break the connections of all watches, or of those of a type."""
        for each in list(self._streams):
            if kind in (None, each.kind):
                each.end(failed(httpx.RemoteProtocolError("peer closed connection"), _request("GET", each.path)))

    def end_watches(self) -> None:
        """End all watches, as a server does after some minutes."""
        for each in list(self._streams):
            each.end(None)

    def stop(self) -> None:
        """Stop the server. Its calls and watches fail."""
        self.running = False
        self.cut()

    def start(self) -> None:
        """Start the server, with empty caches."""
        self.running = True
        self.cache.clear()

    def restart(self) -> None:
        """Stop the server and start it again."""
        self.stop()
        self.start()

    # The client's methods.

    async def call(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: object = None,
        content_type: str = _JSON,
        accept: str = _JSON,
        timeout: float | None = None,
    ) -> Any:
        """Make a call, as `ApiServer.call` of headway.kubernetes does."""
        request = _request(method, path)
        given = {key: _text(value) for key, value in (params or {}).items()}
        sent = json.loads(body) if isinstance(body, bytes) else json.loads(json.dumps(body))

        def handle() -> Any:
            return self._write(method, self.target(path), given, sent, content_type)

        waits = LimitedWaits(self.timeout if timeout is None else timeout)
        while True:
            try:
                return await self._attempt(request, given, accept, handle)
            except Limited as error:
                await waits.wait(error)

    async def _attempt(
        self, request: Request, params: Mapping[str, str], accept: str, handle: Callable[[], Any]
    ) -> Any:
        await trio.lowlevel.checkpoint()
        self._check_running(request)
        if self.refuses:
            status = {"kind": "Status", "message": "refused for now", "code": self.refuses}
            raise refused(self.refuses, json.dumps(status).encode(), "1", request)
        with _refusing(request):
            answer = handle() if request.write else await self._read(request.path, params, accept)
        return copied(answer)

    @asynccontextmanager
    async def watch(
        self, path: str, params: Params | None = None, *, accept: str = _JSON
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch and iterate over its lines, as `ApiServer.watch` of headway.kubernetes does."""
        request = _request("GET", path)
        await trio.lowlevel.checkpoint()
        self._check_running(request)
        with _refusing(request):
            stream = self._stream(request, {key: _text(value) for key, value in (params or {}).items()}, accept)
        self._streams[stream] = None
        try:
            yield stream
        finally:
            del self._streams[stream]

    def _check_running(self, request: Request) -> None:
        if not self.running:
            raise failed(httpx.ConnectError("All connection attempts failed"), request)

    # Requests.

    def target(self, path: str) -> Target:
        """Return what a path names. Raises Refused if there is no such type."""
        _, root, *parts = path.split("/")
        group = parts.pop(0) if root == "apis" else ""
        version, *rest = parts
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in ("status", "finalize"):
            namespace, rest = rest[1], rest[2:]
        plural, name, subresource, *_ = [*rest, "", ""]
        kind = self.cluster.kinds.get((group, version, plural))
        if kind is None or (subresource and not getattr(kind, subresource, False)):
            raise of(404, "NotFound", "the server could not find the requested resource")
        if kind.unserved:
            raise of(400, "BadRequest", kind.unserved)
        return Target(kind, namespace, name, subresource)

    async def _read(self, path: str, params: Mapping[str, str], accept: str) -> Any:
        target = self.target(path)
        if not target.name:
            return await self._list(target, params, accept)
        found = self.cluster.read(target)
        return _scale_of(found) if target.subresource == "scale" else _seen(found, target.kind, accept)

    def _write(self, method: str, target: Target, params: Mapping[str, str], body: Any, content_type: str) -> Any:
        cluster = self.cluster
        manager = params.get("fieldManager", "headway")
        options = Options(manager, params.get("dryRun") == "All", params.get("force") == "true")
        if method == "POST":
            return cluster.create(target, body, options)
        if method == "DELETE":
            # The parameters of the query count only without a body.
            return cluster.delete(target, body or {**params, "dryRun": [params.get("dryRun")]})
        if target.subresource == "scale":
            return self._write_scale(method, target, body, options)
        if method == "PUT":
            return self._put(target, body, options)
        if content_type == "application/apply-patch+yaml":
            if "fieldManager" not in params:
                causes = [required("fieldManager")]
                raise of(422, "Invalid", "PatchOptions.meta.k8s.io is invalid: fieldManager", causes=causes)
            return cluster.apply(target, body, options)
        if content_type == "application/merge-patch+json":
            return cluster.update(target, lambda old: patched(old, body), options)
        if content_type != "application/json-patch+json":
            raise of(415, "UnsupportedMediaType", f"the body of the request was in an unknown format: {content_type}")
        try:
            return cluster.update(target, lambda old: json_patched(old, body), options)
        except ValueError as error:
            raise of(422, "Invalid", "the server rejected our request due to an error in our request") from error

    def _put(self, target: Target, body: Object, options: Options) -> Object:
        kind, meta = target.kind, body["metadata"]
        if target.stored in self.cluster.objects:
            return self.cluster.update(target, lambda _: body, options, patch=False)
        if not kind.put_creates or target.subresource:
            raise not_found(kind, target.name)
        if meta.get("uid"):
            raise other_uid(kind, target.name, meta["uid"], "")
        meta.pop("resourceVersion", None)
        return self.cluster.create(target, body, options)

    def _write_scale(self, method: str, target: Target, body: Any, options: Options) -> Any:
        before = _scale_of(self.cluster.read(target))
        after = body if method == "PUT" else patched(before, body)
        replicas = (after.get("spec") or {}).get("replicas", 0)
        if replicas < 0:
            raise invalid(target.kind, target.name, [wrong("spec.replicas", replicas)])

        def make(object: Object) -> Object:
            wanted = {key: after["metadata"][key] for key in ("uid", "resourceVersion") if key in after["metadata"]}
            return patched(object, {"spec": {"replicas": replicas}, "metadata": wanted})  # type: ignore[no-any-return]

        return _scale_of(self.cluster.update(target, make, options, patch=False))

    # Lists.

    async def _list(self, target: Target, params: Mapping[str, str], accept: str) -> Any:
        kind, token = target.kind, params.get("continue", "")
        selection = Selection(target, params)
        after: Name | None = None
        if token:
            found = json.loads(base64.b64decode(token))
            revision, after = found["revision"], Name(*found["after"])
            if revision < self.cluster.compacted:
                raise expired(token=_token(self.cluster.revision, after))
        elif "resourceVersion" in params:
            revision = await self.cache.caught_up(kind, int(params["resourceVersion"]))
        else:
            revision = self.cluster.revision
            self.cache.note_read(kind)
        objects = [
            (name, each)
            for name, each in self.cluster.at(revision, kind).items()
            if (after is None or name > after) and selection.has(name, each)
        ]
        limit = int(params.get("limit") or 0) or len(objects)
        meta: dict[str, Any] = {"resourceVersion": str(revision)}
        if limit < len(objects):
            meta["continue"] = _token(revision, objects[limit - 1][0])
            if not selection.labels and not selection.fields:
                meta["remainingItemCount"] = len(objects) - limit
        items = [_seen(each, kind, accept) for _, each in objects[:limit]]
        metadata = "as=PartialObjectMetadata" in accept
        if kind.schema is None and not metadata:
            items = [{key: each[key] for key in each if key not in ("apiVersion", "kind")} for each in items]
        header = ("meta.k8s.io/v1", "PartialObjectMetadataList") if metadata else (kind.api_version, f"{kind.kind}List")
        return {"kind": header[1], "apiVersion": header[0], "metadata": meta, "items": items}

    # Watches.

    def _stream(self, request: Request, params: Mapping[str, str], accept: str) -> Stream:
        target = self.target(request.path)
        version, initial = params.get("resourceVersion", ""), params.get("sendInitialEvents") == "true"
        if initial and params.get("resourceVersionMatch") != "NotOlderThan":
            text = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
            causes = [Cause("FieldValueForbidden", text, "sendInitialEvents")]
            raise of(422, "Invalid", f"ListOptions.meta.k8s.io is invalid: {text}", causes=causes)
        if version and not version.isdecimal():
            raise of(400, "BadRequest", f'Invalid value: "{version}": strconv.ParseUint: parsing: invalid syntax')
        seen = partial(_seen, kind=target.kind, accept=accept)
        return Stream(self.cache, request.path, Selection(target, params), seen, params)


class Front:
    """An address behind which one of several servers answers, such as that of a load balancer.

    Attributes:
        server: the server that answers now.
    """

    def __init__(self, server: ModelServer) -> None:
        self.server = server

    def fail_over(self, to: ModelServer) -> None:
        """Let another server answer from now on. The watches of the present one are cut."""
        before, self.server = self.server, to
        before.cut()

    async def call(self, method: str, path: str, **options: Any) -> Any:
        """Make a call of the server that answers now."""
        return await self.server.call(method, path, **options)

    @asynccontextmanager
    async def watch(
        self, path: str, params: Params | None = None, **options: Any
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a watch of the server that answers now."""
        async with self.server.watch(path, params, **options) as lines:
            yield lines


def _request(method: str, path: str) -> Request:
    return Request(method, path, "the modeled API server")


@contextmanager
def _refusing(request: Request) -> Iterator[None]:
    """Raise the error that the client makes of a refusal."""
    refusal: Refused | None = None
    try:
        yield
    except Refused as error:
        refusal = error
    if refusal is not None:
        raise refused(refusal.code, json.dumps(refusal.status).encode(), None, request)


def _text(value: str | int | bool) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _token(revision: int, after: Name) -> str:
    return base64.b64encode(json.dumps({"revision": revision, "after": after}).encode()).decode()


def _seen(object: Object, kind: Kind, accept: str) -> Object:
    """Return an object in the version and form that a request asks for."""
    if "as=PartialObjectMetadata" in accept:
        return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]}
    return {**object, "apiVersion": kind.api_version}


def _scale_of(object: Object) -> Object:
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    meta = {key: each for key, each in object["metadata"].items() if key in kept}
    labels = object["spec"].get("selector", {}).get("matchLabels", {}).items()
    status = {"replicas": object.get("status", {}).get("replicas", 0)}
    status |= {"selector": ",".join(f"{key}={each}" for key, each in labels)} if labels else {}
    spec = {"replicas": replicas} if (replicas := object["spec"].get("replicas")) else {}
    return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": meta, "spec": spec, "status": status}
