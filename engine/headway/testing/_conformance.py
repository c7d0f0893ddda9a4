"""The storage conformance suite: every promise of `headway.storage.Backend`, run against a store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import trio

from headway.storage import Backend
from headway.testing import (
    _conformance_commits,
    _conformance_fences,
    _conformance_history,
    _conformance_leases,
    _conformance_reads,
    _conformance_watches,
)

BackendCheck = Callable[[Backend], Awaitable[None]]
"""A claim about a store that has just been opened and is empty."""

SHORT_HISTORY = _conformance_history.SHORT_HISTORY
"""How many changes the store keeps that the checks of bounded history are run on."""


class OpenBackend(Protocol):
    """Opens an empty store, with the store's own bound of history or with ``max_changes`` kept."""

    def __call__(self, *, max_changes: int = ...) -> AbstractAsyncContextManager[Backend]: ...


BACKEND_CHECKS: list[BackendCheck] = [
    *_conformance_commits.CHECKS,
    *_conformance_reads.CHECKS,
    *_conformance_watches.CHECKS,
    *_conformance_history.CHECKS,
    *_conformance_fences.CHECKS,
    *_conformance_leases.CHECKS,
]
"""Every check, in an order in which the first one that fails says most."""


async def run_backend_check(check: BackendCheck, open_backend: OpenBackend, *, seconds: float = 30.0) -> None:
    """Run one check on a fresh store. Raises AssertionError, and TooSlowError after ``seconds``."""
    short = check in _conformance_history.ON_SHORT_HISTORY
    opening = open_backend(max_changes=SHORT_HISTORY) if short else open_backend()
    with trio.fail_after(seconds):
        async with opening as backend:
            await check(backend)


async def check_backend(open_backend: OpenBackend, *, seconds: float = 30.0) -> int:
    """Run every check, each on a fresh store and for at most ``seconds``, and return how many were run."""
    for check in BACKEND_CHECKS:
        await run_backend_check(check, open_backend, seconds=seconds)
    return len(BACKEND_CHECKS)
