"""The apps and stores that arguments name, with the import of an app."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import click
import trio

from headway.base import message_of, own_frames, repr_text, stack_text, without_password
from headway.cli._exits import Exit, Usage, fail
from headway.controller import App
from headway.errors import DeclarationError, InvalidArgument

if TYPE_CHECKING:
    from headway.storage import Backend


def apps_at(reference: str) -> list[App]:
    """Return the app or apps at ``module:attribute``. Raises Usage if there are none."""
    given = object_at(reference, "an app", "module:attribute, such as staff.app:app")
    several = list(given) if isinstance(given, list | tuple) else [given]
    apps = [each for each in several if isinstance(each, App)]
    if not apps or len(apps) != len(several):
        raise Usage(f"{reference} is {repr_text(given)}; it must be a headway.App, or a list of them")
    return apps


def object_at(reference: str, expected: str, form: str) -> Any:
    """Return the object that a reference such as ``module:attribute`` names. Raises Usage if there is none.

    If the module raises, the command prints the program's own frames and exits.

    ``expected`` and ``form`` say in errors what the reference should name, and how it is written.
    """
    module, colon, attribute = reference.partition(":")
    if not (module and colon and attribute) or module.startswith(".") or "/" in module:
        raise Usage(f"{reference!r} is not {expected}; write {form}")
    # Like `python -m`, find modules in the working directory.
    sys.path.insert(0, os.getcwd())
    try:
        found = imported(module)
    except StartsTrio as error:
        where, _, _ = own_frames(error).rpartition("\n")
        fail(
            Exit.REFUSED,
            f"{where}\nError: importing {module} starts Trio, so it would run its program in place of this "
            'command: write `if __name__ == "__main__":` above that line, and indent it',
        )
    except Exception as error:  # a module of the program may raise anything
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{module}.".startswith(f"{missing}."):
            hint = "; leave out .py" if module.endswith(".py") else ""
            raise Usage(f"{reference}: module {missing!r} not found here or among installed packages{hint}") from error
        # A syntax error has no frames of the program, but its message shows the line.
        where = own_frames(error) or message_of(error)
        fail(
            Exit.REFUSED, f"{where}\nError: importing {module} failed with {type(error).__name__}: see the lines above"
        )
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise Usage(f"{reference}: {module} has no {attribute!r}")
        found = getattr(found, part)
    return found


async def check_store_exists(argument: str, url: str) -> None:
    """Raise Usage if a URL has no store. Otherwise, opening it would create one."""
    from headway.storage import store_exists

    if not await store_exists(url):
        # Shown without the password that the URL may contain.
        raise Usage(f"{argument}: no store found at {without_password(url)}")


def named_store(argument: str, url: str) -> AbstractAsyncContextManager[Backend]:
    """Return the store at a URL, not yet open. Raises Usage if the URL names none that lasts."""
    if url == "memory:":
        raise Usage(
            f'{argument}: "memory:" is a new, empty store for each process; give a lasting one, such as sqlite:PATH'
        )
    return any_store(argument, url)


def any_store(argument: str, url: str) -> AbstractAsyncContextManager[Backend]:
    """Return the store at a URL, not yet open. Raises Usage if the URL is invalid."""
    from headway.storage import open_store

    try:
        return open_store(url)
    except InvalidArgument as error:
        raise Usage(f"{argument}: {error}") from error
    except DeclarationError as error:
        fail(Exit.REFUSED, f"Error: {error}")


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
