"""The types that one engine knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from headway.errors import DeclarationError, InvalidArgument
from headway.resource._builtin import BUILTIN_TYPES, RESERVED_GROUPS
from headway.resource._ids import TypeName
from headway.resource._names import did_you_mean
from headway.resource._tenancy import Scope
from headway.resource._types import ResourceType
from headway.resource._units import UNIT_KINDS


class Registry:
    """Types by name. A name is registered once; tombstones, partitions and namespaces are there from the start."""

    def __init__(self) -> None:
        self._types: dict[TypeName, ResourceType[Any]] = {type.name: type for type in BUILTIN_TYPES}

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
