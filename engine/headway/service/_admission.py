"""What every request passes first: its type, its names, its tenancy; and a resource's payload and hooks."""

from __future__ import annotations

from typing import Any

from grpclib import GRPCError
from grpclib.const import Status

from headway.errors import HeadwayError, PayloadError
from headway.resource import (
    Key,
    Registry,
    Resource,
    ResourceType,
    Scope,
    name_problem,
    pb,
    resource_id,
    tenancy_within,
    type_name,
    type_problem,
)
from headway.service._refusals import invalid
from headway.storage import Within

Type = ResourceType[Any]


def resolve(registry: Registry, message: pb.Type | None, field: str) -> Type:
    """The registered type that a request names in ``field``."""
    if message is None:
        raise invalid(f"{field} is required")
    try:
        return registry.resolve(type_name(message))
    except HeadwayError as error:
        for part in ("group", "group_version", "kind"):
            if not getattr(message, part):
                raise invalid(f"{field}.{part} is required") from None
        raise invalid(f"{field}: {error}") from None


def admit_id(
    registry: Registry, id: pb.Id | None, field: str, parent: tuple[str, str] | None = None
) -> tuple[Type, Key]:
    """Check an id, fill in the tenancy units that its type's scope has, and return its type and key.

    They are filled in with those of ``parent``, where it stands in a resource there, else with the default ones. The
    id is changed in place: afterwards it has a tenancy, and shares its type, and the default tenancy, with all other
    ids of that type.
    """
    if id is None:
        raise invalid(f"{field} is required")
    type = resolve(registry, id.type, f"{field}.type")
    id.type = type.message
    partition, namespace = type.default_units
    tenancy = id.tenancy
    if parent is not None:
        given = ("", "") if tenancy is None else (tenancy.partition, tenancy.namespace)
        partition, namespace = tenancy_within(type.scope, given, parent)
    if tenancy is not None:
        partition, namespace = tenancy.partition or partition, tenancy.namespace or namespace
    problem = name_problem("name", id.name)
    if (partition, namespace) == type.default_units:
        id.tenancy = type.tenancy
    else:
        problem = problem or type.tenancy_problem(partition, namespace)
        id.tenancy = pb.Tenancy(partition=partition, namespace=namespace)
    if problem:
        raise invalid(f"{field} of {type.name}: {problem}")
    return type, (partition, namespace, id.name)


def admit_within(type: Type, tenancy: pb.Tenancy | None, name_prefix: str, *, absent_is_any: bool) -> Within:
    """Which resources a List or WatchList is about; ``*`` stands for any partition or namespace."""
    if tenancy is None and absent_is_any:
        partition, namespace = ("*", "*") if type.scope is not Scope.CLUSTER else ("", "")
    else:
        tenancy = tenancy or pb.Tenancy()
        default_partition, default_namespace = type.default_units
        partition = tenancy.partition or default_partition
        namespace = tenancy.namespace or default_namespace
    for field, unit in (("partition", partition), ("namespace", namespace)):
        if unit not in ("", "*") and (problem := name_problem(field, unit)):
            raise invalid(f"tenancy of {type.name}: {problem}")
    if name_prefix != name_prefix.lower():
        raise invalid(f"name_prefix {name_prefix!r} must be lower case, as names are")
    if type.scope is Scope.CLUSTER:
        if (partition, namespace) not in (("", ""), ("*", "*")):
            raise invalid(
                f"tenancy of {type.name}: partition {partition!r} and namespace {namespace!r} must be empty: "
                "the type is cluster-scoped"
            )
        return Within("*", "*", name_prefix)
    if type.scope is Scope.PARTITION:
        if namespace not in ("", "*"):
            raise invalid(
                f"tenancy of {type.name}: namespace {namespace!r} must be empty: the type is partition-scoped"
            )
        namespace = "*"
    return Within(partition, namespace, name_prefix)


def admit_resource(registry: Registry, resource: pb.Resource | None) -> tuple[Type, Key, pb.Resource]:
    """Everything that Write checks before it looks at the store. Returns the resource as mutated by its hooks."""
    if resource is None:
        raise invalid("resource is required")
    type, key = admit_id(registry, resource.id, "resource.id")
    if resource.owner is not None:
        admit_id(registry, resource.owner, "resource.owner", key[:2])
    if resource.data is not None and resource.data.type_url != type.type_url:
        if _short(resource.data.type_url) != _short(type.type_url):
            raise invalid(
                f"resource.data of {type.name} must be {_short(type.type_url)}, not {_short(resource.data.type_url)}"
            )
        # What precedes the name says nothing; without one form of it, equal payloads would not compare equal.
        resource.data.type_url = type.type_url
    if type.hooks.mutate is not None or type.hooks.validate is not None:
        resource = _run_hooks(type, resource)
    return type, key, resource


def _run_hooks(type: Type, resource: pb.Resource) -> pb.Resource:
    hooks = type.hooks
    if hooks.mutate is not None:
        view: Resource[Any] = type.view(resource)
        try:
            hooks.mutate(view)
            mutated = view.message()
        except Exception as error:
            _check_decodes(type, resource)
            raise GRPCError(Status.INTERNAL, f"the mutate hook of {type.name} raised {error!r}") from error
        resource = mutated
    if hooks.validate is not None:
        try:
            # A view of its own: what is stored is what mutate has left, whatever validate does to it.
            hooks.validate(type.view(resource))
        except Exception as error:
            _check_decodes(type, resource)
            raise invalid(f"{resource_id(resource.id)}: {error}") from error
    return resource


def _check_decodes(type: Type, resource: pb.Resource) -> None:
    """Where a hook has failed: say so if it could only fail, because the bytes it was to look at are no payload."""
    try:
        _ = type.view(resource).data
    except PayloadError as error:
        raise invalid(f"resource.data of {resource_id(resource.id)}: {error}") from None


def admit_reference(registry: Registry, reference: pb.Reference, field: str, parent: tuple[str, str]) -> str | None:
    """Fill in, in place, the tenancy of what a resource in ``parent`` refers to; says why it can name nothing, or None.

    Its type need not be registered here; where it isn't, its tenancy is left as it is.
    """
    if reference.type is None:
        return f"{field}.type is required"
    name = type_name(reference.type)
    given = reference.tenancy or pb.Tenancy()
    partition, namespace = given.partition, given.namespace
    if name in registry:
        type = registry.resolve(name)
        partition, namespace = tenancy_within(type.scope, (partition, namespace), parent)
        problem = type.tenancy_problem(partition, namespace)
        reference.tenancy = pb.Tenancy(partition=partition, namespace=namespace)
    else:
        problem = type_problem(*name)
        for unit, value in (("partition", partition), ("namespace", namespace)):
            problem = problem or (name_problem(unit, value) if value else None)
    problem = problem or name_problem("name", reference.name)
    return f"{field}: {problem}" if problem else None


def _short(type_url: str) -> str:
    return type_url.rpartition("/")[2] or "(no type)"
