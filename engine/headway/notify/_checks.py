"""Checks of what a program wants to cache, when it opens a cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

from headway.base import ended, repr_text
from headway.cache import OWNER_INDEX, CachedType, Index, Projection, Query, by_owner, stored_type
from headway.errors import DeclarationError
from headway.resource import Registry, ResourceType, ScopedType, is_form_of

_FORM = "headway.open_cache('10.0.0.1:9000', app, watches=[TEAM, ACCOUNT], indexes=[ACCOUNTS_BY_TEAM])"


class Wanted(NamedTuple):
    """The types, indexes and queries of a cache."""

    types: Sequence[CachedType[Any]]
    indexes: Sequence[Index[Any, Any]] = ()
    queries: Sequence[Query[Any, Any]] = ()

    def check(self, registry: Registry) -> None:
        """Raise DeclarationError for the first part that does not fit. ``registry`` has the types of the apps."""
        for problem in (*self._types_problems(registry), *self._indexes_problems(), *self._queries_problems()):
            _refuse(problem)

    def indexes_of(self, type: CachedType[Any]) -> list[Index[Any, Any]]:
        """Return the indexes on a type, with the one by owner."""
        return [by_owner(type, name=OWNER_INDEX), *(index for index in self.indexes if is_form_of(type, index.type))]

    def _caches(self, asked: CachedType[Any]) -> bool:
        return any(is_form_of(type, asked) for type in self.types)

    def _types_problems(self, registry: Registry) -> Iterator[str]:
        given: object = self.types
        if not isinstance(given, Sequence) or isinstance(given, str) or not given:
            _refuse(f"watches={repr_text(given)} must be a list of at least one type")
        names = []
        for type in self.types:
            if not isinstance(type, ResourceType | ScopedType | Projection):
                _refuse(f"watches: {type!r} is not a type: use what app.type(...) returned")
            names.append(type.name)
            if type.name not in registry or registry.resolve(type.name) is not stored_type(type):
                yield f"watches: {type.name} is not a type of the apps: pass the app that declares it"
        for name in names:
            if names.count(name) > 1:
                yield f"watches has {name} twice: watch the whole type, or one scope or projection of it"

    def _indexes_problems(self) -> Iterator[str]:
        taken = {OWNER_INDEX: "is reserved"}
        for index in self.indexes:
            if not isinstance(index, Index):
                _refuse(f"indexes: {index!r} is not an index: use what headway.indexes.by(...) returned")
            if not self._caches(index.type):
                yield f"indexes has {index!r}: add {index.type!r} to `watches`"
            if f"{index.type.name} {index.name}" in taken or index.name in taken:
                yield f"indexes has {index!r} twice, or its name is taken"
            taken[f"{index.type.name} {index.name}"] = "is taken"

    def _queries_problems(self) -> Iterator[str]:
        for query in self.queries:
            if not isinstance(query, Query):
                _refuse(f"queries: {query!r} is not a query: use functions decorated with @headway.query(...)")
            for need in query.needs:
                if isinstance(need, Index) and need not in self.indexes:
                    yield f"{query!r} needs {need!r}: add it to `indexes`"
                elif not isinstance(need, Index) and not self._caches(need):
                    yield f"{query!r} needs {need!r}: add it to `watches`"


def _refuse(problem: str) -> NoReturn:
    raise DeclarationError(f"{ended(problem)} The form is: {_FORM}")
