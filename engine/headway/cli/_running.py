"""Run a command's async function until it ends, fails or is interrupted."""

from __future__ import annotations

import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import trio

from headway._groups import only_error
from headway.cli._exits import Exit, fail_by
from headway.errors import HeadwayError


def run(function: Callable[[], Awaitable[None]], *, interrupted: Exit = Exit.INTERRUPTED) -> None:
    """Run it under Trio; SIGINT and SIGTERM cancel it, and then the command ends with ``interrupted``.

    What is cancelled has unwound by then: a store is closed, a connection too.
    """
    with ending():
        cancelled = trio.run(_until_interrupted, function)
    if cancelled:
        sys.exit(interrupted)


@contextmanager
def ending() -> Iterator[None]:
    """End the command by what its function raises: one clear sentence, and the exit code."""
    try:
        yield
    except (HeadwayError, BaseExceptionGroup) as error:
        only = only_error(error)
        if isinstance(only, HeadwayError):
            fail_by(only)
        raise only from only.__cause__


async def _until_interrupted(function: Callable[[], Awaitable[None]]) -> bool:
    interrupted = False

    async def cancel_when_told(task_status: trio.TaskStatus[None]) -> None:
        nonlocal interrupted
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            task_status.started()
            async for _ in signals:
                interrupted = True
                nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        await nursery.start(cancel_when_told)
        await function()
        nursery.cancel_scope.cancel()
    return interrupted
