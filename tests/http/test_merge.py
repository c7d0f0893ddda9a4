"""PATCH merges as RFC 7396 says, against other writers, and never loses what JSON cannot hold."""

from __future__ import annotations

from typing import Any

import pytest

from headway.base import finished
from headway.documents import Node, Problems, Scalar, Sequence, node_of
from headway.documents import merged as merged_nodes
from headway.protobuf import decode, encode
from headway.resource import pb
from headway.storage import Put
from tests.http.kit import CORE, TEAM, TEAMS, Member, Rank, Team, serving

# The examples of the RFC's appendix.
EXAMPLES: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("stored", "changes", "merged"), EXAMPLES)
def test_merge_is_that_of_the_rfc(stored: Any, changes: Any, merged: Any) -> None:
    """Each is compared as JSON: objects have no order, and no places."""

    def node(value: Any) -> Node:
        return finished(node_of(value, Problems("")))

    assert _value(merged_nodes(node(stored), node(changes))) == merged


def _value(node: Node) -> Any:
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Sequence):
        return [_value(each) for each in node.items]
    return {key.text: _value(value) for key, value in node.entries}


async def test_merge_keeps_what_it_does_not_name() -> None:
    async with serving() as api:
        team = Team(members=[Member(login="ada", rank=Rank.SENIOR)], note="x", budget=1 << 60, labels={"a": "1"})
        await api.client.apply(TEAM.new("core", team, metadata={"tier": "gold", "region": "eu"}))
        changes = {"data": {"note": None, "labels": {"b": "2"}}, "metadata": {"tier": None, "zone": "a"}}
        answer = await api.http.patch(CORE, json=changes, headers={"content-type": "application/merge-patch+json"})
        assert answer.status_code == 200
        stored = await api.client.read(TEAM, "core")
        assert stored.data == Team(members=team.members, budget=1 << 60, labels={"a": "1", "b": "2"})
        assert stored.metadata == {"region": "eu", "zone": "a"}


async def test_other_kinds_of_patches_are_refused() -> None:
    async with serving() as api:
        await api.client.apply(TEAM.new("core"))
        kind = {"content-type": "application/json-patch+json"}
        assert (await api.http.patch(CORE, content=b"{}", headers=kind)).status_code == 415


async def test_merge_at_a_version_is_not_repeated() -> None:
    async with serving() as api:
        old = await api.client.apply(TEAM.new("core"))
        await api.client.apply(TEAM.new("core", Team(note="newer")))
        for path, body in ((f"{CORE}?version={old.version}", {}), (CORE, {"version": old.version})):
            answer = await api.http.patch(path, json={**body, "data": {"note": "mine"}})
            assert answer.status_code == 409
        assert (await api.client.read(TEAM, "core")).data.note == "newer"


KEY = ("default", "default", "core")

# Field 100, which this program doesn't know.
UNKNOWN = b"\xa2\x06\x03new"


def nested(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2, len(value)]) + value


@pytest.mark.parametrize(
    "value",
    [
        UNKNOWN,
        nested(1, UNKNOWN),
        # The entry of a map has no place for it, and neither has a time.
        nested(4, nested(1, b"k") + UNKNOWN),
        nested(6, b"\x08\x05" + UNKNOWN),
        # The nanoseconds of 123.456789.
        nested(6, b"\x08\x7b\x10\x95\x9a\xef\x3a"),
        # Other programs merge both parts of a message.
        nested(5, nested(1, b"ada")) + nested(5, b""),
    ],
)
async def test_merge_never_loses_what_json_cannot_hold(value: bytes) -> None:
    """It is refused, and what is stored stays."""
    async with serving() as api:
        newer = await stored_by_a_newer_program(api, value)
        answer = await api.http.patch(f"{TEAMS}/core", json={"data": {"note": "x"}})
        assert (answer.status_code, "cannot be merged" in answer.text) == (409, True)
        assert await stored_value(api) == newer


@pytest.mark.parametrize("value", [nested(5, b"\x10\x09"), b"\x39" + bytes(7) + b"\x80"])
async def test_merge_keeps_a_number_without_a_member_and_the_sign_of_zero(value: bytes) -> None:
    """JSON has the number of such a rank, and -0.0, so the merge can write it back."""
    async with serving() as api:
        newer = await stored_by_a_newer_program(api, value)
        answer = await api.http.patch(f"{TEAMS}/core", json={"data": {"note": "x"}})
        assert answer.status_code == 200
        assert decode(Team, await stored_value(api)) == decode(Team, newer + encode(Team(note="x")))


async def stored_by_a_newer_program(api: Any, value: bytes) -> bytes:
    """Store a team whose payload ends with these bytes, and return the payload."""
    await api.client.apply(TEAM.new("core", Team(budget=1)))
    stored, _ = await api.backend.read(TEAM.kind, KEY)
    newer = encode(Team(budget=1)) + value
    data = type(stored.data)(type_url=stored.data.type_url, value=newer)
    put = Put(TEAM.kind, KEY, pb.Resource(id=stored.id, generation=stored.generation, data=data), stored.version)
    await api.backend.commit((put,))
    return newer


async def stored_value(api: Any) -> bytes:
    stored, _ = await api.backend.read(TEAM.kind, KEY)
    return bytes(stored.data.value)
