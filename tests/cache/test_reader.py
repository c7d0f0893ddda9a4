"""The read face: what it answers, what it refuses, and that nobody can change the cache by it (C9)."""

from __future__ import annotations

import copy

import pytest

from headway.cache import CacheReader, Index, SharedType, Subscription, index, index_many
from headway.errors import IndexIncomplete, InvalidArgument, NotPrimed, NotWatched
from headway.events import ignore
from headway.resource import Condition, Key, Resource, pb
from tests.helpers.resources import ACCOUNT, TEAM, Team, chunk, end, stored


def subscribed(*resources: pb.Resource, indexes: tuple[Index[Team], ...] = ()) -> Subscription:
    shared = SharedType(TEAM, ignore)
    shared.feed(chunk(*resources))
    shared.feed(end(30))
    return shared.subscribe(indexes, _ignore_failure)


def _ignore_failure(name: str, key: Key, error: Exception) -> None:
    """Nobody has to hear of it here."""


def reader_of(subscription: Subscription) -> CacheReader:
    reader = CacheReader("teams", TEAM, [])
    reader.open({TEAM.name: subscription})
    return reader


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


def test_an_index_that_isnt_declared_is_not_watched() -> None:
    """Whatever asks for it; a near miss is offered."""
    reader = reader_of(subscribed(indexes=(index("colour", lambda team: team.metadata.get("colour")),)))
    with pytest.raises(NotWatched, match="colour"):
        reader.index(TEAM, "color", "red")
    with pytest.raises(NotWatched):
        reader.index_prefix(TEAM, "size", "")


def test_a_cache_is_not_primed_before_its_run_opens_it_and_after_it_has_ended() -> None:
    """Never an empty answer by accident (C1)."""
    reader = CacheReader("teams", TEAM, [ACCOUNT])
    for _ in range(2):
        with pytest.raises(NotPrimed):
            reader.get(TEAM, "ada")
        with pytest.raises(NotPrimed):
            reader.list(ACCOUNT)
        with pytest.raises(NotPrimed):
            reader.index(TEAM, "colour", "red")
        reader.open({TEAM.name: subscribed()})
        assert reader.list(TEAM) == []
        reader.close()


def test_an_id_of_another_type_is_refused() -> None:
    """It would find a resource that merely has the same name."""
    reader = reader_of(subscribed(stored("ada", 1)))
    with pytest.raises(InvalidArgument, match="Account"):
        reader.get(TEAM, ACCOUNT.id("ada"))


@pytest.mark.parametrize("by_prefix", [False, True])
def test_an_index_whose_function_raised_says_that_it_is_incomplete(by_prefix: bool) -> None:
    """The answer might lack the resource, so there is none."""

    def colour(team: Resource[Team]) -> str:
        return team.metadata["colour"]

    reader = reader_of(subscribed(stored("ada", 1), rich("grace", 2), indexes=(index("colour", colour),)))
    with pytest.raises(IndexIncomplete, match="ada"):
        (reader.index_prefix if by_prefix else reader.index)(TEAM, "colour", "red")
    assert reader.get(TEAM, "grace") is not None


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


def test_a_list_is_in_order_and_can_be_narrowed() -> None:
    """By partition, namespace and the beginning of the name."""
    elsewhere = TEAM.new("ada", namespace="apart").message()
    elsewhere.version = "3"
    reader = reader_of(subscribed(stored("grace", 1), stored("ada", 2), elsewhere))
    assert [team.name for team in reader.list(TEAM, namespace="default")] == ["ada", "grace"]
    assert [team.id.namespace for team in reader.list(TEAM, name_prefix="a")] == ["apart", "default"]
    assert reader.list(TEAM, partition="none") == []


def test_an_index_is_asked_by_value_and_by_prefix() -> None:
    """In order of key."""

    def of_team(team: Resource[Team]) -> list[str]:
        return team.data.members

    members = index_many("members", of_team)
    teams = [stored(name, 1, data=Team(members=people)) for name, people in (("b", ["x", "xy"]), ("a", ["x"]))]
    reader = reader_of(subscribed(*teams, indexes=(members,)))
    assert [team.name for team in reader.index(TEAM, "members", "x")] == ["a", "b"]
    assert [team.name for team in reader.index_prefix(TEAM, "members", "xy")] == ["b"]
    assert reader.index(TEAM, "members", "nobody") == []


def test_the_revision_is_the_frontier() -> None:
    """Up to there the cache of the type is complete."""
    assert reader_of(subscribed()).revision(TEAM) == 30


# --- isolation (C9) ----------------------------------------------------------


@pytest.mark.parametrize("how", ["get", "list", "index", "index_prefix"])
def test_what_is_returned_may_be_changed_freely(how: str) -> None:
    """Metadata, status and data are the reader's own; the cache, and the next reader, see nothing of it."""
    subscription = subscribed(rich("ada", 1), indexes=(index("name", lambda team: team.name),))
    reader = reader_of(subscription)

    def read() -> Resource[Team]:
        if how == "get":
            found = reader.get(TEAM, "ada")
            assert found is not None
            return found
        if how == "list":
            return reader.list(TEAM)[0]
        return (reader.index if how == "index" else reader.index_prefix)(TEAM, "name", "ada")[0]

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
