"""Addresses, names and certificates that a peer or an operator has given, and that no connection accepts."""

from __future__ import annotations

import pytest
from grpclib.const import Status

from headway._gen.headway.peering import v1 as wire
from headway.errors import HeadwayError, InvalidArgument
from headway.peering import PEER_STREAM, Peering, Role, open_peer_channel
from tests.helpers.service_errors import status_of

UNUSABLE = ["a" * 64 + ":9000", "a..b:9000", ".b:9000", "a\0b:9000", "unix:/tmp/a\0b"]


@pytest.mark.parametrize("address", UNUSABLE)
async def test_address_that_no_system_resolves_cannot_be_reached(address: str) -> None:
    peering = Peering(role=Role.DIALS, addresses=[address], plain_text=address.startswith("unix:"))
    async with open_peer_channel(peering) as channel:
        with pytest.raises(HeadwayError) as caught:
            await channel.unary(PEER_STREAM, wire.Ack(), wire.Ack)
    assert status_of(caught.value) is Status.UNAVAILABLE
    assert "no server can be reached" in (str(caught.value))


async def test_address_with_half_of_a_surrogate_pair_is_invalid() -> None:
    peering = Peering(role=Role.DIALS, addresses=["\ud800:9000"])
    with pytest.raises(InvalidArgument, match=r"addresses\[0\] .* has half of a surrogate pair"):
        async with open_peer_channel(peering):
            pass


async def test_certificate_that_is_not_ascii_is_invalid() -> None:
    peering = Peering(role=Role.DIALS, addresses=["127.0.0.1:9"], ca="-----BEGIN CERTIFICATE-----\né")
    with pytest.raises(InvalidArgument, match=r"ca must contain certificates in PEM, .* ASCII"):
        async with open_peer_channel(peering):
            pass
