"""Checks and conversions of a client's arguments, and a check of the server's position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

from headway.api import MAX_NUMBER, MAX_TTL_MS, MIN_TTL_MS
from headway.base import Range, check_text, repr_text
from headway.errors import InvalidArgument, PayloadError, Unavailable
from headway.protobuf import encode
from headway.resource import (
    ConditionState,
    Resource,
    ResourceId,
    ResourceType,
    Scope,
    ScopedType,
    pb,
    position,
    unicode_problem,
)

Ttl = Annotated[float, Range(MIN_TTL_MS / 1000, MAX_TTL_MS / 1000, unit="seconds")]
Patience = Annotated[float, Range(0, math.inf, unit="seconds")]
Number = Annotated[int, Range(0, MAX_NUMBER)]


def check_revision(given: object) -> None:
    """Raise InvalidArgument if a ``min_revision`` is not a revision."""
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given <= MAX_NUMBER:
        raise InvalidArgument(
            "min_revision must be a whole number >= 0, such as event.revision or int(resource.version), "
            f"not {repr_text(given)}"
        )


def milliseconds(seconds: float) -> int:
    """Return a number of seconds in milliseconds."""
    return math.ceil(seconds * 1000)


def check_position(given: pb.Position | None, min_revision: int) -> None:
    """Raise Unavailable if a server's reply is older than ``min_revision``, or has no position.

    A server that doesn't know ``min_revision`` ignores it.
    """
    at = position(given)
    if min_revision and (at is None or at.revision < min_revision):
        stands = "did not report its revision" if at is None else f"is at revision {at.revision}"
        raise Unavailable(f"the server {stands}, below min_revision {min_revision}")


def check_status(key: object, conditions: object, observed_generation: object) -> None:
    """Raise InvalidArgument if an argument of `Client.write_status` is of another class than declared."""
    check_text("key", key, "the controller's name")
    check_text("observed_generation", observed_generation, "resource.generation")
    if not isinstance(conditions, Sequence) or not all(isinstance(each, pb.Condition) for each in conditions):
        raise InvalidArgument(
            f"conditions must be a list, such as [headway.Condition(...)], not {repr_text(conditions)}"
        )
    for each in conditions:
        check_condition(each)


def check_condition(condition: pb.Condition) -> None:
    """Raise InvalidArgument if a field of a condition is of another class than declared, or cannot be encoded."""
    state: object = condition.state
    texts = condition.type, condition.reason, condition.message
    if isinstance(state, ConditionState) and condition.resource is None and _are_plain(*texts):
        return
    where = f"condition {repr_text(condition.type)}"
    # A bool and an int would be stored as some state, and False as UNKNOWN.
    if not isinstance(state, ConditionState):
        raise InvalidArgument(
            f"{where}: state {repr_text(state)} must be a headway.ConditionState, such as headway.ConditionState.TRUE"
        )
    words = ("type", condition.type, "'Ready'"), ("reason", condition.reason, "'PortTaken'")
    for field, text, example in (*words, ("message", condition.message, "str(error)")):
        check_text(f"{where}: {field}", text, example)
        if problem := unicode_problem(field, text):
            raise InvalidArgument(f"{where}: {problem}")
    other: object = condition.resource
    if other is None:
        return
    if not isinstance(other, pb.Reference):
        raise InvalidArgument(
            f"{where}: resource {repr_text(other)} must be a reference, such as resource.id.reference(), or left out"
        )
    try:
        encode(other)
    except PayloadError as error:
        raise InvalidArgument(f"{where}: resource: {error}") from error


def _are_plain(*texts: object) -> bool:
    """Return True if these are texts in ASCII, as most are."""
    return all(type(text) is str and text.isascii() for text in texts)


def deleted_id(given: object, version: object) -> ResourceId:
    """Return the id of a resource to delete. Raise InvalidArgument if an argument is of another class than declared."""
    check_text("version", version, "resource.version")
    if not version:
        # A resource from TYPE.new() has no version. Without this check it would delete whatever is stored.
        raise InvalidArgument(
            "version '' is not the version of a stored resource: pass that of a resource that you have read, such as "
            "team.version, or leave it out to delete any version"
        )
    id = given.id if isinstance(given, Resource) else given
    if not isinstance(id, ResourceId):
        raise InvalidArgument(f"delete() expects a Resource or a ResourceId, not {repr_text(given)}")
    return id


def list_request(
    type: ResourceType[Any] | ScopedType[Any], partition: str, namespace: str, name_prefix: str, filter: str
) -> pb.ListRequest:
    """Return the request for a list."""
    searched = range_searched(type, partition, namespace, name_prefix)
    return pb.ListRequest(
        type=type.name.message(),
        tenancy=searched.tenancy,
        name_prefix=searched.name_prefix,
        metadata_filter=",".join(each for each in (searched.selector, filter) if each),
    )


class Searched(NamedTuple):
    """The fields of a List or WatchList that select resources of a type."""

    tenancy: pb.Tenancy
    name_prefix: str
    selector: str


def range_searched(
    type: ResourceType[Any] | ScopedType[Any], partition: str, namespace: str, name_prefix: str
) -> Searched:
    """Return what a List or WatchList of a type or of a scope selects.

    Raises:
        InvalidArgument: an argument is given together with a scope.
    """
    if not isinstance(type, ScopedType):
        return Searched(tenancy_searched(type, partition, namespace), name_prefix, "")
    if (partition, namespace, name_prefix) != ("*", "*", ""):
        raise InvalidArgument(
            f"{type!r} was given together with partition {partition!r}, namespace {namespace!r} and name_prefix "
            f"{name_prefix!r}: leave them out, and declare another scope with TYPE.within(...)"
        )
    range = type.range
    tenancy = tenancy_searched(type.of, range.partition, range.namespace)
    return Searched(tenancy, range.name_prefix, range.selector)


def tenancy_searched(type: ResourceType[Any], partition: str, namespace: str) -> pb.Tenancy:
    """Return the tenancy of a List or WatchList, without the units that the type's scope lacks."""
    return pb.Tenancy(
        partition="" if type.scope is Scope.CLUSTER else partition,
        namespace="" if type.scope in (Scope.CLUSTER, Scope.PARTITION) else namespace,
    )


def id_of(type: ResourceType[Any], id: str | ResourceId, partition: str, namespace: str) -> ResourceId:
    """Return the id for a name or an id.

    Raises:
        InvalidArgument: the id is of another kind than the type, or neither a name nor an id.
    """
    given: object = type
    if not isinstance(given, ResourceType):
        raise InvalidArgument(f"type must be a resource type from app.type(...), not {given!r}")
    if isinstance(id, str):
        return type.id(id, partition=partition, namespace=namespace)
    try:
        if id.type.unversioned == type.kind:
            return id._replace(type=type.name)
    except AttributeError:
        raise InvalidArgument(
            f"id must be a name or an id, such as 'core' or resource.id, not {repr_text(id)}"
        ) from None
    raise InvalidArgument(f"{id} is not a {type.name}: ask for it by its own type")
