"""Peering through forwarders: tokens, the exchange and the stream pass. Plain text behind a forwarder is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trustme

import headway
from headway import events, rpc
from headway.errors import FailedPrecondition
from headway.peering import PEERING, PeeringState, establish, generate_token
from tests.helpers.peers import TEAM, Team, app, open_accepting, reached
from tests.helpers.secret_files import write_secret
from tests.peering.test_copying import copy_that, size
from tests.peering.test_exchange import open_with_tls


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def certificate(path: Path, authority: trustme.CA) -> Path:
    """Return a file with a certificate of a forwarder on this machine."""
    file = path / "forwarder.pem"
    write_secret(file, authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.bytes())
    return file


async def test_peering_is_made_used_and_deleted_through_forwarders(tmp_path: Path, authority: trustme.CA) -> None:
    """There is one before each side. Between them, and on to the accepting engine, is TLS."""
    ca = authority.cert_pem.bytes().decode()
    listen = [f"unix:{tmp_path}/east"]
    trusted = rpc.client_tls_of_text(ca)
    with trio.fail_after(60):
        async with (
            open_with_tls(tmp_path, authority) as west,
            headway.open_engine(
                "memory:", app, network=headway.Network(listen, insecure=True), report=events.ignore
            ) as east,
            rpc.open_forwarder(
                west.addresses[0],
                ["127.0.0.1:0"],
                upstream_tls=trusted,
                tls=rpc.server_tls(certificate(tmp_path, authority)),
            ) as before_west,
            rpc.open_forwarder(east.addresses[0], [f"unix:{tmp_path}/before"]) as before_east,
            headway.connect(before_west.addresses[0], app, tls=trusted) as to_west,
            headway.connect(before_east.addresses[0], app) as to_east,
        ):
            token = await generate_token(to_west, "east", [TEAM], addresses=[before_west.addresses[0]], ca=ca)
            await establish(to_east, "west", token, [TEAM])
            await to_west.write(TEAM.new("ada", Team(size=1)))
            await to_east.write(TEAM.new("ben", Team(size=2)))
            await copy_that(east, "west", "ada", size(1))
            await copy_that(west, "east", "ben", size(2))
            await to_east.delete(PEERING.id("west"))
            await headway.until_gone(to_east, PEERING, "west")
            await reached(west, "east", PeeringState.TERMINATED)


async def test_token_is_refused_behind_a_forwarder_that_ends_tls(tmp_path: Path, authority: trustme.CA) -> None:
    """The engine cannot know whether the first part of the way was encrypted."""
    ca = authority.cert_pem.bytes().decode()
    with trio.fail_after(60):
        async with (
            open_accepting(tmp_path) as west,
            headway.open_engine("memory:", app, report=events.ignore) as east,
            rpc.open_forwarder(
                west.addresses[0], ["127.0.0.1:0"], tls=rpc.server_tls(certificate(tmp_path, authority))
            ) as server,
        ):
            token = await generate_token(west.client, "east", [TEAM], addresses=[server.addresses[0]], ca=ca)
            with pytest.raises(
                FailedPrecondition, match="over TLS, also on the way from a proxy to the engine; only a"
            ):
                await establish(east.client, "west", token)
            assert await east.client.list(PEERING) == []
