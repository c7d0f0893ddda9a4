"""What the API of the world outside offers: a better call than the one that was made, or a look at what is there."""

from __future__ import annotations

import ast
import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import trio
import trio.testing

from headway.testing.simulation._trace import Step
from headway.testing.simulation.world import outside_state

_AT_MOST = 3600.0
"""The virtual seconds that a call of the world outside may take."""


def has_no_keys(outside: Any, step: Step, steps: Sequence[Step]) -> bool:
    """Return True if the API has no call that takes more than this one, such as a key.

    Args:
        steps: the calls of the run. An order that two of them have for one thing orders nothing.
    """
    name, call = _called(step.method)
    method = getattr(outside, name, None)
    if method is None:
        return True
    parameters = inspect.signature(method).parameters
    if call is not None:
        given = _given(parameters, call)
        if any(each.name not in given or given[each.name] == repr(each.default) for each in parameters.values()):
            # The default tells the API no more than nothing does.
            return False
        orders = {name for name, each in parameters.items() if each.default is None and given[name][:1] == "("}
        others = (_called(each.method) for each in steps if not each.kind[1] and each.method != step.method)
        for other, theirs in others:
            if orders and theirs is not None and (its := getattr(outside, other, None)) is not None:
                also = _given(inspect.signature(its).parameters, theirs)
                same_thing = list(also.values())[:1] == list(given.values())[:1]
                if same_thing and any(also.get(each) == given[each] for each in orders):
                    return False
    return not any(
        set(inspect.signature(each).parameters) > set(parameters)
        for other, each in _methods(outside)
        if other.startswith(f"{name}_")
    )


def _given(parameters: Mapping[str, inspect.Parameter], call: ast.Call) -> dict[str, str]:
    """Return the arguments of a call by name, as texts, the first one first."""
    named = {each.arg: ast.unparse(each.value) for each in call.keywords if each.arg}
    return {**dict(zip(parameters, map(ast.unparse, call.args), strict=False)), **named}


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
