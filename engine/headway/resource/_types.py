"""Resource types: the name, scope, payload class and validation rules of a kind of resource."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import betterproto2

from headway._gen.google.protobuf import Any as AnyMessage
from headway._gen.headway.resource import v1 as pb
from headway.base import check_keywords, plain_problem
from headway.errors import DeclarationError, InvalidArgument
from headway.protobuf import (
    REDACTED,
    REDACTED_CHANGED,
    Payload,
    bind_name,
    encode,
    holds_secrets,
    module_name,
    secret_values,
)
from headway.resource._columns import Columns, columns_problem
from headway.resource._ids import (
    DEFAULT_TENANCY,
    Kind,
    ResourceId,
    Scope,
    TypeName,
    name_problem,
    quoted,
    tenancy_within,
    type_name,
    type_problem,
)
from headway.resource._resource import Resource, check_fields, owner_id, text_map
from headway.resource._scoped import ScopedType
from headway.resource._within import Within, scope_within

T = TypeVar("T", bound=Payload)

DEFAULT_UNIT = "default"
"""The name of the partition, and of the namespace in each partition, that exists without a resource."""

EMPTIED_FINALIZER = "headway.tenancy"
"""The finalizer that keeps a partition or namespace, while it is being deleted, until it is empty."""

UNIT_KINDS: tuple[Kind, ...] = (("tenancy", "Partition"), ("tenancy", "Namespace"))
"""The kinds of partitions and namespaces."""

_HOOKS_FORM = "headway.Hooks(mutate=fill_in, validate=check), each `def check(team: headway.Resource[Team]) -> None`"
_NEEDS_FORM = (
    "headway.Hooks(needs=rights), with `def rights(verb, team): yield headway.Need('read', SITE.id(team.data.site))`"
)


class Need(NamedTuple):
    """A right that a caller needs because of what a resource contains.

    Attributes:
        verb: ``read`` or ``write``.
        id: the id of another resource, which need not exist. Its name may be a prefix: then the right must cover every
            name that begins with it.
    """

    verb: Literal["read", "write"]
    id: ResourceId


@check_keywords
@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks(Generic[T]):
    """Functions that fill in defaults and validate resources of a type. They run on every Write, on a copy.

    Attributes:
        mutate: fills in defaults, in place.
        validate: raises ValueError, with a message for the caller, to reject the resource.
        needs: returns the rights that a caller over the network needs in addition to those on the resource itself,
            to ``"read"`` or to ``"write"`` it. It may get a resource that `mutate` has not completed.

    Any other exception from a hook is reported as `HandlerFailed`, and the caller gets an error that the hook failed.
    """

    mutate: Callable[[Resource[T]], None] | None = None
    validate: Callable[[Resource[T]], None] | None = None
    needs: Callable[[Literal["read", "write"], Resource[T]], Iterable[Need]] | None = None

    def __post_init__(self) -> None:
        for name, hook in (("mutate", self.mutate), ("validate", self.validate)):
            problem = None if hook is None else plain_problem(hook, 1, "a resource", why="a write waits for it")
            if problem:
                raise DeclarationError(f"the {name} hook {problem}: {_HOOKS_FORM}")
        takes, why = "a verb and a resource", "a request waits for it"
        problem = None if self.needs is None else plain_problem(self.needs, 2, takes, why=why, may_yield=True)
        if problem:
            raise DeclarationError(f"the needs hook {problem}: {_NEEDS_FORM}")


def _unit_hooks(hooks: Hooks[T]) -> Hooks[T]:
    """Return hooks that run the rules of partitions and namespaces, and then the type's own."""
    mutate, validate = _in_turn(_hold_unit, hooks.mutate), _in_turn(_check_unit, hooks.validate)
    return replace(hooks, mutate=mutate, validate=validate)


def _hold_unit(unit: Resource[Any]) -> None:
    """Add the finalizer to a unit that is not being deleted, and an empty payload to a unit without one."""
    # Every write adds it, so that a unit is emptied even if it is deleted at once. Only a deletion may remove it.
    if not unit.is_deleting:
        unit.finalizers = unit.finalizers | {EMPTIED_FINALIZER}
    if unit._message.data is None:
        # Consul stores an empty payload too: its clients cannot decode a missing one.
        unit.data = unit.type.payload()


def _check_unit(unit: Resource[Any]) -> None:
    """Raise ValueError if a unit has an owner, or the name of the default unit."""
    kind = unit.type.name.kind.lower()
    if unit.name == DEFAULT_UNIT:
        raise ValueError(f"the {kind} 'default' always exists and cannot be written")
    if unit.owner is not None:
        raise ValueError(
            f"owner must be empty: a {kind} cannot have an owner, so that it is only removed by its own deletion"
        )


def _secret_hooks(payload: type[Any], hooks: Hooks[T]) -> Hooks[T]:
    """Return hooks that also refuse what stands in place of a redacted secret."""
    try:
        secrets = holds_secrets(payload)
    except DeclarationError:
        # A class that the payload contains is declared later, and may have some.
        secrets = True
    return replace(hooks, validate=_in_turn(_check_secrets, hooks.validate)) if secrets else hooks


def _check_secrets(resource: Resource[Any]) -> None:
    """Raise ValueError if a shown resource is written back, which would destroy its secrets."""
    for path, value in secret_values(resource.data).items():
        if value in (REDACTED, REDACTED.encode(), REDACTED_CHANGED, REDACTED_CHANGED.encode()):
            raise ValueError(
                f"data.{'.'.join(map(str, path))} is {REDACTED!r}, which stands in place of a secret: give the secret "
                "itself, as `headway get --show-secrets` shows it"
            )


def _in_turn(
    first: Callable[[Resource[T]], None], then: Callable[[Resource[T]], object] | None
) -> Callable[[Resource[T]], Any]:
    if then is None:
        return first

    def both(resource: Resource[T]) -> object:
        first(resource)
        # The service checks what the program's hook returned.
        return then(resource)

    return both


def _parts_problem(payload: object, scope: object, hooks: object) -> str | None:
    if not (isinstance(payload, type) and issubclass(payload, betterproto2.Message)):
        return (
            f"payload {payload!r} must be a message class: "
            "decorate it with @headway.message, or use a class generated by betterproto2"
        )
    if not isinstance(scope, Scope):
        return f"scope {scope!r} must be a headway.Scope, such as Scope.NAMESPACE"
    if hooks is not None and not isinstance(hooks, Hooks):
        return f"hooks {hooks!r} must be headway.Hooks(mutate=..., validate=...)"
    return None


@check_keywords
class ResourceType(Generic[T]):
    """A resource type, declared by ``TEAM = app.type("staff", "v1", "Team", Team)``.

    Raises:
        DeclarationError: A part of the declaration is invalid. The message shows the correct form.
    """

    __slots__ = (
        *("_scopes", "columns", "default_units", "former_name", "hooks", "kind", "message"),
        *("name", "payload", "scope", "tenancy", "type_url"),
    )

    def __init__(
        self,
        group: str,
        version: str,
        kind: str,
        payload: type[T],
        *,
        scope: Scope = Scope.NAMESPACE,
        hooks: Hooks[T] | None = None,
        columns: Columns | None = None,
    ) -> None:
        problem = (
            type_problem(group, version, kind)
            or _parts_problem(payload, scope, hooks)
            or columns_problem(payload, columns or {})
        )
        if problem:
            raise DeclarationError(f"type {group}.{version}.{kind}: {problem}")
        self.columns = dict(columns or {})
        self.name = TypeName(group, version, kind)
        self.kind = self.name.unversioned
        # The name as a wire message. All stored resources share it, so it must never be changed.
        self.message = self.name.message()
        self.payload = payload
        self.scope = scope
        # The default tenancy units, and the same as a wire message, which is shared too.
        self.default_units = DEFAULT_TENANCY[scope]
        self.tenancy = pb.Tenancy(partition=self.default_units[0], namespace=self.default_units[1])
        # All versions of a partition or namespace follow the same rules, since they have the same resources.
        given = (hooks or Hooks()) if self.kind not in UNIT_KINDS else _unit_hooks(hooks or Hooks())
        self.hooks: Hooks[T] = _secret_hooks(payload, given)
        self.type_url = f"type.googleapis.com/{bind_name(payload, str(self.name))}"
        # Earlier releases named the payload after its Python class. Their clients still send this name.
        self.former_name = module_name(payload)
        # Scopes are compared by identity, as types are.
        self._scopes: WeakValueDictionary[Within, ScopedType[T]] = WeakValueDictionary()

    def __repr__(self) -> str:
        return f"<ResourceType {self.name}>"

    def check_payload(self, data: object) -> None:
        """Raise InvalidArgument, which names both classes, if ``data`` is not a payload of this type."""
        if type(data) is not self.payload:
            raise InvalidArgument(
                f"{self.name} carries {self.payload.__name__}, not {type(data).__name__}: "
                f"give it a {self.payload.__name__}(...)"
            )

    def id(self, name: str, *, partition: str = "", namespace: str = "", uid: str = "") -> ResourceId:
        """Return the id of a resource of this type. Omitted tenancy units get the default of the scope.

        Raises:
            InvalidArgument: A name is invalid, or the scope doesn't have a given unit.
        """
        default_partition, default_namespace = self.default_units
        id = ResourceId(self.name, name, partition or default_partition, namespace or default_namespace, uid)
        problem = name_problem("name", name) or self.tenancy_problem(id.partition, id.namespace)
        if problem:
            raise InvalidArgument(f"{self.name}: {problem}")
        return id

    @check_keywords
    def within(
        self, *, partition: str = "*", namespace: str = "*", name_prefix: str = "", metadata: str = ""
    ) -> ScopedType[T]:
        """``GOLDEN = ACCOUNT.within(metadata="tier=gold")`` selects a part of the type's resources.

        Use the scope in place of the type, to manage, watch, cache or list only these resources. A resource must match
        every argument.

        Args:
            partition, namespace: the tenancy, or ``*`` for any.
            name_prefix: the beginning of the names.
            metadata: metadata entries, as in ``"tier=gold"`` or ``"tier=gold,region=eu"``.

        Raises:
            InvalidArgument: an argument is invalid, or none is given.
        """
        range = scope_within(str(self.name), self.scope, partition, namespace, name_prefix, metadata)
        found = self._scopes.get(range)
        if found is None:
            found = self._scopes[range] = ScopedType(self, range)
        return found

    def complete(self, reference: pb.Reference, within: ResourceId | None = None) -> None:
        """Complete a reference to a resource of this type, in place. Call it from `Hooks.mutate`.

        - A missing type becomes this type.
        - An empty tenancy unit is inherited from ``within``, the resource that contains the reference. The namespace
          is inherited only if the partition is the same. Without a value to inherit, the unit gets the scope's default.
        - Units that the scope doesn't have are cleared.

        Raises:
            InvalidArgument: The reference is to another kind, or a name in it is invalid.
        """
        reference.type = reference.type or self.name.message()
        if type_name(reference.type).unversioned != self.kind:
            raise InvalidArgument(f"reference.type {type_name(reference.type)} must be {self.name}")
        given = reference.tenancy or pb.Tenancy()
        parent = ("", "") if within is None else (within.partition, within.namespace)
        partition, namespace = tenancy_within(self.scope, (given.partition, given.namespace), parent)
        problem = name_problem("name", reference.name) or self.tenancy_problem(partition, namespace)
        if problem:
            raise InvalidArgument(f"reference to {self.name}: {problem}")
        reference.tenancy = pb.Tenancy(partition=partition, namespace=namespace)

    def tenancy_problem(self, partition: str, namespace: str) -> str | None:
        """Return the problem with completed tenancy units in this type's scope, or None if they are valid."""
        scope = self.scope
        if (partition, namespace) == self.default_units:
            # The fast path: these are by far the most common, and valid.
            return None
        if scope is Scope.CLUSTER and (partition or namespace):
            units = f"partition {quoted(partition)} and namespace {quoted(namespace)}"
            return f"{units} must be empty: the type is cluster-scoped"
        if scope is Scope.PARTITION and namespace:
            return f"namespace {quoted(namespace)} must be empty: the type is partition-scoped"
        problem = name_problem("partition", partition)
        return problem or (name_problem("namespace", namespace) if namespace or scope is Scope.NAMESPACE else None)

    def new(
        self,
        name: str,
        data: T | None = None,
        *,
        partition: str = "",
        namespace: str = "",
        owner: Resource[Any] | ResourceId | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> Resource[T]:
        """Return a new resource, which isn't stored yet. Without ``data``, all fields of its payload have defaults.

        Raises:
            InvalidArgument: The name, the tenancy, the owner, the metadata or the class of the payload is invalid.
            PayloadError: The payload has an invalid value, or an attribute that is no field.
        """
        payload = self.payload() if data is None else data
        self.check_payload(payload)
        check_fields(payload)
        return Resource(
            self,
            pb.Resource(
                id=self.id(name, partition=partition, namespace=namespace).message(),
                owner=None if owner is None else owner_id(str(self.name), owner).message(),
                metadata={} if metadata is None else text_map(self.name, metadata),
                data=AnyMessage(type_url=self.type_url, value=encode(payload)),
            ),
        )

    def view(self, message: pb.Resource) -> Resource[T]:
        """Return a stored message as a resource for user code. Do not change the message afterwards."""
        return Resource(self, message)
