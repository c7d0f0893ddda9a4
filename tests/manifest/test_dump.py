"""Resources to YAML and back: nothing is lost, and the text is what a person would write."""

import json
from typing import Any, cast

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from headway.manifest import as_object, as_yaml, dump, dump_all, load
from headway.protobuf import decode, encode
from headway.resource import Resource
from tests.manifest.messages import (
    APP,
    CHOICE,
    EVERY,
    FIELDS,
    NODE,
    REGISTRY,
    App,
    Choice,
    Every,
    Limits,
    Policy,
    every,
)
from tests.manifest.messages import text as texts

names = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)


def back(resource: Resource[Any]) -> Resource[Any]:
    [loaded] = load(dump(resource), REGISTRY)
    return loaded


@given(every)
def test_every_payload_round_trips_through_yaml(payload: Every) -> None:
    """The loaded resource has equal bytes."""
    resource = EVERY.new("one", payload)
    assert back(resource) == resource


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_each_field_kind_round_trips_alone(name: str) -> None:
    """A rare kind can't hide behind the others."""

    @given(FIELDS[name])
    def comes_back(value: Any) -> None:
        resource = EVERY.new("one", Every(**{name: value}))
        assert back(resource) == resource

    comes_back()


def test_number_without_a_member_round_trips_through_yaml_and_json() -> None:
    """A program from which a member was removed shows stored resources so, and must be able to apply them again."""
    seven = cast("Policy", 7)
    given = Every(policy=seven, maybe_policy=seven, policies=[Policy.NO, seven], by_flag={True: seven})
    resource = EVERY.new("one", decode(Every, encode(given)))
    assert "policy: 7\n" in dump(resource)
    assert back(resource) == resource
    text = json.dumps({"type": "Every", "name": "one", "data": as_object(resource.data)})
    assert load(text, REGISTRY, format="JSON") == [resource]


@given(names, names, st.none() | names, st.dictionaries(texts, texts, max_size=3))
def test_id_owner_and_metadata_round_trip(
    name: str, namespace: str, owner: str | None, metadata: dict[str, str]
) -> None:
    """Owners may be in another namespace or scope."""
    owners = [None] if owner is None else [APP.id(owner), APP.id(owner, namespace=namespace), NODE.id(owner)]
    for owner_id in owners:
        resource = APP.new(name, namespace=namespace, owner=owner_id, metadata=metadata)
        assert back(resource) == resource


def test_dump_is_what_a_person_would_write() -> None:
    """Fields in the order of their declaration, defaults left out, text as a block, enums by name."""
    app = App(
        command=["sh", "-c", "set -e\nexec web\n"],
        environment={"Z": "yes", "A": "1.10"},
        policy=Policy.NO,
        limits=Limits(memory=512),
    )
    resource = APP.new(
        "web", app, namespace="prod", owner=APP.id("all", namespace="prod"), metadata={"b": "2", "a": ""}
    )
    assert dump(resource) == (
        "type: fleet.v1.App\nname: web\nnamespace: prod\n"
        "metadata:\n  a: ''\n  b: '2'\n"
        "owner:\n  type: fleet.v1.App\n  name: all\n"
        "data:\n  command:\n  - sh\n  - -c\n  - |\n    set -e\n    exec web\n"
        "  environment:\n    Z: 'yes'\n    A: '1.10'\n"
        "  policy: 'NO'\n  limits:\n    memory: 512\n"
    )


def test_dump_omits_values_assigned_by_the_store() -> None:
    """Version, uid and the deletion mark cannot be set, so they are not written either."""
    resource = APP.new("web", metadata={"finalizers": "a", "deletionTimestamp": "2024-01-01T00:00:00Z"})
    message = resource.message()
    message.version, message.generation = "7", "8"
    assert message.id is not None
    message.id.uid = "9"
    assert dump(APP.view(message)) == "type: fleet.v1.App\nname: web\nmetadata:\n  finalizers: a\n"


def test_dump_keeps_empty_oneof_arms_and_empty_optional_messages() -> None:
    """Their presence carries information."""
    assert "choice: {}" in dump(EVERY.new("one", Every(choice=Choice())))
    assert "port: 0" in dump(CHOICE.new("one", Choice(port=0)))


def test_dump_all_writes_one_document_per_resource() -> None:
    """load reads them in the same order."""
    resources: list[Resource[Any]] = [APP.new("b"), NODE.new("a"), EVERY.new("c")]
    assert load(dump_all(resources), REGISTRY) == resources
    assert load(dump_all([]), REGISTRY) == []


def test_dump_writes_no_aliases() -> None:
    """A value that is held twice is written twice."""
    shared = Limits(memory=1)
    assert "*" not in dump(EVERY.new("one", Every(parts=[shared, shared], limits_of={"a": shared})))


# What a plain scalar of the core schema of YAML 1.2 (10.3.2) and of the types of YAML 1.1 is, if it is not text.
YAML_1_2 = r"|null|Null|NULL|~|true|True|TRUE|false|False|FALSE|[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"
YAML_1_2 += r"|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
YAML_1_1 = r"~|null|Null|NULL||y|Y|yes|Yes|YES|n|N|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF"
YAML_1_1 += r"|[-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+"
YAML_1_1 += r"|[-+]?[1-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?|[-+]?([0-9][0-9_]*)?\.[0-9_]+([eE][-+][0-9]+)?|<<|="
YAML_1_1 += r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)|[0-9]{4}-[0-9]{2}-[0-9]{2}"


@given(st.from_regex(YAML_1_2, fullmatch=True) | st.from_regex(YAML_1_1, fullmatch=True))
@example("0o644")
@example("y")
@example("-0o7")
@example("0B1")
@example("1_000")
def test_text_that_either_version_of_yaml_reads_as_another_value_is_quoted(text: str) -> None:
    """As a value and as a key, in every YAML that Headway prints."""
    assert as_yaml({text: text}).count(f"'{text}'") == 2


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("a\u202eb", "\\u202E"),
        ("two\nlines \u2066", "\\u2066"),
        ("a\u200bb", "\\u200B"),
        ("\U000e0041", "\\U000E0041"),
        ("x\x9b2J", "\\x9B"),
    ],
)
def test_characters_that_a_terminal_does_not_show_are_escaped(text: str, escaped: str) -> None:
    """Such as those that change the direction of what follows: the text would read as another one."""
    dumped = as_yaml({"é 😀": text, text: ["☃"]})
    assert dumped.count(escaped) == 2
    assert dumped.replace("\n", "").isprintable()
    assert "é 😀" in dumped
    assert yaml.safe_load(dumped) == {"é 😀": text, text: ["☃"]}
