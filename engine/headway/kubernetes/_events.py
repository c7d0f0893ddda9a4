"""The events that reconcilers record, as Events of events.k8s.io, which `kubectl describe` shows."""

from __future__ import annotations

import datetime
import hashlib
import socket
from typing import Any

from headway.errors import AlreadyExists, InvalidArgument
from headway.kubernetes._cluster import Cluster
from headway.kubernetes._objects import owner_reference
from headway.protobuf import decode
from headway.resource import Entry, Event, pb, resource_key, type_name, uid_ending

_PATH = "/apis/events.k8s.io/v1/namespaces/{}/events"
_MERGE = "application/merge-patch+json"
_MOST_REASON, _MOST_NOTE, _MOST_NAME = 128, 1024, 200


class Events:
    """Writes events. They are written once, and are no source of truth: they are not read again."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._instance = socket.gethostname()[:128] or "headway"

    async def write(self, request: pb.WriteRequest) -> pb.WriteResponse:
        """Write the entries of a resource of the type `headway.resource.EVENT`, each as an Event of its owner."""
        resource = request.resource
        if resource is None or resource.id is None or resource.owner is None or resource.data is None:
            raise InvalidArgument("an event needs an owner")
        for entry in decode(Event, resource.data.value).entries:
            await self._write(resource.owner, entry)
        # Nothing reads it: the next entries are written as new ones.
        uid = uid_ending(request.create_token, type_name(resource.id.type).unversioned, resource_key(resource))
        stored = pb.Resource(
            id=pb.Id(uid=uid, name=resource.id.name, type=resource.id.type, tenancy=resource.id.tenancy),
            version="1",
            owner=resource.owner,
            data=resource.data,
        )
        return pb.WriteResponse(resource=stored, position=self._cluster.position(1).message())

    async def _write(self, of: pb.Id, entry: Entry) -> None:
        namespace = (of.tenancy.namespace if of.tenancy is not None else "") or "default"
        said = "\0".join((of.uid, entry.controller, entry.reason, entry.text, str(entry.warning)))
        name = f"{of.name[:_MOST_NAME].rstrip('.-')}.{hashlib.sha256(said.encode()).hexdigest()[:16]}"
        path = _PATH.format(namespace)
        regarding = {**owner_reference(of), "namespace": namespace}
        event: dict[str, Any] = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": _time(entry.first),
            "reportingController": entry.controller[:128],
            "reportingInstance": self._instance,
            "action": "Reconcile",
            "reason": entry.reason[:_MOST_REASON],
            "type": "Warning" if entry.warning else "Normal",
            "regarding": {key: regarding[key] for key in ("apiVersion", "kind", "name", "namespace", "uid")},
            "note": entry.text.encode()[:_MOST_NOTE].decode(errors="ignore"),
        }
        if entry.count > 1:
            event["series"] = {"count": entry.count, "lastObservedTime": _time(entry.last)}
        call = self._cluster.server.call
        try:
            await call("POST", path, body=event)
        except AlreadyExists:
            known = await call("GET", f"{path}/{name}")
            count = (known.get("series") or {}).get("count", 1) + entry.count
            series = {"count": count, "lastObservedTime": _time(entry.last)}
            await call("PATCH", f"{path}/{name}", body={"series": series}, content_type=_MERGE)


def _time(given: datetime.datetime | None) -> str:
    return (given or datetime.datetime.now(datetime.UTC)).astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
