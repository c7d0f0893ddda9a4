"""The rules of converters, checked with payloads made from the schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import betterproto2

from headway.base import finished
from headway.controller import App
from headway.errors import DeclarationError
from headway.protobuf import copy_message, equal
from headway.resource import Registry, ResourceType
from headway.versions import BadConversion, VersionChain, chains_in, different_fields, merges

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Type = ResourceType[Any]


def check_converters(
    app: App | Registry, *, examples: int = 100, values: Mapping[type[Any], SearchStrategy[Any]] | None = None
) -> None:
    """Check that every converter of an app keeps its rules, with payloads that Hypothesis makes from the schema.

    1. ``up`` loses nothing: ``down(up(x)) == x``.
    2. A payload that is written in an older version, and merged into a stored newer one, reads back as it was written.
    Writing back a payload that was read changes nothing. The merge keeps list elements that ``down`` leaves out. A
    converter breaks this rule if the elements that it keeps cannot be found again by their field with the lowest
    number: servers reject such writes.
    3. A converter returns the same result every time, a payload of its version, and does not change its argument.

    The payloads are the same in every run. This function needs Hypothesis.

    Args:
        app: the app or registry with the converters.
        examples: the number of payloads to try for each rule.
        values: strategies by message class, for classes in which not every value is valid.

    Raises:
        AssertionError: if a rule is broken; names the rule, the converter and the smallest payload that breaks it.
        DeclarationError: if the app has no converters, an argument is of the wrong type, or nearly all payloads that
            are made are refused by the validate hook of their type.
    """
    registry = _registry(app)
    _check_examples(examples)
    if not chains_in(registry):
        raise DeclarationError("there are no converters to check: declare them with app.converter(...)")
    try:
        from headway.testing._payloads import ALL_VALUES, payloads
    except ModuleNotFoundError as error:
        if error.name != "hypothesis":
            raise
        text = "headway.testing.check_converters needs Hypothesis: pip install hypothesis"
        raise ModuleNotFoundError(text, name="hypothesis") from None
    known = _strategies(values)
    for chain in chains_in(registry):
        made = {type: payloads(type, ALL_VALUES, values=known) for type in chain.types}
        for older, newer in pairwise(chain.types):
            _hold(partial(_loses_nothing, chain, older, newer), examples, made, older)
            _hold(partial(_is_steady, chain, newer, older), examples, made, newer)
        newest = chain.types[-1]
        for older in chain.types[:-1]:
            _hold(partial(_merges, chain, older, newest), examples, made, newest, older)


def _check_examples(given: object) -> None:
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise DeclarationError(f"examples={given!r} must be an integer >= 1, such as 100")


def _registry(app: object) -> Registry:
    found = app.registry if isinstance(app, App) else app
    if not isinstance(found, Registry):
        raise DeclarationError(f"check_converters({app!r}) expects an App or its registry")
    return found


def _strategies(values: object) -> dict[type[Any], SearchStrategy[Any]]:
    from hypothesis.strategies import SearchStrategy

    if values is None:
        return {}
    right = "a mapping of message classes to Hypothesis strategies, such as values={Team: a_strategy}"
    if not isinstance(values, Mapping):
        raise DeclarationError(f"values={values!r} must be {right}")
    for cls, strategy in values.items():
        is_message = isinstance(cls, type) and issubclass(cls, betterproto2.Message)
        if not is_message or not isinstance(strategy, SearchStrategy):
            name = cls.__name__ if isinstance(cls, type) else repr(cls)
            raise DeclarationError(f"values={{{name}: {strategy!r}}} must be {right}")
    return dict(values)


def _hold(
    rule: Callable[..., object], examples: int, made: Mapping[Type, SearchStrategy[Any]], *drawn_from: Type
) -> None:
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import strategies as st
    from hypothesis.errors import Unsatisfiable

    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=True,
        # Without Hypothesis's explanations, which take seconds: the message of the assertion is enough.
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )
    @given(st.tuples(*(made[each] for each in drawn_from)))
    def hold(drawn: tuple[Any, ...]) -> None:
        rule(*drawn)

    try:
        hold()
    except Unsatisfiable:
        types = " and ".join(str(each.name) for each in drawn_from)
        classes = ", ".join(f"{each.payload.__name__}: a_strategy" for each in drawn_from)
        raise DeclarationError(
            f"the validate hooks refuse nearly all payloads of {types} that are made from the schema, so there is "
            f"nothing to check: pass Hypothesis strategies for valid ones, as in values={{{classes}}}"
        ) from None


def _converted(chain: VersionChain, payload: Any, version: Type, wanted: Type) -> Any:
    # Copied, so that a converter that changes its argument affects neither later comparisons nor the error message.
    given = copy_message(payload)
    try:
        result = chain.converted(given, version.name.version, wanted.name.version)
    except BadConversion as error:
        raise AssertionError(f"{error}; it was given {payload!r}") from error
    assert equal(given, payload), (
        f"{_first_converter(chain, version, wanted)} must not change its argument: {payload!r} became {given!r}"
    )
    return result


def _first_converter(chain: VersionChain, version: Type, wanted: Type) -> str:
    here, there = chain.types.index(version), chain.types.index(wanted)
    side, step = ("up", chain.steps[here]) if here < there else ("down", chain.steps[here - 1])
    return f"{side}= of {step.older.name} → {step.newer.name}"


def _is_steady(chain: VersionChain, version: Type, wanted: Type, payload: Any) -> Any:
    first, second = (_converted(chain, payload, version, wanted) for _ in range(2))
    assert equal(first, second), (
        f"{version.name} → {wanted.name} must give the same result every time: for {payload!r} it gave {first!r}, and "
        f"then {second!r}"
    )
    return first


def _loses_nothing(chain: VersionChain, older: Type, newer: Type, payload: Any) -> None:
    there = _is_steady(chain, older, newer, payload)
    back = _converted(chain, there, newer, older)
    assert equal(back, payload), (
        f"{older.name} → {newer.name} → {older.name} must lose nothing: {payload!r} became {there!r}, and then "
        f"{back!r}, which differs in {', '.join(different_fields(payload, back))}"
    )


def _merges(chain: VersionChain, older: Type, newest: Type, stored: Any, wanted: Any) -> None:
    seen = _converted(chain, stored, newest, older)
    before = _converted(chain, seen, older, newest)
    for result in map(finished, merges(before, _converted(chain, wanted, older, newest), stored)):
        read = _converted(chain, result, newest, older)
        if equal(read, wanted):
            return
    raise AssertionError(
        f"what is written as {older.name} must be read back: {wanted!r}, written over {stored!r}, became {result!r}, "
        f"which is read as {read!r} and differs in {', '.join(different_fields(wanted, read))}; "
        "servers reject such a write"
    )
