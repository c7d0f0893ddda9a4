"""Types that another program rebuilds from their description."""

import re

import pytest
from hypothesis import given

from headway import manifest
from headway.errors import PayloadError
from headway.protobuf import decode, encode
from headway.resource import DescribedTopic, Registry, TypeName, describe, described, rebuild, types_pb
from tests.manifest.messages import EVERY, REGISTRY, Every, every

# The description is decoded from bytes, as it arrives from a server.
REBUILT: Registry = rebuild(decode(types_pb.ListResponse, encode(describe(REGISTRY))))[0]


def test_rebuilt_type_has_name_scope_and_url_of_the_original() -> None:
    """All that is stored with a payload is the same, so both programs mean one type."""
    rebuilt = sorted(REBUILT, key=lambda each: each.name)
    said = [(type.name, type.scope, type.type_url, type.payload.__name__, type.columns) for type in rebuilt]

    assert said == [
        (type.name, type.scope, type.type_url, type.payload.__name__, type.columns)
        for type in sorted(REGISTRY, key=lambda each: each.name)
    ]


@given(every)
def test_rebuilt_class_reads_every_payload_like_the_original(value: Every) -> None:
    """The manifest, protobuf's JSON and the bytes are equal to the original class's."""
    ours = EVERY.new("a", value)
    theirs = REBUILT.resolve(EVERY.name).view(ours.message())

    text = manifest.dump(ours)
    assert manifest.dump(theirs) == text
    assert theirs.data.to_json() == value.to_json()  # type: ignore[attr-defined]  # messages of betterproto2 have it
    assert encode(theirs.data) == encode(value)


@given(every)
def test_rebuilt_class_loads_manifests_like_the_original(value: Every) -> None:
    """A program stores the same with and without the classes."""
    text = manifest.dump(EVERY.new("a", value))

    (theirs,), (ours,) = manifest.load(text, REBUILT), manifest.load(text, REGISTRY)
    assert theirs.message() == ours.message()


@pytest.mark.parametrize("name", ["", "a b", "class", "_betterproto", "__init__", "x=print(1), y", "parse", "é\n"])
def test_unsafe_field_names_are_refused(name: str) -> None:
    """The names come from a server and end up in code, so only plain ones are allowed."""
    field = types_pb.Field(name=name, number=1, kind="string")
    description = types_pb.ListResponse(messages=[types_pb.Message(full_name="a.B", fields=[field])])

    with pytest.raises(PayloadError, match="the server's description of its types can't be read"):
        rebuild(description)


@pytest.mark.parametrize("name", ["", "a b", "__new__"])
def test_unsafe_enum_member_and_message_names_are_refused(name: str) -> None:
    value = types_pb.EnumValue(name=name, number=0)
    for description in (
        types_pb.ListResponse(enums=[types_pb.Enum(name="E", values=[value])]),
        types_pb.ListResponse(messages=[types_pb.Message(full_name=f"a.{name}")]),
    ):
        with pytest.raises(PayloadError, match="the server's description of its types can't be read"):
            rebuild(description)


def test_invalid_description_is_refused() -> None:
    """A server of another version must not crash the program in an unexpected place."""
    field = types_pb.Field(name="x", number=1, kind="int7")
    description = types_pb.ListResponse(messages=[types_pb.Message(full_name="a.B", fields=[field])])

    with pytest.raises(PayloadError, match=r"the server's description of its types can't be read: 'int7'"):
        rebuild(description)


def test_rebuilt_topics_have_their_payloads() -> None:
    """A topic without a message class has none afterwards. Shared messages are described once."""
    topics = [
        DescribedTopic("rates", True, EVERY.type_url.rpartition("/")[2], Every),
        DescribedTopic("raw", False, "google.protobuf.BytesValue", None),
    ]
    description = decode(types_pb.ListResponse, encode(describe([EVERY], reversed(topics))))
    assert len(description.messages) == len(describe([EVERY]).messages)
    registry, rebuilt = rebuild(description)
    assert [each[:3] for each in rebuilt] == [each[:3] for each in topics]
    assert [each.payload for each in rebuilt] == [registry.resolve(EVERY.name).payload, None]


def test_description_of_a_type_is_made_once() -> None:
    """A program compares its types with the server's at each new connection."""
    assert described(EVERY) == describe([EVERY])
    assert described(EVERY) is described(EVERY)


def test_topic_of_an_unknown_message_is_refused() -> None:
    description = types_pb.ListResponse(topics=[types_pb.Topic(name="rates", message=3)])
    with pytest.raises(PayloadError, match="the server's description of its types can't be read"):
        rebuild(description)


def requiring(*held: tuple[int, ...], shape: types_pb.Shape = types_pb.Shape.SINGLE) -> types_pb.ListResponse:
    """Return messages m0, m1, … that require each other. Each gets the indexes of the messages that it requires."""
    messages = [
        types_pb.Message(
            full_name=f"a.m{place}",
            fields=[
                types_pb.Field(name=f"f{number}", number=number, kind="message", held=other, shape=shape)
                for number, other in enumerate(others, start=1)
            ],
        )
        for place, others in enumerate(held)
    ]
    return types_pb.ListResponse(messages=messages)


def a_type_of(description: types_pb.ListResponse) -> types_pb.ListResponse:
    """Return a description with a type whose payload is the first message."""
    name = types_pb.ResourceType(scope=types_pb.Scope.NAMESPACE, message=0)
    name.type = TypeName("tests", "v1", "Deep").message()
    description.types.append(name)
    return description


CHAIN = [(place + 1,) for place in range(10_000)]


@pytest.mark.parametrize(
    ("held", "said"),
    [
        ([(0,)], "an empty 'a.m0' would contain 'a.m0' endlessly"),
        ([(1,), (2,), (1,)], "an empty 'a.m2' would contain 'a.m1' endlessly"),
        ([(2,), (0,), (1,)], "endlessly"),
        ([*CHAIN, ()], "would contain 101 messages, nested 101 deep: the limits are 10000 and 100"),
        ([*((place + 1,) * 2 for place in range(99)), ()], "would contain 16383 messages, nested 14 deep"),
        ([(7,)], "list index out of range"),
    ],
)
def test_message_that_requires_itself_or_too_many_others_is_refused(held: list[tuple[int, ...]], said: str) -> None:
    """It could not be constructed. A server must not be able to end its client by recursion, or fill its memory."""
    with pytest.raises(PayloadError, match=re.escape(said)):
        rebuild(a_type_of(requiring(*held)))


@pytest.mark.parametrize("held", [[(1, 2), (3,), (3, 1), ()], [*((place + 1,) for place in range(99)), ()]])
def test_required_messages_are_constructed_with_their_parent(held: list[tuple[int, ...]]) -> None:
    """Cases: the greatest depth, and one message in two places."""
    type = rebuild(a_type_of(requiring(*held)))[0].resolve(TypeName("tests", "v1", "Deep"))
    assert encode(type.payload()) == b""


@pytest.mark.parametrize("shape", [types_pb.Shape.OPTIONAL, types_pb.Shape.REPEATED])
def test_message_may_contain_itself_in_an_optional_field(shape: types_pb.Shape) -> None:
    """A tree does."""
    type = rebuild(a_type_of(requiring((0,), shape=shape)))[0].resolve(TypeName("tests", "v1", "Deep"))
    assert encode(type.payload()) == b""
