"""The read face: what it answers, what it refuses, and that nobody can change the cache by it (C9)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from headway import indexes
from headway.cache import Cache, CacheReader, Index, Informer, Subscription, projection, query
from headway.errors import DeclarationError, IndexIncomplete, InvalidArgument, NotPrimed, NotWatched
from headway.events import ignore
from headway.resource import Condition, Key, Resource, ResourceType, Scope, pb
from tests.helpers.resources import ACCOUNT, TEAM, Team, chunk, end, stored

COLOUR = indexes.by(TEAM, "colour", lambda team: team.metadata.get("colour"))
NAME = indexes.by(TEAM, "name", lambda team: team.name)
MEMBERS = indexes.by_many(TEAM, "members", lambda team: team.data.members)
MEMBERS_PATH = indexes.by(TEAM, "path", lambda team: tuple(team.data.members))


@query(TEAM, MEMBERS)
def teams_of(cache: CacheReader, member: str, *, besides: str = "") -> list[str]:
    return [team.name for team in cache.index(MEMBERS, member) if team.name != besides]


def subscribed(
    *resources: pb.Resource, indexes: tuple[Index[Any, Any], ...] = (), type: ResourceType[Any] = TEAM
) -> Subscription:
    shared = Informer(type, ignore)
    shared.feed(chunk(*resources))
    shared.feed(end(30))
    return shared.subscribe(indexes, _ignore_failure)


def _ignore_failure(name: str, key: Key, error: BaseException) -> None:
    """Nobody has to hear of it here."""


def reader_of(subscription: Subscription, type: ResourceType[Any] = TEAM) -> Cache:
    reader = Cache("teams", type, [], [teams_of])
    reader.open({type.name: subscription})
    return reader


def team(name: str, *members: str, **more: Any) -> pb.Resource:
    return stored(name, 1, data=Team(members=list(members)), **more)


def names(found: list[Resource[Any]]) -> list[str]:
    return [each.name for each in found]


def rich(name: str, version: int) -> pb.Resource:
    """A resource with something of everything that user code could change."""
    return stored(
        name,
        version,
        data=Team(members=["ada"]),
        metadata={"colour": "red"},
        status={"ready": pb.Status(conditions=[Condition(type="Ready")])},
    )


# --- refusals ----------------------------------------------------------------


def test_a_type_that_isnt_declared_is_not_watched() -> None:
    """The error names the controller and the type."""
    reader = reader_of(subscribed())
    with pytest.raises(NotWatched, match=r"teams.*staff\.v1\.Account"):
        reader.get(ACCOUNT, "ada")
    with pytest.raises(NotWatched):
        reader.list(ACCOUNT)
    with pytest.raises(NotWatched):
        reader.revision(ACCOUNT)
    with pytest.raises(InvalidArgument, match=r"read by a type, as .*, not 'Team'"):
        reader.list("Team")  # type: ignore[arg-type]  # what is tested


def test_an_index_that_isnt_declared_is_not_watched() -> None:
    """Nor is another one of the same name: what it would answer isn't what was asked for."""
    reader = reader_of(subscribed(indexes=(indexes.by(TEAM, "colour", lambda team: team.name),)))
    with pytest.raises(NotWatched, match=r"doesn't declare <Index name on staff.v1.Team>: use"):
        reader.index(NAME, "red")
    with pytest.raises(
        NotWatched, match=r"doesn't declare <Index colour on staff.v1.Team>, but another one of that name"
    ):
        reader.index_prefix(COLOUR, "")
    with pytest.raises(NotWatched):
        reader.index_parents(COLOUR, "")
    with pytest.raises(InvalidArgument, match=r"needs what headway.indexes.by\(...\) returned, not 'colour'"):
        reader.index("colour", "red")  # type: ignore[arg-type]  # what is tested


def test_a_cache_is_not_primed_before_its_run_opens_it_and_after_it_has_ended() -> None:
    """Never an empty answer by accident (C1)."""
    reader = Cache("teams", TEAM, [ACCOUNT], [teams_of])
    for when in ("is not primed yet", "its run has ended"):
        assert not reader.primed
        for read in (
            lambda: reader.get(TEAM, "ada"),
            lambda: reader.list(ACCOUNT),
            lambda: reader.index(COLOUR, "red"),
            lambda: reader.query(teams_of, "ada"),
            lambda: reader.revision(TEAM),
        ):
            with pytest.raises(NotPrimed, match=f"the cache of teams .*{when}"):
                read()
        reader.open({TEAM.name: subscribed()})
        assert reader.primed
        assert reader.list(TEAM) == []
        reader.close()


def test_a_type_is_read_in_the_form_in_which_it_is_held() -> None:
    """The whole type isn't in a cache that has a projection of it, nor the other way round."""
    names_only = projection(TEAM, Team, lambda _: Team())
    whole = reader_of(subscribed(stored("ada", 1)))
    with pytest.raises(NotWatched, match=r"caches <ResourceType staff.v1.Team>, not <Projection staff.v1.Team as"):
        whole.get(names_only, "ada")
    shared = Informer(names_only, ignore)
    shared.feed(end(30))
    part = Cache("teams", names_only, [])
    part.open({TEAM.name: shared.subscribe([], _ignore_failure)})
    with pytest.raises(NotWatched, match=r"caches <Projection staff.v1.Team as Team>"):
        part.list(TEAM)
    assert part.list(names_only) == []


def test_an_id_of_another_type_is_refused() -> None:
    """It would find a resource that merely has the same name."""
    reader = reader_of(subscribed(stored("ada", 1)))
    with pytest.raises(InvalidArgument, match="Account"):
        reader.get(TEAM, ACCOUNT.id("ada"))


@pytest.mark.parametrize("read", [CacheReader.index, CacheReader.index_prefix, CacheReader.index_parents])
def test_an_index_whose_function_raised_says_that_it_is_incomplete(read: Callable[..., object]) -> None:
    """The answer might lack the resource, so there is none."""
    raising = indexes.by(TEAM, "colour", lambda team: team.metadata["colour"])
    reader = reader_of(subscribed(stored("ada", 1), rich("grace", 2), indexes=(raising,)))
    with pytest.raises(IndexIncomplete, match=r"'colour' on staff.v1.Team lacks 1 resources .*/ada"):
        read(reader, raising, "red")
    assert reader.get(TEAM, "grace") is not None


def test_what_no_value_can_be_is_refused() -> None:
    """It isn't in the index for certain, and most likely meant otherwise."""
    with pytest.raises(InvalidArgument, match=r"<Index name on staff.v1.Team> cannot be read with \['ada'\]"):
        reader_of(subscribed(indexes=(NAME,))).index(NAME, ["ada"])  # type: ignore[misc]  # what is tested


@pytest.mark.parametrize("read", [CacheReader.index_prefix, CacheReader.index_parents])
@pytest.mark.parametrize("given", [7, None, ["a"], ("a", 7)])
def test_what_has_no_beginning_is_refused(read: Callable[..., object], given: object) -> None:
    """Prefixes are texts, or tuples of texts."""
    with pytest.raises(InvalidArgument, match="a prefix that is a text or a tuple of texts"):
        read(reader_of(subscribed(indexes=(NAME,))), NAME, given)


# --- answers -----------------------------------------------------------------


def test_a_resource_is_found_by_name_and_by_id() -> None:
    """With a uid only that incarnation is."""
    reader = reader_of(subscribed(stored("ada", 1, uid="ada2")))
    found = reader.get(TEAM, "ada")
    assert found is not None
    assert found.uid == "ada2"
    assert reader.get(TEAM, TEAM.id("ada")) == found
    assert reader.get(TEAM, TEAM.id("ada", uid="ada2")) == found
    assert reader.get(TEAM, TEAM.id("ada", uid="ada1")) is None
    assert reader.get(TEAM, "grace") is None
    assert reader.get(TEAM, "ada", namespace="elsewhere") is None


def test_a_resource_is_found_by_the_id_of_another_version_of_its_type() -> None:
    """All versions of a kind share their names."""
    newer: ResourceType[Team] = ResourceType("staff", "v2", "Team", Team)
    reader = reader_of(subscribed(stored("ada", 1)))
    assert reader.get(TEAM, newer.id("ada")) == reader.get(TEAM, "ada")
    with pytest.raises(InvalidArgument, match="is not a staff"):
        reader.get(TEAM, ACCOUNT.id("ada"))


def test_a_list_is_in_order_and_can_be_narrowed() -> None:
    """By partition, namespace and the beginning of the name."""
    elsewhere = TEAM.new("ada", namespace="apart").message()
    elsewhere.version = "3"
    reader = reader_of(subscribed(stored("grace", 1), stored("ada", 2), elsewhere))
    assert [team.name for team in reader.list(TEAM, namespace="default")] == ["ada", "grace"]
    assert [team.id.namespace for team in reader.list(TEAM, name_prefix="a")] == ["apart", "default"]
    assert reader.list(TEAM, partition="none") == []


@pytest.mark.parametrize("scope", [Scope.CLUSTER, Scope.PARTITION, Scope.NAMESPACE])
def test_a_list_by_prefix_is_for_every_scope(scope: Scope) -> None:
    """Units that a scope doesn't have stand in nobody's way."""
    type: ResourceType[Team] = ResourceType("staff", "v1", "Crew", Team, scope=scope)
    there = [stored(name, 1, type=type) for name in ("web-1", "db-1", "web-2")]
    reader = reader_of(subscribed(*there, type=type), type)
    assert names(reader.list(type, name_prefix="web-")) == ["web-1", "web-2"]
    assert names(reader.list(type, name_prefix="x")) == []
    assert len(reader.list(type)) == 3


def test_an_index_is_asked_by_value() -> None:
    """In order of key."""
    reader = reader_of(subscribed(team("b", "x", "xy"), team("a", "x"), indexes=(MEMBERS,)))
    assert names(reader.index(MEMBERS, "x")) == ["a", "b"]
    assert names(reader.index(MEMBERS, "nobody")) == []


def test_an_index_is_asked_by_prefix_in_order_of_the_values() -> None:
    """Then of the keys; a resource that has several such values comes once, at its first."""
    teams = [team("c", "ab"), team("a", "b", "ac"), team("b", "aa", "ad"), team("d", "ab"), team("e", "c")]
    reader = reader_of(subscribed(*teams, indexes=(MEMBERS,)))
    assert names(reader.index_prefix(MEMBERS, "a")) == ["b", "c", "d", "a"]
    assert names(reader.index_prefix(MEMBERS, "")) == ["b", "c", "d", "a", "e"]
    assert names(reader.index_prefix(MEMBERS, "x")) == []


def test_an_index_is_asked_for_parents_the_shortest_first() -> None:
    """Those whose value is a beginning of what is asked for, the empty one and the whole included."""
    teams = [team("c", "ab"), team("a", "abc"), team("b", ""), team("d", "abcd"), team("e", "b"), team("f", "ab")]
    reader = reader_of(subscribed(*teams, indexes=(MEMBERS,)))
    assert names(reader.index_parents(MEMBERS, "abc")) == ["b", "c", "f", "a"]
    assert names(reader.index_parents(MEMBERS, "")) == ["b"]


def test_paths_begin_by_whole_parts() -> None:
    """For prefixes and for parents."""
    teams = [team("c", "root", "x"), team("a", "root"), team("b", "root", "xy"), team("d")]
    reader = reader_of(subscribed(*teams, indexes=(MEMBERS_PATH,)))
    assert names(reader.index_prefix(MEMBERS_PATH, ("root", "x"))) == ["c"]
    assert names(reader.index_prefix(MEMBERS_PATH, ("root",))) == ["a", "c", "b"]
    assert names(reader.index_parents(MEMBERS_PATH, ("root", "xy", "z"))) == ["d", "a", "b"]


def test_a_query_is_asked_with_its_arguments() -> None:
    """It reads the cache that it is asked of; one that isn't declared is refused."""
    reader = reader_of(subscribed(team("b", "x"), team("a", "x"), indexes=(MEMBERS,)))
    assert reader.query(teams_of, "x") == ["a", "b"]
    assert reader.query(teams_of, member="x", besides="a") == ["b"]
    undeclared = query(TEAM)(lambda cache: cache.list(TEAM))
    with pytest.raises(NotWatched, match="doesn't declare <Query <lambda>>: add it to `queries`"):
        reader.query(undeclared)


@pytest.mark.parametrize("needs", [("TEAM",), (teams_of,), (None,)])
def test_a_query_needs_types_and_indexes(needs: Any) -> None:
    """Such as those that controllers have."""
    with pytest.raises(DeclarationError, match="needs types and indexes"):
        query(*needs)
    with pytest.raises(DeclarationError, match="must be a function, not None"):
        query(TEAM)(None)  # type: ignore[arg-type]  # what is tested


def test_what_an_incarnation_owns_is_found_without_an_index_of_ones_own() -> None:
    """By its uid, for every watched type; an owner that was never stored owns nothing that could be told."""
    boss = ACCOUNT.view(stored("boss", 1, type=ACCOUNT, uid="boss7"))
    there = [team("b", owner=boss.id), team("a", owner=boss.id), team("c", owner=ACCOUNT.id("boss", uid="boss6"))]
    reader = reader_of(subscribed(*there, indexes=(indexes.by_owner(TEAM, name="headway.owner"),)))
    assert names(reader.owned(TEAM, boss)) == names(reader.owned(TEAM, boss.id)) == ["a", "b"]
    with pytest.raises(InvalidArgument, match="has no uid"):
        reader.owned(TEAM, ACCOUNT.id("boss"))
    with pytest.raises(NotWatched, match=r"doesn't watch staff.v1.Team"):
        reader_of(subscribed(*there)).owned(TEAM, boss)


# --- waiting until primed ----------------------------------------------------


async def test_who_waits_is_let_through_when_the_run_is_primed(nursery: trio.Nursery) -> None:
    """And afterwards at once."""
    reader = Cache("teams", TEAM, [])
    reader.begin_priming()
    seen: list[list[Resource[Team]]] = []

    async def read() -> None:
        await reader.wait_primed()
        seen.append(reader.list(TEAM))

    nursery.start_soon(read)
    await trio.testing.wait_all_tasks_blocked()
    assert seen == []
    reader.open({TEAM.name: subscribed()})
    await trio.testing.wait_all_tasks_blocked()
    assert seen == [[]]
    with trio.fail_after(30):
        await reader.wait_primed()


async def test_nobody_waits_for_what_wont_come(nursery: trio.Nursery) -> None:
    """In an initialiser, which would wait for itself, and when the run has ended before it was primed."""
    reader = Cache("teams", TEAM, [])
    with (
        pytest.raises(NotPrimed, match=r"an initialiser runs before it is primed, and reads with rt.client"),
        trio.fail_after(30),
    ):
        await reader.wait_primed()
    reader.begin_priming()
    told: list[str] = []

    async def wait() -> None:
        with pytest.raises(NotPrimed, match="its run has ended"):
            await reader.wait_primed()
        told.append("ended")

    nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    reader.close()
    await trio.testing.wait_all_tasks_blocked()
    assert told == ["ended"]


# --- the revision ------------------------------------------------------------


def test_the_revision_is_the_frontier() -> None:
    """Up to there the cache of the type is complete."""
    assert reader_of(subscribed()).revision(TEAM) == 30


# --- isolation (C9) ----------------------------------------------------------


@pytest.mark.parametrize("how", ["get", "list", "index", "index_prefix", "index_parents"])
def test_what_is_returned_may_be_changed_freely(how: str) -> None:
    """Metadata, status and data are the reader's own; the cache, and the next reader, see nothing of it."""
    subscription = subscribed(rich("ada", 1), indexes=(NAME,))
    reader = reader_of(subscription)

    def read() -> Resource[Team]:
        if how == "get":
            found = reader.get(TEAM, "ada")
            assert found is not None
            return found
        if how == "list":
            return reader.list(TEAM)[0]
        found_by: Callable[..., list[Resource[Team]]] = getattr(reader, how)
        return found_by(NAME, "ada")[0]

    before = copy.deepcopy(subscription.gate.entries)
    mine = read()
    mine.metadata["colour"] = "blue"
    mine.metadata["more"] = "text"
    mine.status["ready"].conditions[0].type = "Broken"
    mine.status["ready"].conditions.append(Condition(type="Another"))
    mine.status["new"] = pb.Status()
    mine.data.members.append("grace")
    mine.finalizers = ["mine"]
    message = mine.message()
    assert message.id is not None
    message.id.name = "other"
    assert subscription.gate.entries == before
    theirs = read()
    assert theirs.data == Team(members=["ada"])
    assert theirs.metadata == {"colour": "red"}
    assert list(theirs.status) == ["ready"]
