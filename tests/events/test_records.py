"""Records are created, compared and shown like frozen dataclasses."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from headway import events
from headway.events import Record


class Point(Record):
    x: int
    y: int = 7


class Other(Record):
    x: int
    y: int = 7


def test_fields_are_given_by_position_by_name_and_by_default() -> None:
    assert vars(Point(1)) == vars(Point(x=1)) == vars(Point(1, 7)) == vars(Point(y=7, x=1)) == {"x": 1, "y": 7}
    assert list(vars(Point(y=2, x=1))) == ["x", "y"], "fields must keep the order of their declaration"


@pytest.mark.parametrize(("values", "named"), [((), {}), ((1, 2, 3), {}), ((1,), {"x": 1}), ((1,), {"z": 1})])
def test_unknown_and_missing_fields_are_refused(values: tuple[Any, ...], named: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="argument"):
        Point(*values, **named)


def test_records_of_one_class_with_equal_fields_are_equal() -> None:
    assert Point(1) == Point(1, 7)
    assert hash(Point(1)) == hash(Point(1, 7))
    assert Point(1) != Point(2)
    assert Point(1) != Other(1)
    assert Point(1) != (1, 7)


def test_repr_shows_the_fields() -> None:
    assert repr(Point(1)) == "Point(x=1, y=7)"
    assert repr(events.LeaseTaken("a/b", "ada", 3)) == "LeaseTaken(name='a/b', holder='ada', term=3)"


def test_record_is_immutable() -> None:
    point: Any = Point(1)
    with pytest.raises(AttributeError, match="cannot set x: a Point is immutable"):
        point.x = 2
    with pytest.raises(AttributeError, match="cannot set z"):
        point.z = 2
    with pytest.raises(AttributeError, match="cannot delete x"):
        del point.x
    assert point == Point(1)


def test_record_is_matched_by_its_fields_in_order() -> None:
    match Point(1, 2):
        case Point(x, y):
            assert (x, y) == (1, 2)


def test_record_can_be_copied_and_pickled() -> None:
    point = Point(1, 2)
    assert copy.copy(point) == copy.deepcopy(point) == pickle.loads(pickle.dumps(point)) == point


def test_constructor_is_compiled_for_the_first_record() -> None:
    """A program starts faster without it, and most create few kinds of events. Each class has its own."""

    class First(Record):
        name: str

    class Second(First):
        count: int = 0

    assert First.__init__ is Second.__init__ is Record.__init__
    assert vars(First("a")) == {"name": "a"}
    assert First.__init__ is not Record.__init__
    assert Second.__init__ is Record.__init__
    assert vars(Second()) == {"count": 0}
    made = First.__init__
    assert vars(First(name="b")) == {"name": "b"}
    assert First.__init__ is made
