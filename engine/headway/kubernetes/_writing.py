"""Writes of objects: create, replace, apply, delete, and the subresources status and scale.

Every write has a precondition: the uid and the resourceVersion, or that the name is free. What this process knows of an
object, from its watches and replies, is tried first. If that is old, the API server refuses it, and it is read anew.
"""

from __future__ import annotations

import datetime
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import trio

from headway.api import Call, of_call
from headway.errors import Conflict, Fenced, FieldConflict, InvalidArgument, NotFound, WrongUid
from headway.kubernetes._cluster import Cluster, not_found
from headway.kubernetes._events import Events
from headway.kubernetes._json import apply_text
from headway.kubernetes._managers import taken_over
from headway.kubernetes._objects import id_path, merged_conditions, object_of, resource_of
from headway.kubernetes._types import KubernetesType
from headway.kubernetes._unresolved import Sent, Unresolved, collection_of
from headway.kubernetes._verbs import Verb, taken_verb
from headway.resource import EVENT, is_marked, pb, resource_id, resource_key, type_name

T = TypeVar("T")

_ATTEMPTS = 8
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_JSON_PATCH = "application/json-patch+json"


class Writing:
    """The part of the resource service that writes."""

    def __init__(self, cluster: Cluster, unresolved: Unresolved) -> None:
        self._cluster = cluster
        self._unresolved = unresolved
        self._events = Events(cluster)

    async def write(self, _call: Call, request: pb.WriteRequest, /) -> pb.WriteResponse:
        """Store a resource, and return it as stored."""
        self._check_store(request.store_id)
        resource = request.resource
        if resource is None:
            raise InvalidArgument("resource is required")
        if resource.id is not None and type_name(resource.id.type) == EVENT.name:
            return await self._events.write(request)
        type, id = self._named(resource.id)
        verb = taken_verb(resource.metadata)
        if verb is not None:
            verbs = {
                "apply": self._apply,
                "status": self._update_status,
                "scale": self._scale,
                "delete": self._delete_with,
            }
            return await verbs[verb.name](request.fence, type, resource, verb)
        self._check_whole(type)
        object = object_of(type, resource)
        await self._complete_owner(object)
        if resource.version:
            return await self._replace(request.fence, type, id, resource.version, object, _manager(request.fence))
        if request.create_only:
            return await self._create(request.fence, type, id, object, _manager(request.fence))

        async def store(known: pb.Resource | None) -> pb.WriteResponse:
            if known is None and id.uid:
                raise not_found(type, id)
            if known is None:
                return await self._create(request.fence, type, id, object, _manager(request.fence))
            if id.uid and known.id is not None and known.id.uid != id.uid:
                raise not_found(type, id)
            assert known.id is not None
            return await self._replace(request.fence, type, known.id, known.version, object, _manager(request.fence))

        return await self._try(type, id, store, creates=True)

    async def _create(
        self, fence: pb.Fence | None, type: KubernetesType[Any], id: pb.Id, object: dict[str, Any], manager: str
    ) -> pb.WriteResponse:
        sent = Sent(type, id, "", object, manager)
        made = await self._send(fence, sent, "POST", id_path(type, collection_of(id)), object, manager)
        return self._written(type, made)

    async def _replace(
        self,
        fence: pb.Fence | None,
        type: KubernetesType[Any],
        id: pb.Id,
        version: str,
        object: dict[str, Any],
        manager: str,
    ) -> pb.WriteResponse:
        body = {**object, "metadata": {**object["metadata"], "uid": id.uid, "resourceVersion": version}}
        try:
            made = await self._send(fence, Sent(type, id, version), "PUT", id_path(type, id), body, manager)
        except NotFound as error:
            raise Conflict(
                f"{type.name.kind} {id.name} does not exist, so it cannot be at version {version}"
            ) from error
        except WrongUid as error:
            raise Conflict(f"{type.name.kind} {id.name} is another incarnation by now; read it again") from error
        if "deletionTimestamp" in made["metadata"] and not made["metadata"].get("finalizers"):
            with self._unresolved.following(fence, Sent(type, id, version)):
                return await self._removed(type, made)
        return self._written(type, made, version)

    async def _removed(self, type: KubernetesType[Any], made: dict[str, Any]) -> pb.WriteResponse:
        """Return the answer to the removal of the last finalizer. The object is gone, at a revision that it lacks."""
        last = resource_of(type, made, self._cluster.type_of_object)
        assert last.id is not None
        found, revision = await self._cluster.read_at(type, last.id)
        if found is not None and found.id is not None and found.id.uid == last.id.uid:
            # A Pod waits for its grace period.
            return pb.WriteResponse(resource=found, position=self._position(revision))
        self._cluster.note(type, resource_key(last), revision, None)
        last.version = ""
        return pb.WriteResponse(resource=last, position=self._position(revision))

    async def write_status(self, _call: Call, request: pb.WriteStatusRequest, /) -> pb.WriteStatusResponse:
        """Store the conditions of one writer among those of an object."""
        self._check_store(request.store_id)
        type, id = self._named(request.id)
        status = request.status or pb.Status()
        if not type.has_conditions:
            raise InvalidArgument(
                f"{type.name} is declared by builtin(...), whose status Headway does not write: use "
                "headway.kubernetes.update_status, or declare the type by resource(...)"
            )
        if request.version:
            raise InvalidArgument("version must be empty: the conditions of other writers stay in any case")
        for _ in range(_ATTEMPTS):
            object = await self._object(type, id)
            stored = object.get("status") or {}
            conditions = stored.get("conditions") or []
            version, path = object["metadata"]["resourceVersion"], id_path(type, id, "status")
            uid = object["metadata"]["uid"]
            known = self._cluster.resource(type, object)
            wanted = merged_conditions(conditions, known.status.get(request.key), status, _now())
            if sorted(wanted, key=_by_type) == sorted(conditions, key=_by_type):
                return pb.WriteStatusResponse(resource=known, position=self._position(int(version)), unchanged=True)
            body = {"metadata": {"uid": uid, "resourceVersion": version}, "status": {"conditions": wanted}}
            try:
                made = await self._send(
                    request.fence, Sent(type, _id(id, uid), version), "PATCH", path, body, request.key, _MERGE
                )
            except (Conflict, WrongUid):
                continue
            written = self._written(type, made, version)
            return pb.WriteStatusResponse(
                resource=written.resource, position=written.position, unchanged=written.unchanged
            )
        raise Conflict(f"{resource_id(id)} kept being changed by others while its status was written")

    async def delete(self, _call: Call, request: pb.DeleteRequest, /) -> pb.DeleteResponse:
        """Delete an object at the version that is known here, or at the given one."""
        self._check_store(request.store_id)
        type, id = self._named(request.id)
        return await self._delete(request.fence, type, id, request.version)

    async def _delete(
        self, fence: pb.Fence | None, type: KubernetesType[Any], id: pb.Id, version: str, propagation: str = ""
    ) -> pb.DeleteResponse:
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if propagation:
            options["propagationPolicy"] = propagation

        async def remove(known: pb.Resource | None) -> pb.DeleteResponse:
            if known is None or known.id is None or (id.uid and known.id.uid != id.uid):
                return await self._absent(type, id)
            sent = Sent(type, known.id, version or known.version)
            body = {**options, "preconditions": {"uid": known.id.uid, "resourceVersion": sent.version}}
            try:
                made = await self._send(fence, sent, "DELETE", id_path(type, id), body, "")
            except NotFound:
                return await self._absent(type, id)
            if made.get("kind") == type.name.kind and made["metadata"].get("finalizers"):
                left = self._cluster.resource(type, made)
                return pb.DeleteResponse(resource=left, position=self._position(int(left.version)))
            with self._unresolved.following(fence, sent):
                return await self._absent(type, id)

        if version:
            return await remove(await self._cluster.read(type, id))
        return await self._try(type, id, remove)

    async def _absent(self, type: KubernetesType[Any], id: pb.Id) -> pb.DeleteResponse:
        """Return the answer to a deletion that leaves nothing, or another incarnation."""
        found, revision = await self._cluster.read_at(type, id)
        if found is not None and found.id is not None and found.id.uid == id.uid and is_marked(found.metadata):
            # A finalizer was added, or propagation keeps it.
            return pb.DeleteResponse(resource=found, position=self._position(revision))
        self._cluster.note(type, resource_key(pb.Resource(id=id)), revision, found)
        return pb.DeleteResponse(resource=found, position=self._position(revision))

    async def mutate_and_validate(
        self, _call: Call, request: pb.MutateAndValidateRequest, /
    ) -> pb.MutateAndValidateResponse:
        """Return what a write would store, by a dry run."""
        resource = request.resource
        if resource is None:
            raise InvalidArgument("resource is required")
        type, id = self._named(resource.id)
        object, params = object_of(type, resource), {"dryRun": "All"}
        await self._complete_owner(object)
        known = await self._object_or_none(type, id)
        if known is None:
            made = await self._cluster.server.call("POST", id_path(type, collection_of(id)), params=params, body=object)
            made["metadata"].setdefault("resourceVersion", "1")
        else:
            object["metadata"]["resourceVersion"] = known["metadata"]["resourceVersion"]
            made = await self._cluster.server.call("PUT", id_path(type, id), params=params, body=object)
        seen = resource_of(type, made, self._cluster.type_of_object)
        seen.version = resource.version
        return pb.MutateAndValidateResponse(resource=seen)

    # Verbs of Kubernetes alone.

    async def _apply(
        self, fence: pb.Fence | None, type: KubernetesType[Any], resource: pb.Resource, verb: Verb
    ) -> pb.WriteResponse:
        assert resource.id is not None
        id, object = resource.id, object_of(type, resource)
        await self._complete_owner(object)

        def remember(made: dict[str, Any], version: str = "") -> pb.WriteResponse:
            # Reading the answer takes the fields and their managers out of it.
            settled = self._cluster.applied.is_settled(type, verb, object, made)
            reply = self._written(type, made, version)
            if reply.resource is not None and (settled or reply.unchanged):
                self._cluster.applied.note(key, verb, object, reply.resource)
            return reply

        async def apply(known: pb.Resource | None) -> pb.WriteResponse:
            if known is None:
                if id.uid:
                    raise not_found(type, id)
                self._check_whole(type)
                sent = Sent(type, id, "", object, verb.manager)
                made = await self._send(fence, sent, "POST", id_path(type, collection_of(id)), object, verb.manager)
                with self._unresolved.following(fence, sent):
                    # The defaults that the server has filled in belong to nobody.
                    made = await self._own_created(fence, type, made, verb.manager, object)
                return remember(made)
            assert known.id is not None
            if id.uid and known.id.uid != id.uid:
                raise not_found(type, id)
            version, params = known.version, {"force": "true"} if verb.force else {}
            body = {**object, "metadata": {**object["metadata"], "uid": known.id.uid, "resourceVersion": version}}
            sent, text = Sent(type, known.id, version), apply_text(body)
            try:
                made = await self._send(fence, sent, "PATCH", id_path(type, id), text, verb.manager, _APPLY, params)
            except FieldConflict as error:
                if any(manager != verb.manager for manager, _ in error.conflicts):
                    raise
                # Its own, of a creation that has not come to its end.
                await self._own_as_apply(fence, type, await self._object(type, id), verb.manager)
                raise Conflict(str(error)) from error
            with self._unresolved.following(fence, sent):
                owned = await self._own_as_apply(fence, type, made, verb.manager)
            if owned is not made:
                # What it owned by other writes is removed only by another apply.
                raise Conflict(f"{resource_id(id)} is applied once more")
            return remember(made, version)

        key = type.name, resource_key(resource)
        known = self._cluster.find(type, key[1])
        same = known is not None and known.id is not None and id.uid in ("", known.id.uid)
        if known is not None and same and self._cluster.applied.holds(type, key, verb, object, known):
            # A loop of applies that need no call must let others run.
            await trio.lowlevel.checkpoint()
            at = self._position(int(known.version))
            return pb.WriteResponse(resource=known, position=at, unchanged=True)
        return await self._try(type, id, apply, creates=True)

    async def _own_created(
        self,
        fence: pb.Fence | None,
        type: KubernetesType[Any],
        made: dict[str, Any],
        manager: str,
        body: dict[str, Any],
    ) -> dict[str, Any]:
        """Let a manager own by apply what it has created. The object's own controller may change it meanwhile."""
        uid, id = made["metadata"]["uid"], self._id_of(type, made)
        for _ in range(_ATTEMPTS):
            try:
                return await self._own_as_apply(fence, type, made, manager, body)
            except (Conflict, NotFound, WrongUid):
                found = await self._object_or_none(type, id)
                if found is None or found["metadata"]["uid"] != uid:
                    # It was created, and is gone.
                    return made
                made = found
        raise Conflict(f"{resource_id(id)} kept being changed by others while it was created")

    async def _own_as_apply(
        self,
        fence: pb.Fence | None,
        type: KubernetesType[Any],
        made: dict[str, Any],
        manager: str,
        object: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Let a manager own by apply what it owns by other writes, and return the object as it is then.

        Only then does an apply remove fields that it leaves out. With ``object``, the manager owns only what that has.
        """
        meta = made["metadata"]
        managed = taken_over(meta.get("managedFields") or (), manager, object)
        if managed is None:
            return made
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": meta["uid"]},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": meta["resourceVersion"]},
            {"op": "replace", "path": "/metadata/managedFields", "value": managed},
        ]
        id = self._id_of(type, made)
        sent = Sent(type, id, meta["resourceVersion"])
        return await self._send(fence, sent, "PATCH", id_path(type, id), patch, manager, _JSON_PATCH)

    def _id_of(self, type: KubernetesType[Any], object: dict[str, Any]) -> pb.Id:
        meta = object["metadata"]
        tenancy = pb.Tenancy(namespace=meta.get("namespace", ""))
        return pb.Id(uid=meta["uid"], name=meta["name"], type=type.message, tenancy=tenancy)

    async def _update_status(
        self, fence: pb.Fence | None, type: KubernetesType[Any], resource: pb.Resource, verb: Verb
    ) -> pb.WriteResponse:
        self._check_whole(type)
        id = resource.id
        assert id is not None
        body = type.body_of(resource.data.value) if resource.data is not None else {}
        object = await self._object(type, id)
        if object["metadata"]["resourceVersion"] != resource.version or object["metadata"]["uid"] != id.uid:
            raise Conflict(f"{resource_id(id)} has changed since version {resource.version}; read it again")
        stored = object.get("status") or {}
        wanted = dict(body.get("status") or {})
        if type.has_conditions and "conditions" in stored:
            wanted["conditions"] = stored["conditions"]
        object["status"] = wanted
        object["metadata"].pop("managedFields", None)
        sent = Sent(type, id, resource.version)
        made = await self._send(fence, sent, "PUT", id_path(type, id, "status"), object, verb.manager)
        return self._written(type, made, resource.version)

    async def _scale(
        self, fence: pb.Fence | None, type: KubernetesType[Any], resource: pb.Resource, verb: Verb
    ) -> pb.WriteResponse:
        id = resource.id
        assert id is not None
        meta = {"uid": id.uid, "resourceVersion": resource.version}
        sent, path = Sent(type, id, resource.version), id_path(type, id, "scale")
        body = {"metadata": meta, "spec": {"replicas": verb.replicas}}
        await self._send(fence, sent, "PATCH", path, body, verb.manager, _MERGE)
        with self._unresolved.following(fence, sent):
            found = await self._cluster.read(type, id)
        if found is None:
            raise not_found(type, id)
        revision = int(found.version)
        return pb.WriteResponse(
            resource=found, position=self._position(revision), unchanged=found.version == resource.version
        )

    async def _delete_with(
        self, fence: pb.Fence | None, type: KubernetesType[Any], resource: pb.Resource, verb: Verb
    ) -> pb.WriteResponse:
        id = resource.id
        assert id is not None
        reply = await self._delete(fence, type, id, "", verb.propagation)
        left = reply.resource
        if left is None or left.id is None or left.id.uid != id.uid:
            left, resource.version = resource, ""
        return pb.WriteResponse(resource=left, position=reply.position)

    # Shared.

    async def _try(
        self,
        type: KubernetesType[Any],
        id: pb.Id,
        attempt: Callable[[pb.Resource | None], Awaitable[T]],
        *,
        creates: bool = False,
    ) -> T:
        """Try a write on the state that is known here, and after a conflict on the state that the server has.

        If it ``creates`` what is not there, the server refuses that for a name that is not free.
        """
        key = resource_key(pb.Resource(id=id))
        known = self._cluster.find(type, key)
        if known is None and creates and not id.uid and self._cluster.is_absent(type, key):
            pass
        elif known is None or known.id is None or (id.uid and known.id.uid != id.uid):
            # The caller may know an incarnation that no stream has delivered yet.
            known = await self._cluster.read(type, id)
        for _ in range(_ATTEMPTS):
            try:
                return await attempt(known)
            except FieldConflict as error:
                text = f"{resource_id(id)}: {error}; leave the field out, apply the same value, or use force=True"
                raise of_call(FieldConflict(text, error.conflicts)) from error
            except (Conflict, WrongUid):
                known = await self._cluster.read(type, id)
        raise Conflict(f"{resource_id(id)} kept being changed by others while it was written")

    async def _send(
        self,
        fence: pb.Fence | None,
        sent: Sent,
        method: str,
        path: str,
        body: Any,
        manager: str,
        content_type: str = "application/json",
        params: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        with self._unresolved.sending(fence, sent):
            # Strict: a field that the cluster does not know is an error, and is not dropped in silence.
            named = {"fieldManager": manager, "fieldValidation": "Strict"} if manager else {}
            made: dict[str, Any] = await self._cluster.server.call(
                method, path, params={**named, **(params or {})}, body=body, content_type=content_type
            )
            return made

    def _written(self, type: KubernetesType[Any], made: dict[str, Any], version: str = "") -> pb.WriteResponse:
        stored = self._cluster.resource(type, made)
        at = self._position(int(stored.version))
        return pb.WriteResponse(resource=stored, position=at, unchanged=stored.version == version)

    async def _complete_owner(self, object: dict[str, Any]) -> None:
        """Give references to owners the uid of the incarnation that exists now."""
        for each in object["metadata"].get("ownerReferences") or ():
            if not each.get("uid"):
                type = self._cluster.type_of_object(each["apiVersion"], each["kind"])
                if type is None:
                    raise InvalidArgument(f"owner {each['kind']} {each['name']} has no uid: read it first")
                namespace = object["metadata"].get("namespace", "") if type.tenancy.namespace else ""
                found = await self._cluster.read(
                    type, pb.Id(name=each["name"], tenancy=pb.Tenancy(namespace=namespace))
                )
                if found is None or found.id is None:
                    raise not_found(type, pb.Id(name=each["name"]))
                each["uid"] = found.id.uid

    async def _object(self, type: KubernetesType[Any], id: pb.Id) -> dict[str, Any]:
        found = await self._object_or_none(type, id)
        if found is None or (id.uid and found["metadata"]["uid"] != id.uid):
            raise not_found(type, id)
        return found

    async def _object_or_none(self, type: KubernetesType[Any], id: pb.Id) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = await self._cluster.server.call("GET", id_path(type, id))
        except NotFound:
            return None
        return found

    def _named(self, id: pb.Id | None) -> tuple[KubernetesType[Any], pb.Id]:
        if id is None:
            raise InvalidArgument("id is required")
        type = self._cluster.type_of(id.type)
        problem = type.name_problem(id.name) or self._cluster.namespace_problem(id)
        if problem:
            raise InvalidArgument(f"{type.name}: {problem}")
        return type, id

    def _check_whole(self, type: KubernetesType[Any]) -> None:
        if type.metadata_only:
            raise InvalidArgument(
                f"{type.name} is declared with metadata_only=True, so a write would empty its objects: apply labels, "
                "annotations and owners to those that exist, delete them, or declare the type without it"
            )

    def _check_store(self, store_id: str) -> None:
        if store_id and self._cluster.store_id and store_id != self._cluster.store_id:
            raise Fenced(f"the cluster is now {self._cluster.store_id}, no longer {store_id}")

    def _position(self, revision: int) -> pb.Position:
        return self._cluster.position(revision).message()


def _manager(fence: pb.Fence | None) -> str:
    return "headway" if fence is None else fence.controller


def _id(id: pb.Id, uid: str) -> pb.Id:
    return pb.Id(uid=uid, name=id.name, type=id.type, tenancy=id.tenancy)


def _by_type(condition: dict[str, Any]) -> str:
    return str(condition.get("type"))


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
