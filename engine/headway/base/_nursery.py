"""A nursery for the tasks behind a block. Exceptions leave it unwrapped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from headway.base._groups import leaves, only_error


@asynccontextmanager
async def block_nursery() -> AsyncIterator[trio.Nursery]:
    """Open a nursery whose tasks are canceled at the end of the block.

    An exception of the block leaves as it is, not in a group. If a task fails, the block is canceled, and the task's
    exception is raised. Several tasks may fail for the same reason. If all of their exceptions have the same class, the
    first is raised.
    """
    raised: Exception | None = None
    try:
        async with trio.open_nursery() as nursery:
            try:
                yield nursery
            except Exception as error:  # noqa: BLE001  # raised again below, outside of the nursery's group
                raised = error
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        if raised is not None:
            # The block has failed as well, perhaps while it was canceled. The group becomes the context.
            raise raised  # noqa: B904  # it has a cause of its own, if any
        only = only_error(group)
        every = list(leaves(group))
        if only is group and len({type(each) for each in every}) > 1:
            raise
        raise every[0] from every[0].__cause__
    if raised is not None:
        raise raised
