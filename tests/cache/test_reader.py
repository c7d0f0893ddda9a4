"""The cache reader: its answers, its refusals, and the isolation of the cache from its users (C9)."""

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
    informer = Informer(type, ignore)
    informer.feed(chunk(*resources))
    informer.feed(end(30))
    return informer.subscribe(indexes, _ignore_failure)


def _ignore_failure(name: str, key: Key, error: BaseException) -> None:
    """Ignore the failure, which these tests don't check."""


def reader_of(subscription: Subscription, type: ResourceType[Any] = TEAM) -> Cache:
    reader = Cache("teams", type, [], [teams_of])
    reader.open({type.name: subscription})
    return reader


def team(name: str, *members: str, **more: Any) -> pb.Resource:
    return stored(name, 1, data=Team(members=list(members)), **more)


def names(found: list[Resource[Any]]) -> list[str]:
    return [each.name for each in found]


def rich(name: str, version: int) -> pb.Resource:
    """Return a resource with a value in every field that user code could mutate."""
    return stored(
        name,
        version,
        data=Team(members=["ada"]),
        metadata={"colour": "red"},
        status={"ready": pb.Status(conditions=[Condition(type="Ready")])},
    )


# --- refusals ----------------------------------------------------------------


def test_undeclared_type_raises_not_watched() -> None:
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


def test_undeclared_index_raises_not_watched() -> None:
    """Another index of the same name is refused as well, because its answer would differ."""
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


def test_cache_raises_not_primed_before_and_after_its_run() -> None:
    """The cache never gives an empty answer by accident (C1)."""
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


def test_type_is_read_only_in_the_form_that_is_cached() -> None:
    """A cache with a projection refuses the whole type, and vice versa."""
    names_only = projection(TEAM, Team, lambda _: Team())
    whole = reader_of(subscribed(stored("ada", 1)))
    with pytest.raises(NotWatched, match=r"caches <ResourceType staff.v1.Team>, not <Projection staff.v1.Team as"):
        whole.get(names_only, "ada")
    informer = Informer(names_only, ignore)
    informer.feed(end(30))
    part = Cache("teams", names_only, [])
    part.open({TEAM.name: informer.subscribe([], _ignore_failure)})
    with pytest.raises(NotWatched, match=r"caches <Projection staff.v1.Team as Team>"):
        part.list(TEAM)
    assert part.list(names_only) == []


def test_id_of_another_type_is_refused() -> None:
    """Otherwise, the id would find a resource that has the same name by chance."""
    reader = reader_of(subscribed(stored("ada", 1)))
    with pytest.raises(InvalidArgument, match="Account"):
        reader.get(TEAM, ACCOUNT.id("ada"))


@pytest.mark.parametrize("given", [None, 3, TEAM.new("ada")])
def test_id_of_another_class_is_refused(given: Any) -> None:
    """The error names the argument and its valid forms."""
    reader = reader_of(subscribed(stored("ada", 1)))
    with pytest.raises(InvalidArgument, match=r"id must be a name or an id, such as 'core' or resource.id, not "):
        reader.get(TEAM, given)
    if not isinstance(given, Resource):
        with pytest.raises(InvalidArgument, match=f"owner must be a resource, or its id with its uid, not {given}"):
            reader.owned(TEAM, given)


@pytest.mark.parametrize("read", [CacheReader.index, CacheReader.index_prefix, CacheReader.index_parents])
def test_index_whose_function_raised_raises_index_incomplete(read: Callable[..., object]) -> None:
    """Otherwise, the answer might lack the resource."""
    raising = indexes.by(TEAM, "colour", lambda team: team.metadata["colour"])
    reader = reader_of(subscribed(stored("ada", 1), rich("grace", 2), indexes=(raising,)))
    with pytest.raises(IndexIncomplete, match=r"'colour' on staff.v1.Team lacks 1 resources .*/ada"):
        read(reader, raising, "red")
    assert reader.get(TEAM, "grace") is not None


def test_impossible_index_value_is_refused() -> None:
    """The index can't have such a value, so the argument is most likely a mistake."""
    with pytest.raises(InvalidArgument, match=r"<Index name on staff.v1.Team> cannot be read with \['ada'\]"):
        reader_of(subscribed(indexes=(NAME,))).index(NAME, ["ada"])  # type: ignore[misc]  # what is tested


@pytest.mark.parametrize("read", [CacheReader.index_prefix, CacheReader.index_parents])
@pytest.mark.parametrize("given", [7, None, ["a"], ("a", 7)])
def test_prefix_that_is_not_a_text_or_tuple_is_refused(read: Callable[..., object], given: object) -> None:
    with pytest.raises(InvalidArgument, match="a prefix that is a text or a tuple of texts"):
        read(reader_of(subscribed(indexes=(NAME,))), NAME, given)


# --- answers -----------------------------------------------------------------


def test_resource_is_found_by_name_and_by_id() -> None:
    """An id with a uid finds that incarnation only."""
    reader = reader_of(subscribed(stored("ada", 1, uid="ada2")))
    found = reader.get(TEAM, "ada")
    assert found is not None
    assert found.uid == "ada2"
    assert reader.get(TEAM, TEAM.id("ada")) == found
    assert reader.get(TEAM, TEAM.id("ada", uid="ada2")) == found
    assert reader.get(TEAM, TEAM.id("ada", uid="ada1")) is None
    assert reader.get(TEAM, "grace") is None
    assert reader.get(TEAM, "ada", namespace="elsewhere") is None


def test_resource_is_found_by_the_id_of_another_type_version() -> None:
    """All versions of a kind share their names."""
    newer: ResourceType[Team] = ResourceType("staff", "v2", "Team", Team)
    reader = reader_of(subscribed(stored("ada", 1)))
    assert reader.get(TEAM, newer.id("ada")) == reader.get(TEAM, "ada")
    with pytest.raises(InvalidArgument, match="is not a staff"):
        reader.get(TEAM, ACCOUNT.id("ada"))


def test_list_is_sorted_and_can_be_filtered() -> None:
    """The filters are partition, namespace and name prefix."""
    elsewhere = TEAM.new("ada", namespace="apart").message()
    elsewhere.version = "3"
    reader = reader_of(subscribed(stored("grace", 1), stored("ada", 2), elsewhere))
    assert [team.name for team in reader.list(TEAM, namespace="default")] == ["ada", "grace"]
    assert [team.id.namespace for team in reader.list(TEAM, name_prefix="a")] == ["apart", "default"]
    assert reader.list(TEAM, partition="none") == []


@pytest.mark.parametrize("scope", [Scope.CLUSTER, Scope.PARTITION, Scope.NAMESPACE])
def test_list_by_prefix_works_in_every_scope(scope: Scope) -> None:
    """Tenancy units that a scope doesn't have filter nothing."""
    type: ResourceType[Team] = ResourceType("staff", "v1", "Crew", Team, scope=scope)
    there = [stored(name, 1, type=type) for name in ("web-1", "db-1", "web-2")]
    reader = reader_of(subscribed(*there, type=type), type)
    assert names(reader.list(type, name_prefix="web-")) == ["web-1", "web-2"]
    assert names(reader.list(type, name_prefix="x")) == []
    assert len(reader.list(type)) == 3


def test_index_lookup_by_value_is_sorted_by_key() -> None:
    reader = reader_of(subscribed(team("b", "x", "xy"), team("a", "x"), indexes=(MEMBERS,)))
    assert names(reader.index(MEMBERS, "x")) == ["a", "b"]
    assert names(reader.index(MEMBERS, "nobody")) == []


def test_index_lookup_by_prefix_is_sorted_by_value() -> None:
    """Resources with the same value are sorted by key.

    A resource with several matching values comes once, at the first.
    """
    teams = [team("c", "ab"), team("a", "b", "ac"), team("b", "aa", "ad"), team("d", "ab"), team("e", "c")]
    reader = reader_of(subscribed(*teams, indexes=(MEMBERS,)))
    assert names(reader.index_prefix(MEMBERS, "a")) == ["b", "c", "d", "a"]
    assert names(reader.index_prefix(MEMBERS, "")) == ["b", "c", "d", "a", "e"]
    assert names(reader.index_prefix(MEMBERS, "x")) == []


def test_index_parents_come_shortest_first() -> None:
    """Parents are the resources whose value is a prefix of the argument.

    The empty prefix and the argument itself count.
    """
    teams = [team("c", "ab"), team("a", "abc"), team("b", ""), team("d", "abcd"), team("e", "b"), team("f", "ab")]
    reader = reader_of(subscribed(*teams, indexes=(MEMBERS,)))
    assert names(reader.index_parents(MEMBERS, "abc")) == ["b", "c", "f", "a"]
    assert names(reader.index_parents(MEMBERS, "")) == ["b"]


def test_path_prefixes_match_whole_parts() -> None:
    """This holds for prefixes and for parents."""
    teams = [team("c", "root", "x"), team("a", "root"), team("b", "root", "xy"), team("d")]
    reader = reader_of(subscribed(*teams, indexes=(MEMBERS_PATH,)))
    assert names(reader.index_prefix(MEMBERS_PATH, ("root", "x"))) == ["c"]
    assert names(reader.index_prefix(MEMBERS_PATH, ("root",))) == ["a", "c", "b"]
    assert names(reader.index_parents(MEMBERS_PATH, ("root", "xy", "z"))) == ["d", "a", "b"]


def test_query_runs_on_the_cache_with_its_arguments() -> None:
    """An undeclared query is refused."""
    reader = reader_of(subscribed(team("b", "x"), team("a", "x"), indexes=(MEMBERS,)))
    assert reader.query(teams_of, "x") == ["a", "b"]
    assert reader.query(teams_of, member="x", besides="a") == ["b"]
    undeclared = query(TEAM)(lambda cache: cache.list(TEAM))
    with pytest.raises(NotWatched, match="doesn't declare <Query <lambda>>: add it to `queries`"):
        reader.query(undeclared)


@pytest.mark.parametrize("needs", [("TEAM",), (teams_of,), (None,)])
def test_query_checks_its_required_types_and_indexes(needs: Any) -> None:
    with pytest.raises(DeclarationError, match=r"needs\[0\] must be a type from .* or an index from"):
        query(*needs)
    with pytest.raises(DeclarationError, match="must be a function, not None"):
        query(TEAM)(None)  # type: ignore[arg-type]  # what is tested


def test_owned_resources_are_found_without_a_declared_index() -> None:
    """The lookup is by uid, in every watched type. An owner without a uid was never stored, and is refused."""
    boss = ACCOUNT.view(stored("boss", 1, type=ACCOUNT, uid="boss7"))
    there = [team("b", owner=boss.id), team("a", owner=boss.id), team("c", owner=ACCOUNT.id("boss", uid="boss6"))]
    reader = reader_of(subscribed(*there, indexes=(indexes.by_owner(TEAM, name="headway.owner"),)))
    assert names(reader.owned(TEAM, boss)) == names(reader.owned(TEAM, boss.id)) == ["a", "b"]
    with pytest.raises(InvalidArgument, match="has no uid"):
        reader.owned(TEAM, ACCOUNT.id("boss"))
    with pytest.raises(NotWatched, match=r"doesn't watch staff.v1.Team"):
        reader_of(subscribed(*there)).owned(TEAM, boss)


# --- waiting until primed ----------------------------------------------------


async def test_wait_primed_returns_once_the_run_is_primed(nursery: trio.Nursery) -> None:
    """Later calls return at once."""
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


async def test_wait_primed_raises_if_priming_cannot_happen(nursery: trio.Nursery) -> None:
    """The call raises in an initialiser, which would wait for itself, and in a run that ended before it was primed."""
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


def test_revision_is_the_frontier() -> None:
    """The cache of the type is complete up to that revision."""
    assert reader_of(subscribed()).revision(TEAM) == 30


# --- isolation (C9) ----------------------------------------------------------


@pytest.mark.parametrize("how", ["get", "list", "index", "index_prefix", "index_parents"])
def test_returned_resource_may_be_mutated(how: str) -> None:
    """The metadata, status and data belong to the reader. The cache and other readers stay unchanged."""
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

    before = copy.deepcopy(subscription.store.entries)
    mine = read()
    mine.metadata["colour"] = "blue"
    mine.metadata["more"] = "text"
    mine.status["ready"].conditions[0].type = "Broken"
    mine.status["ready"].conditions.append(Condition(type="Another"))
    mine.data.members.append("grace")
    mine.finalizers = ["mine"]
    message = mine.message()
    assert message.id is not None
    message.id.name = "other"
    assert subscription.store.entries == before
    theirs = read()
    assert theirs.data == Team(members=["ada"])
    assert theirs.metadata == {"colour": "red"}
    assert list(theirs.status) == ["ready"]
