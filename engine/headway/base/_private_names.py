"""A check of private names of other packages that Headway uses, made when they are needed.

Another version of such a package may lack one of them. The error then says so at once, and which versions work.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import FunctionType
from typing import NamedTuple

PYTHON = "Python"


class PrivateNames(NamedTuple):
    """The names of one package.

    Attributes:
        package: the name under which it is installed; `PYTHON` for the standard library.
        names: each name, as ``module:Class.method``, with the parameters of a function that is replaced or called,
            separated by spaces. None means that it only has to exist. A final ``...`` allows further parameters.
    """

    package: str
    names: Mapping[str, str | None]


TRIO = PrivateNames(
    "trio",
    {
        "trio._core._traps:CancelShieldedCheckpoint": None,
        "trio._core._traps:WaitTaskRescheduled": "abort_func",
        "trio._core._traps:_async_yield": "obj",
    },
)
"""What a task asks its loop for, and how. `ThreadCalls` and the server's `Running` pass it on by hand.

They also rely on this: the loop answers with an `outcome.Outcome`, a coroutine of `trio.lowlevel.wait_readable` has
registered its task when it first asks, and stack traces of tasks follow ``cr_frame`` and ``cr_await``.
"""


def check_private_names(*packages: PrivateNames) -> None:
    """Raise ImportError unless every name exists. The message says what is missing and which versions work."""
    for package, names in packages:
        for name, parameters in names.items():
            wrong = _wrong_with(name, parameters)
            if wrong:
                raise ImportError(
                    f"{package} {_version(package)} does not work with Headway: {wrong}; {_right(package)}"
                )


def _wrong_with(name: str, parameters: str | None) -> str:
    where, _, path = name.partition(":")
    try:
        found: object = import_module(where)
    except ModuleNotFoundError:
        raise
    except Exception as error:  # noqa: BLE001  # importing an incompatible version may raise anything
        return f"{where} cannot be imported: {error}"
    for part in path.split("."):
        if not hasattr(found, part):
            return f"{where}.{path} not found"
        found = getattr(found, part)
    if parameters is None:
        return ""
    if not callable(found):
        return f"{where}.{path} is not a function"
    has, wanted = _parameters(found), parameters.split()
    if wanted[-1:] == ["..."]:
        wanted.pop()
        has = has[: len(wanted)]
    return "" if has == wanted else f"{where}.{path} takes ({', '.join(has)}), expected ({', '.join(wanted)})"


def _parameters(function: Callable[..., object]) -> list[str]:
    if type(function) is FunctionType and not hasattr(function, "__wrapped__"):
        code = function.__code__
        if not code.co_kwonlyargcount and not code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
            # The same as below, in a hundredth of the time.
            return list(code.co_varnames[: code.co_argcount])
    return list(inspect.signature(function).parameters)


def _version(package: str) -> str:
    if package == PYTHON:
        return sys.version.split()[0]
    # Imported only for an error, because this takes long.
    from importlib.metadata import version

    return version(package)


def _right(package: str) -> str:
    works = "" if package == PYTHON else _requirement(package)
    pythons = "Python 3.11, 3.12 and 3.13"
    return f"pip install '{works}' works, with {pythons}" if works else f"{pythons} work"


def _requirement(package: str) -> str:
    """Return Headway's requirement of a package, in pip's syntax, or an empty text if Headway is not installed."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        wanted = requires("headway") or []
    except PackageNotFoundError:
        return ""
    for each in wanted:
        requirement = each.partition(";")[0].strip()
        name = re.match(r"[\w.-]+", requirement)
        if name is not None and name[0].lower() == package:
            return requirement
    return ""
