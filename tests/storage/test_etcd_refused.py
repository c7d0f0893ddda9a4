"""A client of etcd whose user is refused, or in whose watch the caller's own code fails: neither is a failed call."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from grpclib.const import Status

from headway._gen.etcdserverpb import TxnRequest, WatchCreateRequest
from headway.errors import StoreUnusable, Unavailable
from headway.storage.etcd._address import etcd_address
from headway.storage.etcd._client import AUTHENTICATE, EtcdClient, Unreadable, understood
from tests.helpers.service_errors import failed


class Refusing:
    """A channel that fails every authentication, and opens every watch."""

    def __init__(self, status: Status, message: str) -> None:
        self.status, self.message = status, message
        self.paths: list[str] = []

    async def unary(self, path: str, *_: Any, **__: Any) -> Any:
        self.paths.append(path)
        raise failed(self.status, self.message)

    @asynccontextmanager
    async def duplex(self, *_: Any, **__: Any) -> AsyncIterator[str]:
        yield "replies"


@pytest.mark.parametrize(
    ("status", "message", "error"),
    [
        (Status.INVALID_ARGUMENT, "etcdserver: authentication failed", StoreUnusable),
        (Status.UNAVAILABLE, "etcdserver: no leader", Unavailable),
    ],
)
async def test_call_whose_user_is_refused_was_not_sent(status: Status, message: str, error: type[Exception]) -> None:
    """A write has an outcome then, and the error is the authentication's own."""
    channel: Any = Refusing(status, message)
    client = EtcdClient(channel, etcd_address("etcd://ada:secret@h:1/p"))
    for call in (client.write, client.read):
        channel.paths.clear()
        with pytest.raises(error) as caught:
            await call(TxnRequest())
        assert type(caught.value) is error
        assert str(caught.value).count("etcd at") == 1
        assert channel.paths == [AUTHENTICATE]


async def test_error_in_the_block_of_a_watch_is_no_failed_call() -> None:
    """Another program has written under the prefix, so the store cannot be used."""
    channel: Any = Refusing(Status.OK, "")
    client = EtcdClient(channel, etcd_address("etcd://h:1/p"))

    async def read() -> None:
        async with client.watch(WatchCreateRequest()):
            with understood("the store"):
                raise ValueError("not a resource")

    with pytest.raises(Unreadable):
        await read()
