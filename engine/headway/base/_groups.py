"""Exception groups. A nursery wraps even a single exception in a group."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import ParamSpec, TypeVar, cast

import trio

from headway.base._text import bounded, error_text, repr_text
from headway.errors import StrayCancelled

MOST_ERRORS = 20
"""The number of different exceptions of a group that are shown."""
_ENGINES = (KeyboardInterrupt, trio.Cancelled)

E = TypeVar("E", bound=BaseException)
P = ParamSpec("P")


def only_error(error: E) -> E:
    """Return the only exception of a group, however deeply nested, or the exception itself."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = cast("E", error.exceptions[0])
    return error


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions in a group, however deeply nested, or the exception itself."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from leaves(each)
    else:
        yield error


def all_are(error: BaseException, kind: type[BaseException]) -> bool:
    """Return True if an exception is of this class, or a group of nothing else."""
    return all(isinstance(each, kind) for each in leaves(error))


def of_controller(error: BaseException) -> tuple[BaseException | None, BaseException | None]:
    """Split an exception into the part that ends one controller's run, and the part that ends the engine.

    KeyboardInterrupt ends the engine: a user wants the program to end, and Python raises it in whatever code is
    running. `trio.Cancelled` ends it as well, if a block around the caller has been canceled. Otherwise Cancelled is a
    failure of the code that raised it, and becomes StrayCancelled. Everything else is a failure, too: `sys.exit()` in a
    reconciler is a mistake of one controller.
    """
    engines, failed = _split(error, _ENGINES)
    if engines is None:
        # Return the original exception, because splitting a group creates a new one.
        return error, None
    if trio.current_effective_deadline() == -math.inf:
        return failed, engines
    strays, interrupts = _split(engines, trio.Cancelled)
    # Beside another exception, Cancelled has no meaning: a nursery has canceled the tasks beside the failed one.
    if strays is not None and failed is None and interrupts is None:
        failed = StrayCancelled(
            "trio.Cancelled was raised although no enclosing scope is canceled; its own scope has already ended. "
            "Let Cancelled leave the block of its own scope, and raise your own error after it"
        )
        failed.__cause__ = only_error(strays)
    return failed, interrupts


def ordinary(error: BaseException) -> Exception | None:
    """Return the failure, unwrapped, if its function may be called again, or None if the run or the engine must end."""
    failed, engines = of_controller(error)
    failed = None if failed is None else only_error(failed)
    return failed if engines is None and isinstance(failed, Exception) else None


def _split(
    error: BaseException, kinds: type[BaseException] | tuple[type[BaseException], ...]
) -> tuple[BaseException | None, BaseException | None]:
    """Return the part of an exception that is of these kinds, and the rest."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(kinds)
    return (error, None) if isinstance(error, kinds) else (None, error)


class Carried(BaseExceptionGroup[BaseException]):
    """A carrier of an exception that the program raised, until it has left its task.

    Trio computes the repr of an exception that leaves a nursery. If a program's exception refuses that, Trio's own
    state is broken afterwards. Also, a bare GeneratorExit would mean that the task is being closed.
    """

    def __new__(cls, errors: Sequence[BaseException]) -> Carried:
        return super().__new__(cls, "raised by the program", errors)

    def derive(self, errors: Sequence[BaseException]) -> Carried:  # type: ignore[override]  # of whatever class
        """Return a group of these exceptions, as `split` requires."""
        return Carried(errors)

    def __repr__(self) -> str:
        return f"Carried([{', '.join(map(repr_text, self.exceptions))}])"


def leaving(error: BaseException) -> BaseException:
    """Return the exception to raise, so that a program's exception can leave its task."""
    failed, engines = of_controller(error)
    if failed is None:
        return error
    carried = Carried([failed])
    return carried if engines is None else BaseExceptionGroup("beside the program's", [carried, engines])


async def guarded(function: Callable[P, Awaitable[object]], *args: P.args, **kwargs: P.kwargs) -> None:
    """Await a function of the program, so that any exception of it can leave its task."""
    try:
        await function(*args, **kwargs)
    except BaseException as error:
        left = leaving(error)
        if left is error:
            raise
        raise left from None


def story(error: BaseException) -> str:
    """Return an exception's class and message, bounded. For a group, list the first ones, with counts."""
    told: dict[str, int] = {}
    for each in leaves(error):
        # Without a message, as for `trio.TooSlowError`, the class says enough.
        text = f"{type(each).__name__}: {bounded(error_text(each))}".removesuffix(": ")
        told[text] = told.get(text, 0) + 1
    lines = [text if count == 1 else f"{text} ({count} times)" for text, count in told.items()]
    if len(lines) > MOST_ERRORS:
        lines[MOST_ERRORS:] = [f"… ({len(lines) - MOST_ERRORS} more)"]
    return lines[0] if len(lines) == 1 else f"{sum(told.values())} errors: " + "; ".join(lines)


def messages(error: BaseException) -> str:
    """Return an exception's message, or the different ones of a group, for a text that names no class.

    The text is stored, and should be the same after the same failures. So equal messages are not counted, and they are
    sorted: Trio runs tasks that can run in a random order. The caller bounds the text.
    """
    told = ((error_text(each), type(each).__name__) for each in leaves(error))
    texts = sorted({text or f"{name} was raised without a message" for text, name in told})
    if len(texts) > MOST_ERRORS:
        texts[MOST_ERRORS:] = [f"… ({len(texts) - MOST_ERRORS} more)"]
    return "; ".join(texts)
