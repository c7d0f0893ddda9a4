"""`desired` and `chains`: payloads that Hypothesis makes from the fields of a message."""

from __future__ import annotations

import datetime
import enum

import pytest
from hypothesis import find, given
from hypothesis import strategies as st

import headway
from headway import field
from headway.resource import Hooks
from headway.testing import simulation


class Size(enum.IntEnum):
    SMALL = 0
    LARGE = 1


@headway.message
class Door:
    width: int = field(1)


@headway.message
class House:
    name: str = field(1)
    doors: list[Door] = field(2)
    size: Size = field(3)
    owners: dict[str, int] = field(4)
    main: Door | None = field(5)
    built: datetime.datetime | None = field(6)


def validate_house(house: headway.Resource[House]) -> None:
    if house.data.name == "b":
        raise ValueError("no house is named b")


app = headway.App("houses")
HOUSE = app.type("houses", "v1", "House", House, hooks=Hooks(validate=validate_house))


@given(house=simulation.desired(HOUSE, name=st.sampled_from(["b", "c"])))
def test_desired_payload_is_valid_and_has_the_given_values(house: House) -> None:
    assert house.name == "c"
    assert all(0 <= door.width <= 3 for door in house.doors)


WIDE = [pytest.param(name, marks=pytest.mark.wide) for name in ("doors", "size", "owners", "main")]


@pytest.mark.wide
@pytest.mark.parametrize("name", ["built", *WIDE])
def test_every_field_is_set_in_some_payload(name: str) -> None:
    assert getattr(find(simulation.desired(HOUSE), lambda house: bool(getattr(house, name))), name)


def test_unknown_field_is_an_error_that_names_the_fields() -> None:
    with pytest.raises(headway.errors.DeclarationError, match="House has no field 'nam'; did you mean 'name'"):
        simulation.desired(HOUSE, nam=st.just("a"))
