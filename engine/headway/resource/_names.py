"""The rules for names, and the tenancy units that complete a name in each scope."""

from __future__ import annotations

import enum
import re

MAX_NAME = 63
"""The maximum length of a name, of a tenancy unit, and of each part of a type's name."""

_QUOTED = 100
"""The maximum number of characters that an error quotes: a caller may send millions."""

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?\Z")
_GROUP = re.compile(r"[a-z][a-z0-9_]+\Z")
_VERSION = re.compile(r"v[a-z0-9]*[0-9]\Z")
_KIND = re.compile(r"[A-Z][A-Za-z0-9]+\Z")


def quoted(value: object) -> str:
    """Return the value as errors quote it. Long text is cut off."""
    if isinstance(value, str) and len(value) > _QUOTED:
        return f"{value[:_QUOTED]!r}…"
    return repr(value)


def name_problem(field: str, value: object) -> str | None:
    """Return the problem with the name of a resource or a tenancy unit, or None if it is valid.

    ``field`` is what the caller calls it.
    """
    if not isinstance(value, str):
        return f"{field} must be a string, not {value!r}"
    if not value:
        return f"{field} is required"
    if len(value) > MAX_NAME or not _NAME.match(value):
        return (
            f"{field} {quoted(value)} is not a valid name: use 1 to {MAX_NAME} lower-case letters, digits "
            "and hyphens, with a letter or digit at both ends"
        )
    return None


def type_problem(group: object, version: object, kind: object) -> str | None:
    """Return the problem with a type's name, or None if it is valid."""
    for part, value in (("group", group), ("version", version), ("kind", kind)):
        if not isinstance(value, str):
            return f"{part} must be a string, not {value!r}"
        if len(value) > MAX_NAME:
            return f"{part} {quoted(value)} must have at most {MAX_NAME} characters"
    group, version, kind = str(group), str(version), str(kind)
    if not _GROUP.match(group):
        return f"group {group!r} must be snake_case and at least two characters, such as 'staff' or 'my_group'"
    if not _VERSION.match(version):
        return f"version {version!r} must be 'v', optional lower-case letters and a number, such as 'v1' or 'v2beta1'"
    if not _KIND.match(kind):
        return f"kind {kind!r} must be PascalCase and at least two characters, such as 'Team'"
    return None


class Scope(enum.Enum):
    """The scope of a type: the tenancy units that its resources have. The values are those on the wire.

    Only tombstones have the scope UNDEFINED: they take the tenancy of their owner, in any scope.
    """

    UNDEFINED = 0
    CLUSTER = 1
    PARTITION = 2
    NAMESPACE = 3


DEFAULT_TENANCY = {
    Scope.UNDEFINED: ("", ""),
    Scope.CLUSTER: ("", ""),
    Scope.PARTITION: ("default", ""),
    Scope.NAMESPACE: ("default", "default"),
}


def tenancy_within(scope: Scope, given: tuple[str, str], parent: tuple[str, str]) -> tuple[str, str]:
    """Return the complete (partition, namespace) of a reference.

    An empty unit is inherited from the parent, or else gets the scope's default. The namespace is inherited only if the
    partition equals the parent's. Units that the scope doesn't have are always empty.

    Args:
        scope: the scope of the referenced type.
        given: the units in the reference; they may be empty.
        parent: the units of the resource that contains the reference.
    """
    default_partition, default_namespace = DEFAULT_TENANCY[scope]
    if scope is Scope.UNDEFINED:
        return given
    partition = (given[0] or parent[0] or default_partition) if default_partition else ""
    inherited = parent[1] if partition == parent[0] else ""
    return partition, (given[1] or inherited or default_namespace) if default_namespace else ""
