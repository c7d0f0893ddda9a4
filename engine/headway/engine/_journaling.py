"""The journal of a process: created by the options of its engine, and written to a file until the engine has ended."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from headway.base import wall_time
from headway.engine._arguments import RunOptions
from headway.journal import Journal, JournalFile

StartWriting = Callable[[trio.Nursery], None]
"""A function that starts the task that writes the file, if there is one."""


@asynccontextmanager
async def opened_journal(options: RunOptions) -> AsyncIterator[tuple[Journal | None, StartWriting]]:
    """Yield the journal, or None without one, and the function that starts its task.

    The end of the block writes the last entries, so that the file also shows how the controllers ended.
    """
    if options.journal is None:
        size = options.journal_bytes
        yield (Journal(size, trio.current_time) if size else None), lambda _: None
        return
    offset = wall_time() - trio.current_time()
    file = JournalFile(options.journal, lambda at: at + offset)
    journal = Journal(options.journal_bytes, trio.current_time, file.put)
    try:
        yield journal, lambda nursery: nursery.start_soon(file.run, name="the file of the journal")
    finally:
        await file.finish()
