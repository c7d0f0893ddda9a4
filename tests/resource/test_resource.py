"""What user code holds: a resource of its own, decoded when it is looked at."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import InvalidArgument, PayloadError
from headway.resource import (
    DELETION_TIMESTAMP,
    FINALIZERS,
    AnyMessage,
    Condition,
    Resource,
    Status,
    copy_message,
    encode,
    finalizers,
    is_marked,
    pb,
    set_finalizers,
)
from tests.helpers.declared import NOTE, NOTE_V2, Memo, Note

NAMES = st.text(alphabet="abc.-/", min_size=1, max_size=4)


def stored_message() -> pb.Resource:
    """A resource as a store has it."""
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


def test_its_parts_are_the_messages() -> None:
    """Under the names that the field has for them."""
    resource = NOTE.view(stored_message())
    assert (resource.id, resource.name, resource.uid) == (NOTE.id("one", uid="u"), "one", "u")
    assert (resource.owner, resource.version, resource.generation) == (NOTE.id("boss", uid="b"), "7", "g")
    assert resource.data == Note(text="a", lines=["x"], counts={"k": 1})
    assert resource.finalizers == {"a", "b"}
    assert [each.type for each in resource.status["mine"].conditions] == ["ready"]
    assert repr(resource) == "<Resource Note one version=7>"
    assert repr(NOTE.new("one")) == "<Resource Note one version=new>"


def test_what_is_not_looked_at_costs_nothing() -> None:
    """Broken bytes hurt nobody who doesn't look at them; who does is told what they should be."""
    message = stored_message()
    message.data = AnyMessage(type_url=NOTE.type_url, value=b"\xff")
    resource = NOTE.view(message)
    assert resource.metadata["colour"] == "red"
    assert resource.message().data == message.data
    with pytest.raises(PayloadError, match="not a valid Note"):
        _ = resource.data


def test_what_is_looked_at_stays_what_it_is() -> None:
    """The same objects each time, so that changes add up."""
    resource = NOTE.view(stored_message())
    resource.data.lines.append("y")
    resource.metadata["more"] = "z"
    assert resource.data is resource.data
    assert resource.data.lines == ["x", "y"]
    assert resource.metadata is resource.metadata
    assert resource.status is resource.status


def test_no_data_is_the_default_payload() -> None:
    """As for any message that holds nothing."""
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
    resource.status["more"] = Status()


def change_message(message: pb.Resource) -> None:
    """Change every part of it that can be changed."""
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


def test_changes_stay_with_the_resource_that_they_were_made_in() -> None:
    """C9: neither the message that it shares nor another resource of the same message sees them."""
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
def test_a_message_made_of_it_shares_nothing_that_can_be_changed(looked_at: bool) -> None:
    """C9: neither with the stored one nor with the resource."""
    shared = stored_message()
    resource = NOTE.view(shared)
    if looked_at:
        _ = resource.data, resource.metadata, resource.status
    text = repr(resource.copy().data), dict(resource.metadata), repr(resource.status)
    change_message(resource.message())
    assert shared == stored_message()
    assert (repr(resource.data), resource.metadata, repr(resource.status)) == text
    assert resource.message() == shared


def test_changes_of_data_and_metadata_go_into_the_message_and_those_of_status_do_not() -> None:
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


def test_a_copy_is_another_resource_with_the_changes() -> None:
    """Which then goes its own way."""
    resource = NOTE.view(stored_message())
    resource.data.text = "changed"
    other = resource.copy()
    assert other == resource
    other.data.text = "changed again"
    other.metadata["colour"] = "blue"
    assert (resource.data.text, resource.metadata["colour"]) == ("changed", "red")
    assert other != resource


def test_setting_metadata_takes_a_copy() -> None:
    """Two resources never share one dict, and any mapping will do."""
    one, two = NOTE.view(stored_message()), NOTE.new("two")
    two.metadata = one.metadata
    two.metadata["more"] = "x"
    assert "more" not in one.metadata
    assert two.message().metadata == {FINALIZERS: "b a", "colour": "red", "more": "x"}


def test_setting_data_replaces_it() -> None:
    """By a payload of the type's own class."""
    resource = NOTE.view(stored_message())
    resource.data = Note(text="new")
    assert NOTE.view(resource.message()).data == Note(text="new")


def test_equality_is_of_content() -> None:
    """Looked at or not; and a resource that can be changed is no key of a dict."""
    one, two = NOTE.view(stored_message()), NOTE.view(copy_message(stored_message()))
    _ = one.data, one.metadata, one.status
    assert one == two
    two.data.lines.append("y")
    assert one != two
    assert one != "one"
    assert NOTE.new("one", Note()) != NOTE_V2.new("one", Memo())
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)


def test_deletion_is_what_the_store_says() -> None:
    """Not what somebody has written into the metadata of a copy."""
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
def test_finalizers_are_a_set_kept_as_sorted_text(first: list[str], second: list[str]) -> None:
    """The same set is always the same bytes; none is no key."""
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


def test_foreign_text_of_finalizers_is_read_as_a_set() -> None:
    """Any blanks between them, any order."""
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
def test_a_finalizer_that_would_not_come_back_as_itself_is_refused(names: object, said: str) -> None:
    """A string is no set of names (it would be one of letters), and a blank would make two of one."""
    resource = NOTE.new("one")
    with pytest.raises(InvalidArgument) as caught:
        resource.finalizers = cast("Any", names)
    assert str(caught.value).startswith("Note one: ")
    assert said in str(caught.value)
    assert resource.metadata == {}
