"""Exception groups: a nursery wraps even a single error, and several at once are one story."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar, cast

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


def story(error: BaseException) -> str:
    """An error as class and text; of a group every one in it, alike ones once with their number."""
    told: dict[str, int] = {}
    for each in leaves(error):
        # Of one without a text, such as `trio.TooSlowError`, the class says it all.
        text = f"{type(each).__name__}: {each}".removesuffix(": ")
        told[text] = told.get(text, 0) + 1
    lines = [text if count == 1 else f"{text} ({count} times)" for text, count in told.items()]
    return lines[0] if len(lines) == 1 else f"{sum(told.values())} errors: " + "; ".join(lines)
