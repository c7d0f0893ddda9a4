"""Users who wait before each change until all is done: what faults delay is no more than what they saw done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.client import Client
    from headway.testing.simulation._world import World

_CHANGES = frozenset(("apply", "delete", "write", "write_status"))
_WAIT = 120.0
"""Seconds, longer than any fault lasts."""


class PatientClient:
    """Meets `Client`. Every change waits until what was asked for before has been done."""

    def __init__(self, client: Client, world: World) -> None:
        self._client = client
        self._world = world

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if name not in _CHANGES:
            return found

        async def change(*arguments: Any, **named: Any) -> Any:
            await self._world.sleep(_WAIT)
            await self._world.wait_idle()
            return await found(*arguments, **named)

        return change
