"""A stock grpc-go client, which pings for nearly every reply, is served like any other."""

from __future__ import annotations

import time

import pytest

from headway import rpc
from tests.helpers.go_client import assert_none_failed, run_go_client
from tests.rpc.rpc_kit import served

CONSULS = "hashicorp.consul.resource.ResourceService"


@pytest.mark.wide
async def test_busy_go_client_receives_every_write_in_its_watch() -> None:
    """1,000 writes and 1,000 reads on the connection of the watch: none fails."""
    async with served(patience=120.0) as it:
        outcome = await run_go_client(it.where, calls=2000, watch=True)
    assert_none_failed(outcome)
    assert (outcome["calls"], outcome["writes"], outcome["heard"]) == (2000, 1000, 1000)


async def test_go_clients_on_fifty_connections_are_served() -> None:
    """They use Consul's name of the service. One of them watches what all of them write."""
    async with served(patience=120.0) as it:
        outcome = await run_go_client(it.where, calls=300, connections=50, watch=True, service=CONSULS)
    assert_none_failed(outcome)
    assert (outcome["calls"], outcome["heard"]) == (300, 150)


async def test_go_client_is_served_through_a_forwarder() -> None:
    """The forwarder renews the allowance of pings like a server, and the watch receives every write."""
    async with served(patience=120.0) as it, rpc.open_forwarder(it.where, ["127.0.0.1:0"]) as forwarder:
        outcome = await run_go_client(forwarder.addresses[0], calls=200, watch=True)
    assert_none_failed(outcome)
    assert (outcome["calls"], outcome["heard"]) == (200, 100)


@pytest.mark.deep
@pytest.mark.timeout(180)
@pytest.mark.parametrize("forwarded", [False, True])
async def test_go_clients_make_twenty_thousand_calls_in_half_a_minute(forwarded: bool) -> None:
    """They use fifty connections and a watch. Half of the calls are writes, and none fails."""
    async with served(patience=150.0) as it, rpc.open_forwarder(it.where, ["127.0.0.1:0"]) as forwarder:
        where = forwarder.addresses[0] if forwarded else it.where
        before = time.process_time()
        outcome = await run_go_client(where, patience=120.0, calls=20_000, connections=50, watch=True)
        used = time.process_time() - before
    print(f"{used:.1f} s of processor time; {outcome}")
    assert_none_failed(outcome)
    assert outcome["calls"] == 20_000
    # The processor time of one thread does not depend on other programs. A forwarder here doubles it.
    assert used < (60 if forwarded else 30)
