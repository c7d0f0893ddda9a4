"""Running a program until SIGINT or SIGTERM, with errors of its surroundings as sentences."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

import trio

import headway


def run_until_signal(
    name: str,
    main: Callable[[argparse.Namespace], Awaitable[None]],
    options: argparse.Namespace,
    *,
    expected: type[Exception] = OSError,
) -> int:
    """Run a program. Return its exit status: 0 after a signal, and 2 after an error of its surroundings.

    Args:
        expected: a further class of errors that are printed without a traceback.
    """
    return trio.run(_main, name, main, options, expected)


async def _main(
    name: str,
    main: Callable[[argparse.Namespace], Awaitable[None]],
    options: argparse.Namespace,
    expected: type[Exception],
) -> int:
    status = 0
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_at_signal, signals, nursery.cancel_scope)
            try:
                await main(options)
            except* (headway.HeadwayError, OSError, ValueError, expected) as errors:
                for error in leaves(errors):
                    print(f"{name}: {error}", file=sys.stderr, flush=True)
                status = 2
            nursery.cancel_scope.cancel()
    return status


async def _cancel_at_signal(signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
    async for _ in signals:
        scope.cancel()


def leaves(error: BaseException) -> list[BaseException]:
    """Return the exceptions in a group of groups."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in leaves(each)]
    return [error]
