"""The parts of the checks: the capabilities that they need, assertions, resources and operations."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Awaitable, Callable
from itertools import product
from typing import Any, NoReturn, TypeVar

from headway.errors import HeadwayError
from headway.resource import AnyMessage, Kind, Position, pb, resource_key
from headway.storage import Backend, Fence, Put, Remove, Within

KIND: Kind = ("conformance", "Thing")
OTHER_KIND: Kind = ("conformance", "Other")
EVERYTHING = Within()

MOST_OPERATIONS = 32
"""The largest number of operations in one commit of the checks. Every store takes that many."""

QUIET = 10.0
"""The number of seconds after which a watch that has not delivered an expected item counts as stuck."""

SHORT_HISTORY = 16
"""The number of changes that a store keeps in the checks of bounded history."""

BackendCheck = Callable[[Any], Awaitable[None]]
"""A check of a claim about an empty store. Its name is the claim in short; its docstring is the claim in full.

Most checks get the open store. Those of `restarts` open it themselves, several times.
"""

Check = TypeVar("Check", bound=BackendCheck)
E = TypeVar("E", bound=BaseException)


class Capability(enum.Enum):
    """A capability that a store may lack. The store declares it in `StoreUnderTest.lacks`; the suite does not guess."""

    DURABILITY = "durability"
    """The store keeps its contents when it is closed and opened again at the same place."""

    KEPT_HISTORY = "a history that is kept"
    """The store keeps its history when it is closed and opened again at the same place."""

    HISTORY_BOUND = "a bound of history"
    """The number of changes to keep can be set."""

    METADATA = "scopes by metadata"
    """The store implements `headway.storage.FiltersMetadata`: its watches and lists filter by metadata."""

    FENCE_LIST = "a list of fences"
    """The store implements `headway.storage.ListsFences`, so that it can be copied."""

    QUOTAS = "quotas"
    """The store implements `headway.storage.TakesRules`. Headway refuses to create quotas in a store without it."""


NEEDED: dict[BackendCheck, Capability] = {}
"""The capability that each check needs, if it needs one."""


def needs(capability: Capability) -> Callable[[Check], Check]:
    """Declare that a check needs a capability: it is left out for a store that lacks it."""

    def declare(check: Check) -> Check:
        NEEDED[check] = capability
        return check

    return declare


def must(condition: object, sentence: str) -> None:
    """Raise AssertionError with a sentence unless the condition holds, even under ``python -O``."""
    if not condition:
        fail(sentence)


def fail(sentence: str) -> NoReturn:
    """Raise AssertionError with a sentence."""
    raise AssertionError(sentence)


async def refused(error: type[E], attempt: Awaitable[object], what: str) -> E:
    """Return the error of this type that an attempt must fail with."""
    try:
        await attempt
    except error as refusal:
        return refusal
    except HeadwayError as other:
        raise AssertionError(f"{what} failed with {type(other).__name__}, expected {error.__name__}") from other
    fail(f"{what} succeeded, expected {error.__name__}")


def thing(
    name: str,
    text: str = "",
    *,
    partition: str = "default",
    namespace: str = "default",
    uid: str | None = None,
    owner_uid: str = "",
    kind: Kind = KIND,
    version: str = "v1",
) -> pb.Resource:
    """Return a new resource to store. Without ``uid`` it gets a unique one."""
    type = pb.Type(group=kind[0], group_version=version, kind=kind[1])
    tenancy = pb.Tenancy(partition=partition, namespace=namespace)
    id = pb.Id(uid=uuid.uuid4().hex if uid is None else uid, name=name, type=type, tenancy=tenancy)
    owner = pb.Id(uid=owner_uid, name="owner", type=type, tenancy=tenancy) if owner_uid else None
    return pb.Resource(
        id=id,
        owner=owner,
        generation=uuid.uuid4().hex,
        metadata={"written-by": "conformance"},
        data=AnyMessage(type_url="headway.dev/conformance.Thing", value=text.encode()),
    )


def uid_of(resource: pb.Resource) -> str:
    """Return the uid of a resource."""
    return resource.id.uid if resource.id is not None else ""


def name_of(resource: pb.Resource) -> str:
    """Return the name of a resource."""
    return resource.id.name if resource.id is not None else ""


def text_of(resource: pb.Resource) -> str:
    """Return the text that a resource was made with."""
    return resource.data.value.decode() if resource.data is not None else ""


def kind_of(resource: pb.Resource) -> Kind:
    """Return the kind of a resource."""
    type = resource.id.type if resource.id is not None else None
    return (type.group, type.kind) if type is not None else ("", "")


def version_of(resource: pb.Resource) -> str:
    """Return the group version of a stored resource."""
    type = resource.id.type if resource.id is not None else None
    return type.group_version if type is not None else ""


def putting(resource: pb.Resource, expected: str = "") -> Put:
    """Return the operation that stores a resource."""
    return Put(kind_of(resource), resource_key(resource), resource, expected)


def removing(resource: pb.Resource, expected: str, *, uid: str | None = None) -> Remove:
    """Return the operation that deletes a resource."""
    return Remove(kind_of(resource), resource_key(resource), uid_of(resource) if uid is None else uid, expected)


async def put(backend: Backend, resource: pb.Resource, expected: str = "", fence: Fence | None = None) -> Position:
    """Store a resource in a commit of its own."""
    return await backend.commit([putting(resource, expected)], fence)


async def fill(backend: Backend, count: int, letter: str = "n") -> None:
    """Store ``count`` resources, from n0000 on, in commits of a size that every store takes."""
    for start in range(0, count, MOST_OPERATIONS):
        names = range(start, min(start + MOST_OPERATIONS, count))
        await backend.commit([putting(thing(f"{letter}{index:04}")) for index in names])


async def remove(
    backend: Backend, resource: pb.Resource, expected: str, *, uid: str | None = None, fence: Fence | None = None
) -> Position:
    """Delete a resource in a commit of its own."""
    return await backend.commit([removing(resource, expected, uid=uid)], fence)


async def read_back(backend: Backend, resource: pb.Resource) -> pb.Resource | None:
    """Return what is stored under a resource's kind and key."""
    found, _ = await backend.read(kind_of(resource), resource_key(resource))
    return found


async def names(backend: Backend, within: Within = EVERYTHING, kind: Kind = KIND) -> list[str]:
    """Return the names of the resources in a list."""
    found, _ = await backend.list(kind, within)
    return [name_of(resource) for resource in found]


_PARTITIONS = ("p1", "p2", "p10")
_NAMESPACES = ("n1", "n2", "")
_NAMES = ("a", "ab", "abc", "b", "B", "a%", "a_", "*", "ä", "\N{SNOWMAN}", "\N{GRINNING FACE}")

FILTERS = tuple(
    Within(partition, namespace, prefix)
    for partition, namespace, prefix in product(
        ("*", "p1", "p2", "none"), ("*", "n1", "", "none"), ("", "a", "ab", "a%", "a_", "*", "ä", "\N{SNOWMAN}", "z")
    )
)
"""Filters: partition and namespace exact, wildcard and unknown, combined with name prefixes. Some prefixes look like
patterns.
"""


async def store_a_matrix(backend: Backend) -> None:
    """Store every name in every tenancy, and resources of another kind."""
    everything = [
        thing(name, partition=partition, namespace=namespace)
        for partition, namespace, name in product(_PARTITIONS, _NAMESPACES, _NAMES)
    ]
    everything.reverse()
    for start in range(0, len(everything), MOST_OPERATIONS):
        await backend.commit([putting(resource) for resource in everything[start : start + MOST_OPERATIONS]])
    await backend.commit([putting(thing(name, partition="p1", namespace="n1", kind=OTHER_KIND)) for name in _NAMES])


def matrix_keys(within: Within) -> list[tuple[str, str, str]]:
    """Return the keys of the matrix that match a filter, in order."""
    return sorted(key for key in product(_PARTITIONS, _NAMESPACES, _NAMES) if within.matches(key))
