"""Exception groups: a nursery wraps even a single error, and several at once are one story."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import ParamSpec, TypeVar, cast

import trio

from headway._safe_text import bounded, error_text, repr_text
from headway.errors import StrayCancelled

MOST_ERRORS = 20
"""How many different errors of a group are told."""
_ENGINES = (KeyboardInterrupt, trio.Cancelled)

E = TypeVar("E", bound=BaseException)
P = ParamSpec("P")


def only_error(error: E) -> E:
    """The error in a group of one, however deep; else what was given."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = cast("E", error.exceptions[0])
    return error


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors in a group, however deep; else what was given."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from leaves(each)
    else:
        yield error


def of_controller(error: BaseException) -> tuple[BaseException | None, BaseException | None]:
    """Split an error into the part that ends one controller's run, and the part that ends the engine.

    KeyboardInterrupt ends the engine: a user wants the program to end, and Python raises it in whatever code is running
    then. So does `trio.Cancelled`, if a block around the caller has been canceled. Otherwise it is a failure of the
    code that raised it, and becomes StrayCancelled. All else is a failure, too: `sys.exit()` in a reconciler is a
    mistake of one controller.
    """
    engines, failed = _split(error, _ENGINES)
    if engines is None:
        # As it was raised: a split group is another one.
        return error, None
    if trio.current_effective_deadline() == -math.inf:
        return failed, engines
    strays, interrupts = _split(engines, trio.Cancelled)
    # Beside another error it says nothing: a nursery has canceled what ran beside that.
    if strays is not None and failed is None and interrupts is None:
        failed = StrayCancelled(
            "trio.Cancelled was raised where nothing is canceled; its cancel scope has ended already. Let Cancelled "
            "leave the block of its own scope, and raise an error of yours after it"
        )
        failed.__cause__ = only_error(strays)
    return failed, interrupts


def ordinary(error: BaseException) -> Exception | None:
    """Return the failure, not in a group of one, if what raised it may be called again; None if more ends by it."""
    failed, engines = of_controller(error)
    failed = None if failed is None else only_error(failed)
    return failed if engines is None and isinstance(failed, Exception) else None


def _split(
    error: BaseException, kinds: type[BaseException] | tuple[type[BaseException], ...]
) -> tuple[BaseException | None, BaseException | None]:
    """What of an error is of these kinds, and the rest."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(kinds)
    return (error, None) if isinstance(error, kinds) else (None, error)


class Carried(BaseExceptionGroup[BaseException]):
    """Carries what a function of the program's raised out of its task.

    Trio makes the repr of an error that leaves a nursery. The error of a program may refuse that, and Trio's own state
    is broken then. A GeneratorExit by itself would say that the task is being closed.
    """

    def __new__(cls, errors: Sequence[BaseException]) -> Carried:
        return super().__new__(cls, "raised by the program", errors)

    def derive(self, errors: Sequence[BaseException]) -> Carried:  # type: ignore[override]  # of whatever class
        """Return a group of these, as `split` does."""
        return Carried(errors)

    def __repr__(self) -> str:
        return f"Carried([{', '.join(map(repr_text, self.exceptions))}])"


def leaving(error: BaseException) -> BaseException:
    """Return what is to be raised, so that an error of the program's can leave its task."""
    failed, engines = of_controller(error)
    if failed is None:
        return error
    carried = Carried([failed])
    return carried if engines is None else BaseExceptionGroup("beside the program's", [carried, engines])


async def guarded(function: Callable[P, Awaitable[object]], *args: P.args, **kwargs: P.kwargs) -> None:
    """Await a function of the program's, so that whatever it raises can leave its task."""
    try:
        await function(*args, **kwargs)
    except BaseException as error:
        left = leaving(error)
        if left is error:
            raise
        raise left from None


def story(error: BaseException) -> str:
    """An error as class and text, bounded; of a group the first ones in it, alike ones once with their number."""
    told: dict[str, int] = {}
    for each in leaves(error):
        # Of one without a text, such as `trio.TooSlowError`, the class says it all.
        text = f"{type(each).__name__}: {bounded(error_text(each))}".removesuffix(": ")
        told[text] = told.get(text, 0) + 1
    lines = [text if count == 1 else f"{text} ({count} times)" for text, count in told.items()]
    if len(lines) > MOST_ERRORS:
        lines[MOST_ERRORS:] = [f"… ({len(lines) - MOST_ERRORS} more)"]
    return lines[0] if len(lines) == 1 else f"{sum(told.values())} errors: " + "; ".join(lines)
