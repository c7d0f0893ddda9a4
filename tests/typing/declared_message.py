"""Typed uses of declared messages. A type checker must find each ignored error."""

from typing import assert_type

import betterproto2

from headway._gen.headway.resource.v1 import Resource
from headway.protobuf import copy_message, decode, encode, equal, field, message


@message
class Person:
    """A person."""

    login: str = field(1)


@message(name="acme.v1.Team")
class Team:
    """A team."""

    members: list[str] = field(1)
    limits: dict[str, int] = field(2, kind="uint64")
    owner: Person | None = field(3)

    def first(self) -> str:
        """Return the first member."""
        return self.members[0]


@message
class Explicit(betterproto2.Message):
    """A message that inherits from `betterproto2.Message`, so that type checkers know its methods."""

    name: str = field(1)


team = Team(members=["ada"], owner=Person())
Team()
assert_type(team, Team)
assert_type(team.members, list[str])
assert_type(team.limits, dict[str, int])
assert_type(team.owner, Person | None)
assert_type(team.first(), str)
assert_type(encode(team), bytes)
assert_type(decode(Team, b""), Team)
assert_type(copy_message(team), Team)
assert_type(equal(team, None), bool)
assert_type(decode(Resource, encode(Resource())), Resource)

assert_type(Explicit.parse(bytes(Explicit(name="a"))), Explicit)
assert_type(Explicit().name, str)

Team(members="ada")  # type: ignore[arg-type]
Team(member=["ada"])  # type: ignore[call-arg]
Team(["ada"])  # type: ignore[call-arg]
encode("ada")  # type: ignore[arg-type]
decode(str, b"")  # type: ignore[type-var]
field(1, kind="int128")  # type: ignore[arg-type]
field(1, default="x")  # type: ignore[arg-type]
