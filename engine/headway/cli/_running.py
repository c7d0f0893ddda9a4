"""Run the async function of a command until it returns, fails or is interrupted."""

from __future__ import annotations

import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import trio

from headway._groups import only_error
from headway.cli._exits import Exit, fail_by
from headway.cli._streams import keep_standard_streams
from headway.engine import ShutdownWatch
from headway.errors import HeadwayError
from headway.events import ignore

_AFTER_THE_ENGINE = 0.5
"""Extra seconds in which an engine can end the process first: its report has more details."""


def run(
    function: Callable[[], Awaitable[None]], *, interrupted: Exit = Exit.INTERRUPTED, hard_exit: float | None = None
) -> None:
    """Run a function under Trio. SIGINT and SIGTERM cancel it, and then the command exits with ``interrupted``.

    The function has been unwound before the exit, so that stores and connections are closed.

    Args:
        hard_exit: for a server, the seconds from the signal until the process is ended. The stack of the task that
            blocks it is written to standard error. A server also keeps running without its standard streams. None if
            the command is not a server.
    """
    if hard_exit is not None:
        keep_standard_streams()
    with ending():
        cancelled = trio.run(_until_interrupted, function, hard_exit)
    if cancelled:
        sys.exit(interrupted)


@contextmanager
def ending() -> Iterator[None]:
    """Report an exception of the command's function in one sentence, and exit with its code."""
    try:
        yield
    except (HeadwayError, BaseExceptionGroup) as error:
        only = only_error(error)
        if isinstance(only, HeadwayError):
            fail_by(only)
        raise only from only.__cause__


async def _until_interrupted(function: Callable[[], Awaitable[None]], hard_exit: float | None) -> bool:
    interrupted = False

    async def cancel_when_told(task_status: trio.TaskStatus[None]) -> None:
        nonlocal interrupted
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            if watch is not None:
                _begin_at_signal(watch)
            task_status.started()
            async for _ in signals:
                interrupted = True
                nursery.cancel_scope.cancel()

    watch: ShutdownWatch | None = None
    try:
        async with trio.open_nursery() as nursery:
            if hard_exit is not None:
                bound = hard_exit + _AFTER_THE_ENGINE
                watch = ShutdownWatch(nursery, ignore, bound=bound, hard_exit=bound)
            await nursery.start(cancel_when_told)
            await function()
            nursery.cancel_scope.cancel()
    finally:
        if watch is not None:
            watch.end()
    return interrupted


def _begin_at_signal(watch: ShutdownWatch) -> None:
    """Make the signal handlers begin the watch.

    Trio handles a signal in the next turn of its scheduler, which never comes while a task spins. Python runs a signal
    handler in the middle of that task.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, partial(_signaled, watch, signal.getsignal(number)))


def _signaled(watch: ShutdownWatch, trio_handler: Any, number: int, frame: FrameType | None) -> None:
    watch.begin()
    trio_handler(number, frame)
