"""Types and resources by the names that a user writes."""

from __future__ import annotations

import re
from typing import Any

from headway.cli._exits import Usage
from headway.errors import InvalidArgument
from headway.resource import (
    Registry,
    ResourceId,
    ResourceType,
    Scope,
    ScopedType,
    did_you_mean,
    is_builtin,
    name_problem,
    prefix_problem,
    selector_problem,
)


def find_type(written: str, registry: Registry, *, any_version: bool = False) -> ResourceType[Any]:
    """Return the type with a name such as ``Team``, ``staff.Team`` or ``staff.v1.Team``, in any case. Raises Usage.

    A plural such as ``teams`` is accepted, unless a type has that name. With ``any_version``, the newest version of one
    kind stands for all of them.
    """
    types = sorted(registry, key=lambda each: each.name)
    exact = [each for each in types if str(each.name) == written]
    wanted = written.lower()
    bearers = exact or [each for each in types if wanted in _spellings(each)]
    bearers = bearers or [each for each in types if wanted in map(_plural, _spellings(each))]
    # A kind of the program's own comes before a built-in one, such as Event.
    bearers = [each for each in bearers if not is_builtin(each)] or bearers
    if any_version and len({each.kind for each in bearers}) == 1:
        bearers = [max(bearers, key=_age)]
    if len(bearers) == 1:
        return bearers[0]
    if bearers:
        names = ", ".join(str(each.name) for each in bearers)
        raise Usage(f"the type {written!r} is ambiguous; it could be {names}")
    if not types:
        raise Usage(f"type {written!r} not found: the server has no types")
    # Imported only for an error, because this takes long.
    import difflib

    # Compare a kind only with kinds, since it is never similar to a full name.
    known = {str(each.name) if "." in written else each.name.kind for each in types}
    # The comparison ignores case, but the hint preserves it.
    by_lower = {each.lower(): each for each in known}
    close = difflib.get_close_matches(wanted, by_lower, n=1)
    hint = f"; did you mean {by_lower[close[0]]!r}?" if close else did_you_mean(written, known)
    raise Usage(f"type {written!r} not found{hint} (`headway types` lists all types)")


def find_named(
    type: str, name: str, partition: str, namespace: str, registry: Registry, *, any_version: bool = False
) -> tuple[ResourceType[Any], ResourceId]:
    """Return the type and the id of a resource. Omitted tenancy units get their defaults. Raises Usage."""
    found = find_type(type, registry, any_version=any_version)
    try:
        return found, found.id(name, partition=partition, namespace=namespace)
    except InvalidArgument as error:
        raise Usage(str(error)) from error


def find_listed(type: str, partition: str, namespace: str, prefix: str, registry: Registry) -> ResourceType[Any]:
    """Return the type to list. ``*`` means any unit.

    Raises Usage if its resources are never in the given unit, or if a unit or the prefix is not valid.
    """
    found = find_type(type, registry)
    if namespace != "*" and found.scope in (Scope.CLUSTER, Scope.PARTITION):
        raise Usage(f"--namespace {namespace}: a {found.name} is in no namespace; leave it out")
    if partition != "*" and found.scope is Scope.CLUSTER:
        raise Usage(f"--partition {partition}: a {found.name} is in no partition; leave it out")
    units = (("--partition", partition), ("--namespace", namespace))
    problems = [name_problem(option, unit) for option, unit in units if unit not in ("*", "")]
    for problem in (*problems, prefix_problem("--prefix", prefix)):
        if problem is not None:
            raise Usage(problem)
    return found


def find_scope(type: ResourceType[Any], metadata: str) -> ResourceType[Any] | ScopedType[Any]:
    """Return the type, or the part of it that has these metadata entries. Raises Usage for an invalid text."""
    if not metadata:
        return type
    if problem := selector_problem("--metadata", metadata):
        raise Usage(problem)
    return type.within(metadata=metadata)


def _age(type: ResourceType[Any]) -> tuple[bool, bool, list[int]]:
    """Return a key by which the newest version is the greatest: v2 before v1, and v1 before v2beta1 and v3alpha1."""
    version = type.name.version
    return (
        "alpha" not in version and "beta" not in version,
        "beta" in version,
        [*map(int, re.findall(r"\d+", version))],
    )


def _plural(name: str) -> str:
    """Return the English plural of a name in lower case."""
    if name.endswith(("s", "x", "z", "ch", "sh")):
        return f"{name}es"
    return f"{name[:-1]}ies" if re.search(r"[^aeiou]y\Z", name) else f"{name}s"


def _spellings(type: ResourceType[Any]) -> set[str]:
    group, version, kind = (part.lower() for part in type.name)
    return {kind, f"{group}.{kind}", f"{version}.{kind}", f"{group}.{version}.{kind}"}
