"""Two engines of one process, each with its own store, which can peer over a Unix socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import headway
from headway import Engine, events, field
from headway.access import Authorizer
from headway.events import Report
from headway.peering import EXCHANGED, PEERING, STATUS_KEY, Peering, PeeringState, condition_of, state_of
from headway.resource import ConditionState, Resource


@headway.message
class Team:
    size: int = field(1)


@headway.message
class Room:
    size: int = field(1)


@headway.message
class Site:
    city: str = field(1)


app = headway.App("peers")
TEAM = app.type("staff", "v1", "Team", Team)
ROOM = app.type("staff", "v1", "Room", Room, scope=headway.Scope.PARTITION)
SITE = app.type("staff", "v1", "Site", Site, scope=headway.Scope.CLUSTER)


class Peers(NamedTuple):
    """The engine whose token is used, and the engine that uses it, with the address of the first."""

    accepts: Engine
    dials: Engine
    address: str


@asynccontextmanager
async def open_accepting(
    path: Path, *, access: Authorizer | None = None, report: Report = events.ignore
) -> AsyncIterator[Engine]:
    """Open an engine that listens on a Unix socket without TLS."""
    network = headway.Network([f"unix:{path}/accepts"], access=access, insecure=access is None)
    async with headway.open_engine("memory:", app, network=network, report=report) as engine:
        yield engine


@asynccontextmanager
async def open_peers(path: Path, **options: Any) -> AsyncIterator[Peers]:
    """Open both engines. ``options`` are those of the accepting one."""
    async with (
        open_accepting(path, **options) as accepts,
        headway.open_engine("memory:", app, report=events.ignore) as dials,
    ):
        yield Peers(accepts, dials, accepts.addresses[0])


async def reached(engine: Engine, name: str, *states: PeeringState) -> Resource[Peering]:
    """Wait until a peering is in one of the states, and return it."""

    return await _until(engine, name, lambda peering: state_of(peering) in states)


async def exchanged(engine: Engine, name: str) -> Resource[Peering]:
    """Wait until the token of a peering has been exchanged, and return the peering."""

    def holds(peering: Resource[Peering]) -> bool:
        condition = condition_of(peering, STATUS_KEY, EXCHANGED)
        return condition is not None and condition.state is ConditionState.TRUE

    return await _until(engine, name, holds)


async def _until(engine: Engine, name: str, holds: Callable[[Resource[Peering]], bool]) -> Resource[Peering]:
    found = await headway.until(engine.client, PEERING, name, lambda found: found is not None and holds(found))
    assert found is not None
    return found
