"""Cancel scopes that are canceled when the deletion of their resource begins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import trio

from headway.cache import Applied, CachedType, CacheReader, Projected
from headway.resource import Key, Resource, TypeName, shared_message


class _Scope(NamedTuple):
    type: CachedType[Any]
    uid: str
    version: int
    scope: trio.CancelScope


class Lifetimes:
    """The scopes of one run, for resources of its types.

    Attributes:
        scopes: the open scopes by type and key. Read them; only this class writes here.
    """

    def __init__(self, cache: CacheReader, types: Iterable[CachedType[Any]]) -> None:
        self._cache = cache
        # A resource read from the store is tracked by the projection that the controller has of its type.
        self._forms = {type.name: type for type in types}
        self.scopes: dict[tuple[TypeName, Key], list[_Scope]] = {}

    @contextmanager
    def scope(self, resource: Resource[Any] | Projected[Any]) -> Iterator[trio.CancelScope]:
        """Open a scope that is canceled once the run learns that this incarnation is being deleted or is gone."""
        version = int(shared_message(resource).version or 0)
        type = self._forms.get(resource.type.name, resource.type)
        where = (type.name, resource.id.key)
        with trio.CancelScope() as scope:
            each = _Scope(type, resource.uid, version, scope)
            if resource.is_deleting or self._is_over(each, where[1], self._cache.revision(type)):
                scope.cancel()
            self.scopes.setdefault(where, []).append(each)
            try:
                yield scope
            finally:
                # Invariant: a key is present exactly while it has a scope.
                scopes = self.scopes[where]
                scopes.remove(each)
                if not scopes:
                    del self.scopes[where]

    def cancel_ended(self, type: TypeName, applied: Iterable[Applied]) -> None:
        """Cancel the scopes that these changes end. The cache has applied the changes."""
        for change in applied:
            for each in self.scopes.get((type, change.key), ()):
                # The cache decides, because the change may belong to an earlier incarnation and be out of date.
                if self._is_over(each, change.key, change.revision):
                    each.scope.cancel()

    def _is_over(self, each: _Scope, key: Key, revision: int) -> bool:
        held: Resource[Any] | Projected[Any] | None = self._cache.get(
            each.type, each.type.id(key[2], partition=key[0], namespace=key[1])
        )
        if held is None:
            # The resource may have been read from the store, ahead of the cache.
            return revision >= each.version
        if held.uid != each.uid:
            return int(held.version) > each.version
        return held.is_deleting
