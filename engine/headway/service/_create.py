"""The creation of a resource by Write: the checks of a new resource, its uid, and its owner."""

from __future__ import annotations

from ulid_transform import ulid_now

from headway.errors import AlreadyExists, Conflict, FailedPrecondition, InvalidArgument
from headway.protobuf import copy_message
from headway.resource import DELETION_TIMESTAMP, Key, Kind, is_marked, pb, resource_id, uid_ending
from headway.service._bounds import check_text
from headway.service._context import Context
from headway.service._forms import Form
from headway.service._writing import Units, check_staying, new_id
from headway.storage import Operation, Put, Read, Require


def determined_ending(request: pb.WriteRequest, kind: Kind, key: Key) -> str:
    """Return the end of the uid that a creation's token determines, or an empty string without a token."""
    token = request.create_token
    if not request.create_only:
        if token:
            raise InvalidArgument("create_token must be empty without create_only")
        return ""
    check_text("create_token", token)
    if request.resource is not None and request.resource.version:
        raise InvalidArgument(
            f"resource.version {request.resource.version!r} must be empty with create_only: a new resource has none"
        )
    return uid_ending(token, kind, key) if token else ""


def check_created(stored: pb.Resource, resource: pb.Resource, ending: str) -> None:
    """Refuse a creation whose name is taken, unless an earlier attempt of the same creation took it."""
    assert stored.id is not None
    if not (ending and stored.id.uid.endswith(ending)):
        replace = "replace it by a Write without create_only (in Python client.write)"
        raise AlreadyExists(f"{resource_id(resource.id)} already exists; read it, or {replace}")


async def creation(
    read: Read,
    context: Context,
    form: Form,
    units: Units,
    kind: Kind,
    key: Key,
    resource: pb.Resource,
    *,
    recreates: bool,
    ending: str,
) -> tuple[pb.Resource, tuple[Operation, ...]]:
    """Return the resource as it will be created, and the operations of the commit."""
    _check_creation(resource, recreates=recreates)
    assert resource.id is not None
    owner: pb.Id | None = None
    required: tuple[Require, ...] = ()
    if resource.owner is not None:
        owner, required = await _found_owner(read, context, resource.owner)
    uid = ulid_now()
    if ending:
        uid = uid[: -len(ending)] + ending
    prepared = pb.Resource(
        id=new_id(resource.id, uid),
        owner=owner,
        generation=ulid_now(),
        metadata=resource.metadata,
        data=resource.data,
    )
    prepared = await form.created(prepared)
    check_staying(units, resource.id)
    return prepared, (*units.required, *required, Put(kind, key, prepared, ""))


def _check_creation(resource: pb.Resource, *, recreates: bool) -> None:
    """Refuse fields that a new resource cannot have."""
    assert resource.id is not None
    if resource.version:
        raise Conflict(f"{resource_id(resource.id)} does not exist, so it cannot be at version {resource.version!r}")
    if resource.id.uid and not recreates:
        # The writer has read an incarnation that was deleted since, so its write is based on old content. Consul
        # creates a new incarnation anyway, and Consul's clients rely on that.
        raise FailedPrecondition(
            f"{resource_id(resource.id)} with uid {resource.id.uid} no longer exists; leave id.uid empty to create it"
        )
    if resource.status:
        keys = ", ".join(sorted(resource.status))
        raise InvalidArgument(
            f"{resource_id(resource.id)}: status must be empty on creation, not have {keys}; "
            "use WriteStatus after the creation"
        )
    if is_marked(resource.metadata):
        raise InvalidArgument(
            f"{resource_id(resource.id)}: metadata.{DELETION_TIMESTAMP} cannot be set on creation; use Delete"
        )


async def _found_owner(read: Read, context: Context, owner: pb.Id) -> tuple[pb.Id, tuple[Require]]:
    """Return the owner with its uid, because a resource is owned by an incarnation and not by a name.

    The commit requires that the owner still exists. Otherwise its resources would never be removed: they are removed
    when their owner is deleted.
    """
    name = resource_id(owner)
    form = context.forms.of(context.access.registry.resolve(name.type))
    stored, _ = await read(name.type.unversioned, name.key)
    if (
        stored is None
        or stored.id is None
        or (owner.uid and stored.id.uid != owner.uid)
        or not context.access.shows(await form.shown(stored))
    ):
        with_uid = f" with uid {owner.uid}" if owner.uid else ""
        raise InvalidArgument(f"resource.owner: {name}{with_uid} not found; create it first")
    uid = stored.id.uid
    return _with_uid(owner, uid), (Require(name.type.unversioned, name.key, uid),)


def _with_uid(id: pb.Id, uid: str) -> pb.Id:
    # A copy, so that a second attempt starts from the original request.
    known = copy_message(id)
    known.uid = uid
    return known
