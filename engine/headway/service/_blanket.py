"""Writes without a version, which replace any other writer's state: their attempts, and their turns at a resource."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from headway.base import KeyTurns, chance
from headway.errors import Conflict
from headway.resource import Key, Kind
from headway.storage import VersionConflict, WrongUid

Answer = TypeVar("Answer")

WAITS = (0.075, 0.15, 0.3, 0.6)
"""The seconds between the five attempts. Up to half of each is added at random."""


async def replace(once: Callable[[], Awaitable[Answer]], turns: KeyTurns, at: tuple[Kind, Key]) -> Answer:
    """Run ``once``, and again up to five times in all if it loses a race, including one to create the resource.

    Writes that have lost a race at a resource take turns there, and so do those that come meanwhile. Otherwise each
    could lose all of its races to later ones.
    """
    waits = iter(WAITS)
    if at not in turns:
        try:
            return await once()
        except (VersionConflict, WrongUid):
            await _pause(next(waits))
    async with turns.at(at):
        while True:
            try:
                return await once()
            except (VersionConflict, WrongUid) as error:
                if (wait := next(waits, None)) is None:
                    # Without the store's sentence: it names a version that the caller has not sent.
                    why = f"lost {len(WAITS) + 1} races against other writers; nothing was written: try again"
                    raise Conflict(why) from error
            await _pause(wait)


async def _pause(wait: float) -> None:
    await trio.sleep(wait * (1 + chance.random() / 2))
