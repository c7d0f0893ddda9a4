"""Checks of what a program declares: keyword arguments, and functions that Headway calls. No I/O."""

from __future__ import annotations

import functools
import inspect
import math
import re
import sys
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from types import AsyncGeneratorType, FunctionType, GeneratorType, GenericAlias, MappingProxyType, NoneType, UnionType
from typing import Any, NamedTuple, TypeVar, Union, cast, get_args, get_origin

from headway.base._annotations import value_problem
from headway.base._text import did_you_mean, ended, repr_text
from headway.errors import DeclarationError, HeadwayError

F = TypeVar("F", bound=Callable[..., Any])

_EXAMPLE = re.compile(r"``(.+?)``")


def checked(error: type[HeadwayError] = DeclarationError, /, **examples: str) -> Callable[[F], F]:
    """Decorate a function or a class: it raises ``error`` for an argument that its annotation does not allow.

    The annotations are evaluated at the first call. ``Annotated[int, Range(1)]`` bounds a number. `mismatch` says what
    is not checked. A misspelled or missing argument raises DeclarationError instead of TypeError.

    The error shows a correct value from ``examples``, by the argument's name, or a number that is the default. It also
    shows the form of the call, if the first line of the docstring has an example that calls the function. Type checkers
    and `help` see the original signature. A call takes some 4 µs longer, so hot functions are not decorated.
    """
    return lambda function: _checked(function, (), error, examples)


def check_keywords(function: F) -> F:
    """Decorate a function or a class as `checked` does, but check only the names of the arguments."""
    return _checked(function, ())


def checked_and(options: Collection[str], **examples: str) -> Callable[[F], F]:
    """Decorate a function with ``**options`` of these names like `checked`. The function checks the options."""
    return lambda function: _checked(function, options, DeclarationError, examples)


def check_options(options: Collection[str]) -> Callable[[F], F]:
    """Decorate a function with ``**options`` of these names like `check_keywords`. The call refuses other names."""
    return lambda function: _checked(function, options)


class _Form(NamedTuple):
    """The arguments of a function: all names, those by place, those by name, examples, and those without a default."""

    signature: inspect.Signature
    names: list[str]
    open_ended: bool
    places: list[str]
    usual: set[str]
    defaults: dict[str, str]
    needed: set[str]


def _form(signature: inspect.Signature, options: Collection[str]) -> _Form:
    parameters = signature.parameters.values()
    named = [each.name for each in parameters if each.kind in _BY_NAME]
    return _Form(
        signature,
        [*(name for name in named if name != "self"), *options],
        any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters),
        [each.name for each in parameters if each.kind in _BY_PLACE],
        set(named),
        {each.name: f"{each.name}={each.default!r}" for each in parameters if _is_example(each.default)},
        {each.name for each in parameters if each.default is inspect.Parameter.empty},
    )


def _checked(
    function: F,
    options: Collection[str],
    error: type[HeadwayError] | None = None,
    examples: Mapping[str, str] = MappingProxyType({}),
) -> F:
    called: Callable[..., Any] = function.__init__ if isinstance(function, type) else function  # type: ignore[misc]
    hints: dict[str, Any] = {}

    # At the first call, because this takes longer than the rest of the declaration.
    @functools.cache
    def form() -> _Form:
        return _form(inspect.signature(called), options)

    def check(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        signature, names, open_ended, places, usual, defaults, needed = form()
        given = {**dict(zip(places, args, strict=False)), **kwargs}
        # `bind` takes longer than most of the checks.
        if not (needed <= given.keys() <= usual and len(given) == len(args) + len(kwargs)):
            try:
                given = signature.bind(*args, **kwargs).arguments
            except TypeError as wrong:
                unknown = [] if open_ended and not options else [name for name in kwargs if name not in names]
                raise _refused(function, str(wrong), unknown, names) from None
        if error is None:
            if options and (unknown := [name for name in kwargs if name not in names]):
                raise _refused(function, "", unknown, names)
            return
        if not hints:
            hints.update(_hints(called, signature))
        for name, value in given.items():
            if problem := value_problem(name, hints.get(name, Any), value, examples.get(name, defaults.get(name, ""))):
                where = _name(function) if error is DeclarationError else function.__name__
                raise error(_with_form(function, f"{where}(): {problem}"))

    async def awaited(*args: Any, **kwargs: Any) -> Any:
        check(args, kwargs)
        return await called(*args, **kwargs)

    def checked(*args: Any, **kwargs: Any) -> Any:
        check(args, kwargs)
        return called(*args, **kwargs)

    made = functools.wraps(called)(awaited if inspect.iscoroutinefunction(called) else checked)
    if isinstance(function, type):
        function.__init__ = made  # type: ignore[misc]
    return cast("F", function if isinstance(function, type) else made)


def _is_example(default: object) -> bool:
    return isinstance(default, int | float) and not isinstance(default, bool) and 0 < default < math.inf


def _hints(called: Callable[..., Any], signature: inspect.Signature) -> dict[str, Any]:
    """Return the annotations of a function's arguments. That of ``*arguments`` is a list.

    Its result is not checked, so the class of that may be imported for type checkers only.
    """
    named = {name: each for name, each in inspect.get_annotations(called).items() if name in signature.parameters}
    scope = inspect.unwrap(called).__globals__
    hints = {name: eval(each, scope) if isinstance(each, str) else each for name, each in named.items()}
    of = signature.parameters
    return {name: GenericAlias(Sequence, hint) if of[name].kind is _MORE else hint for name, hint in hints.items()}


_MORE = inspect.Parameter.VAR_POSITIONAL
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _refused(function: Callable[..., Any], error: str, unknown: list[str], known: list[str]) -> DeclarationError:
    problems = [f"unknown option {each!r}{did_you_mean(each, known)}" for each in unknown]
    if not problems or "missing" in error:
        problems.append(error)
    return DeclarationError(_with_form(function, f"{_name(function)}(): {'; '.join(problems)}"))


def _with_form(function: Callable[..., Any], text: str) -> str:
    example = _EXAMPLE.search((function.__doc__ or "").partition("\n")[0])
    if example and f"{function.__name__}(" in example[1] and "def " not in example[1]:
        return f"{ended(text)} The form is: {example[1]}"
    return text


def _name(function: Callable[..., Any]) -> str:
    """Return the name by which users call a function: ``mappers.owner``, ``app.type``."""
    name = function.__qualname__
    for module in ("mappers", "predicates", "indexes", "sources"):
        public = getattr(sys.modules.get(f"headway.{module}"), name, None)
        if getattr(public, "__wrapped__", None) is function:
            return f"{module}.{name}"
    # A method is called on an instance, which all examples name like its class, in lower case.
    return name[0].lower() + name[1:] if "." in name else name


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
    if problem := _uncalled_problem(function):
        return problem
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
        raise DeclarationError(f"{where} {ended(problem)} The form is: {form}")


def async_problem(function: object, arguments: int | None, takes: str) -> str | None:
    """Return the problem of a function that must be async with the given number of arguments, or None.

    ``arguments`` is None if the number is not known yet.
    """
    if not callable(function):
        return f"must be an async function, not {function!r}"
    if problem := _uncalled_problem(function):
        return problem
    if _is(inspect.isasyncgenfunction, function):
        return f"{function!r} must be an async function without a `yield`: it is called and awaited, not iterated"
    if not _is(inspect.iscoroutinefunction, function):
        return f"{function!r} must be an async function (`async def`)"
    return None if arguments is None else _arguments_problem(function, arguments, takes)


def either_problem(function: object, arguments: int, takes: str) -> str | None:
    """Return the problem of a function, plain or async, with the given number of arguments, or None."""
    if not callable(function):
        return f"must be a function, not {function!r}"
    if _is(inspect.isasyncgenfunction, function) or _is(inspect.isgeneratorfunction, function):
        return f"{function!r} must be a function without a `yield`: it is called, not iterated"
    return _arguments_problem(function, arguments, takes)


def function_text(function: object) -> str:
    """Return the name of a function for a report, with its file and line: ``check (/srv/app.py, line 12)``."""
    while isinstance(function, partial):
        function = function.func
    inner: Any = inspect.unwrap(function) if callable(function) else function
    name = getattr(inner, "__qualname__", None) or repr_text(inner)
    code = getattr(inner, "__code__", None)
    return name if code is None else f"{name} ({code.co_filename}, line {code.co_firstlineno})"


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


def _uncalled_problem(function: Callable[..., Any]) -> str | None:
    """Return an error text if a factory such as `mappers.owner` was passed without being called, or None."""
    inner = getattr(function, "__wrapped__", None)
    if not isinstance(inner, FunctionType) or "." not in (name := _name(inner)) or "." in inner.__qualname__:
        return None
    call = f"{name}({'...' if inspect.signature(inner).parameters else ''})"
    return f"must be the result of {call}, not the function {name}: add the parentheses"


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
    return _order_problem(function, takes)


_RESOURCE = frozenset(("Resource", "Projected"))
_CLASSES = {
    "a runtime": frozenset(("Runtime",)),
    "a request": frozenset(("Request",)),
    "a resource": _RESOURCE,
    "old": _RESOURCE,
    "new": _RESOURCE,
    "a cache": frozenset(("CacheReader", "CacheOfTypes", "Cache", "PrimedCache", "View")),
    "the world": frozenset(("World",)),
    "a process": frozenset(("Process",)),
}
"""The names of Headway's classes that an argument may be annotated with, by the words for it."""
_ALL_CLASSES = frozenset[str]().union(*_CLASSES.values())
_PLACES = ("first", "second", "third")
_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _order_problem(function: Callable[..., Any], takes: str) -> str | None:
    """Return the problem of a parameter whose annotation says that it gets what another place gets, or None.

    Annotations that are not known to be wrong are accepted: those of other classes, and names that cannot be found.
    """
    try:
        signature = inspect.signature(function, eval_str=True)
    except Exception:  # noqa: BLE001  # a name may exist for type checkers only, and an annotation may be anything
        return None
    places = [each for each in signature.parameters.values() if each.kind in _BY_PLACE]
    words = re.split(", | and ", takes.removesuffix(" first"))
    for place, each, word in zip(_PLACES, places, words, strict=False):
        given = _classes(each.annotation)
        if word in _CLASSES and given and given <= _ALL_CLASSES and not given & _CLASSES[word]:
            named = " | ".join(sorted(given))
            return f"must take {takes}, in this order, but its {place} parameter is `{each.name}: {named}`"
    return None


def _classes(annotation: Any) -> frozenset[str]:
    """Return the names of Headway's classes in an annotation, apart from None. It is empty if there is another one."""
    if isinstance(annotation, UnionType) or get_origin(annotation) is Union:
        found = [_classes(each) for each in get_args(annotation) if each is not NoneType]
        return frozenset[str]().union(*found) if all(found) else frozenset()
    given = get_origin(annotation) or annotation
    is_ours = isinstance(given, type) and given.__module__.startswith("headway.")
    return frozenset((given.__name__,)) if is_ours else frozenset()
