"""The exchange over a network: TLS or an explicit exception, wrong secrets at a bounded rate, and rights."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from grpclib.const import Status

import headway
from headway import events, rpc
from headway._gen.headway.peering.v1 import ExchangeSecretRequest, ExchangeSecretResponse
from headway.access import Access, Authorizer, Policy, Rule, TokenSet, new_token
from headway.errors import FailedPrecondition, HeadwayError, InvalidArgument, OutcomeUnknown, PermissionDenied
from headway.peering import EXCHANGE, PEERING, establish, export, generate_token, read_token
from headway.peering._failures import MOST
from headway.peering._secrets import REFUSED
from tests.helpers.peers import TEAM, app, open_accepting, open_peers
from tests.helpers.secret_files import write_secret
from tests.helpers.service_errors import status_of


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@asynccontextmanager
async def open_with_tls(tmp_path: Path, authority: trustme.CA, **options: Any) -> AsyncIterator[headway.Engine]:
    """Open an engine that listens with a certificate for 127.0.0.1."""
    file = tmp_path / "server.pem"
    write_secret(file, authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.bytes())
    options.setdefault("report", events.ignore)
    opened = headway.open_engine(
        "memory:", app, network=headway.Network(["127.0.0.1:0"], insecure=True, tls=rpc.server_tls(file)), **options
    )
    async with opened as engine:
        yield engine


def request(token: str, **given: str) -> ExchangeSecretRequest:
    read = read_token(token)
    fields = {"peer_id": read.peer_id, "secret": read.secret, "attempt": "a", "dialer_id": "d", "dialer_name": "east"}
    return ExchangeSecretRequest(**{**fields, "dialer_store_id": "other", **given})


async def exchanged(channel: rpc.Channel, message: ExchangeSecretRequest) -> tuple[Status, str]:
    """Return the status and the message of an exchange."""
    try:
        reply = await channel.unary(EXCHANGE, message, ExchangeSecretResponse)
    except HeadwayError as error:
        return status_of(error), str(error)
    assert len(reply.stream_secret) == 64
    return Status.OK, ""


async def test_r9_token_is_exchanged_over_tls(tmp_path: Path, authority: trustme.CA) -> None:
    """The token has the authority of the certificate. With another authority, no secret is sent."""
    ca = authority.cert_pem.bytes().decode()
    async with (
        open_with_tls(tmp_path, authority) as accepts,
        headway.open_engine("memory:", app, report=events.ignore) as dials,
    ):
        wrong = await generate_token(accepts.client, "west", [TEAM], ca=trustme.CA().cert_pem.bytes().decode())
        with pytest.raises(OutcomeUnknown, match=r"(?s)not established yet: .*certificate"):
            await establish(dials.client, "wrong", wrong)
        token = await generate_token(accepts.client, "west", [TEAM], ca=ca)
        peering = await establish(dials.client, "east", token)
        assert (peering.data.plain_text, peering.data.ca) == (False, ca)


async def test_token_without_tls_needs_consent_on_both_sides(tmp_path: Path) -> None:
    """An engine without TLS makes no token unless plain text is allowed, and that only for this machine."""
    async with open_peers(tmp_path) as (accepts, dials, _):
        with pytest.raises(FailedPrecondition, match="the engine listens without TLS: open it with tls="):
            await generate_token(accepts.client, "west", [TEAM])
        with pytest.raises(InvalidArgument, match=r"addresses\[0\] '10.0.0.1:9000': a secret sent to another host"):
            await generate_token(accepts.client, "west", [TEAM], addresses=["10.0.0.1:9000"], plain_text=True)
        token = await generate_token(accepts.client, "west", [TEAM], plain_text=True)
        with pytest.raises(FailedPrecondition, match=r"the token says to connect without TLS: allow it by plain_text"):
            await establish(dials.client, "east", token)


async def test_exchange_in_plain_text_is_refused_for_a_token_for_tls(tmp_path: Path) -> None:
    """A valid secret and the dialer's consent are not enough."""
    async with open_peers(tmp_path) as (accepts, _, address):
        token = await generate_token(accepts.client, "west", [TEAM], addresses=["engine.example.com:9000"])
        async with rpc.open_channel(address) as channel:
            status, said = await exchanged(channel, request(token))
            assert (status, "must be exchanged over TLS" in said) == (Status.FAILED_PRECONDITION, True)


async def test_peering_that_was_changed_to_plain_text_does_not_leak_its_secret(tmp_path: Path) -> None:
    """Neither the address nor the flag can be changed so that a secret would leave the machine in plain text."""
    async with open_peers(tmp_path) as (accepts, dials, _):
        token = await generate_token(accepts.client, "west", [TEAM], plain_text=True)
        peering = await establish(dials.client, "east", token, plain_text=True)
        peering = await dials.client.read(PEERING, "east")
        peering.data.addresses = ["10.0.0.1:9000"]
        with pytest.raises(InvalidArgument, match=r"resource.data.addresses\[0\] '10.0.0.1:9000': a secret sent to"):
            await dials.client.write(peering)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"attempt": ""}, "attempt is required"),
        ({"dialer_id": ""}, "dialer_id is required"),
        ({"peer_id": "x" * 256}, "peer_id 'xxx"),
        ({"secret": "x" * 256}, "secret has 256 characters: it must have at most 255"),
    ],
)
async def test_field_out_of_bounds_is_refused_before_the_secret_is_compared(
    tmp_path: Path, given: dict[str, str], said: str
) -> None:
    async with open_peers(tmp_path) as (accepts, _, address):
        token = await generate_token(accepts.client, "west", [TEAM], plain_text=True)
        async with rpc.open_channel(address) as channel:
            status, found = await exchanged(channel, request(token, **given))
            assert (status, found[: len(said)]) == (Status.INVALID_ARGUMENT, said)
            assert (await exchanged(channel, request(token)))[0] is Status.OK


async def test_wrong_secrets_are_refused_at_a_bounded_rate(tmp_path: Path) -> None:
    """After some failures the host is refused without a look at its secret, and events come once a second at most."""
    seen: list[events.Record] = []
    async with open_peers(tmp_path, report=seen.append) as (accepts, _, address):
        token = await generate_token(accepts.client, "west", [TEAM], plain_text=True)
        async with rpc.open_channel(address) as channel:
            wrong = request(token, secret="w" * 64)
            for _ in range(MOST):
                assert await exchanged(channel, wrong) == (Status.PERMISSION_DENIED, REFUSED)
            status, said = await exchanged(channel, request(token))
            assert (status, said[:28]) == (Status.RESOURCE_EXHAUSTED, "too many failed exchanges fr")
    refused = [each for each in seen if isinstance(each, events.PeerRefused)]
    assert 1 <= len(refused) < MOST
    assert refused[0].why == REFUSED
    assert not any("w" * 64 in repr(vars(each)) for each in seen)


def _access(*rules: Rule) -> tuple[str, Authorizer]:
    text, token = new_token(["operators"])
    return text, Authorizer(Access([Policy("operators", rules)], TokenSet([token])))


_PEERINGS = Rule(verbs=["view", "edit"], type="peering.v1.Peering", partition="", namespace="")


async def test_token_needs_the_right_to_write_the_peering_and_to_read_what_it_exports(tmp_path: Path) -> None:
    """An exchange needs no right besides the secret."""
    team_in_a = Rule(verbs=["read"], type="staff.v1.Team", partition="default", namespace="a")
    text, access = _access(_PEERINGS, team_in_a)
    async with open_peers(tmp_path, access=access) as (_, dials, address):
        async with headway.connect(address, app, token=text) as operator:
            with pytest.raises(PermissionDenied, match=r"exports\[0\]: you may not read all of staff.v1.Team there"):
                await generate_token(operator, "west", [TEAM], plain_text=True)
            exports = [export(TEAM, partition="default", namespace="a")]
            token = await generate_token(operator, "west", exports, plain_text=True)
            # An ordinary write needs the same.
            peering = await operator.read(PEERING, "west")
            peering.data.exports = [export(TEAM)]
            with pytest.raises(PermissionDenied, match=r"resource.data.exports\[0\]: you may not read all of"):
                await operator.write(peering)
        async with headway.connect(address, app) as nobody:
            with pytest.raises(PermissionDenied, match="you may not write Peering west"):
                await generate_token(nobody, "west", [], plain_text=True)
            with pytest.raises(PermissionDenied, match="you may not write Peering west"):
                await establish(nobody, "west", token, plain_text=True)
        await establish(dials.client, "east", token, plain_text=True)


async def test_no_right_lets_a_caller_reach_the_secrets(tmp_path: Path) -> None:
    """A caller with every right cannot, nor one in the process: their type is not registered, and cannot be."""
    text, access = _access(Rule(verbs=["*"], type="*", partition="*", namespace="*"))
    other = headway.App("spy")
    with pytest.raises(headway.errors.DeclarationError, match="group 'internal' is reserved"):
        other.type("internal", "v1", "PeeringSecrets", headway.peering.Peering, scope=headway.Scope.CLUSTER)
    secrets = headway.ResourceType("internal", "v1", "PeeringSecrets", _Secrets, scope=headway.Scope.CLUSTER)
    async with open_peers(tmp_path, access=access) as (accepts, _, address):
        token = await generate_token(accepts.client, "west", [TEAM], plain_text=True)
        uid = read_token(token).peer_id.lower()
        async with headway.connect(address, app, token=text) as everything:
            for client in (everything, accepts.client):
                for call in (
                    client.read(secrets, uid),
                    client.list(secrets),
                    client.write(secrets.new(uid)),
                    client.delete(secrets.id(uid)) if client is everything else client.read(secrets, uid),
                ):
                    with pytest.raises(InvalidArgument, match=r"type internal\.v1\.PeeringSecrets is not registered"):
                        await call


@headway.message(name="tests.PeeringSecrets")
class _Secrets:
    text: str = headway.field(1)


async def test_new_token_needs_the_right_to_read_the_exports_that_the_peering_keeps(tmp_path: Path) -> None:
    """Whoever exchanges the token gets what the peering exports, whoever has chosen that."""
    text, access = _access(_PEERINGS)
    async with open_peers(tmp_path, access=access) as (accepts, _, address):
        await generate_token(accepts.client, "west", [TEAM], plain_text=True)
        async with headway.connect(address, app, token=text) as operator:
            with pytest.raises(
                PermissionDenied, match=r"exports\[0\], which it keeps: you may not read all of staff.v1"
            ):
                await generate_token(operator, "west", None, plain_text=True)
            await generate_token(operator, "west", [], plain_text=True)


async def test_another_way_to_the_peer_needs_the_right_to_read_its_copies(tmp_path: Path) -> None:
    """The secret of the stream is sent there. With it, anyone gets what the other side exports."""
    everything = Rule(verbs=["view"], type="*", partition="peer-east", namespace="*")
    exported = Rule(verbs=["view"], type="staff.v1.Team", partition="*", namespace="*")
    (tmp_path / "dials").mkdir()
    for rules, export_it in (([_PEERINGS], False), ([_PEERINGS, everything], True), ([_PEERINGS, exported], True)):
        text, access = _access(*rules)
        async with (
            open_peers(tmp_path) as (accepts, _, _),
            open_accepting(tmp_path / "dials", access=access) as dials,
        ):
            token = await generate_token(accepts.client, "west", [TEAM], plain_text=True)
            await establish(dials.client, "east", token, [TEAM] if export_it else [], plain_text=True)
            again = await generate_token(accepts.client, "west", None, plain_text=True, addresses=["127.0.0.1:9"])
            async with headway.connect(dials.addresses, app, token=text) as operator:
                with pytest.raises(
                    PermissionDenied, match=r"another way to the peer needs|exports\[0\], which it keeps"
                ):
                    await establish(operator, "east", again, plain_text=True)
                peering = await operator.read(PEERING, "east")
                peering.data.addresses = ["127.0.0.1:9"]
                with pytest.raises(PermissionDenied, match=r"another way to the peer needs|exports\[0\]: you may not"):
                    await operator.write(PEERING.new(peering.name, peering.data))
            # The trusted callers of the process may.
            peering = await dials.client.read(PEERING, "east")
            peering.data.addresses = ["127.0.0.1:9"]
            await dials.client.write(PEERING.new(peering.name, peering.data))


async def test_accepting_side_needs_the_same_right_to_direct_its_dialer_elsewhere(tmp_path: Path) -> None:
    """The stream sends the new addresses to the dialer. Before there is one, they are free."""
    text, access = _access(_PEERINGS)
    async with (
        open_peers(tmp_path, access=access) as (_, dials, address),
        headway.connect(address, app, token=text) as operator,
    ):
        await generate_token(operator, "west", [], plain_text=True, addresses=["127.0.0.1:9"])
        token = await generate_token(operator, "west", [], plain_text=True)
        await establish(dials.client, "east", token, [TEAM], plain_text=True)
        with pytest.raises(PermissionDenied, match="another way to the peer needs the right to read partition peer-w"):
            await generate_token(operator, "west", [], plain_text=True, addresses=["127.0.0.1:9"])
        peering = await operator.read(PEERING, "west")
        peering.data.addresses = ["127.0.0.1:9"]
        with pytest.raises(PermissionDenied, match="another way to the peer needs the right to read partition peer-w"):
            await operator.write(PEERING.new(peering.name, peering.data))
        # The same addresses are not another way.
        await generate_token(operator, "west", [], plain_text=True)
