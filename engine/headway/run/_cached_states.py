"""The cached states that a run's client may take for the stored ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headway.cache import Cache, Informer
from headway.resource import Resource, pb
from headway.run._priming import RunCaches


class CachedStates:
    """An implementation of `client.Cached` for one run.

    Args:
        cache: the cache of the run, which is open while the run is primed, and has its acknowledged writes (C5).
        held: returns True while the outcome of a write is unknown, so that the cache may lack it.
    """

    def __init__(self, cache: Cache, caches: RunCaches, held: Callable[[], bool]) -> None:
        self._cache = cache
        self._caches = caches
        self._held = held

    def __call__(self, wanted: Resource[Any], revision: float) -> pb.Resource | None:
        """Return the cached state of a resource, or None if the cache lacks it, or lags, or is not to be trusted."""
        stored = self._cache.find(wanted)
        if stored is None or self._held():
            return None
        informer = self._caches.by_type[wanted.type.name]
        trusted = informer.cut_off is None and not informer.distrusted and _reaches(informer, revision)
        return stored if trusted else None


def _reaches(informer: Informer, revision: float) -> bool:
    return informer.store.frontier >= revision or informer.ask_on() >= revision
