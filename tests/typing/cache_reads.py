"""Typed reads of a cache. A type checker must find each ignored error."""

from typing import assert_type

import headway
from headway import field
from headway.cache import Index, Projected, Query


@headway.message
class Team:
    """A team."""

    members: list[str] = field(1)


@headway.message
class Size:
    """The projected size of a team."""

    members: int = field(1)


app = headway.App("staff")
TEAM = app.type("staff", "v1", "Team", Team)
SIZE = headway.projection(TEAM, Size, lambda team: Size(members=len(team.data.members)))

BY_NAME = headway.indexes.by(TEAM, "name", lambda team: team.name)
GOLDEN = TEAM.within(metadata="tier=gold")
BY_TIER = headway.indexes.by(GOLDEN, "tier", lambda team: team.metadata["tier"])
BY_SIZE = headway.indexes.by(SIZE, "size", lambda size: size.data.members or None)
BY_MEMBER = headway.indexes.by_many(TEAM, "member", lambda team: team.data.members)
BY_PATH = headway.indexes.by(TEAM, "path", lambda team: (team.id.namespace, team.name))
BY_PEER = headway.indexes.by_reference(TEAM, "peer", lambda team: TEAM.id(team.data.members[0]))


def members(team: headway.Resource[Team]) -> list[str]:
    """Return a list, which is not a valid value of an index."""
    return team.data.members


def name_of(team: headway.Resource[Team]) -> str:
    """Return a string."""
    return team.name


@headway.query(TEAM, BY_MEMBER)
def teams_of(cache: headway.CacheReader, member: str, *, limit: int = 10) -> list[str]:
    """Return the names of a member's teams."""
    return [team.name for team in cache.index(BY_MEMBER, member)][:limit]


assert_type(BY_NAME, Index[headway.Resource[Team], str])
assert_type(GOLDEN, headway.ScopedType[Team])
assert_type(BY_TIER, Index[headway.Resource[Team], str])
assert_type(BY_SIZE, Index[Projected[Size], int])
assert_type(BY_MEMBER, Index[headway.Resource[Team], str])
assert_type(BY_PATH, Index[headway.Resource[Team], tuple[str, str]])
assert_type(BY_PEER, Index[headway.Resource[Team], headway.ResourceId])


@app.controller(manages=TEAM, indexes=[BY_NAME, BY_MEMBER, BY_PATH, BY_PEER], queries=[teams_of])
async def teams(rt: headway.Runtime, request: headway.Request) -> None:
    """Read the cache in every way."""
    assert_type(rt.cache.get(TEAM, request.id), headway.Resource[Team] | None)
    assert_type(rt.cache.get(SIZE, "core"), Projected[Size] | None)
    assert_type(rt.cache.list(GOLDEN), list[headway.Resource[Team]])
    assert_type(await rt.client.list(GOLDEN), list[headway.Resource[Team]])
    assert_type(rt.cache.list(SIZE), list[Projected[Size]])
    assert_type(rt.cache.index(BY_NAME, "core"), list[headway.Resource[Team]])
    assert_type(rt.cache.index(BY_SIZE, 3), list[Projected[Size]])
    assert_type(rt.cache.index(BY_PEER, request.id), list[headway.Resource[Team]])
    assert_type(rt.cache.index_prefix(BY_NAME, "c"), list[headway.Resource[Team]])
    assert_type(rt.cache.index_prefix(BY_PATH, ("default",)), list[headway.Resource[Team]])
    assert_type(rt.cache.index_parents(BY_PATH, ("default", "a", "b")), list[headway.Resource[Team]])
    assert_type(rt.cache.query(teams_of, "ada", limit=3), list[str])
    async with rt.cache.view(TEAM) as view:
        assert_type(view.index(BY_NAME, "core"), list[headway.Resource[Team]])
        assert_type(view.query(teams_of, "ada"), list[str])
    for size in rt.cache.list(SIZE):
        assert_type(size.data.members, int)
        await rt.client.delete(size.id, version=size.version)

    rt.cache.index(BY_NAME, 3)  # type: ignore[misc]
    rt.cache.index(BY_SIZE, "3")  # type: ignore[misc]
    rt.cache.index(BY_PEER, "core")  # type: ignore[misc]
    rt.cache.index(BY_PATH, ("default",))  # type: ignore[misc]
    rt.cache.index_prefix(BY_SIZE, 3)  # type: ignore[call-overload]
    rt.cache.index_prefix(BY_NAME, ("c",))  # type: ignore[type-var]
    rt.cache.index_parents(BY_PATH, "default/a")  # type: ignore[arg-type]
    rt.cache.query(teams_of, 3)  # type: ignore[arg-type]
    rt.cache.query(teams_of)  # type: ignore[call-arg]
    rt.cache.query(teams_of, "ada", limit="3")  # type: ignore[arg-type]

    for size in rt.cache.list(SIZE):
        await rt.client.write(size)  # type: ignore[arg-type]
        await rt.client.apply(size)  # type: ignore[arg-type]
        await rt.client.delete(size)  # type: ignore[arg-type]
        await rt.client.write_status(size, "teams", [])  # type: ignore[arg-type]
        size.version = "7"  # type: ignore[misc]
    await rt.client.read(SIZE, "core")  # type: ignore[arg-type]
    SIZE.new("core", Size())  # type: ignore[attr-defined]


headway.indexes.by(TEAM, "members", members)  # type: ignore[arg-type]
headway.indexes.by_many(TEAM, "size", lambda team: len(team.data.members))  # type: ignore[arg-type, return-value]
headway.indexes.by(SIZE, "name", lambda size: size.data.name)  # type: ignore[attr-defined]
headway.projection(TEAM, Size, lambda team: team.data)  # type: ignore[arg-type, return-value]
headway.mappers.index(BY_NAME)  # type: ignore[arg-type]
headway.mappers.index(BY_SIZE, value=name_of)  # type: ignore[arg-type]
headway.mappers.index_prefix(BY_SIZE, name_of)  # type: ignore[arg-type]
headway.mappers.index_parents(BY_NAME, members)  # type: ignore[arg-type]
headway.mappers.index_parents(BY_PATH, name_of)  # type: ignore[arg-type]
headway.watch(TEAM, headway.mappers.index_parents(BY_PATH, lambda team: (team.name,)))
headway.watch(TEAM, headway.mappers.index_prefix(BY_NAME, lambda team: team.name or None))
headway.watch(TEAM, headway.mappers.reference(lambda team: team.data.members[0]))
headway.watch(TEAM, headway.mappers.references(lambda team: team.data.members))
headway.watch(TEAM, headway.mappers.index(BY_NAME, value=lambda team: team.name))
headway.watch(TEAM, headway.mappers.change(lambda old, new, _: [new.id] if new is not None and old is None else []))
headway.watch(TEAM, headway.mappers.only_if(lambda team: bool(team.data.members), headway.mappers.owner()))
headway.watch(
    TEAM, headway.mappers.union(headway.mappers.owner(), headway.mappers.reference(lambda team: team.data.members[0]))
)
headway.watch(SIZE, headway.mappers.reference(lambda size: str(size.data.members)))
Query[[str], int]
