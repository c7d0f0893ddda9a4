"""The types that a controller declares in ``reads`` and ``writes``. Its client may not use any others."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from headway.cache import CachedType
from headway.controller._definition import Definition
from headway.errors import NotDeclared
from headway.resource import Kind, TypeName, type_name


class Declared:
    """An implementation of `client.Allow` for a controller. It allows everything that no declaration restricts."""

    def __init__(self, definition: Definition) -> None:
        self._controller = definition.name
        self._writes = None if definition.writes is None else _kinds(definition.writes)
        self._reads: frozenset[Kind] | None = None
        if definition.reads is not None:
            self._reads = _kinds([*definition.reads, *definition.types, *(definition.writes or ())])

    def __call__(self, method: str, request: Any) -> None:
        """Raise NotDeclared for a call that the controller has not declared."""
        if method in ("Write", "MutateAndValidate"):
            self.check_write(type_name(request.resource.id.type))
        elif method in ("WriteStatus", "Delete"):
            self.check_write(type_name(request.id.type))
        elif self._reads is not None:
            if method == "ListByOwner":
                raise NotDeclared(
                    f"controller {self._controller} declares its `reads`, and list_by_owner reads every type: "
                    "list each type by itself, or leave `reads` out"
                )
            type = type_name(request.id.type if method == "Read" else request.type)
            if type.unversioned not in self._reads:
                raise self._not("reads", type)

    def check_write(self, type: TypeName) -> None:
        """Raise NotDeclared for a type that the controller's ``writes`` lack."""
        if self._writes is not None and type.unversioned not in self._writes:
            raise self._not("writes", type)

    def _not(self, declaration: str, type: TypeName) -> NotDeclared:
        return NotDeclared(
            f"controller {self._controller} doesn't declare that it {declaration} {type}: "
            f"add the type, @app.controller(..., {declaration}=[..., {type.kind.upper()}])"
        )


def _kinds(types: Collection[CachedType[Any]]) -> frozenset[Kind]:
    return frozenset(type.kind for type in types)
