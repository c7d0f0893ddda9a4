"""Checks of keyword arguments, with an error that suggests the correct name."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from headway._safe_text import did_you_mean
from headway.errors import DeclarationError

F = TypeVar("F", bound=Callable[..., Any])

_EXAMPLE = re.compile(r"``(.+?)``")


def check_keywords(function: F) -> F:
    """Decorate a function or a class: a misspelled or missing argument raises DeclarationError instead of TypeError.

    Type checkers and `help` see the original signature. If the first line of the docstring has an example that calls
    the function, the error shows it as the correct form.
    """
    return _checked(function, ())


def check_keywords_and(options: Collection[str]) -> Callable[[F], F]:
    """Decorate a function with ``**options`` of these names in the same way. The function rejects other options."""
    return lambda function: _checked(function, options)


def _checked(function: F, options: Collection[str]) -> F:
    called: Callable[..., Any] = function.__init__ if isinstance(function, type) else function  # type: ignore[misc]
    signature = inspect.signature(called)
    known = [name for name, each in signature.parameters.items() if each.kind in _BY_NAME and name != "self"]
    open_ended = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in signature.parameters.values())

    @functools.wraps(called)
    def checked(*args: Any, **kwargs: Any) -> Any:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            names = [*known, *options]
            unknown = [] if open_ended and not options else [name for name in kwargs if name not in names]
            raise _refused(function, str(error), unknown, names) from None
        return called(*args, **kwargs)

    if isinstance(function, type):
        function.__init__ = checked  # type: ignore[misc]
        return function
    return checked  # type: ignore[return-value]


_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _refused(function: Callable[..., Any], error: str, unknown: list[str], known: list[str]) -> DeclarationError:
    problems = [f"unknown option {each!r}{did_you_mean(each, known)}" for each in unknown]
    if not problems or "missing" in error:
        problems.append(error)
    example = _EXAMPLE.search((function.__doc__ or "").partition("\n")[0])
    text = f"{_name(function)}(): {'; '.join(problems)}"
    if example and f"{function.__name__}(" in example[1] and "def " not in example[1]:
        text += f"{'' if text.endswith('?') else '.'} The form is: {example[1]}"
    return DeclarationError(text)


def _name(function: Callable[..., Any]) -> str:
    """Return the name by which users call a function: ``mappers.owner``, ``app.type``."""
    name = function.__qualname__
    for module in ("mappers", "predicates", "indexes", "sources"):
        public = getattr(sys.modules.get(f"headway.{module}"), name, None)
        if getattr(public, "__wrapped__", None) is function:
            return f"{module}.{name}"
    # A method is called on an instance, which all examples name like its class, in lower case.
    return name[0].lower() + name[1:] if "." in name else name
