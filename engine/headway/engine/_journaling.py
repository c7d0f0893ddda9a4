"""The journal of a process: created by the options of its engine, and written to a file until the engine has ended."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from os import PathLike

import trio

from headway.base import wall_time
from headway.journal import Journal, JournalFile, JournalOptions

StartWriting = Callable[[trio.Nursery], None]
"""A function that starts the task that writes the file, if there is one."""


def journal_of(given: str | PathLike[str] | JournalOptions | None) -> JournalOptions:
    """Return the options of a journal, which are often only a path. Raises DeclarationError."""
    return given if isinstance(given, JournalOptions) else JournalOptions(given)


@asynccontextmanager
async def opened_journal(options: JournalOptions) -> AsyncIterator[tuple[Journal | None, StartWriting]]:
    """Yield the journal, or None without one, and the function that starts its task.

    The end of the block writes the last entries, so that the file also shows how the controllers ended.
    """
    if options.path is None:
        yield (Journal(options.memory, trio.current_time) if options.memory else None), lambda _: None
        return
    offset = wall_time() - trio.current_time()
    file = JournalFile(options.path, lambda at: at + offset)
    journal = Journal(options.memory, trio.current_time, file.put)
    try:
        yield journal, lambda nursery: nursery.start_soon(file.run, name="the file of the journal")
    finally:
        await file.finish()
