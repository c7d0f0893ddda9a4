"""What a client does beyond a write: server-side apply, deletion with propagation, and the subresources."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

from headway.client import Client
from headway.errors import InvalidArgument
from headway.kubernetes._manifest import Manifest
from headway.kubernetes._verbs import Verb, ask_for
from headway.protobuf import Payload
from headway.reconcile import Runtime
from headway.resource import Resource, check_resource

T = TypeVar("T", bound=Payload)

PROPAGATIONS = ("Background", "Foreground", "Orphan")
_MAX_MANAGER = 128


def reaches_cluster(channel: object) -> bool:
    """Return True if a channel leads to a cluster, and not to a store of Headway, as in a test."""
    while channel is not None:
        if getattr(channel, "is_cluster", False):
            return True
        channel = getattr(channel, "_inner", None)
    return False


def own_apply(channel: object) -> Callable[..., Any] | None:
    """Return the apply of a type of Kubernetes over a channel, if it leads to a cluster."""
    return _apply if reaches_cluster(channel) else None


async def _apply(
    client: Any, resource: Resource[T], *, fields: Iterable[str] | None, manager: str, force: bool
) -> Resource[T]:
    """Apply a resource as the manager of the fields that it has: see `Client.apply` of a type of Kubernetes."""
    if fields is not None:
        raise InvalidArgument(
            f"{resource.id}: fields are for stores of Headway. An apply on Kubernetes owns all fields that the "
            "resource has, so leave out the others"
        )
    return await _send(client, resource, Verb("apply", manager_of(client, manager), force))


async def update_status(to: Client | Runtime, resource: Resource[T]) -> Resource[T]:
    """Store the fields in ``status`` of a resource that was read, and return it as stored. Conditions stay.

    Raises:
        Conflict: it has changed since.
        InvalidArgument: it has not been read, or the API server refuses the status.
    """
    check_resource(resource)
    if not resource.version:
        raise InvalidArgument(f"{resource.id} has no version: read it first, and change its status then")
    client = client_of(to)
    if not reaches_cluster(client._channel):
        return await client.write(resource)
    return await _send(client, resource, Verb("status", manager_of(client, "")))


async def scale(to: Client | Runtime, resource: Resource[T], replicas: int) -> Resource[T]:
    """Set the replicas of a resource by its subresource ``scale``, and return it as stored.

    Raises Conflict if it has changed since it was read.
    """
    check_resource(resource)
    if not resource.version:
        raise InvalidArgument(f"{resource.id} has no version: read it first, and scale it then")
    given: object = replicas
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        raise InvalidArgument(f"replicas must be an int of at least 0, not {replicas!r}")
    client = client_of(to)
    if not reaches_cluster(client._channel):
        copied: Any = resource.copy()
        if isinstance(copied.data, Manifest):
            copied.data.body.setdefault("spec", {})["replicas"] = replicas
        else:
            copied.data.spec.replicas = replicas
        return cast("Resource[T]", await client.write(copied))
    return await _send(client, resource, Verb("scale", manager_of(client, ""), replicas=replicas))


async def delete(to: Client | Runtime, resource: Resource[T], *, propagation: str) -> Resource[T] | None:
    """Delete a resource that was read, with a say in what becomes of the objects that it owns.

    Args:
        propagation: ``Background``: they are deleted after it, which is what a plain ``delete`` does for most types.
            ``Foreground``: before it, which exists and is marked for deletion until then. ``Orphan``: they stay.

    Return it if it still exists, marked for deletion, and else None. A store of Headway does as for a plain ``delete``.
    Raises InvalidArgument for another propagation.
    """
    check_resource(resource)
    if propagation not in PROPAGATIONS:
        raise InvalidArgument(f"propagation must be one of {', '.join(PROPAGATIONS)}, not {propagation!r}")
    client = client_of(to)
    if not reaches_cluster(client._channel):
        return await client.delete(resource)
    left = await _send(client, resource, Verb("delete", manager_of(client, ""), propagation=propagation))
    return left if left.version else None


async def _send(client: Any, resource: Resource[T], verb: Verb) -> Resource[T]:
    sent: Resource[T] = await client._write(resource.type, ask_for(resource.message(), verb))
    return sent


def client_of(given: Client | Runtime) -> Client:
    """Return the client of a runtime, or the client that is given."""
    return given.client if isinstance(given, Runtime) else given


def manager_of(client: Any, given: str) -> str:
    """Return the name under which a client owns fields: the given one, or its controller's. Raises InvalidArgument."""
    fence = None if client._writes is None else client._writes.fence
    name = given or ("headway" if fence is None else fence.controller)
    if len(name) > _MAX_MANAGER or not name.isprintable():
        raise InvalidArgument(f"manager {name!r} must have at most {_MAX_MANAGER} printable characters")
    return name
