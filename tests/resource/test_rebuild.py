"""Types as another program rebuilds them of their description."""

import pytest
from hypothesis import HealthCheck, given, settings

from headway import manifest
from headway.errors import PayloadError
from headway.resource import Registry, decode, describe, encode, rebuild, types_pb
from tests.manifest.messages import EVERY, REGISTRY, Every, every

# What arrives is bytes.
REBUILT: Registry = rebuild(decode(types_pb.ListResponse, encode(describe(REGISTRY))))


def test_a_rebuilt_type_has_the_name_the_scope_and_the_url_of_the_original() -> None:
    """All that is stored with a payload is the same, so that both programs mean one type."""
    rebuilt = sorted(REBUILT, key=lambda each: each.name)
    said = [(type.name, type.scope, type.type_url, type.payload.__name__) for type in rebuilt]

    assert said == [
        (type.name, type.scope, type.type_url, type.payload.__name__)
        for type in sorted(REGISTRY, key=lambda each: each.name)
    ]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(every)
def test_a_payload_of_any_kind_reads_alike_by_its_rebuilt_class(value: Every) -> None:
    """The manifest, protobuf's JSON and the bytes are those of the original class."""
    ours = EVERY.new("a", value)
    theirs = REBUILT.resolve(EVERY.name).view(ours.message())

    text = manifest.dump(ours)
    assert manifest.dump(theirs) == text
    assert theirs.data.to_json() == value.to_json()  # type: ignore[attr-defined]  # messages of betterproto2 have it
    assert encode(theirs.data) == encode(value)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(every)
def test_a_manifest_is_loaded_alike_by_a_rebuilt_class(value: Every) -> None:
    """What a program without the classes would store is what one with them would."""
    text = manifest.dump(EVERY.new("a", value))

    (theirs,), (ours,) = manifest.load(text, REBUILT), manifest.load(text, REGISTRY)
    assert theirs.message() == ours.message()


@pytest.mark.parametrize("name", ["", "a b", "class", "_betterproto", "__init__", "x=print(1), y", "parse", "é\n"])
def test_a_field_can_not_be_named_what_python_would_take_for_something_else(name: str) -> None:
    """The names come from a server, and end up in code: only plain ones do."""
    field = types_pb.Field(name=name, number=1, kind="string")
    description = types_pb.ListResponse(messages=[types_pb.Message(full_name="a.B", fields=[field])])

    with pytest.raises(PayloadError, match="the server's description of its types can't be read"):
        rebuild(description)


@pytest.mark.parametrize("name", ["", "a b", "__new__"])
def test_a_member_of_an_enum_can_not_be_named_so_either(name: str) -> None:
    """Nor can a message be."""
    value = types_pb.EnumValue(name=name, number=0)
    for description in (
        types_pb.ListResponse(enums=[types_pb.Enum(name="E", values=[value])]),
        types_pb.ListResponse(messages=[types_pb.Message(full_name=f"a.{name}")]),
    ):
        with pytest.raises(PayloadError, match="the server's description of its types can't be read"):
            rebuild(description)


def test_a_description_that_makes_no_sense_is_refused() -> None:
    """A server of another time can't end the program in an odd place."""
    field = types_pb.Field(name="x", number=1, kind="int7")
    description = types_pb.ListResponse(messages=[types_pb.Message(full_name="a.B", fields=[field])])

    with pytest.raises(PayloadError, match=r"the server's description of its types can't be read: 'int7'"):
        rebuild(description)
