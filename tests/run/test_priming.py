"""The priming of a run's types, tested alone: from which store they are subscribed to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

import headway
from headway.base import BoundedReport
from headway.cache import Informer, Informers
from headway.errors import StoreChanged
from headway.events import ignore
from headway.rpc import Channel
from headway.run import RunCaches
from tests.helpers.resources import OTHER_STORE, STORE, TEAM, at, end


def caches_of(informer: Informer) -> RunCaches:
    """Return the caches of a run that has only this type."""
    app = headway.App("primed")
    app.registry.register(TEAM)

    @app.controller(manages=TEAM, name="teams")
    async def teams(rt: headway.Runtime, request: headway.Request) -> None: ...

    informers = cast("Informers", SimpleNamespace(informer_for=lambda _: informer))
    return RunCaches(app.controllers["teams"], informers, cast("Channel", None), ignore, BoundedReport(ignore), 60)


@pytest.mark.parametrize("cached", [STORE, OTHER_STORE])
async def test_run_is_subscribed_only_to_the_store_that_has_raised_its_fence(cached: str) -> None:
    """Another store may have replaced it since, and its cache may be primed to the same revision."""
    informer = Informer(TEAM, ignore)
    informer.feed(end(12, cached))
    caches = caches_of(informer)
    if cached == STORE:
        await caches.prime(at(12))
        assert caches.frontiers() == {TEAM.name: 12}
        return
    said = f"the cache of {TEAM.name} belongs to store {OTHER_STORE}, but the fence to {STORE}"
    with pytest.RaisesGroup(pytest.RaisesExc(StoreChanged, match=said)):
        await caches.prime(at(12))
    assert caches.subscriptions == {}
