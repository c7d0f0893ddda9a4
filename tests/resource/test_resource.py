"""Resources in user code: private objects, decoded at the first access."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import InvalidArgument, PayloadError
from headway.protobuf import copy_message, encode
from headway.resource import (
    DELETION_TIMESTAMP,
    FINALIZERS,
    AnyMessage,
    Condition,
    Resource,
    Status,
    finalizers,
    is_marked,
    pb,
    set_finalizers,
)
from tests.helpers.declared import NOTE, NOTE_V2, Memo, Note

NAMES = st.text(alphabet="abc.-/", min_size=1, max_size=4)


def stored_message() -> pb.Resource:
    """Return a resource as a store holds it."""
    data = Note(text="a", lines=["x"], counts={"k": 1})
    condition = Condition(type="ready", resource=NOTE.id("boss").reference())
    return pb.Resource(
        id=NOTE.id("one", uid="u").message(),
        owner=NOTE.id("boss", uid="b").message(),
        version="7",
        generation="g",
        metadata={FINALIZERS: "b a", "colour": "red"},
        status={"mine": Status(observed_generation="g", conditions=[condition])},
        data=AnyMessage(type_url=NOTE.type_url, value=encode(data)),
    )


def test_resource_attributes_are_the_parts_of_its_message() -> None:
    """They have the field's usual names."""
    resource = NOTE.view(stored_message())
    assert (resource.id, resource.name, resource.uid) == (NOTE.id("one", uid="u"), "one", "u")
    assert (resource.owner, resource.version, resource.generation) == (NOTE.id("boss", uid="b"), "7", "g")
    assert resource.data == Note(text="a", lines=["x"], counts={"k": 1})
    assert resource.finalizers == {"a", "b"}
    assert [each.type for each in resource.status["mine"].conditions] == ["ready"]
    assert repr(resource) == "<Resource Note one version=7>"
    assert repr(NOTE.new("one")) == "<Resource Note one version=new>"


def test_unread_data_is_not_decoded() -> None:
    """Malformed bytes fail only at their first access, with the expected class in the error."""
    message = stored_message()
    message.data = AnyMessage(type_url=NOTE.type_url, value=b"\xff")
    resource = NOTE.view(message)
    assert resource.metadata["colour"] == "red"
    assert resource.message().data == message.data
    with pytest.raises(PayloadError, match="not a valid Note"):
        _ = resource.data


def test_repeated_access_returns_the_same_objects() -> None:
    """Changes therefore accumulate."""
    resource = NOTE.view(stored_message())
    resource.data.lines.append("y")
    resource.metadata["more"] = "z"
    assert resource.data is resource.data
    assert resource.data.lines == ["x", "y"]
    assert resource.metadata is resource.metadata
    assert resource.status["mine"] is resource.status["mine"]


def test_missing_data_is_the_default_payload() -> None:
    """Any empty message behaves this way."""
    resource = NOTE.view(pb.Resource(id=NOTE.id("one").message()))
    assert resource.data == Note()
    assert (resource.owner, resource.metadata, resource.status) == (None, {}, {})


def change_everything(resource: Resource[Note]) -> None:
    resource.data.text = "changed"
    resource.data.lines.append("changed")
    resource.data.counts["changed"] = 1
    resource.metadata["colour"] = "changed"
    resource.metadata["more"] = "changed"
    resource.finalizers = {"changed"}
    mine = resource.status["mine"]
    mine.observed_generation = mine.conditions[0].type = "changed"
    assert mine.conditions[0].resource is not None
    mine.conditions[0].resource.name = "changed"
    mine.conditions.append(Condition())


def change_message(message: pb.Resource) -> None:
    """Change every mutable part of the message."""
    for id in (message.id, message.owner):
        assert id is not None
        assert id.type is not None
        assert id.tenancy is not None
        id.name = id.uid = id.type.kind = id.tenancy.partition = "changed"
    message.version = message.generation = "changed"
    message.metadata["colour"] = "changed"
    message.status["mine"].conditions[0].type = "changed"
    message.status["mine"].conditions.append(Condition())
    message.status["more"] = Status()
    assert message.data is not None
    message.data.type_url, message.data.value = "changed", b"changed"


def test_changes_stay_within_their_resource() -> None:
    """C9: neither the shared message nor another resource of the same message sees them."""
    shared = stored_message()
    mine, theirs = NOTE.view(shared), NOTE.view(shared)
    before = theirs.message()
    change_everything(mine)
    assert shared == stored_message()
    assert theirs.message() == before
    assert mine.data.text == mine.metadata["more"] == "changed"
    assert mine.original().message() == before
    assert mine.original() == theirs


@pytest.mark.parametrize("looked_at", [False, True])
def test_message_of_a_resource_shares_no_mutable_part(looked_at: bool) -> None:
    """C9: it shares none with the stored message and none with the resource."""
    shared = stored_message()
    resource = NOTE.view(shared)
    if looked_at:
        _ = resource.data, resource.metadata, resource.status
    text = repr(resource.copy().data), dict(resource.metadata), repr(resource.status)
    change_message(resource.message())
    assert shared == stored_message()
    assert (repr(resource.data), resource.metadata, repr(resource.status)) == text
    assert resource.message() == shared


def test_message_of_a_new_resource_shares_no_part_with_its_type_or_its_owner() -> None:
    boss = NOTE.view(stored_message())
    before = encode(boss.message()), encode(NOTE.message), encode(NOTE.tenancy)
    made = NOTE.new("two", Note(text="a"), owner=boss).message()
    assert made.id is not None
    assert made.owner is not None
    for id in (made.id, made.owner):
        assert id.type is not None
        assert id.tenancy is not None
        id.name = id.type.kind = id.tenancy.namespace = "changed"
    assert (encode(boss.message()), encode(NOTE.message), encode(NOTE.tenancy)) == before


def test_owner_of_a_new_resource_has_the_version_as_which_it_was_read() -> None:
    """It may be stored as another one."""
    assert NOTE.new("two", owner=NOTE_V2.view(stored_message())).owner == NOTE_V2.id("one", uid="u")


def test_message_contains_changes_of_data_and_metadata_but_not_of_status() -> None:
    """A status is written by its own verb."""
    resource = NOTE.view(stored_message())
    change_everything(resource)
    message = resource.message()
    assert NOTE.view(message).data == resource.data
    assert message.metadata == {FINALIZERS: "changed", "colour": "changed", "more": "changed"}
    assert message.status == stored_message().status
    assert (message.id, message.owner, message.version) == (
        stored_message().id,
        stored_message().owner,
        stored_message().version,
    )


def test_status_refuses_an_assignment_because_no_write_would_store_it() -> None:
    resource = NOTE.view(stored_message())
    status: Any = resource.status
    changes: list[Callable[[], object]] = [
        lambda: status.__setitem__("more", Status()),
        lambda: status.__delitem__("mine"),
        lambda: status.__ior__({"more": Status()}),
        status.clear,
        lambda: status.pop("mine"),
        status.popitem,
        lambda: status.setdefault("more", Status()),
        lambda: status.update(more=Status()),
    ]
    for change in changes:
        with pytest.raises(TypeError, match=r"read-only: use rt\.conditions\(\.\.\.\) or client\.write_status"):
            change()
    assert resource.status == stored_message().status
    assert copy.deepcopy(resource).status == stored_message().status, "a resource can be copied, also once it was read"


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copy_of_the_statuses_may_be_changed(copied: Callable[[Any], Any]) -> None:
    resource = NOTE.view(stored_message())
    made = copied(resource.status)
    assert made == resource.status
    made["more"] = Status()
    assert resource.status == stored_message().status


def test_deep_copy_of_the_statuses_is_independent() -> None:
    resource = NOTE.view(stored_message())
    copy.deepcopy(resource.status)["mine"].conditions.append(Condition())
    assert resource.status == stored_message().status


def test_setting_data_replaces_the_payload() -> None:
    """It must be of the type's own class."""
    resource = NOTE.view(stored_message())
    resource.data = Note(text="new")
    assert NOTE.view(resource.message()).data == Note(text="new")


def test_resources_are_compared_by_content() -> None:
    """Access to the data doesn't matter. A mutable resource is not hashable."""
    one, two = NOTE.view(stored_message()), NOTE.view(copy_message(stored_message()))
    _ = one.data, one.metadata, one.status
    assert one == two
    two.data.lines.append("y")
    assert one != two
    assert one != "one"
    assert NOTE.new("one", Note()) != NOTE_V2.new("one", Memo())
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)


def test_deletion_mark_comes_from_the_store_alone() -> None:
    """Metadata that was changed in a copy doesn't count."""
    resource = NOTE.view(stored_message())
    resource.metadata[DELETION_TIMESTAMP] = "2024-02-02T10:00:00Z"
    assert not resource.is_deleting
    marked = NOTE.view(resource.message())
    assert marked.is_deleting
    marked.metadata.clear()
    assert marked.is_deleting
    assert is_marked({DELETION_TIMESTAMP: ""})
    assert not is_marked({})


@given(st.lists(NAMES), st.lists(NAMES))
def test_finalizers_are_a_set_stored_as_sorted_text(first: list[str], second: list[str]) -> None:
    """The same set always has the same bytes. An empty set has no key."""
    resource = NOTE.new("one")
    resource.finalizers = first
    assert resource.finalizers == set(first)
    resource.finalizers |= set(second)
    assert resource.metadata.get(FINALIZERS, "") == " ".join(sorted({*first, *second}))
    resource.finalizers -= {*first, *second}
    assert (resource.finalizers, resource.metadata) == (frozenset(), {})
    metadata = {"a": "b"}
    set_finalizers(metadata, second)
    assert finalizers(metadata) == set(second)


def test_finalizers_text_of_other_writers_is_read_as_a_set() -> None:
    """Any whitespace may separate them, in any order."""
    assert finalizers({FINALIZERS: " b  a\tb\n"}) == {"a", "b"}
    assert finalizers({}) == finalizers({FINALIZERS: " "}) == frozenset()


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("cleanup", "finalizers 'cleanup' must be a list or set of names, such as ['cleanup']"),
        (["a b"], "finalizer 'a b' must be a name without blanks"),
        ([""], "finalizer '' must be a name without blanks, such as 'staff.cleanup'"),
        ([" a"], "finalizer ' a' must be a name without blanks"),
    ],
)
def test_finalizer_that_would_not_round_trip_is_refused(names: object, said: str) -> None:
    """A string is not a set of names (it would be one of letters), and a blank would split a name in two."""
    resource = NOTE.new("one")
    with pytest.raises(InvalidArgument) as caught:
        resource.finalizers = cast("Any", names)
    assert str(caught.value).startswith("Note one: ")
    assert said in str(caught.value)
    assert resource.metadata == {}


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"rank": 1}, r"metadata\['rank'\] is 1: it must be a string, such as metadata=\{'rank': '1'\}"),
        ({"rank": None}, r"metadata\['rank'\] is None: it must be a string"),
        ({2: "two"}, r"metadata key 2 must be a string, such as '2'"),
        (["rank"], r"metadata must map strings to strings, such as metadata=\{'rank': 'high'\}, not \['rank'\]"),
        ("rank", r"metadata must map strings to strings, .* not 'rank'"),
    ],
)
def test_metadata_of_another_kind_is_named(metadata: Any, said: str) -> None:
    """It would fail only in the service, as an internal error that a client tries again."""
    with pytest.raises(InvalidArgument, match=rf"^tests\.v1\.Note: {said}"):
        NOTE.new("a", Note(text="x"), metadata=metadata)
    resource = NOTE.new("a", Note(text="x"))
    with pytest.raises(InvalidArgument, match=said):
        resource.metadata = metadata
    if isinstance(metadata, dict):
        resource.metadata.update(metadata)
        with pytest.raises(InvalidArgument, match=said):
            resource.message()


@pytest.mark.parametrize(("owner", "shown"), [("boss", "'boss'"), (NOTE, "<ResourceType"), (Note(), "Note\\(")])
def test_owner_that_is_no_resource_is_named(owner: Any, shown: str) -> None:
    said = r"^tests\.v1\.Note: owner must be a resource or its id, such as owner=team or owner=TEAM\.id\('core'\), not "
    with pytest.raises(InvalidArgument, match=said + shown):
        NOTE.new("a", Note(text="x"), owner=owner)


def test_assignment_to_a_misspelled_field_is_named_when_it_would_be_lost() -> None:
    """Python lets any attribute be set, and encoding ignores those that are no fields."""
    misspelled: Any = Note()
    misspelled.txet = "lost"
    with pytest.raises(PayloadError, match=r"^Note has no field 'txet'; did you mean 'text'\?$"):
        NOTE.new("a", misspelled)
    resource = NOTE.new("a", Note())
    cast("Any", resource.data).txet = "lost"
    with pytest.raises(PayloadError, match="Note has no field 'txet'"):
        resource.message()
    resource.data._seen = True  # type: ignore[attr-defined]  # a program's own note
    del resource.data.txet  # type: ignore[attr-defined]
    assert resource.message().data is not None


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({5}, "Note core: finalizer 5 must be a name without blanks, such as 'staff.cleanup'"),
        (5, r"Note core: finalizers 5 must be a list or set of names, such as \['5'\]"),
        (None, "Note core: finalizers None must be a list or set of names"),
        ({"caf\udce9"}, "Note core: finalizer 'caf.udce9' has half of a surrogate pair"),
    ],
)
def test_finalizers_that_are_not_names_are_refused(names: Any, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        NOTE.new("core").finalizers = names
