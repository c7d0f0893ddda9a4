"""What is around the controllers of a process: a nursery with watched tasks, its journal and the recorder of events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from os import PathLike

import trio

from headway.base import leaves, only_error, wall_time
from headway.client import Client
from headway.engine._collector import GcFreeze
from headway.engine._loop_watch import watching_loop
from headway.engine._options import Timing
from headway.engine._shutdown import ShutdownWatch
from headway.events import Report
from headway.journal import Journal, JournalFile, JournalOptions
from headway.resource import Registry
from headway.rpc import Channel
from headway.run import EventRecorder, Supervisor


@asynccontextmanager
async def watched_nursery(
    timing: Timing, report: Report, alike: tuple[type[Exception], ...] = ()
) -> AsyncIterator[tuple[trio.Nursery, ShutdownWatch]]:
    """Open a nursery whose tasks are canceled at the end of the block.

    Tasks that block the event loop are reported, and so are tasks that have not ended in time after the block. The
    watch of the shutdown begins at the end of the block, unless the block itself begins it.

    If only one exception leaves the nursery, it is raised itself and not in a group, such as the caller's own. If all
    that leave it are of the types ``alike``, the first is raised: several tasks may fail for the same reason.
    """
    with ExitStack() as watches:
        try:
            async with trio.open_nursery() as nursery:
                watches.enter_context(watching_loop(nursery, report, timing.block_limit))
                ending = ShutdownWatch(nursery, report, bound=timing.shutdown_bound, hard_exit=timing.hard_exit)
                watches.callback(ending.end)
                try:
                    yield nursery, ending
                finally:
                    ending.begin()
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            only = only_error(group)
            if only is group:
                same, others = group.split(alike)
                if same is None or others is not None:
                    raise
                raise next(leaves(same)) from None
            raise only from only.__cause__


def start_controllers(nursery: trio.Nursery, supervisors: Sequence[Supervisor], freeze: GcFreeze | None = None) -> None:
    """Start the supervisors of a process, and the end of the garbage collector's pause after their first pass."""
    for each in supervisors:
        nursery.start_soon(each.supervise, name=f"controller {each.fence_name}")
    if freeze is not None and freeze.wanted:
        nursery.start_soon(freeze.first_pass, supervisors, name="the garbage collector")


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


@asynccontextmanager
async def recorded_events(channel: Channel, registry: Registry, report: Report) -> AsyncIterator[EventRecorder]:
    """Yield the recorder. When the block ends, write what is left, for at most two seconds.

    The caller starts `EventRecorder.run` in its nursery. Its client has no fence: an event may be written late, by a
    run that has been superseded, and is still true.
    """
    recorder = EventRecorder(Client(channel, registry), registry, report)
    try:
        yield recorder
    finally:
        await recorder.finish()
