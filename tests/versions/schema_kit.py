"""Programs that open one store after the other, each with types of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import headway
from headway.engine import Engine, open_engine
from headway.resource import ResourceType, Scope
from headway.storage import Backend

Reopened = Callable[[], AbstractAsyncContextManager[Backend]]
"""A function that opens the same store again."""


def team(payload: type[Any], scope: Scope = Scope.NAMESPACE, version: str = "v1") -> ResourceType[Any]:
    return ResourceType("staff", version, "Team", payload, scope=scope)


def program(*types: ResourceType[Any]) -> headway.App:
    app = headway.App("staff")
    for type in types:
        app.registry.register(type)
    return app


@asynccontextmanager
async def running(store: AbstractAsyncContextManager[Backend], *types: ResourceType[Any]) -> AsyncIterator[Engine]:
    async with open_engine(store, program(*types)) as engine:
        yield engine
