"""Exception groups: a nursery wraps even a single error, and several at once are one story."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar, cast

import trio

from headway._safe_text import bounded, error_text

MOST_ERRORS = 20
"""How many different errors of a group are told."""
_ENGINES = (KeyboardInterrupt, trio.Cancelled)

E = TypeVar("E", bound=BaseException)


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
    then. `trio.Cancelled` is Trio's, and means that an outer block has ended already. All else is a failure of the code
    that raised it: `sys.exit()` in a reconciler, too, is a mistake of one controller.
    """
    if isinstance(error, BaseExceptionGroup):
        engines, controllers = error.split(_ENGINES)
        return (controllers, engines) if engines is not None else (error, None)
    return (None, error) if isinstance(error, _ENGINES) else (error, None)


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
