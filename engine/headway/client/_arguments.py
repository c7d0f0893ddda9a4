"""What a client is given, checked and put into the form of the wire; and the one word of a server that is checked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from headway.errors import InvalidArgument, Unavailable
from headway.resource import Resource, ResourceId, ResourceType, Scope, pb, position


def milliseconds(seconds: object) -> int:
    """Of a ``progress_interval``."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= 3600:
        raise InvalidArgument(f"progress_interval {seconds!r} must be from 0 to 3600 seconds")
    return math.ceil(seconds * 1000)


def check_resource(given: object) -> None:
    """Raise for what a client can't write."""
    if not isinstance(given, Resource):
        raise InvalidArgument(f"a client writes resources, as made by TYPE.new(name, data), not {given!r:.120}")


def check_position(given: pb.Position | None, min_revision: int) -> None:
    """Don't believe a server that doesn't know of ``min_revision``, or whose word for it isn't there."""
    at = position(given)
    if min_revision and (at is None or at.revision < min_revision):
        stands = "doesn't say where it stands" if at is None else f"stands at revision {at.revision}"
        raise Unavailable(f"the server {stands}, and min_revision is {min_revision}")


def check_type(given: object) -> None:
    """Raise for what is no type."""
    if not isinstance(given, ResourceType):
        raise InvalidArgument(f"a client reads whole resources of a type, as app.type(...) returned it, not {given!r}")


def check_conditions(conditions: object) -> None:
    """Raise for what is no list of conditions."""
    if not isinstance(conditions, Sequence) or not all(isinstance(each, pb.Condition) for each in conditions):
        raise InvalidArgument(f"conditions must be a list, such as [headway.Condition(...)], not {conditions!r:.120}")
    for each in conditions:
        # Of the numbers that a bool is, 0 is UNKNOWN.
        if isinstance(each.state, bool):
            raise InvalidArgument(
                f"condition {each.type!r}: state {each.state} must be a headway.ConditionState, such as TRUE or FALSE"
            )


def tenancy_within(type: ResourceType[Any], partition: str, namespace: str) -> pb.Tenancy:
    """The units of a List or WatchList that the type's scope has."""
    check_type(type)
    return pb.Tenancy(
        partition="" if type.scope is Scope.CLUSTER else partition,
        namespace="" if type.scope in (Scope.CLUSTER, Scope.PARTITION) else namespace,
    )


def id_of(type: ResourceType[Any], id: str | ResourceId, partition: str, namespace: str) -> ResourceId:
    """The id that a name, or an id, says."""
    check_type(type)
    if isinstance(id, str):
        return type.id(id, partition=partition, namespace=namespace)
    if id.type.unversioned != type.kind:
        raise InvalidArgument(f"{id} is not a {type.name}: ask for it by its own type")
    return id._replace(type=type.name)
