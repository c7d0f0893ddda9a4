"""The work that an index saves: decodings of a payload, and lookups of prefixes that no value can have."""

from __future__ import annotations

from headway import indexes
from headway.cache import Applied, IndexTable
from headway.resource import Key, Resource, pb
from tests.helpers.resources import TEAM, Team, key, stored, with_status

ADA, BOB = key("ada"), key("bob")


class Path(str):
    """A text that notes the lengths of its prefixes that are taken."""

    __slots__ = ("lengths",)

    def __init__(self, _: str) -> None:
        self.lengths: list[int] = []

    def __getitem__(self, part: object) -> str:
        assert isinstance(part, slice)
        self.lengths.append(part.stop)
        return super().__getitem__(part)


def tried(table: IndexTable, value: str) -> tuple[list[int], list[set[Key]]]:
    """Return the lengths of the prefixes that a lookup of parents tries, and what it finds."""
    path = Path(value)
    found = [set(keys) for keys in table.parents(path)]
    return path.lengths, found


def painted(name: str, version: int, colors: str) -> pb.Resource:
    return stored(name, version, metadata={"colors": colors})


def test_lookup_of_parents_tries_only_the_lengths_of_existing_values() -> None:
    """Otherwise each lookup would pay for every length that any value has ever had."""
    table = IndexTable(indexes.by_many(TEAM, "colors", lambda team: team.metadata["colors"].split()), lambda *_: None)
    table.build({ADA: painted("ada", 1, "re")})
    assert tried(table, "redder") == ([2], [{ADA}])
    table.apply([Applied(BOB, None, painted("bob", 2, "ye r redd"), 2)])
    assert tried(table, "redder") == ([1, 2, 4], [{BOB}, {ADA}, {BOB}])
    assert tried(table, "yellow") == ([1, 2, 4], [{BOB}])
    table.apply([Applied(BOB, painted("bob", 2, "ye r redd"), None, 3)])
    assert tried(table, "redder") == ([2], [{ADA}])
    table.apply([Applied(ADA, painted("ada", 1, "re"), None, 4)])
    assert tried(table, "redder") == ([], [])


def test_changed_status_decodes_no_payload_again() -> None:
    """The function is called for the old and for the new state. Both have the payload of the first call."""
    decoded: list[Team] = []

    def states(team: Resource[Team]) -> str:
        decoded.append(team.data)
        return ",".join(team.status)

    table = IndexTable(indexes.by(TEAM, "states", states), lambda *_: None)
    before = stored("ada", 1, data=Team(members=["one"]))
    table.build({ADA: before})
    for version in (2, 3):
        after = with_status(before, version)
        table.apply([Applied(ADA, before, after, version)])
        before = after
    assert set(table.values()) == {"test"}
    assert len(decoded) == 5
    assert {id(each) for each in decoded} == {id(decoded[0])}
    changed = stored("ada", 4, data=Team(members=["two"]))
    table.apply([Applied(ADA, before, changed, 4)])
    assert decoded[-1] == Team(members=["two"])
