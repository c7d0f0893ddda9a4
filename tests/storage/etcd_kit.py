"""Helpers for the tests of the etcd store: stores on the fake etcd, and readers that check what they receive."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

import trio
from grpclib import GRPCError
from grpclib.const import Status

from headway._gen.etcdserverpb import RangeRequest, RangeResponse, TxnRequest
from headway.storage import EtcdBackend, Within
from headway.testing.conformance import Reader, held, names, reading
from tests.helpers.fake_etcd import FakeEtcd, serving_etcd

PREFIX = "/staff"


class Rig(NamedTuple):
    """A fake etcd, a store on it, and the address of that store for other engines."""

    fake: FakeEtcd
    store: EtcdBackend
    url: str


@asynccontextmanager
async def rigged(fake: FakeEtcd | None = None, *, max_changes: int = 100_000) -> AsyncIterator[Rig]:
    async with serving_etcd(fake) as (fake, endpoint):
        url = f"etcd://{endpoint}{PREFIX}"
        async with EtcdBackend(url, max_changes=max_changes) as store:
            await until(lambda: fake.watchers)
            yield Rig(fake, store, url)


async def primed(store: EtcdBackend) -> Reader:
    """Return a reader that has received its snapshot."""
    reader = await reading(store)
    await reader.until_snapshot()
    return reader


async def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait until the condition holds, by polling: it has no event."""
    with trio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110  # the condition has no event
            await trio.sleep(0.005)


async def followed(reader: Reader, store: EtcdBackend) -> None:
    """Assert that a reader has received exactly the state that the store holds."""
    await names(store)
    await reader.until(store.position.revision)
    found, _ = await store.list(("conformance", "Thing"), Within())
    assert reader.held == held(found)


def failing(status: Status, message: str, *, times: int = 1) -> Callable[[TxnRequest], None]:
    """Let this many writes fail before etcd does anything."""

    def fail(request: TxnRequest) -> None:
        nonlocal times
        if times and is_write(request):
            times -= 1
            raise GRPCError(status, message)

    return fail


def is_write(request: TxnRequest) -> bool:
    return any(each.request_put or each.request_delete_range or each.request_txn for each in request.success)


def lagging(fake: FakeEtcd) -> Callable[[RangeRequest, RangeResponse], RangeResponse]:
    """Return a hook for `FakeEtcd.on_range` that cancels all watches at the next read, once."""

    def answer(_: RangeRequest, response: RangeResponse) -> RangeResponse:
        fake.on_range = lambda _, response: response
        fake.cancel_watches("etcdserver: no leader")
        return response

    return answer
