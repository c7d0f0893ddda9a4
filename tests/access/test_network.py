"""Access over the network: the rights of a token, and a server that is never open by mistake."""

from __future__ import annotations

from typing import Any

import pytest
from grpclib.const import Status

import headway
from headway import rpc
from headway.access import Access, Authorizer, Policy, Rule, TokenSet, new_token
from headway.errors import HeadwayError
from headway.protobuf import encode
from headway.resource import pb
from headway.service import announced_in
from tests.helpers.plain_types import Team
from tests.helpers.service_errors import status_of

app = headway.App("staff")
TEAM = app.type("staff", "v1", "Team", Team)
ID = pb.Id(type=TEAM.name.message(), name="core")
# More than a request may have.
MANY = {str(number): "x" for number in range(13_000)}
LARGE: dict[str, Any] = {
    "Write": pb.WriteRequest(resource=pb.Resource(id=ID, metadata=MANY)),
    "MutateAndValidate": pb.MutateAndValidateRequest(resource=pb.Resource(id=ID, metadata=MANY)),
    "WriteStatus": pb.WriteStatusRequest(id=ID, status=pb.Status(conditions=[pb.Condition(type="x")] * 13_000)),
}


async def test_engine_that_listens_must_have_exactly_one_access_setting() -> None:
    """A forgotten setting must not leave the engine open."""
    for given in ({}, {"insecure": True, "access": Authorizer(Access())}):
        with pytest.raises(headway.errors.DeclarationError, match=r"access=.* or insecure=True"):
            async with headway.open_engine("memory:", app, network=headway.Network(["127.0.0.1:0"], **given)):  # type: ignore[arg-type]  # both are named
                pytest.fail("the engine listens")


async def test_token_permits_its_policies() -> None:
    """A token with read permission can read.

    A caller without a token is denied, and so is a write with this token. In process, everything is allowed.
    """
    rule = Rule(verbs=["view"], type="staff.v1.Team", partition="*", namespace="*")
    text, token = new_token(["readers"])
    access = Authorizer(Access([Policy("readers", [rule])], TokenSet([token])))
    async with headway.open_engine("memory:", app, network=headway.Network(["127.0.0.1:0"], access=access)) as engine:
        await engine.client.apply(TEAM.new("core"))
        async with headway.connect(engine.addresses, app, token=text) as reader:
            assert [team.name for team in await reader.list(TEAM)] == ["core"]
            async with reader.watch(TEAM) as events:
                assert isinstance(await events.__anext__(), headway.client.Upserted)
            for name in ("core", "other"):
                with pytest.raises(headway.errors.PermissionDenied):
                    await reader.write(TEAM.new(name))
        async with headway.connect(engine.addresses, app) as nobody:
            answers = []
            for name in ("core", "other"):
                with pytest.raises(headway.HeadwayError) as refused:
                    await nobody.read(TEAM, name)
                answers.append((type(refused.value), str(refused.value).replace(name, "NAME")))
            assert answers[0] == answers[1]


@pytest.mark.parametrize("method", LARGE)
async def test_rights_are_checked_before_a_large_request_is_decoded(method: str) -> None:
    """Decoding takes milliseconds, and a caller without the right would get them for each request."""
    rule = Rule(verbs=["write", "write_status", "read"], type="staff.v1.Team", partition="*", namespace="*")
    other = Rule(verbs=["list"], type="staff.v1.Team", partition="*", namespace="*")
    tokens = {name: new_token([name]) for name in ("writer", "other")}
    policies = [Policy("writer", [rule]), Policy("other", [other])]
    access = Authorizer(Access(policies, TokenSet(token for _, token in tokens.values())))
    async with headway.open_engine("memory:", app, network=headway.Network(["127.0.0.1:0"], access=access)) as engine:
        [address] = engine.addresses
        for name, wanted in (("writer", Status.INVALID_ARGUMENT), ("other", Status.PERMISSION_DENIED)):
            async with rpc.open_channel(address) as channel:
                with pytest.raises(HeadwayError) as refused:
                    await channel.unary(
                        f"/headway.resource.v1.ResourceService/{method}",
                        LARGE[method],
                        pb.WriteResponse,
                        metadata={"x-consul-token": tokens[name][0]},
                    )
                assert status_of(refused.value) is wanted, refused.value


@pytest.mark.parametrize(
    ("cls", "body"),
    [
        (pb.WriteRequest, b""),
        (pb.WriteRequest, b"\x0a"),
        (pb.WriteRequest, b"\x0a\x05\x0a\x7fabc"),
        (pb.WriteRequest, b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        (pb.WriteRequest, encode(pb.WriteRequest(resource=pb.Resource(version="7")))),
        (pb.WriteRequest, encode(pb.WriteRequest(store_id="x"))),
        (pb.ReadRequest, b"\x0a\x03\x0a\x02x"),
        (pb.ReadRequest, encode(pb.ReadRequest(id=pb.Id(type=ID.type, name="x" * 20_000)))),
        (pb.DeleteRequest, encode(pb.DeleteRequest(id=ID))),
    ],
)
def test_request_that_does_not_begin_with_an_id_announces_nothing(cls: type[Any], body: bytes) -> None:
    """It is decoded as a whole, and then checked. So is one whose id is too long to be one."""
    assert announced_in(cls, body) is None


@pytest.mark.parametrize("request_", [LARGE["Write"], LARGE["WriteStatus"], pb.ReadRequest(id=ID)])
def test_request_announces_the_id_with_which_it_begins(request_: Any) -> None:
    announced = announced_in(type(request_), encode(request_))
    assert getattr(announced, "resource", announced).id == ID
