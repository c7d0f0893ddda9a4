"""The registry of the types of one engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from headway.base import did_you_mean
from headway.errors import DeclarationError, InvalidArgument
from headway.resource._builtin_types import BUILTIN_TYPES, RESERVED_GROUPS
from headway.resource._hooks import UNIT_KINDS
from headway.resource._ids import Kind, Scope, TypeName
from headway.resource._types import ResourceType
from headway.resource._versions import VersionChain, step_of


class Registry:
    """Types by name. Each name can be registered once. Those of `_builtin_types.py` are always there."""

    def __init__(self) -> None:
        self._types: dict[tuple[str, str, str], ResourceType[Any]] = {type.name: type for type in BUILTIN_TYPES}
        self._chains: dict[Kind, VersionChain] = {}
        # True while no type of a program is registered.
        self._declares_none = True

    def register(self, type: ResourceType[Any], *, reserved: bool = False) -> None:
        """Add a type. ``reserved`` is True for a type of Headway, whose group is reserved.

        Further versions of partitions and namespaces can be added, such as Consul's ``tenancy.v2beta1.Namespace``.
        All versions have the same resources.

        Raises:
            DeclarationError: The name or group is taken, or another version of the kind has another scope.
        """
        if not isinstance(type, ResourceType):
            raise DeclarationError(f"expected a headway.ResourceType, got {type!r}")
        if type.name in self._types:
            raise DeclarationError(
                f"type {type.name} is registered already, with payload {self._types[type.name].payload.__name__}; "
                "use that one, or register this one under another version or kind"
            )
        if type.name.group in RESERVED_GROUPS and type.kind not in UNIT_KINDS and not reserved:
            raise DeclarationError(
                f"type {type.name}: group {type.name.group!r} is reserved by Headway; choose another"
            )
        if type.scope is Scope.UNDEFINED:
            raise DeclarationError(f"type {type.name}: scope must be CLUSTER, PARTITION or NAMESPACE")
        for other in self._types.values():
            if other.kind == type.kind and other.scope is not type.scope:
                raise DeclarationError(
                    f"type {type.name}: scope {type.scope.name} must be {other.scope.name}, like {other.name}: "
                    "all versions of a kind share one set of names"
                )
        self._types[type.name] = type
        self._declares_none = False

    def add_converter(self, older: ResourceType[Any], newer: ResourceType[Any], up: object, down: object) -> None:
        """Add a converter pair between two registered versions of a kind.

        Raises:
            DeclarationError: The pair is invalid, or doesn't extend the chain of the kind's other converters.
        """
        step = step_of(older, newer, up, down)
        for type in (step.older, step.newer):
            self._check_own(type, f"a converter from {step.older.name} to {step.newer.name}")
        if step.older.kind in UNIT_KINDS:
            raise DeclarationError(
                f"a converter from {step.older.name} to {step.newer.name}: versions of {step.older.name.kind} need "
                "no converters, since there is nothing to convert"
            )
        chain = self._chains.get(step.older.kind)
        self._chains[step.older.kind] = VersionChain((step,)) if chain is None else chain.extended(step)

    def store_as(self, type: ResourceType[Any]) -> None:
        """Make this type the storage version of its kind.

        Raises:
            DeclarationError: No converter is declared for the version, or the kind has another storage version.
        """
        self._check_own(type, f"store_as({type.name})")
        chain = self._chains.get(type.kind)
        if chain is None or type.name.version not in chain:
            raise DeclarationError(
                f"store_as({type.name}): no converter is declared for this version; declare converters first"
            )
        if chain.named is not None and chain.named is not type:
            raise DeclarationError(
                f"store_as({type.name}): the storage version is already {chain.named.name}; a kind has only one"
            )
        self._chains[type.kind] = chain.storing(type)

    def _check_own(self, type: ResourceType[Any], what: str) -> None:
        if self._types.get(type.name) is not type:
            raise DeclarationError(f"{what}: {type.name} is not registered in this app: declare it with app.type(...)")

    def chain(self, kind: Kind) -> VersionChain | None:
        """Return the versions of a kind that converters connect, or None if the kind has no converters."""
        return self._chains.get(kind)

    def chain_with(self, type: ResourceType[Any]) -> VersionChain | None:
        """Return the versions that converters connect with this one, or None if it has no converters."""
        chain = self._chains.get(type.kind)
        return chain if chain is not None and type.name.version in chain else None

    def add_chains(self, other: Registry) -> None:
        """Add the converters and storage versions of another registry. Its types must be registered here too."""
        for kind, chain in other._chains.items():
            known = self._chains.get(kind)
            for step in chain.steps:
                if known is None or step not in known.steps:
                    self.add_converter(*step)
            if chain.named is not None:
                self.store_as(chain.named)

    @property
    def chains(self) -> Sequence[VersionChain]:
        """The version chains of all kinds that have converters."""
        return list(self._chains.values())

    def find(self, name: tuple[str, str, str]) -> ResourceType[Any] | None:
        """Return the type with this name, which may be a plain tuple, or None."""
        return self._types.get(name)

    def resolve(self, name: TypeName, may_know: Callable[[TypeName], bool] | None = None) -> ResourceType[Any]:
        """Return the type with this name.

        Raises:
            InvalidArgument: The type is not registered. The message lists the registered types that ``may_know``
                accepts.
        """
        found = self._types.get(name)
        if found is None:
            named = [known.name for known in self if known.name.group != "internal"]
            hint = did_you_mean(str(name), [str(each) for each in named if may_know is None or may_know(each)])
            if self._declares_none:
                hint = f"{hint}. No app declares a type here: pass the app, as in headway.open_engine(url, app)"
            raise InvalidArgument(f"type {name} is not registered{hint}")
        return found

    def of_known(self, may_know: Callable[[TypeName], bool]) -> Registry:
        """Return a registry of the types that ``may_know`` accepts, for errors that must not name any other type."""
        made = Registry()
        made._types = {name: type for name, type in self._types.items() if may_know(type.name)}
        made._chains = self._chains
        made._declares_none = self._declares_none
        return made

    def __iter__(self) -> Iterator[ResourceType[Any]]:
        return iter(self._types.values())

    def __contains__(self, name: object) -> bool:
        return name in self._types
