"""Helpers that the tests of failover, traffic permissions and exported services share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import settings

import catalog
import headway
from headway.testing import OneShot, Written, simulation

FEWER = settings(max_examples=max(6, settings().max_examples // 3))
"""A third of the examples of the profile: each one opens an engine."""


def explored(
    app: headway.App, scenario: simulation.Scenario, *, processes: int = 1, wide: bool = False
) -> Callable[[], None]:
    """Return the test that tries every fault in a scenario, a deep one unless it is said to be a wide one.

    It takes up to half a minute of processor time in one process, and a minute and a half in two.
    """
    test = simulation.explored(app, processes=processes, seconds=60.0 * processes)(scenario)
    mark = pytest.mark.wide if wide else pytest.mark.deep
    marked: Callable[[], None] = mark(pytest.mark.timeout(300)(test))
    return marked


def alone(controller: str) -> headway.App:
    """Return an app with the types of the catalog and one of its controllers."""
    app = headway.App(catalog.app.name)
    app.registry = catalog.app.registry
    app.controllers = {controller: catalog.app.controllers[controller]}
    return app


async def settled(shot: OneShot, id: headway.ResourceId) -> tuple[Written, ...]:
    """Reconcile a key twice, require that the second one writes nothing, and return the writes of the first one."""
    written = (await shot.reconcile(id)).written
    again = (await shot.reconcile(id)).written
    assert again == (), f"a second reconcile writes {[(each.what, each.id.name) for each in again]}"
    return written


def conditions(resource: headway.Resource[Any], key: str) -> list[tuple[str, str, str, str]]:
    """Return type, state, reason and message of each condition. They must be of the present generation."""
    status = resource.status[key]
    assert status.observed_generation == resource.generation
    return [
        (each.type, headway.ConditionState(each.state).name, each.reason, each.message) for each in status.conditions
    ]


@asynccontextmanager
async def running(controller: str, store: str = "memory:") -> AsyncIterator[headway.Engine]:
    """Open an engine with one controller of the catalog."""
    async with headway.open_engine(store, alone(controller)) as engine:
        yield engine
