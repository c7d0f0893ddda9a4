"""Which type is meant by what was typed: a full name, or any part of one that only one type has."""

from __future__ import annotations

from typing import Any

from headway.cli._exits import Usage
from headway.resource import Registry, ResourceType, did_you_mean


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
    closest = did_you_mean(wanted, {each.lower() for each in known})
    hint = closest if "did you mean" in closest else did_you_mean(written, known)
    raise Usage(f"there is no type {written!r}{hint} (`headway types` lists them)")


def _spellings(type: ResourceType[Any]) -> set[str]:
    group, version, kind = (part.lower() for part in type.name)
    return {kind, f"{group}.{kind}", f"{version}.{kind}", f"{group}.{version}.{kind}"}
