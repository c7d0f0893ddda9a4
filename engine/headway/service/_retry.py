"""Blanket writes: retry when another writer commits between the read and the commit."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from headway.service._refusals import STORE_ERRORS, conflict, refusal
from headway.storage import VersionConflict, WrongUid

Answer = TypeVar("Answer")

WAITS = (0.075, 0.15, 0.3, 0.6)
"""The seconds between the five attempts. Up to half of each is added at random."""


async def attempt(once: Callable[[], Awaitable[Answer]], *, blanket: bool) -> Answer:
    """Run ``once`` and translate the store's errors.

    A caller that gave no version (``blanket``) does not care who wrote before it. If it loses a race, including one to
    create the resource, ``once`` runs again, up to five times in all. A caller that gave a version has lost for good:
    ``once`` runs again only to report what is stored instead.
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
