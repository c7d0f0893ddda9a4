"""A client for users who wait before each change until all work is done. No fault can delay a change for longer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.client import Client
    from headway.testing.simulation._world import World

_CHANGES = frozenset(("apply", "delete", "write", "write_status"))
_WAIT = 120.0
"""A number of seconds longer than any fault lasts."""


class PatientClient:
    """A `Client` whose changes each wait until all work from the changes before is done."""

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
