"""Tokens and passwords do not leave this machine in plain text, unless the caller allows it.

Connecting to 0.0.0.0 reaches this machine, but it is not a loopback address: these tests use it as another host.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from grpclib.const import Status
from h2.events import TrailersReceived

import headway
from headway import rpc
from headway.errors import HeadwayError, InvalidArgument, StoreUnusable
from headway.storage import EtcdBackend
from headway.testing.conformance import names
from tests.helpers.fake_etcd import FakeEtcd, serving_etcd
from tests.helpers.service_errors import status_of
from tests.rpc.raw_kit import HEADERS, connected
from tests.rpc.rpc_kit import COUNT, META, Certificates, Text, TextDecoder, app, certificates, served

OTHER = "192.0.2.1:9000"
TOKEN = {"x-consul-token": "hw_secret"}
BEARER = {"authorization": "Bearer hw_secret"}


def over_the_network(where: str) -> str:
    return where.replace("127.0.0.1", "0.0.0.0")


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates(tmp_path_factory.mktemp("certificates"))


# --- Clients -------------------------------------------------------------------


@asynccontextmanager
async def _workers(endpoints: Any, **options: Any) -> AsyncIterator[None]:
    async with headway.open_workers(endpoints, app, **options):
        yield


@asynccontextmanager
async def _client(endpoints: Any, **options: Any) -> AsyncIterator[None]:
    async with headway.connect(endpoints, app, **options):
        yield


@pytest.mark.parametrize("opened", [_client, _workers])
@pytest.mark.parametrize("endpoints", [OTHER, ["127.0.0.1:9000", OTHER], "example.org:9000", "localhost.evil.org:1"])
async def test_token_for_another_host_is_refused_without_tls(opened: Any, endpoints: str | list[str]) -> None:
    """It is refused before any connection. The error names the host and both remedies."""
    with pytest.raises(InvalidArgument, match=r"(2\.1|example\.org|evil\.org):.*tls=.*insecure=True"):
        async with opened(endpoints, token="hw_secret"):
            pytest.fail("the connection was opened")


@pytest.mark.parametrize("opened", [_client, _workers])
@pytest.mark.parametrize(
    ("endpoints", "options"),
    [
        ("127.0.0.1:1,[::1]:1,localhost:1,127.8.9.1:1,unix:/nowhere", {"token": "hw_secret"}),
        (OTHER, {"token": "hw_secret", "insecure": True}),
        (OTHER, {"token": "hw_secret", "tls": rpc.client_tls()}),
        (OTHER, {}),
    ],
    ids=["this machine", "insecure", "tls", "no token"],
)
async def test_token_is_sent_locally_over_tls_or_if_allowed(
    opened: Any, endpoints: str, options: dict[str, Any]
) -> None:
    async with opened(endpoints, **options):
        pass


@pytest.mark.parametrize("metadata", [TOKEN, BEARER, {"X-Consul-Token": "hw_secret"}], ids=repr)
async def test_channel_sends_no_token_in_plain_text(metadata: dict[str, str]) -> None:
    """This includes a token that a program puts into a call's metadata."""
    async with (
        served() as it,
        rpc.open_channel(over_the_network(it.where), decoders={COUNT: TextDecoder}) as channel,
    ):
        with pytest.raises(InvalidArgument, match="insecure=True"):
            await channel.unary(META, Text(), Text, metadata=metadata)
        with pytest.raises(InvalidArgument, match="insecure=True"):
            async with channel.stream(COUNT, Text(text="1"), metadata=metadata):
                pytest.fail("the connection was opened")
        assert (await channel.unary(META, Text(), Text, metadata={"x-other": "a"})).text == "None"


async def test_channel_sends_tokens_in_plain_text_if_allowed() -> None:
    async with (
        served() as it,
        rpc.open_channel(over_the_network(it.where), insecure=True) as channel,
    ):
        assert (await channel.unary(META, Text(), Text, metadata=TOKEN)).text == "hw_secret"


async def test_channel_sends_tokens_over_tls(tls: Certificates) -> None:
    async with (
        served(tls=tls.server) as it,
        rpc.open_channel(over_the_network(it.where), tls=tls.client, server_name="127.0.0.1") as channel,
    ):
        assert (await channel.unary(META, Text(), Text, metadata=TOKEN)).text == "hw_secret"


# --- Forwarders ----------------------------------------------------------------


@pytest.mark.parametrize("metadata", [TOKEN, BEARER], ids=repr)
async def test_forwarder_passes_no_token_on_in_plain_text(metadata: dict[str, str]) -> None:
    """The call is refused with advice for the forwarder's operator. A call without a token is forwarded."""
    async with (
        served() as it,
        rpc.open_forwarder(over_the_network(it.where), ["127.0.0.1:0"]) as server,
        rpc.open_channel(server.addresses) as channel,
    ):
        with pytest.raises(HeadwayError, match="over plain TCP") as refused:
            await channel.unary(META, Text(), Text, metadata=metadata)
        assert status_of(refused.value) is Status.FAILED_PRECONDITION
        assert (await channel.unary(META, Text(), Text)).text == "None"


async def test_forwarder_passes_tokens_on_locally_or_if_allowed() -> None:
    async with served() as it:
        for upstream, insecure in ((over_the_network(it.where), True), (it.where, False)):
            async with (
                rpc.open_forwarder(upstream, ["127.0.0.1:0"], insecure=insecure) as server,
                rpc.open_channel(server.addresses) as channel,
            ):
                assert (await channel.unary(META, Text(), Text, metadata=TOKEN)).text == "hw_secret"


async def test_empty_token_counts_as_none() -> None:
    """Clients made for Consul send an empty token. The forwarder passes the call on."""
    async with (
        served() as it,
        rpc.open_forwarder(over_the_network(it.where), ["127.0.0.1:0"]) as server,
        connected(server.addresses[0]) as raw,
    ):
        call = [(name, META if name == ":path" else value) for name, value in HEADERS]
        raw.h2.send_headers(1, [*call, ("x-consul-token", "")])
        raw.h2.send_data(1, rpc.framed(b""), end_stream=True)
        await raw.flush()
        with trio.fail_after(20):
            trailers = await raw.until(lambda event: isinstance(event, TrailersReceived))
        assert dict(trailers.headers)[b"grpc-status"] == b"0"


# --- etcd ----------------------------------------------------------------------


async def test_password_for_etcd_on_another_host_is_refused_without_tls() -> None:
    """The same holds for the token that etcd issues for it. insecure=1 in the URL allows both."""
    etcd = FakeEtcd()
    etcd.token = "t1"
    async with serving_etcd(etcd) as (_, endpoint):
        where = over_the_network(endpoint)
        with pytest.raises(StoreUnusable, match=r"over plain TCP.*tls=1.*insecure=1") as refused:
            async with EtcdBackend(f"etcd://ada:secret@{where}/staff"):
                pytest.fail("the connection was opened")
        assert "secret" not in str(refused.value)
        assert not etcd.calls
        async with EtcdBackend(f"etcd://ada:secret@{where}/staff?insecure=1") as store:
            assert await names(store) == []
        etcd.token = None
        with trio.fail_after(30):
            async with EtcdBackend(f"etcd://{where}/other") as store:
                assert await names(store) == []
