"""Cancel scopes that are cut when their resource begins to be deleted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import trio

from headway.cache import Applied, CachedType, CacheReader, Projected
from headway.resource import Key, Resource, TypeName


class _Scope(NamedTuple):
    type: CachedType[Any]
    uid: str
    version: int
    scope: trio.CancelScope


class Lifetimes:
    """The scopes of one run."""

    def __init__(self, cache: CacheReader, types: Iterable[CachedType[Any]]) -> None:
        self._cache = cache
        # What was read from the store is followed by the projection that the controller has of it.
        self._forms = {type.name: type for type in types}
        self._scopes: dict[tuple[TypeName, Key], list[_Scope]] = {}

    @contextmanager
    def scope(self, resource: Resource[Any] | Projected[Any]) -> Iterator[trio.CancelScope]:
        """A scope that is cut as soon as the run hears that this incarnation is being deleted, or is gone."""
        version = int(resource.version or 0)
        type = self._forms.get(resource.type.name, resource.type)
        where = (type.name, resource.id.key)
        with trio.CancelScope() as scope:
            each = _Scope(type, resource.uid, version, scope)
            if resource.is_deleting or self._is_over(each, where[1], self._cache.revision(type)):
                scope.cancel()
            self._scopes.setdefault(where, []).append(each)
            try:
                yield scope
            finally:
                # Invariant: a key is here exactly while it has a scope.
                scopes = self._scopes[where]
                scopes.remove(each)
                if not scopes:
                    del self._scopes[where]

    def heard(self, type: TypeName, applied: Iterable[Applied]) -> None:
        """Cut what is over by these changes, which the cache has applied."""
        if not self._scopes:
            return
        for change in applied:
            for each in self._scopes.get((type, change.key), ()):
                # What is held counts: a change may be an overtaken one, of an incarnation before this.
                if self._is_over(each, change.key, change.revision):
                    each.scope.cancel()

    def _is_over(self, each: _Scope, key: Key, revision: int) -> bool:
        held: Resource[Any] | Projected[Any] | None = self._cache.get(
            each.type, each.type.id(key[2], partition=key[0], namespace=key[1])
        )
        if held is None:
            # It may have been read from the store, ahead of the cache.
            return revision >= each.version
        if held.uid != each.uid:
            return int(held.version) > each.version
        return held.is_deleting
