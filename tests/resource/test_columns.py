"""Columns that a type declares: the values that they show, and invalid declarations."""

from __future__ import annotations

import datetime
import enum
from typing import Any

import pytest

import headway
from headway import field
from headway.resource import column_text
from tests.manifest.messages import Every


class Rank(enum.IntEnum):
    JUNIOR = 0
    SENIOR = 1


@headway.message
class Office:
    city: str = field(1)


@headway.message
class Team:
    lead: str = field(1)
    size: int = field(2)
    ratio: float = field(3)
    open: bool = field(4)
    rank: Rank = field(5)
    founded: datetime.datetime | None = field(6)
    grace: datetime.timedelta | None = field(7)
    names: list[str] = field(8)
    office: Office | None = field(9)
    offices: list[Office] = field(10)
    labels: dict[str, str] = field(11)
    photo: bytes = field(12)


def declare(columns: Any) -> headway.ResourceType[Team]:
    return headway.App("staff").type("staff", "v1", "Team", Team, columns=columns)


LISBON = datetime.timezone(datetime.timedelta(hours=1))
TEAM = Team(
    lead="ada",
    size=3,
    ratio=0.5,
    open=True,
    rank=Rank.SENIOR,
    founded=datetime.datetime(2026, 1, 2, 3, 4, 5, 678, LISBON),
    grace=datetime.timedelta(seconds=90),
    names=["ada", "grace"],
    office=Office(city="Lisbon"),
    offices=[Office(), Office()],
    labels={"a": "1"},
)


@pytest.mark.parametrize(
    ("path", "text", "empty"),
    [
        ("lead", "ada", ""),
        ("size", "3", "0"),
        ("ratio", "0.5", "0.0"),
        ("open", "true", "false"),
        ("rank", "SENIOR", "JUNIOR"),
        ("founded", "2026-01-02 02:04:05Z", ""),
        ("grace", "0:01:30", ""),
        ("names", "ada,grace", ""),
        ("office", "set", ""),
        ("office.city", "Lisbon", ""),
        ("offices", "2", ""),
        ("labels", "1", "0"),
    ],
)
def test_column_shows_a_readable_value(path: str, text: str, empty: str) -> None:
    """Times are in UTC, messages and entries are counted, and an unset field is empty."""
    assert declare({"ANY": path}).columns == {"ANY": path}
    assert column_text(TEAM, path) == text
    assert column_text(Team(), path) == empty


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        (["lead"], r" must be a mapping, such as \{'LEAD': 'lead'\}, not \['lead'\]"),
        ({"LEAD": "led"}, "path 'led': Team has no field 'led'; did you mean 'lead'?"),
        ({"CITY": "office.town"}, "path 'office.town': Office has no field 'town'"),
        ({"CITY": "lead.city"}, "path 'lead.city': Team.lead is not a single message"),
        ({"CITY": "offices.city"}, "path 'offices.city': Team.offices is not a single message"),
        ({"DAY": "founded.seconds"}, "path 'founded.seconds': Team.founded is not a single message"),
        ({"PHOTO": "photo"}, "path 'photo': Team.photo holds bytes"),
        ({"": "lead"}, "title '' must be 1 to 40 printable characters"),
        ({"A\nB": "lead"}, "title 'A.*B' must be 1 to 40"),
        ({"x" * 41: "lead"}, "must be 1 to 40 printable characters"),
        ({"NAME": "lead"}, "title 'NAME' is reserved for a column of every table"),
        ({"LEAD": ""}, "path '' must be the name of a field"),
        ({"LEAD": 1}, r"\['LEAD'\] must be a string, as in \{'LEAD': 'lead'\}, not 1"),
    ],
)
def test_invalid_column_fails_the_declaration_of_its_type(columns: Any, error: str) -> None:
    """The error names the type, the column and a valid form."""
    with pytest.raises(headway.errors.DeclarationError, match=f"(?s)(staff.v1.Team|ResourceType..): columns.*{error}"):
        declare(columns)


def test_every_kind_of_field_except_bytes_has_a_column() -> None:
    refused = set()
    for name in Every.__dataclass_fields__:
        try:
            headway.App("fleet").type("fleet", "v1", "Every", Every, columns={"X": name})
        except headway.errors.DeclarationError:
            refused.add(name)
        else:
            assert isinstance(column_text(Every(), name), str)
    assert refused == {"blob", "blobs"}
