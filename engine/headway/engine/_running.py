"""The nursery of a running engine, whose tasks are watched while they run and while they end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager

import trio

from headway.base import leaves, only_error
from headway.engine._collector import GcFreeze
from headway.engine._loop_watch import watching_loop
from headway.engine._options import Timing
from headway.engine._shutdown import ShutdownWatch
from headway.events import Report
from headway.run import Supervisor


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
