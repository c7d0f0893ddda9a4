"""Exception groups of one: a nursery wraps even a single error."""

from __future__ import annotations

from typing import TypeVar, cast

E = TypeVar("E", bound=BaseException)


def only_error(error: E) -> E:
    """The error in a group of one, however deep; else what was given."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = cast("E", error.exceptions[0])
    return error
