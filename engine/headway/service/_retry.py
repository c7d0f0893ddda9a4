"""Blanket writes: try again when another writer came between the read and the commit."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from headway.service._refusals import STORE_ERRORS, conflict, refusal
from headway.storage import VersionConflict, WrongUid

Answer = TypeVar("Answer")

WAITS = (0.075, 0.15, 0.3, 0.6)
"""Seconds between the five attempts, each plus up to half again at random."""


async def attempt(once: Callable[[], Awaitable[Answer]], *, blanket: bool) -> Answer:
    """Run ``once`` and translate what the store refuses.

    A caller that gave no version (``blanket``) does not mind who wrote before it, so a lost race, the race to
    create included, is run again, five times in all. One that gave a version has lost for good; ``once`` runs again
    to say what is stored instead.
    """
    for wait in WAITS if blanket else (0.0,):
        try:
            return await once()
        except (VersionConflict, WrongUid):
            await trio.sleep(wait * (1 + random.random() / 2))
        except STORE_ERRORS as error:
            raise refusal(error, write=True) from error
    try:
        return await once()
    except (VersionConflict, WrongUid) as error:
        attempts = len(WAITS) + 1
        raise (
            conflict(f"lost {attempts} races against other writers: {error}") if blanket else refusal(error, write=True)
        ) from error
    except STORE_ERRORS as error:
        raise refusal(error, write=True) from error
