"""Checks of arguments by their annotations."""

from __future__ import annotations

import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import pytest

import headway
from headway.base import Delay, Range, Seconds, checked
from headway.errors import DeclarationError, InvalidArgument

T = TypeVar("T")


@checked(names="['core']", limits="{'core': 3}")
def takes(
    *more: int,
    name: str = "",
    names: Sequence[str] = (),
    limits: Mapping[str, int] | None = None,
    flag: bool = False,
    mode: Literal["fast", "safe"] = "safe",
    count: Annotated[int, Range(1, 5000)] = 1,
    after: Seconds = 0.0,
    every: Delay = 1.0,
    within: Annotated[float, Range(0, math.inf)] = 0.0,
    share: Annotated[float, Range(0, 1, below=True)] = 0.0,
    shift: Annotated[float, Range(unit="seconds")] = 0.0,
    either: int | str = 0,
    anything: Any = None,
    function: Callable[[], int] | None = None,
    generic: T | list[T] | None = None,
) -> None:
    """``takes(3, name="core")`` does nothing."""


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"name": 3}, "name must be a string, not 3"),
        ({"name": None}, "name must be a string, not None"),
        ({"names": "core"}, "names must be a list of strings, such as ['core'], not 'core'"),
        ({"names": ["a", 3]}, "names[1] must be a string, as in ['core'], not 3"),
        ({"limits": ["a"]}, "limits must be a mapping, such as {'core': 3}, not ['a']"),
        ({"limits": {"a": "b"}}, "limits['a'] must be a whole number, as in {'core': 3}, not 'b'"),
        ({"limits": {1: 2}}, "limits key 1 must be a string, as in {'core': 3}, not 1"),
        ({"flag": 1}, "flag must be True or False, not 1"),
        ({"mode": "slow"}, "mode must be 'fast' or 'safe', not 'slow'"),
        ({"count": 0}, "count must be a whole number from 1 to 5000, such as count=1, not 0"),
        ({"count": True}, "count must be a whole number from 1 to 5000, such as count=1, not True"),
        ({"count": 1.0}, "count must be a whole number from 1 to 5000, such as count=1, not 1.0"),
        ({"after": -1}, "after must be a finite number of seconds >= 0, not -1"),
        ({"after": math.inf}, "after must be a finite number of seconds >= 0, not inf"),
        ({"after": True}, "after must be a finite number of seconds >= 0, not True"),
        ({"every": 0}, "every must be a finite number of seconds above 0, such as every=1.0, not 0"),
        ({"within": math.nan}, "within must be a number >= 0, not nan"),
        ({"share": 1}, "share must be a number from 0 to below 1, not 1"),
        ({"shift": "1"}, "shift must be a finite number of seconds, not '1'"),
        ({"either": 1.5}, "either must be a whole number or a string, not 1.5"),
    ],
)
def test_disallowed_value_is_refused_with_its_name_and_what_is_right(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        takes(**arguments)
    assert str(refused.value) == f'takes(): {problem}. The form is: takes(3, name="core")'


def test_each_of_the_further_arguments_is_checked() -> None:
    with pytest.raises(DeclarationError, match=r"more\[1\] must be a whole number, not 'a'"):
        takes(1, "a")  # type: ignore[arg-type]  # what is tested


def test_allowed_values_pass() -> None:
    """Functions and type variables are not checked, and neither are defaults."""
    takes(
        *(1, 2),
        names=("a",),
        limits={"a": 1},
        mode="fast",
        count=5000,
        after=3,
        within=math.inf,
        share=0.99,
        shift=-5.5,
        either="a",
        anything=3,
        function=None,
        generic=7,
    )


async def test_error_of_an_async_function_is_raised_where_it_is_awaited() -> None:
    @checked(InvalidArgument)
    async def waits(seconds: Seconds) -> float:
        return seconds

    assert inspect.iscoroutinefunction(waits)
    assert await waits(2) == 2
    call = waits("2")  # type: ignore[arg-type]  # what is tested
    with pytest.raises(InvalidArgument, match=r"^waits\(\): seconds must be a finite number of seconds >= 0, not '2'$"):
        await call


def test_class_and_its_copies_are_checked() -> None:
    @checked()
    @dataclass(frozen=True)
    class Limit:
        count: Annotated[int, Range(0)] = 0

    assert Limit(3).count == 3
    with pytest.raises(DeclarationError, match=r"Limit\(\): count must be a whole number >= 0, not -1"):
        Limit(-1)


def decorated() -> Iterator[Callable[..., Any]]:
    """Yield Headway's functions and methods that are decorated."""
    for module in pkgutil.walk_packages(headway.__path__, "headway."):
        if "_gen" in module.name or module.name.endswith("__main__"):
            continue
        try:
            found = importlib.import_module(module.name)
        except ImportError:
            continue
        for each in vars(found).values():
            members = [each, *vars(each).values()] if inspect.isclass(each) else [each]
            yield from (member for member in members if inspect.isfunction(member) and hasattr(member, "__wrapped__"))


def test_annotations_of_all_checked_functions_exist_at_run_time() -> None:
    """A name that is imported for type checkers only would raise NameError at the first call."""
    functions = [each for each in decorated() if each.__code__.co_filename.endswith("_declarations.py")]
    assert len(functions) > 30
    for function in functions:
        check = inspect.getclosurevars(function).nonlocals.get("check")
        if check is not None and inspect.getclosurevars(check).nonlocals["error"] is not None:
            inspect.get_annotations(inspect.unwrap(function), eval_str=True)


def test_signature_is_read_at_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading it takes longer than the rest of a declaration, and most functions of a package are never called."""
    read: list[object] = []

    def note(function: Callable[..., object]) -> inspect.Signature:
        read.append(function)
        return signature(function)

    signature = inspect.signature
    monkeypatch.setattr(inspect, "signature", note)

    @checked()
    def called(number: int) -> int:
        return number

    assert read == []
    assert (called(1), called(2)) == (1, 2)
    assert len(read) == 1
