"""Checks and conversions of a client's arguments, and a check of the server's position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from headway.errors import InvalidArgument, Unavailable
from headway.resource import Resource, ResourceId, ResourceType, Scope, pb, position


def milliseconds(seconds: object) -> int:
    """Check a ``progress_interval`` and return it in milliseconds."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= 3600:
        raise InvalidArgument(f"progress_interval must be from 0 to 3600 seconds, not {seconds!r}")
    return math.ceil(seconds * 1000)


def check_resource(given: object) -> None:
    """Raise InvalidArgument if the argument is not a resource."""
    if not isinstance(given, Resource):
        raise InvalidArgument(f"expected a resource, as made by TYPE.new(name, data), got {given!r:.120}")


def check_position(given: pb.Position | None, min_revision: int) -> None:
    """Raise Unavailable if a server's reply is older than ``min_revision``, or has no position.

    A server that doesn't know ``min_revision`` ignores it.
    """
    at = position(given)
    if min_revision and (at is None or at.revision < min_revision):
        stands = "did not report its revision" if at is None else f"is at revision {at.revision}"
        raise Unavailable(f"the server {stands}, below min_revision {min_revision}")


def check_type(given: object) -> None:
    """Raise InvalidArgument if the argument is not a resource type."""
    if not isinstance(given, ResourceType):
        raise InvalidArgument(f"expected a resource type, as app.type(...) returns it, got {given!r}")


def check_conditions(conditions: object) -> None:
    """Raise InvalidArgument if the argument is not a list of conditions."""
    if not isinstance(conditions, Sequence) or not all(isinstance(each, pb.Condition) for each in conditions):
        raise InvalidArgument(f"conditions must be a list, such as [headway.Condition(...)], not {conditions!r:.120}")
    for each in conditions:
        # A bool is an int, and as a state False would mean UNKNOWN.
        if isinstance(each.state, bool):
            raise InvalidArgument(
                f"condition {each.type!r}: state {each.state} must be a headway.ConditionState, such as TRUE or FALSE"
            )


def tenancy_searched(type: ResourceType[Any], partition: str, namespace: str) -> pb.Tenancy:
    """Return the tenancy of a List or WatchList, without the units that the type's scope lacks."""
    check_type(type)
    return pb.Tenancy(
        partition="" if type.scope is Scope.CLUSTER else partition,
        namespace="" if type.scope in (Scope.CLUSTER, Scope.PARTITION) else namespace,
    )


def id_of(type: ResourceType[Any], id: str | ResourceId, partition: str, namespace: str) -> ResourceId:
    """Return the id for a name or an id.

    Raises:
        InvalidArgument: the id is of another kind than the type.
    """
    check_type(type)
    if isinstance(id, str):
        return type.id(id, partition=partition, namespace=namespace)
    if id.type.unversioned != type.kind:
        raise InvalidArgument(f"{id} is not a {type.name}: ask for it by its own type")
    return id._replace(type=type.name)
