"""`check_converters` finds faults in converters, with generated payloads."""

from __future__ import annotations

import ast
import datetime
import enum
import itertools
import re
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.controller import App
from headway.errors import DeclarationError
from headway.protobuf import decode, encode, equal, field, message
from headway.resource import Condition, Hooks, Resource, ResourceType
from headway.testing import check_converters
from headway.testing._payloads import ALL_VALUES, payloads

app = App("tests")


@message(name="tests.Older")
class Older:
    names: list[str] = field(1)
    color: str = field(2)
    size: int = field(3)


@message(name="tests.Newer")
class Newer:
    names: list[str] = field(1)
    color: str = field(2)
    size: int = field(3)
    room: str = field(4)


def up(old: Older) -> Newer:
    return Newer(names=old.names, color=old.color, size=old.size)


def down(new: Newer) -> Older:
    return Older(names=new.names, color=new.color, size=new.size)


def between(
    up: Callable[[Older], Newer],
    down: Callable[[Newer], Older],
    validate: Callable[[Resource[Any]], None] | None = None,
) -> App:
    made = App("tests")
    older = made.type("tests", "v1", "Thing", Older, hooks=Hooks(validate=validate))
    newer = made.type("tests", "v2", "Thing", Newer, hooks=Hooks(validate=validate))
    made.converter(older, newer, up=up, down=down)
    return made


def without_color(old: Older) -> Newer:
    return Newer(names=old.names, size=old.size)


def upper(old: Older) -> Newer:
    return Newer(names=old.names, color=old.color.upper(), size=old.size)


def small(old: Older) -> Newer:
    return Newer(names=old.names, color=old.color, size=min(old.size, 2**31))


def sorted_names(old: Older) -> Newer:
    return Newer(names=sorted(old.names), color=old.color, size=old.size)


def refusing(old: Older) -> Newer:
    if len(old.names) > 1:
        raise ValueError("too many")
    return up(old)


def garbage(new: Newer) -> Any:
    return new


def derived(new: Newer) -> Older:
    return Older(names=new.names, color=new.room or new.color, size=new.size)


def invalid(new: Newer) -> Older:
    return Older(names=cast("Any", [len(each) for each in new.names]), color=new.color, size=new.size)


numbers = itertools.count()


def counting(old: Older) -> Newer:
    return Newer(names=old.names, color=old.color, size=old.size, room=str(next(numbers)))


LOSES = "tests.v1.Thing → tests.v2.Thing → tests.v1.Thing must lose nothing"
BROKEN: list[tuple[Any, Any, str, str]] = [
    (without_color, down, LOSES, "differs in color"),
    (upper, down, LOSES, "differs in color"),
    (small, down, LOSES, "differs in size"),
    (sorted_names, down, LOSES, "differs in names"),
    (refusing, down, "up= of tests.v1.Thing → tests.v2.Thing raised ValueError: too many", "it was given"),
    (up, garbage, "down= of tests.v1.Thing → tests.v2.Thing returned", "return a Older(...)"),
    (up, invalid, "down= of tests.v1.Thing → tests.v2.Thing returned a payload that cannot be encoded", "Older.names"),
    (up, derived, "what is written as tests.v1.Thing must be read back", "differs in color"),
    (counting, down, "must give the same result every time", ""),
]


@pytest.mark.parametrize(("up", "down", "rule", "what"), BROKEN)
def test_broken_converter_is_found(up: Any, down: Any, rule: str, what: str) -> None:
    """The error names the rule, the converter and the fault."""
    with pytest.raises(AssertionError) as caught:
        check_converters(between(up, down))
    assert rule in str(caught.value)
    assert what in str(caught.value)


def test_hook_that_refuses_what_the_schema_makes_asks_for_strategies() -> None:
    def validate(resource: Resource[Any]) -> None:
        if resource.data.color != "a color that no one guesses":
            raise ValueError("wrong color")

    made = between(up, down, validate)
    right = (
        r"refuse nearly all payloads of tests\.v1\.Thing .* pass Hypothesis strategies .* values=\{Older: a_strategy\}"
    )
    with pytest.raises(DeclarationError, match=right):
        check_converters(made, examples=5)
    color = st.just("a color that no one guesses")
    check_converters(made, examples=5, values={each: st.builds(each, color=color) for each in (Older, Newer)})


def sorting(old: Older) -> Newer:
    old.names.sort()
    return Newer(names=old.names, color=old.color, size=old.size)


def clearing(new: Newer) -> Older:
    new.color, color = "", new.color
    return Older(names=new.names, color=color, size=new.size)


def test_converter_that_changes_its_input_is_found() -> None:
    """The error shows the original input. A changed input compared with itself would seem to have lost nothing."""
    with pytest.raises(AssertionError) as caught:
        check_converters(between(sorting, down))
    message = str(caught.value)
    assert "up= of tests.v1.Thing → tests.v2.Thing must not change its argument" in message
    shown = re.search(r"Older\(names=(\[.*?\])\) became Older\(names=(\[.*?\])\)", message)
    assert shown is not None, message
    before, after = (ast.literal_eval(each) for each in shown.groups())
    assert before != after == sorted(before)
    with pytest.raises(
        AssertionError, match=r"down= of tests\.v1\.Thing → tests\.v2\.Thing must not change its argument"
    ):
        check_converters(between(up, clearing))


def test_converter_that_fails_halfway_is_reported_with_its_original_input() -> None:
    def half(old: Older) -> Newer:
        old.names.append("x")
        raise ValueError("too many")

    with pytest.raises(AssertionError, match=r"it was given Older\(\)\n"):
        check_converters(between(half, down))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"examples": 0}, "examples=0 must be an integer >= 1, such as 100"),
        ({"examples": -1}, "examples=-1 must be"),
        ({"examples": "x"}, "examples='x' must be"),
        ({"examples": True}, "examples=True must be"),
        ({"examples": 1.5}, "examples=1.5 must be"),
        (
            {"values": {int: 3}},
            "values={int: 3} must be a mapping of message classes to Hypothesis strategies, such as",
        ),
        ({"values": {"Older": st.none()}}, "values={'Older': none()} must be"),
        ({"values": {Older: Older()}}, "values={Older: Older()} must be"),
        ({"values": {int: st.integers()}}, "values={int: integers()} must be"),
        ({"values": []}, "values=[] must be"),
        ({"values": 0}, "values=0 must be"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        check_converters(between(up, down), **options)
    assert message in str(caught.value)


class Rank(enum.IntEnum):
    LOW = 0
    HIGH = 5


@message(name="tests.Everything")
class Everything:
    text: str = field(1)
    raw: bytes = field(2)
    yes: bool = field(3)
    small: int = field(4, kind="int32")
    large: int = field(5, kind="uint64")
    half: float = field(6, kind="float")
    whole: float = field(7)
    rank: Rank = field(8)
    at: datetime.datetime | None = field(9)
    span: datetime.timedelta | None = field(10)
    inner: Older = field(11)
    many: list[Older] = field(12)
    by_name: dict[str, Older] = field(13)
    by_number: dict[int, Rank] = field(14)
    maybe: str | None = field(15)
    again: Everything | None = field(16)


EVERYTHING = app.type("tests", "v1", "Everything", Everything)
CONDITION: ResourceType[Condition] = app.type("tests", "v1", "Condition", Condition)


@pytest.mark.parametrize("type", [EVERYTHING, CONDITION])
def test_payloads_have_every_field_and_can_be_stored(type: ResourceType[Any]) -> None:
    """Each field is set in some payloads, of declared and of generated messages."""
    seen: set[str] = set()
    names = [*type.payload.__dataclass_fields__]

    @settings(max_examples=40, database=None, derandomize=True, deadline=None)
    @given(payloads(type, ALL_VALUES))
    def made(payload: Any) -> None:
        assert equal(decode(type.payload, encode(payload)), payload)
        empty = type.payload()
        seen.update(name for name in names if getattr(payload, name) != getattr(empty, name))

    made()
    assert seen == set(names)
