"""The category of a call by its method, and the places that its request names, as limits count them.

Some methods are never limited, because a limit on them would take a lease from its holder, or would keep a process from
knowing the state of the store. Each of them needs a right, or does a small and fixed amount of work:

- Leases and fences: a lease that is not renewed in time is lost, and with it the work of its holder.
- The position of the store. A process needs it to detect a store that was rolled back.
- The streams and answers of workers about the state of their controllers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headway.access._limits import Category
from headway.access._policy import ANY
from headway.api import MAX_SUBJECTS
from headway.errors import InvalidArgument
from headway.resource import Registry, Scope, pb, type_name

_RESOURCES: Mapping[str, Category | None] = {
    "Read": "read",
    "List": "read",
    "ListByOwner": "read",
    "MutateAndValidate": "read",
    "Write": "write",
    "WriteStatus": "write",
    "Delete": "write",
    "WatchList": "watch",
}

CATEGORIES_OF: Mapping[str, Mapping[str, Category | None]] = {
    "headway.resource.v1.ResourceService": _RESOURCES,
    "hashicorp.consul.resource.ResourceService": _RESOURCES,
    "headway.types.v1.TypesService": {"List": "read"},
    "headway.subscribe.v1.SubscribeService": {"Subscribe": "watch"},
    "headway.observe.v1.ObserveService": {
        "Why": "read",
        "Stuck": "read",
        "Retry": "write",
        "Attend": None,
        "Answer": None,
    },
    "headway.peering.v1.PeeringService": {"GenerateToken": "write", "Establish": "write", "ExchangeSecret": "write"},
    "headway.migration.v1.MigrationService": {"Migrate": "write"},
    "headway.store.v1.StoreService": {"Position": None},
    "headway.quota.v1.QuotaService": {"List": "read"},
    "headway.lease.v1.LeaseService": dict.fromkeys(
        ("Acquire", "KeepAlive", "Release", "List", "Raise", "RecordSettled"), None
    ),
    "grpc.reflection.v1.ServerReflection": {"ServerReflectionInfo": "watch"},
    "grpc.reflection.v1alpha.ServerReflection": {"ServerReflectionInfo": "watch"},
    "headway.page": {
        "Session": "read",
        "Search": "read",
        "Events": "read",
        "Why": "read",
        "Live": "watch",
    },
}
"""The category of each method that a guard may serve, by service; None for methods that are never limited."""


def category_of(path: str) -> Category | None:
    """Return the category of a method by its path, or None if it is never limited."""
    service, _, method = path[1:].partition("/")
    # A method that is not listed is limited like a read. A test holds that every one is listed.
    return CATEGORIES_OF.get(service, {}).get(method, "read")


def has_places(path: str) -> bool:
    """Return True if the fields of a method's request say which places it is about.

    A service of an extension has messages of its own, whose fields mean other things.
    """
    return path[1:].partition("/")[0] in CATEGORIES_OF


def places_of(request: Any, registry: Registry) -> Sequence[tuple[str, str]]:
    """Return the partition and the namespace of each place that a request is about, at least one.

    They are empty for what a request has none of, and filled as the service fills them. Only a subscription may be
    about several places. Nothing of the request has been checked yet.
    """
    subjects = getattr(request, "subjects", None)
    if subjects:
        # The service refuses a subscription with more subjects.
        found = (_of_subject(subject, registry) for subject in subjects[:MAX_SUBJECTS])
        return tuple(dict.fromkeys(found))
    holder: Any = getattr(request, "resource", None) or request
    id = getattr(holder, "id", None) or getattr(request, "owner", None)
    about = id or request
    everywhere = isinstance(request, pb.WatchListRequest)
    return (_place(getattr(about, "type", None), getattr(about, "tenancy", None), registry, everywhere=everywhere),)


def _of_subject(subject: Any, registry: Registry) -> tuple[str, str]:
    tenancy = getattr(subject.named or subject.within, "tenancy", None)
    return _place(subject.type, tenancy, registry, everywhere=subject.named is None)


def _place(named: Any, tenancy: Any, registry: Registry, *, everywhere: bool) -> tuple[str, str]:
    """Return one place. Without a tenancy it is every place if ``everywhere`` is true, and otherwise the default."""
    scope = Scope.CLUSTER if named is None else _scope(named, registry)
    if scope is Scope.CLUSTER:
        return "", ""
    default = ANY if tenancy is None and everywhere else "default"
    partition = "" if tenancy is None else tenancy.partition
    namespace = "" if tenancy is None else tenancy.namespace
    partition = _short(partition) or default
    return partition, "" if scope is Scope.PARTITION else _short(namespace) or default


def _scope(named: Any, registry: Registry) -> Scope:
    try:
        return registry.resolve(type_name(named)).scope
    except InvalidArgument:
        # The handler will say so.
        return Scope.NAMESPACE


_LONGEST = 64
"""One character more than the longest valid name has."""


def _short(unit: str) -> str:
    """Return a unit as it is, or cut to what no valid one is: a caller may send a very long one."""
    return unit[:_LONGEST]
