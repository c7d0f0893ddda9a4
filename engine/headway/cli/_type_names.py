"""Which type, and which resource of it, is meant by what was typed."""

from __future__ import annotations

import difflib
from typing import Any

from headway.cli._exits import Usage
from headway.errors import InvalidArgument
from headway.resource import Registry, ResourceId, ResourceType, Scope, did_you_mean


def find_type(written: str, registry: Registry) -> ResourceType[Any]:
    """The type. ``Team``, ``team``, ``staff.Team`` and ``staff.v1.Team`` are names of one; case doesn't matter."""
    types = sorted(registry, key=lambda each: each.name)
    exact = [each for each in types if str(each.name) == written]
    wanted = written.lower()
    bearers = exact or [each for each in types if wanted in _spellings(each)]
    if len(bearers) == 1:
        return bearers[0]
    if bearers:
        names = ", ".join(str(each.name) for each in bearers)
        raise Usage(f"the type {written!r} is ambiguous; it could be {names}")
    if not types:
        raise Usage(f"there is no type {written!r}: the server has no types at all")
    # A kind is compared with kinds: against full names it would never be close.
    known = {str(each.name) if "." in written else each.name.kind for each in types}
    # Compared without regard to case, and named in its own.
    by_lower = {each.lower(): each for each in known}
    close = difflib.get_close_matches(wanted, by_lower, n=1)
    hint = f"; did you mean {by_lower[close[0]]!r}?" if close else did_you_mean(written, known)
    raise Usage(f"there is no type {written!r}{hint} (`headway types` lists them)")


def find_id(type: str, name: str, partition: str, namespace: str, registry: Registry) -> ResourceId:
    """The id of a name of a type, in the default units unless others are given."""
    try:
        return find_type(type, registry).id(name, partition=partition, namespace=namespace)
    except InvalidArgument as error:
        raise Usage(str(error)) from error


def check_units(type: ResourceType[Any], partition: str, namespace: str) -> None:
    """Refuse to look for a type in a unit that it is never in; ``*`` is any."""
    if namespace != "*" and type.scope in (Scope.CLUSTER, Scope.PARTITION):
        raise Usage(f"--namespace {namespace}: a {type.name} is in no namespace; leave it out")
    if partition != "*" and type.scope is Scope.CLUSTER:
        raise Usage(f"--partition {partition}: a {type.name} is in no partition; leave it out")


def _spellings(type: ResourceType[Any]) -> set[str]:
    group, version, kind = (part.lower() for part in type.name)
    return {kind, f"{group}.{kind}", f"{version}.{kind}", f"{group}.{version}.{kind}"}
