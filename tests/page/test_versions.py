"""The search of the page finds what a list has: resources as the version that is searched, by the rights to it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import headway
from headway import field
from headway.access import Rule
from headway.resource import Need
from tests.page.kit import open_shop, rule


@headway.message(name="tests.OldTeam")
class OldTeam:
    office: str = field(1)


@headway.message(name="tests.NewTeam")
class NewTeam:
    office: str = field(1)
    room: str = field(2)


@headway.message(name="tests.Office")
class Office:
    city: str = field(1)


app = headway.App("staff")
OFFICE = app.type("staff", "v1", "Office", Office)
OLD = app.type("staff", "v1", "Team", OldTeam)
NEW = app.type(
    "staff",
    "v2",
    "Team",
    NewTeam,
    hooks=headway.Hooks(needs=lambda verb, team: [Need(verb, OFFICE.id(team.data.office))]),
)
app.converter(OLD, NEW, up=lambda old: NewTeam(office=old.office), down=lambda new: OldTeam(office=new.office))
before = headway.App("staff")
STORED = before.type("staff", "v1", "Team", OldTeam)
WEST = rule("view", type="staff.v1.Office", name_prefix="west")


@pytest.mark.parametrize(
    ("rules", "old", "new"),
    [
        ([rule("view", type="staff.v2.Team"), WEST], None, {"near"}),
        ([rule("view", type="staff.*.Team"), WEST], {"near", "far"}, {"near"}),
        ([rule("view", type="staff.v1.Team")], {"near", "far"}, None),
    ],
)
async def test_search_finds_what_a_list_has(
    rules: Sequence[Rule], old: set[str] | None, new: set[str] | None, tmp_path: Path
) -> None:
    """Content of version 2 asks for rights that version 1 does not ask for. Both are stored as version 1."""
    store = f"sqlite:{tmp_path}/store"
    async with headway.open_engine(store, before) as engine:
        for name, office in (("near", "west-1"), ("far", "east-1")):
            await engine.client.create(STORED.new(name, OldTeam(office=office)))
    async with open_shop(store=store, app=app, rules={"some": rules}) as running, running.visitor("some") as visitor:
        bearing = {"x-consul-token": running.tokens["some"]}
        for version, names in (("v1", old), ("v2", new)):
            listed = await visitor.http.get(f"/api/staff/{version}/team", headers=bearing)
            found = await visitor.http.get(f"/page/search?type=staff.{version}.Team")
            assert listed.status_code == found.status_code == (403 if names is None else 200)
            if names is not None:
                assert {each["id"]["name"] for each in listed.json()["resources"]} == names
                assert {each["name"] for each in found.json()["rows"]} == names
