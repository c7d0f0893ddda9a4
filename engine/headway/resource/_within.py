"""The filter of a kind's resources by tenancy, name and metadata, and its check. Pure."""

from __future__ import annotations

from typing import NamedTuple

from headway._gen.headway.resource import v1 as pb
from headway.base import repr_text
from headway.errors import InvalidArgument
from headway.resource._ids import MAX_NAME, Key, Scope, name_problem, quoted, resource_key

MAX_SELECTOR = 4096
"""The maximum length of a selector, in characters."""

MAX_SELECTED = 32
"""The maximum number of entries in a selector. Each is compared for every resource."""

_FORM = "use key=value, with commas between several, such as 'tier=gold,region=eu'"


class Within(NamedTuple):
    """A filter for the resources of a kind. A resource must match every field.

    Attributes:
        partition: an exact partition, or ``*`` for any.
        namespace: an exact namespace, or ``*`` for any.
        name_prefix: the beginning of the names.
        metadata: the metadata entries, as sorted pairs of a key and a value.
    """

    partition: str = "*"
    namespace: str = "*"
    name_prefix: str = ""
    metadata: tuple[tuple[str, str], ...] = ()

    @property
    def everything(self) -> bool:
        """True if every resource matches."""
        return self.every_key and not self.metadata

    @property
    def every_key(self) -> bool:
        """True if every key matches."""
        return self.partition == "*" and self.namespace == "*" and not self.name_prefix

    @property
    def selector(self) -> str:
        """The metadata entries as a text."""
        return ",".join(f"{key}={value}" for key, value in self.metadata)

    def __str__(self) -> str:
        """Return the arguments of `ResourceType.within`, such as ``namespace='sales'``; empty if everything matches."""
        given = [f"{field}={value!r}" for field, value in self._asdict().items() if value not in ("*", "", ())]
        if self.metadata:
            given[-1] = f"metadata={self.selector!r}"
        return ", ".join(given)

    def matches(self, key: Key) -> bool:
        """Return True if a key matches. The metadata of its resource may still exclude it."""
        return (
            (self.partition in ("*", key[0]))
            and (self.namespace in ("*", key[1]))
            and key[2].startswith(self.name_prefix)
        )

    def begin(self, after: Key | None = None) -> tuple[Key, bool]:
        """Return the key to begin at, and True if it is included: the lowest one that can match, or ``after``."""
        first = (self.partition, self.namespace, self.name_prefix)
        if "*" in first[:2]:
            first = ("", "", "") if self.partition == "*" else (self.partition, "", "")
        return (after, False) if after is not None and after >= first else (first, True)

    def is_behind(self, key: Key) -> bool:
        """Return True if neither this key nor a later one can match."""
        if self.partition == "*":
            return False
        if key[0] != self.partition:
            return key[0] > self.partition
        if self.namespace == "*":
            return False
        if key[1] != self.namespace:
            return key[1] > self.namespace
        return key[2] > self.name_prefix and not key[2].startswith(self.name_prefix)

    def admits(self, resource: pb.Resource) -> bool:
        """Return True if a stored resource matches."""
        metadata = resource.metadata
        for key, value in self.metadata:
            if metadata.get(key) != value:
                return False
        return self.every_key or self.matches(resource_key(resource))

    def select(self, resources: list[pb.Resource]) -> list[pb.Resource]:
        """Return the resources that match."""
        if self.metadata:
            # The first comparison drops most of them, so it makes no call of a Python function.
            key, value = self.metadata[0]
            resources = [each for each in resources if each.metadata.get(key) == value]
            if len(self.metadata) > 1:
                return [each for each in resources if self.admits(each)]
        if self.every_key:
            return resources
        return [each for each in resources if self.matches(resource_key(each))]

    def matches_all(self, first: Key, last: Key) -> bool:
        """Return True only if every key from ``first`` to ``last`` matches."""
        same = first[:2] == last[:2] or (self.namespace == "*" and not self.name_prefix)
        return same and self.matches(first) and self.matches(last)

    def select_sorted(self, resources: list[pb.Resource]) -> list[pb.Resource]:
        """Return the resources that match, of resources in order of key. If the ends match, most need no look."""
        if self.metadata or not resources:
            return self.select(resources)
        all = self.matches_all(resource_key(resources[0]), resource_key(resources[-1]))
        return resources if all else self.select(resources)

    def may_hold(self, first: Key, last: Key) -> bool:
        """Return False if no key from ``first`` to ``last`` can match."""
        if first[0] != last[0]:
            return True
        if self.partition not in ("*", first[0]):
            return False
        if self.namespace != "*" and not first[1] <= self.namespace <= last[1]:
            return False
        prefix = self.name_prefix
        return first[1] != last[1] or (last[2] >= prefix and (first[2] <= prefix or first[2].startswith(prefix)))


def scope_within(name: str, scope: Scope, partition: str, namespace: str, prefix: str, text: str) -> Within:
    """Return the filter of a scope of a type. Raises InvalidArgument for the first invalid argument.

    Args:
        name: the type's name, for the error.
        text: the metadata entries.
    """
    problem = (
        _unit_problem("partition", partition, exists=scope is not Scope.CLUSTER)
        or _unit_problem("namespace", namespace, exists=scope in (Scope.NAMESPACE, Scope.UNDEFINED))
        or prefix_problem("name_prefix", prefix)
        or selector_problem("metadata", text)
    )
    if problem:
        raise InvalidArgument(f"{name}.within: {problem}")
    found = Within(partition, namespace, prefix, selected(text))
    if found.everything:
        raise InvalidArgument(
            f"{name}.within: expected a partition, a namespace, a name_prefix or metadata, such as "
            "TEAM.within(namespace='sales'); without any, use the type itself"
        )
    return found


def _unit_problem(field: str, value: object, *, exists: bool) -> str | None:
    if value == "*":
        return None
    if not exists:
        return f"{field} {repr_text(value)} must be left out: resources of this type have no {field}"
    return name_problem(field, value)


def prefix_problem(field: str, prefix: str) -> str | None:
    """Return the problem of a beginning of names, which a caller gives as ``field``, or None."""
    if len(prefix) > MAX_NAME:
        return f"{field} {quoted(prefix)} must have at most {MAX_NAME} characters, as names have"
    if prefix != prefix.lower():
        return f"{field} {prefix!r} must be lower case, as names are"
    if prefix and name_problem("name", prefix if len(prefix) == MAX_NAME else f"{prefix}0"):
        return (
            f"{field} {prefix!r} is not the beginning of a name: names have lower-case letters, digits and "
            "hyphens, so use a prefix such as 'team-'"
        )
    return None


def selector_problem(field: str, text: str) -> str | None:
    """Return the problem of a selector of metadata entries, or None. An empty selector selects everything."""
    if len(text) > MAX_SELECTOR:
        return f"{field} {quoted(text)} has {len(text)} characters: it must have at most {MAX_SELECTOR}"
    if any("\ud800" <= character <= "\udfff" for character in text):
        return f"{field} {quoted(text)} must be Unicode text without surrogates: {_FORM}"
    parts = text.split(",") if text.strip() else []
    if len(parts) > MAX_SELECTED:
        return f"{field} has {len(parts)} entries: it must have at most {MAX_SELECTED}"
    taken: dict[str, str] = {}
    for part in parts:
        key, equals, value = (each.strip() for each in part.partition("="))
        if not part.strip():
            return f"{field} {quoted(text)} has an empty entry: {_FORM}"
        # A key with an exclamation mark would be another term in the filter of a list.
        if not equals or not key or "!" in key or is_foreign_pair(key, value):
            return f"{field} {quoted(text)}: {quoted(part.strip())} is not key=value: {_FORM}"
        if taken.setdefault(key, value) != value:
            return f"{field} {quoted(text)} selects two values of {quoted(key)}, and a resource has one: {_FORM}"
    return None


def is_foreign_pair(key: str, value: str) -> bool:
    """Return True if ``key=value`` has an operator of another language: "color==red", "size>=3", "color:=red"."""
    return value.startswith("=") or key.endswith(("<", ">", "~", "^", "$", "*", ":"))


def selected(text: str) -> tuple[tuple[str, str], ...]:
    """Return the entries of a valid selector as sorted pairs."""
    pairs = (part.partition("=") for part in text.split(",")) if text.strip() else ()
    return tuple(sorted({(key.strip(), value.strip()) for key, _, value in pairs}))
