"""The block of a program's cache, over informers that may be shared with others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager

from headway.base import block_nursery
from headway.cache import Informers
from headway.events import Report
from headway.notify._checks import Wanted
from headway.notify._primed_cache import PrimedCache


@asynccontextmanager
async def open_primed(
    wanted: Wanted, informers: Informers, report: Report, accept_store: Callable[[], bool]
) -> AsyncIterator[PrimedCache]:
    """Open a cache, which is primed when the block begins. The wanted parts must have been checked."""
    with ExitStack() as stack:
        held = {type.name: stack.enter_context(informers.held(type)) for type in wanted.types}
        async with block_nursery() as nursery:
            cache = PrimedCache(wanted, informers, held, nursery, report, accept_store)
            try:
                await cache.begin()
                yield cache
            finally:
                cache.close()
