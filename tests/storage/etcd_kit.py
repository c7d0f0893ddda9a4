"""What the tests of the etcd store share: stores on the fake etcd, and readers that look at what was said to them."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

import trio
from grpclib import GRPCError
from grpclib.const import Status

from headway._gen.etcdserverpb import RangeRequest, RangeResponse, TxnRequest
from headway.storage import EtcdBackend, Within
from headway.testing._conformance_tools import Reader, held, names, reading
from tests.helpers.fake_etcd import FakeEtcd, serving_etcd

PREFIX = "/staff"


class Rig(NamedTuple):
    """A fake etcd, a store on it, and where others can open the same store."""

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
    """A reader that has heard its snapshot."""
    reader = await reading(store)
    await reader.until_snapshot()
    return reader


async def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait for what no event says."""
    with trio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110  # what is waited for has no event
            await trio.sleep(0.005)


async def followed(reader: Reader, store: EtcdBackend) -> None:
    """Hold that a reader has heard exactly what the store holds."""
    await names(store)
    await reader.until(store.position.revision)
    found, _ = await store.list(("conformance", "Thing"), Within())
    assert reader.held == held(found)


def failing(status: Status, message: str, *, times: int = 1) -> Callable[[TxnRequest], None]:
    """Let so many writes fail before anything is done."""

    def fail(request: TxnRequest) -> None:
        nonlocal times
        if times and is_write(request):
            times -= 1
            raise GRPCError(status, message)

    return fail


def is_write(request: TxnRequest) -> bool:
    return any(each.request_put or each.request_delete_range or each.request_txn for each in request.success)


def lagging(fake: FakeEtcd) -> Callable[[RangeRequest, RangeResponse], RangeResponse]:
    """The watches begin anew when somebody asks where the store stands, and not before."""

    def answer(_: RangeRequest, response: RangeResponse) -> RangeResponse:
        fake.on_range = lambda _, response: response
        fake.cancel_watches("etcdserver: no leader")
        return response

    return answer
