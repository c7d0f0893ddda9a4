"""The types that a caller can list: those on which the caller has any right, and no others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from grpclib.const import Status

import headway
from headway import field, rpc
from headway.access import Access, Authorizer, Policy, Rule, new_token
from headway.errors import HeadwayError
from headway.resource import ResourceType, describe, types_pb
from tests.helpers.plain_types import Team
from tests.helpers.service_errors import status_of


@headway.message
class Secret:
    word: str = field(1)


@headway.message
class Vault:
    inside: list[Secret] = field(1)


@headway.message(name="tests.Price")
class Price:
    cents: int = field(1)


app = headway.App("staff")
app.type("staff", "v1", "Team", Team)
app.type("staff", "v1", "Vault", Vault)
app.type("bank", "v1", "Team", Team)
app.topic("rates", Price, snapshot=lambda _: {})
app.topic("raw", snapshot=lambda _: {}, wildcard=True)
LIST = "/headway.types.v1.TypesService/List"


async def described(text: str, *policies: Policy) -> tuple[list[str], list[str]]:
    """Return the described types and messages."""
    reply = await answer(text, *policies)
    names = [f"{each.type.group}.{each.type.kind}" for each in reply.types if each.type is not None]
    return names, [each.full_name.rpartition(".")[2] for each in reply.messages]


async def answer(text: str, *policies: Policy) -> types_pb.ListResponse:
    """Return the description that a caller with this token gets. "some" is a token with the policy of that name."""
    given, token = new_token(["some"])
    access = Authorizer(Access([*policies, *([] if any(p.name == "some" for p in policies) else [some()])], [token]))
    text = given if text == "some" else text
    async with (
        headway.open_engine("memory:", app, network=headway.Network(["127.0.0.1:0"], access=access)) as engine,
        rpc.open_channel(engine.addresses) as channel,
    ):
        metadata = {"x-consul-token": text} if text else None
        return await channel.unary(LIST, types_pb.ListRequest(), types_pb.ListResponse, metadata=metadata)


def some(*rules: Rule) -> Policy:
    return Policy("some", rules)


def rule(type: str, verb: str = "read", **narrow: str) -> Rule:
    return Rule(verbs=[verb], type=type, **{"partition": "*", "namespace": "*", **narrow})


@pytest.mark.parametrize("verb", ["read", "list", "watch", "write", "write_status", "delete", "observe"])
async def test_type_is_described_to_callers_with_any_right_on_it(verb: str) -> None:
    """The right may be for any verb, in any tenancy, and for any names.

    Messages that only other types use are left out.
    """
    narrow = rule("staff.v1.Team", verb, partition="east", namespace="blue", name_prefix="mine")

    assert await described("some", some(narrow)) == (["staff.Team"], ["Team"])


@pytest.mark.parametrize(
    ("type", "names"),
    [
        ("staff.*.*", ["staff.Team", "staff.Vault"]),
        ("*.v1.Team", ["bank.Team", "staff.Team"]),
        ("staff.v2.Team", []),
        ("*.*.Nothing", []),
    ],
)
async def test_wildcard_rule_describes_the_types_that_it_matches(type: str, names: list[str]) -> None:
    """Each part of the type's name is compared."""
    found, _ = await described("some", some(rule(type)))

    assert found == names


@pytest.mark.parametrize(
    ("prefix", "verb", "topics", "messages"),
    [
        ("rates/", "read", ["rates"], ["Price"]),
        ("rates/EUR", "read", ["rates"], ["Price"]),
        ("raw/", "read", ["raw"], []),
        ("", "read", ["rates", "raw"], ["Price"]),
        ("rates/", "watch", [], []),
        ("other/", "read", [], []),
    ],
)
async def test_topic_is_described_to_callers_who_may_read_some_of_it(
    prefix: str, verb: str, topics: list[str], messages: list[str]
) -> None:
    """A right to a topic describes no type."""
    narrow = Rule(verbs=[verb], type="internal.v1.Topic", partition="", namespace="", name_prefix=prefix)
    reply = await answer("some", some(narrow))
    assert [each.name for each in reply.topics] == topics
    assert [each.full_name.rpartition(".")[2] for each in reply.messages] == messages
    assert not reply.types


async def test_caller_without_a_token_sees_the_types_of_the_anonymous_policy() -> None:
    """Without that policy, the caller sees none. A bearer has only its own policies."""
    anyone = Policy("anonymous", [rule("staff.v1.Vault")])

    assert await described("") == ([], [])
    assert await described("", anyone) == (["staff.Vault"], ["Vault", "Secret"])
    assert await described("some", anyone, some(rule("bank.v1.Team"))) == (["bank.Team"], ["Team"])


async def test_invalid_token_sees_nothing() -> None:
    """The types of the anonymous policy are hidden, too."""
    with pytest.raises(HeadwayError) as caught:
        await described(new_token([])[0], Policy("anonymous", [rule("*")]))

    assert status_of(caught.value) is Status.UNAUTHENTICATED


async def test_types_are_described_once_for_all_callers_with_the_same_rights(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server makes a service for each call. Describing a hundred types takes milliseconds, and many callers ask."""
    made = list[list[str]]()

    def counted(types: Iterable[ResourceType[Any]], topics: Iterable[Any] = ()) -> types_pb.ListResponse:
        types = list(types)
        made.append([type.name.kind for type in types])
        return describe(types, topics)

    monkeypatch.setattr("headway.service._types.describe", counted)
    policies = [Policy("teams", [rule("*.v1.Team")]), Policy("vaults", [rule("staff.v1.Vault")])]
    texts, tokens = zip(*(new_token([name]) for name in ("teams", "teams", "vaults")), strict=True)
    async with (
        headway.open_engine(
            "memory:", app, network=headway.Network(["127.0.0.1:0"], access=Authorizer(Access(policies, tokens)))
        ) as engine,
        rpc.open_channel(engine.addresses) as channel,
    ):
        made.clear()
        for text in texts * 3:
            metadata = {"x-consul-token": text}
            reply = await channel.unary(LIST, types_pb.ListRequest(), types_pb.ListResponse, metadata=metadata)
            assert {each.type.kind for each in reply.types if each.type} == {"Vault" if text == texts[2] else "Team"}
    assert made == [["Team", "Team"], ["Vault"]]
