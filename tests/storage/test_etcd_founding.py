"""A new store in etcd is never made inside or around the prefix of another store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from headway._gen.etcdserverpb import PutRequest, PutResponse, RangeRequest, TxnRequest, TxnResponse
from headway.errors import StoreUnusable
from headway.rpc import open_channel
from headway.storage import EtcdBackend, etcd_address
from headway.storage.etcd import EtcdClient, open_client
from headway.storage.etcd._founding import begin_session
from headway.storage.etcd.layout import Layout, Transaction, TransactionReply
from headway.testing.conformance import names, put, thing
from tests.helpers.etcd_server import EtcdServer


@pytest.fixture
def root(etcd: EtcdServer) -> str:
    return f"etcd://{etcd.endpoint}{etcd.new_prefix()}"


async def found(url: str) -> None:
    async with EtcdBackend(url) as store:
        await put(store, thing("a"))


async def keys_below(url: str) -> int:
    address = etcd_address(url)
    below = Layout(address.prefix).everything
    async with open_client(address, None) as client:
        return len((await client.range(RangeRequest(key=below.key, range_end=below.end, keys_only=True))).kvs)


@pytest.mark.parametrize("below", ["/b", "/b/c", "/resource", "/store"])
async def test_founding_below_another_store_is_refused(root: str, below: str) -> None:
    """The keys of both stores would mix. The error names the other store, and nothing is written."""
    await found(root)
    before = await keys_below(root)
    with pytest.raises(StoreUnusable, match=f"{etcd_address(root).prefix} is a store already.*a prefix of its own"):
        await found(root + below)
    assert await keys_below(root) == before


@pytest.mark.parametrize("below", ["/b", "/b/c"])
async def test_founding_above_another_store_is_refused(root: str, below: str) -> None:
    """The range of its keys would include the keys of the other store."""
    await found(root + below)
    before = await keys_below(root)
    with pytest.raises(StoreUnusable, match=f"{etcd_address(root).prefix}{below} is a store already"):
        await found(root)
    assert await keys_below(root) == before


async def test_founding_over_keys_of_another_program_is_refused(root: str) -> None:
    """The error names one of the keys."""
    address = etcd_address(root)
    async with open_channel([str(each) for each in address.endpoints]) as channel:
        request = PutRequest(key=f"{address.prefix}/config".encode(), value=b"1")
        await channel.unary("/etcdserverpb.KV/Put", request, PutResponse)
    with pytest.raises(StoreUnusable, match=f"{address.prefix}/config"):
        await found(root)
    assert await keys_below(root) == 1


async def test_stores_with_sibling_prefixes_can_be_founded_and_reopened(root: str) -> None:
    """/bc is not below /b, although its name begins with it."""
    for each in ("/b", "/bc", "/b-c", "/c/b"):
        await found(root + each)
    for each in ("/b", "/bc", "/b-c", "/c/b"):
        async with EtcdBackend(root + each) as store:
            assert await names(store) == ["a"]


async def test_nested_stores_of_an_earlier_version_can_still_be_opened(root: str) -> None:
    """Only the founding of such a store is refused."""
    await found(root + "/b")
    async with _client(root, _Unaware) as client:
        await begin_session(client, Layout(etcd_address(root).prefix))
    for each in (root, root + "/b"):
        async with EtcdBackend(each):
            pass


@pytest.mark.parametrize(("first", "second"), [("", "/b"), ("/b", "")], ids=["below", "above"])
async def test_one_of_two_concurrent_nested_foundings_is_refused(root: str, first: str, second: str) -> None:
    """The transaction decides: when the second program looked, the first store had not been founded."""
    async with _client(root + second, _Overtaken) as client:
        client.overtake = root + first
        with pytest.raises(StoreUnusable, match="is a store already"):
            await begin_session(client, Layout(etcd_address(root + second).prefix))
    async with EtcdBackend(root + first) as store:
        assert await names(store) == ["a"]


async def test_store_that_is_founded_between_two_looks_of_another_opening_is_opened(root: str) -> None:
    """The second look finds the store's own anchor, which belongs to no neighbor."""
    async with _client(root, _OvertakenBeforeLooking) as client:
        client.overtake = root
        await begin_session(client, Layout(etcd_address(root).prefix))
        assert not client.overtake
    async with EtcdBackend(root) as store:
        assert await names(store) == ["a"]


class _Unaware(EtcdClient):
    """A store that is founded as earlier versions did it: they looked only at the keys of its own prefix."""

    async def read(self, request: TxnRequest) -> TxnResponse:
        reply = await super().read(request)
        for each in reply.responses:
            if each.response_range is not None:
                each.response_range.kvs = []
        return reply

    async def write(self, request: TxnRequest | Transaction) -> TransactionReply:
        assert isinstance(request, TxnRequest)
        request.compare = [each for each in request.compare if not each.range_end]
        return await super().write(request)


class _Overtaken(EtcdClient):
    """A store whose founding is overtaken: another store is founded between its check and its transaction."""

    overtake = ""

    async def write(self, request: TxnRequest | Transaction) -> TransactionReply:
        if self.overtake:
            url, self.overtake = self.overtake, ""
            with trio.fail_after(30):
                await found(url)
        return await super().write(request)


class _OvertakenBeforeLooking(EtcdClient):
    """A store whose founding is overtaken between the read that finds no store and the look for neighbors."""

    overtake = ""

    async def read(self, request: TxnRequest) -> TxnResponse:
        looks = any(each.request_range is not None and each.request_range.limit == 1 for each in request.success)
        if self.overtake and looks:
            url, self.overtake = self.overtake, ""
            await found(url)
        return await super().read(request)


@asynccontextmanager
async def _client(url: str, kind: type[Any]) -> AsyncIterator[Any]:
    address = etcd_address(url)
    async with open_client(address, None) as client:
        yield kind(client._channel, address)
