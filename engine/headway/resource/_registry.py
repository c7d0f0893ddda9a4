"""The registry of the types of one engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from headway.base import did_you_mean
from headway.errors import DeclarationError, InvalidArgument
from headway.resource._builtin_types import BUILTIN_TYPES, RESERVED_GROUPS
from headway.resource._hooks import UNIT_KINDS
from headway.resource._ids import Kind, Scope, TypeName
from headway.resource._types import ResourceType


class Registry:
    """Types by name. Each name can be registered once. Those of `_builtin_types.py` are always there.

    Attributes:
        declared: what add-ons know about a kind. An object with `declare_in`, which takes another registry.
    """

    def __init__(self) -> None:
        self._types: dict[tuple[str, str, str], ResourceType[Any]] = {}
        self._builtin: Mapping[tuple[str, str, str], ResourceType[Any]] = BUILTIN_TYPES
        self.declared: dict[Kind, Any] = {}
        # True while no type of a program is registered.
        self._declares_none = True

    def register(self, type: ResourceType[Any], *, reserved: bool = False) -> None:
        """Add a type. ``reserved`` is True for a type of Headway, whose group is reserved.

        Further versions of partitions and namespaces can be added, such as Consul's ``tenancy.v2beta1.Namespace``.
        All versions have the same resources.

        Raises:
            DeclarationError: The name or group is taken, or another version of the kind has another scope or owned
                fields.
        """
        if not isinstance(type, ResourceType):
            raise DeclarationError(f"expected a headway.ResourceType, got {type!r}")
        if (taken := self.find(type.name)) is not None:
            raise DeclarationError(
                f"type {type.name} is registered already, with payload {taken.payload.__name__}; "
                "use that one, or register this one under another version or kind"
            )
        if type.name.group in RESERVED_GROUPS and type.kind not in UNIT_KINDS and not reserved:
            raise DeclarationError(
                f"type {type.name}: group {type.name.group!r} is reserved by Headway; choose another"
            )
        if type.scope is Scope.UNDEFINED:
            raise DeclarationError(f"type {type.name}: scope must be CLUSTER, PARTITION or NAMESPACE")
        for other in self:
            if other.kind == type.kind and other.scope is not type.scope:
                raise DeclarationError(
                    f"type {type.name}: scope {type.scope.name} must be {other.scope.name}, like {other.name}: "
                    "all versions of a kind share one set of names"
                )
            if other.kind == type.kind and other.owned_fields and type.owned_fields:
                raise DeclarationError(
                    f"type {type.name}: owned_fields=True is taken by {other.name}: the fields of one version have "
                    "owners. Leave it out here, or there"
                )
        self._types[type.name] = type
        self._declares_none = False

    def add_declared(self, other: Registry) -> None:
        """Declare here what is declared about the kinds of another registry. Its types must be registered here too."""
        for each in other.declared.values():
            each.declare_in(self)

    def find(self, name: tuple[str, str, str]) -> ResourceType[Any] | None:
        """Return the type with this name, which may be a plain tuple, or None."""
        return self._types.get(name) or self._builtin.get(name)

    def resolve(self, name: TypeName, may_know: Callable[[TypeName], bool] | None = None) -> ResourceType[Any]:
        """Return the type with this name.

        Raises:
            InvalidArgument: The type is not registered. The message lists the registered types that ``may_know``
                accepts.
        """
        found = self.find(name)
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
        made._types, made._builtin = {each.name: each for each in self if may_know(each.name)}, {}
        made.declared = self.declared
        made._declares_none = self._declares_none
        return made

    def __iter__(self) -> Iterator[ResourceType[Any]]:
        return iter([*self._builtin.values(), *self._types.values()])

    def __contains__(self, name: object) -> bool:
        return name in self._types or name in self._builtin
