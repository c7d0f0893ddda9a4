"""The types that one engine knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from headway.errors import DeclarationError, InvalidArgument
from headway.resource._builtin import BUILTIN_TYPES, RESERVED_GROUPS
from headway.resource._ids import Kind, TypeName
from headway.resource._names import did_you_mean
from headway.resource._tenancy import Scope
from headway.resource._types import ResourceType
from headway.resource._units import UNIT_KINDS
from headway.resource._versions import VersionChain, step_of


class Registry:
    """Types by name. A name is registered once; tombstones, partitions and namespaces are there from the start."""

    def __init__(self) -> None:
        self._types: dict[TypeName, ResourceType[Any]] = {type.name: type for type in BUILTIN_TYPES}
        self._chains: dict[Kind, VersionChain] = {}

    def register(self, type: ResourceType[Any]) -> None:
        """Add a type.

        Of partitions and namespaces further versions can be added, as Consul's ``tenancy.v2beta1.Namespace``: their
        resources are the same partitions and namespaces.

        Raises DeclarationError when its name or group is taken, or a version of its kind has another scope.
        """
        if not isinstance(type, ResourceType):
            raise DeclarationError(f"only a headway.ResourceType can be registered, not {type!r}")
        if type.name in self._types:
            raise DeclarationError(
                f"type {type.name} is registered already, with payload {self._types[type.name].payload.__name__}; "
                "use that one, or register this one under another version or kind"
            )
        if type.name.group in RESERVED_GROUPS and type.kind not in UNIT_KINDS:
            raise DeclarationError(f"type {type.name}: group {type.name.group!r} is Headway's own; choose another")
        if type.scope is Scope.UNDEFINED:
            raise DeclarationError(f"type {type.name}: scope must be CLUSTER, PARTITION or NAMESPACE")
        for other in self._types.values():
            if other.kind == type.kind and other.scope is not type.scope:
                raise DeclarationError(
                    f"type {type.name}: scope {type.scope.name} must be {other.scope.name}, as {other.name} has it: "
                    "all versions of a kind share one name space"
                )
        self._types[type.name] = type

    def add_converter(self, older: object, newer: object, up: object, down: object) -> None:
        """Add a converter pair between two versions of a kind; both must be registered.

        Raises DeclarationError when it is not one, or does not go on where a former one of the kind ended.
        """
        step = step_of(older, newer, up, down)
        for type in (step.older, step.newer):
            self._check_own(type, f"a converter from {step.older.name} to {step.newer.name}")
        if step.older.kind in UNIT_KINDS:
            raise DeclarationError(
                f"a converter from {step.older.name} to {step.newer.name}: versions of {step.older.name.kind} need "
                "none, as they have nothing to convert"
            )
        chain = self._chains.get(step.older.kind)
        self._chains[step.older.kind] = VersionChain((step,)) if chain is None else chain.extended(step)

    def store_as(self, type: object) -> None:
        """Name the version in which resources of its kind are stored. Raises DeclarationError for an unfit one."""
        if not isinstance(type, ResourceType):
            raise DeclarationError(f"store_as takes a type, such as TEAM_V1, not {type!r}")
        self._check_own(type, f"store_as({type.name})")
        chain = self._chains.get(type.kind)
        if chain is None or type.name.version not in chain:
            raise DeclarationError(f"store_as({type.name}): no converter is declared for it; declare converters before")
        if chain.named is not None and chain.named is not type:
            raise DeclarationError(
                f"store_as({type.name}): the kind is stored as {chain.named.name} already; name one storage version"
            )
        self._chains[type.kind] = chain.storing(type)

    def _check_own(self, type: ResourceType[Any], what: str) -> None:
        if self._types.get(type.name) is not type:
            raise DeclarationError(f"{what}: {type.name} is not registered here: declare it by app.type(...)")

    def chain(self, kind: Kind) -> VersionChain | None:
        """Return the versions of a kind that converters connect; None: the kind has no converters."""
        return self._chains.get(kind)

    def add_chains(self, other: Registry) -> None:
        """Add the converters and storage versions of another registry, whose types are registered here too."""
        for kind, chain in other._chains.items():
            known = self._chains.get(kind)
            for step in chain.steps:
                if known is None or step not in known.steps:
                    self.add_converter(*step)
            if chain.named is not None:
                self.store_as(chain.named)

    @property
    def chains(self) -> Sequence[VersionChain]:
        """The kinds that have converters."""
        return list(self._chains.values())

    def find(self, name: TypeName) -> ResourceType[Any] | None:
        """Return the type of this name, or None."""
        return self._types.get(name)

    def resolve(self, name: TypeName, may_know: Callable[[TypeName], bool] | None = None) -> ResourceType[Any]:
        """The type of this name. Raises InvalidArgument when there is none.

        The error names the types that are registered, but none for which ``may_know`` is false.
        """
        found = self._types.get(name)
        if found is None:
            named = [known for known in self._types if known.group != "internal"]
            hint = did_you_mean(str(name), [str(each) for each in named if may_know is None or may_know(each)])
            raise InvalidArgument(f"type {name} is not registered{hint}")
        return found

    def __iter__(self) -> Iterator[ResourceType[Any]]:
        return iter(self._types.values())

    def __contains__(self, name: object) -> bool:
        return name in self._types
