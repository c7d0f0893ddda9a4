"""Checks of functions that a program passes in, made where they are declared. No I/O."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from functools import partial
from types import AsyncGeneratorType, GeneratorType

from headway.errors import DeclarationError


def plain_problem(
    function: object,
    arguments: int,
    takes: str,
    *,
    what: str = "a function,",
    why: str = "it must not wait",
    may_yield: bool = False,
    more: bool = False,
) -> str | None:
    """Return the problem of a function that must be plain with the given number of arguments, or None.

    Args:
        takes: the arguments in words, "a resource".
        what: the required kind of object, for something that is not callable.
        why: the reason that it must be plain.
        may_yield: allow a generator function, because the result is iterated.
        more: allow further arguments, which the callers pass.
    """
    if not callable(function):
        return f"must be {what} not {function!r}"
    if _is(inspect.iscoroutinefunction, function):
        return f"must be a plain function: {why}, and {function!r} is async"
    if _is(inspect.isasyncgenfunction, function) or (not may_yield and _is(inspect.isgeneratorfunction, function)):
        return f"must be a plain function that returns its result, but {function!r} has a `yield`"
    return _arguments_problem(function, arguments, takes, more=more)


def check_plain(
    where: str, function: object, arguments: int, takes: str, form: str, *, may_yield: bool = False
) -> None:
    """Raise DeclarationError if an object is not a plain function with the given number of arguments."""
    problem = plain_problem(function, arguments, takes, may_yield=may_yield)
    if problem:
        raise DeclarationError(f"{where} {problem}. The form is: {form}")


def async_problem(function: object, arguments: int, takes: str) -> str | None:
    """Return the problem of a function that must be async with the given number of arguments, or None."""
    if not callable(function):
        return f"must be an async function, not {function!r}"
    if _is(inspect.isasyncgenfunction, function):
        return f"{function!r} must be an async function without a `yield`: it is called and awaited, not iterated"
    if not _is(inspect.iscoroutinefunction, function):
        return f"{function!r} must be an async function (`async def`)"
    return _arguments_problem(function, arguments, takes)


def either_problem(function: object, arguments: int, takes: str) -> str | None:
    """Return the problem of a function, plain or async, with the given number of arguments, or None."""
    if not callable(function):
        return f"must be a function, not {function!r}"
    if _is(inspect.isasyncgenfunction, function) or _is(inspect.isgeneratorfunction, function):
        return f"{function!r} must be a function without a `yield`: it is called, not iterated"
    return _arguments_problem(function, arguments, takes)


def answer_problem(answer: object) -> str | None:
    """Return the problem of the result of a plain function, or None.

    A wrapper such as a lambda hides that the function it calls is async or a generator.
    """
    if isinstance(answer, Awaitable):
        close = getattr(answer, "close", None)
        if close is not None:
            # Otherwise Python would warn, much later, of a coroutine that was never awaited.
            close()
        return f"it returned {answer!r}, which nothing awaits: it must be a plain function, and call no async one"
    if isinstance(answer, GeneratorType | AsyncGeneratorType):
        return f"it returned {answer!r}, which nothing iterates: it must return its result, without a `yield`"
    return None


def _is(question: object, function: object) -> bool:
    """Apply a test to a function, to the function in a partial, or to the `__call__` of an object."""
    assert callable(question)
    while isinstance(function, partial):
        function = function.func
    return bool(question(function) or question(getattr(function, "__call__", None)))  # noqa: B004  # asks what it is


def _arguments_problem(function: object, arguments: int, takes: str, *, more: bool = False) -> str | None:
    assert callable(function)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        # Some builtins have no signature. Their results are checked anyway.
        return None
    given = (None for _ in range(arguments))
    try:
        signature.bind_partial(*given) if more else signature.bind(*given)
    except TypeError:
        return f"must take {takes}, but takes {signature}"
    return None
