"""What the API of the world outside offers: a better call than the one that was made, or a look at what is there."""

from __future__ import annotations

import ast
import copy
import inspect
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import trio
import trio.testing

from headway.testing.simulation._trace import Step
from headway.testing.simulation.world import outside_state

_AT_MOST = 3600.0
"""The virtual seconds that a call of the world outside may take."""


def has_no_keys(outside: Any, step: Step) -> bool:
    """Return True if the API has no call that takes more than this one, such as a key."""
    name, call = _called(step.method)
    method = getattr(outside, name, None)
    if method is None:
        return True
    parameters = inspect.signature(method).parameters
    if call is not None and any(_is_left_out(each, at, call) for at, each in enumerate(parameters.values())):
        return False
    return not any(
        set(inspect.signature(each).parameters) > set(parameters)
        for other, each in _methods(outside)
        if other.startswith(f"{name}_")
    )


def can_be_looked_at(outside: Any, step: Step) -> bool:
    """Return True if some method of the API returns something after this call, and changes nothing."""
    name, call = _called(step.method)
    if call is None:
        return False
    found = False

    async def look() -> None:
        nonlocal found
        arguments = [ast.literal_eval(each) for each in call.args]
        named = {each.arg: ast.literal_eval(each.value) for each in call.keywords if each.arg}
        await getattr(outside, name)(*arguments, **named)
        before = outside_state(outside)
        for other, each in _methods(outside):
            required = [of for of in inspect.signature(each).parameters.values() if of.default is of.empty]
            if other == name or len(required) > min(1, len(arguments)):
                continue
            tried = copy.deepcopy(outside)
            with suppress(Exception):
                answer = await getattr(tried, other)(*arguments[: len(required)])
                found = found or (answer is not None and outside_state(tried) == before)

    async def look_for_a_while() -> None:
        # An argument may be no literal, and the API may refuse the call.
        with trio.move_on_after(_AT_MOST), suppress(Exception):
            await look()

    trio.run(look_for_a_while, clock=trio.testing.MockClock(autojump_threshold=0.0))
    return found


def _methods(outside: Any) -> Iterator[tuple[str, Any]]:
    """Return the public methods that a program can await, with their names."""
    for name in dir(outside):
        if not name.startswith("_") and inspect.iscoroutinefunction(method := getattr(outside, name)):
            yield name, method


def _called(text: str) -> tuple[str, ast.Call | None]:
    """Return the name of a method and its call, from the text of a step."""
    call = text.partition("outside.")[2]
    try:
        parsed = ast.parse(call, mode="eval").body
    except SyntaxError:
        parsed = None
    return call.partition("(")[0], parsed if isinstance(parsed, ast.Call) else None


def _is_left_out(parameter: inspect.Parameter, at: int, call: ast.Call) -> bool:
    """Return True if a call does not pass a parameter, or passes its default, which tells the API no more."""
    named = {each.arg: each.value for each in call.keywords}
    passed = call.args[at] if at < len(call.args) else named.get(parameter.name)
    return passed is None or ast.unparse(passed) == repr(parameter.default)
