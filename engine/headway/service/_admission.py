"""The checks that every request passes first: type, names and tenancy, then a resource's payload and hooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from headway.api import ProgramFailed, row_of
from headway.base import Steps, reason_text
from headway.errors import InvalidArgument, PayloadError
from headway.protobuf import SMALL, Payload, decode, decoding
from headway.resource import (
    DEFAULT_UNIT,
    MAX_NAME,
    Key,
    Kind,
    Resource,
    ResourceType,
    check_answer,
    name_problem,
    pb,
    quoted,
    redact_error,
    resource_id,
    tenancy_within,
    type_name,
)
from headway.service._access import AccessChecks, WriteRules
from headway.service._bounds import check_metadata, check_payload, check_text
from headway.service._context import Context
from headway.service._fences import admit_fence
from headway.service._payload_names import short_name
from headway.service._status_bounds import check_statuses
from headway.storage import Fence

Type = ResourceType[Any]
Hook = Callable[[Resource[Any]], object]

# No rule reserves these, so that most writes ask none.
_ORDINARY_PARTITIONS = frozenset({"", DEFAULT_UNIT})


class Admitted(NamedTuple):
    """A resource that has passed the checks.

    Attributes:
        resource: the resource after its type's hooks.
        given: the resource of the request, with its id and type URL completed.
        payload_name: the request's name for the payload if it differs from the type's; otherwise empty. Such a payload
            may only update a resource that is stored under this name: see `check_payload_name`.
        undecodable: why the payload does not decode, worded as a refusal; None if it decodes. No hook was called.
    """

    type: Type
    key: Key
    resource: pb.Resource
    given: pb.Resource
    fence: Fence | None
    payload_name: str
    undecodable: str | None


def resolve(access: AccessChecks, message: pb.Type | None, field: str) -> Type:
    """Return the registered type that a request names in ``field``.

    A caller without any permission on a type of this name is refused in the same words whether or not it is registered.
    """
    if message is None:
        raise InvalidArgument(f"{field} is required")
    type = access.registry.find((message.group, message.group_version, message.kind))
    if type is not None:
        if access.restricted:
            access.check_known(type.name)
        return type
    for part in ("group", "group_version", "kind"):
        text = getattr(message, part)
        if not text:
            raise InvalidArgument(f"{field}.{part} is required")
        if len(text) > MAX_NAME:
            raise InvalidArgument(f"{field}.{part} {quoted(text)} must have at most {MAX_NAME} characters")
    name = type_name(message)
    access.check_known(name)
    try:
        return access.registry.resolve(name, access.knows)
    except InvalidArgument as error:
        raise InvalidArgument(f"{field}: {error}") from None


def admit_id(
    access: AccessChecks, id: pb.Id | None, field: str, parent: tuple[str, str] | None = None
) -> tuple[Type, Key]:
    """Check an id, fill in the tenancy units that its type's scope has, and return its type and key.

    Missing units are taken from ``parent`` if the id is part of a resource there, and are the default ones otherwise.
    The id is changed in place: afterwards it has a tenancy, and shares its type, and the default tenancy, with all
    other ids of that type.
    """
    if id is None:
        raise InvalidArgument(f"{field} is required")
    type = resolve(access, id.type, f"{field}.type")
    id.type = type.message
    partition, namespace = type.default_units
    tenancy = id.tenancy
    if parent is not None:
        given = ("", "") if tenancy is None else (tenancy.partition, tenancy.namespace)
        partition, namespace = tenancy_within(type.scope, given, parent)
    if tenancy is not None:
        partition, namespace = tenancy.partition or partition, tenancy.namespace or namespace
    if id.uid:
        check_text(f"{field}.uid", id.uid)
    problem = type.name_problem(id.name) if type.foreign else name_problem("name", id.name)
    if (partition, namespace) == type.default_units:
        id.tenancy = type.tenancy
    else:
        problem = problem or type.tenancy_problem(partition, namespace)
        id.tenancy = pb.Tenancy(partition=partition, namespace=namespace)
    if problem:
        raise InvalidArgument(f"{field} of {type.name}: {problem}")
    return type, (partition, namespace, id.name)


def rules_for(access: AccessChecks, kind: Kind, key: Key) -> Sequence[WriteRules]:
    """Return the rules of extensions for a write of this key. Most writes have none."""
    if key[0] not in _ORDINARY_PARTITIONS:
        return access.rules
    return [each for each in access.rules if each.kinds is None or kind in each.kinds]


def admit_resource(context: Context, resource: pb.Resource | None, fence: pb.Fence | None = None) -> Steps[Admitted]:
    """Check everything that Write checks before it looks at the store.

    The caller's rights are checked before the hooks, which are the program's own code, and before all fields other than
    names. Raises ProgramFailed for any failure that is not a refusal.
    """
    access = context.access
    try:
        if resource is None:
            raise InvalidArgument("resource is required")
        type, key = admit_id(access, resource.id, "resource.id")
        assert resource.id is not None
        if access.restricted:
            access.check_write(resource.id, resource)
        for rules in rules_for(access, type.kind, key):
            rules.check_key(access, type.kind, key)
            rules.admit(access, type, key, resource)
        checked_fence = None if fence is None else admit_fence(access, fence)
        _admit_owner(access, resource, key)
        if resource.version:
            check_text("resource.version", resource.version)
        if resource.metadata:
            check_metadata(resource.metadata)
        if resource.status:
            check_statuses(resource.status)
        data, decoded, payload_name = resource.data, None, ""
        if data is not None and data.type_url != type.type_url:
            if context.forms.of(type).carries(resource):
                # The payload stays as it is stored. Hooks could not read it either.
                return Admitted(type, key, resource, resource, checked_fence, "", None)
            name = short_name(data.type_url)
            if name not in (short_name(type.type_url), type.former_name):
                payload_name = name
            # The prefix of a type URL means nothing. It is normalized so that equal payloads compare equal.
            data.type_url = type.type_url
        if data is not None:
            yield from check_payload(type, data.value)
            try:
                read = (type.payload, data.value)
                decoded = decode(*read) if len(data.value) <= SMALL else (yield from decoding(*read))
            except PayloadError as error:
                # If another writer has stored the same payload, its metadata can still change. Hooks cannot judge it.
                undecodable = f"resource.data of {resource_id(resource.id)}: {error}"
                return Admitted(type, key, resource, resource, checked_fence, payload_name, undecodable)
        given = resource
        if type.hooks.mutate is not None:
            resource = hooked(type, "mutate", type.hooks.mutate, given)
            # The authorizer may decide by the content of the resource, and the hook may have changed it.
            assert resource.id is not None
            access.check_write(resource.id, resource)
            check_metadata(resource.metadata)
            if resource.owner != given.owner:
                _admit_owner(access, resource, key)
        if type.hooks.validate is not None:
            hooked(type, "validate", type.hooks.validate, resource, decoded if resource.data == data else None)
        return Admitted(type, key, resource, given, checked_fence, payload_name, None)
    except Exception as error:
        if row_of(error) is not None and not isinstance(error, PayloadError):
            raise
        # A hook may have left a value that the later checks fail on.
        raise ProgramFailed("Internal Server Error", error) from error


def _admit_owner(access: AccessChecks, resource: pb.Resource, key: Key) -> None:
    if resource.owner is not None:
        admit_id(access, resource.owner, "resource.owner", key[:2])
        # The answer reveals whether the owner exists.
        access.check_read(resource.owner)


def hooked(type: Type, name: str, hook: Hook, resource: pb.Resource, decoded: Payload | None = None) -> pb.Resource:
    """Return the resource as the hook leaves it. Raise InvalidArgument if a validate hook raises ValueError."""
    # Each hook gets its own view, so a validate hook cannot change what is stored: that is the result of mutate.
    view = type.view(resource, decoded)
    try:
        check_answer(name, hook, view, hook(view))
        return view.message() if name == "mutate" else resource
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # The caller knows its secrets, and yet its terminal and our log must not show them.
        redact_error(error, [type.view(resource), view])
        if name == "validate" and isinstance(error, ValueError):
            raise InvalidArgument(f"{resource_id(resource.id)}: {reason_text(error)}") from error
        # `SystemExit` in a hook must not end the server, which serves others too.
        raise ProgramFailed(f"the {name} hook of {type.name} failed", error) from error
