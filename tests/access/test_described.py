"""Which types a caller is told of: those with which they may do anything, and nothing else."""

from __future__ import annotations

import pytest
from grpclib import GRPCError
from grpclib.const import Status

import headway
from headway import field, rpc
from headway.access import Access, Authorizer, Policy, Rule, new_token
from headway.resource import types_pb


@headway.message
class Secret:
    word: str = field(1)


@headway.message(name="tests.Team")
class Team:
    note: str = field(1)


@headway.message
class Vault:
    inside: list[Secret] = field(1)


app = headway.App("staff")
app.type("staff", "v1", "Team", Team)
app.type("staff", "v1", "Vault", Vault)
app.type("bank", "v1", "Team", Team)
LIST = "/headway.types.v1.TypesService/List"


async def described(text: str, *policies: Policy) -> tuple[list[str], list[str]]:
    """The types and the messages that are told of."""
    given, token = new_token(["some"])
    access = Authorizer(Access([*policies, *([] if any(p.name == "some" for p in policies) else [some()])], [token]))
    text = given if text == "some" else text
    async with (
        headway.open_engine("memory:", app, listen=["127.0.0.1:0"], access=access) as engine,
        rpc.open_channel(engine.addresses) as channel,
    ):
        metadata = {"x-consul-token": text} if text else None
        reply = await channel.unary(LIST, types_pb.ListRequest(), types_pb.ListResponse, metadata=metadata)
    names = [f"{each.type.group}.{each.type.kind}" for each in reply.types if each.type is not None]
    return names, [each.full_name.rpartition(".")[2] for each in reply.messages]


def some(*rules: Rule) -> Policy:
    return Policy("some", rules)


def rule(type: str, verb: str = "read", **narrow: str) -> Rule:
    return Rule(verbs=[verb], type=type, **{"partition": "*", "namespace": "*", **narrow})


@pytest.mark.parametrize("verb", ["read", "list", "watch", "write", "write_status", "delete"])
async def test_a_type_is_described_to_who_may_do_anything_with_it(verb: str) -> None:
    """Any verb, anywhere, on any names; and no message that only other types hold."""
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
async def test_rules_for_many_types_describe_those(type: str, names: list[str]) -> None:
    """Each part of a type's name counts."""
    found, _ = await described("some", some(rule(type)))

    assert found == names


async def test_who_shows_no_token_is_told_what_anyone_may_do() -> None:
    """Nothing, unless there is a policy for them; a bearer has their own policies alone."""
    anyone = Policy("anonymous", [rule("staff.v1.Vault")])

    assert await described("") == ([], [])
    assert await described("", anyone) == (["staff.Vault"], ["Vault", "Secret"])
    assert await described("some", anyone, some(rule("bank.v1.Team"))) == (["bank.Team"], ["Team"])


async def test_a_token_that_does_not_hold_is_told_nothing() -> None:
    """Not even what anyone may know."""
    with pytest.raises(GRPCError) as caught:
        await described(new_token([])[0], Policy("anonymous", [rule("*")]))

    assert caught.value.status is Status.UNAUTHENTICATED


async def test_without_rules_everybody_is_told_everything() -> None:
    """An engine that is insecure says so."""
    async with (
        headway.open_engine("memory:", app, listen=["127.0.0.1:0"], insecure=True) as engine,
        rpc.open_channel(engine.addresses) as channel,
    ):
        reply = await channel.unary(LIST, types_pb.ListRequest(), types_pb.ListResponse)
    assert {"Team", "Vault"} <= {each.type.kind for each in reply.types if each.type is not None}
