"""The import of a program's module by a command: one that runs the program is refused, and a slow one says where it is.

A module that ends in ``trio.run(main)`` would run its program at the import, in place of the command, or never end.
"""

from __future__ import annotations

import importlib
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

import click
import trio

from headway.base import stack_text

SLOW = 5.0
"""The seconds after which an import says where it is."""


class StartsTrio(Exception):
    """A module starts Trio when it is imported."""


def imported(module: str) -> Any:
    """Return a module. Raises StartsTrio if its import starts Trio, and whatever the module raises."""
    with _without_trio(), _telling(module):
        return importlib.import_module(module)


@contextmanager
def _without_trio() -> Iterator[None]:
    """Refuse to start Trio during the block. No other thread runs then."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise StartsTrio

    starts = [(trio, "run"), (trio.lowlevel, "start_guest_run")]
    before = [getattr(where, name) for where, name in starts]
    for where, name in starts:
        setattr(where, name, refuse)
    try:
        yield
    finally:
        for (where, name), start in zip(starts, before, strict=True):
            setattr(where, name, start)


@contextmanager
def _telling(module: str) -> Iterator[None]:
    """Print where the import of a module is once it takes long. It may hang in a call that never returns."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def tell(_: int, frame: FrameType | None) -> None:
        frames = []
        for each in traceback.walk_stack(frame):
            if each[0].f_code is imported.__code__:
                break
            frames.append(each)
        where = stack_text(reversed(frames))
        still = f"importing {module} has taken {SLOW:g} s so far, and the command waits for it"
        click.echo(f"{still}:\n{where}" if where else still, err=True, nl=not where)
        sys.stderr.flush()

    before = signal.signal(signal.SIGALRM, tell)
    signal.setitimer(signal.ITIMER_REAL, SLOW)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
