"""Streams of the page that their viewers do not read: their bytes count toward the memory for all unread answers."""

from __future__ import annotations

from contextlib import AsyncExitStack

import trio

from headway import rpc
from tests.http.test_replies import MIB, NOTE, asked, rest
from tests.page.kit import PATIENCE, open_shop
from tests.page.shop import ORDER, Order

PATH = "/page/resource?type=shop.v1.Order&name=core"


async def test_oldest_of_the_largest_streams_gives_way() -> None:
    """There is room for two. The calls to the service that each has made before change nothing."""
    limits = rpc.Limits(server_replies_size=5 * MIB)
    async with open_shop(limits=limits) as shop, AsyncExitStack() as stack:
        stack.enter_context(trio.fail_after(PATIENCE))
        await shop.client.write(ORDER.new("core", Order(customer=NOTE)))
        await shop.engine.wait_idle()
        first, second, third = [await asked(shop.address, PATH, stack) for _ in range(3)]
        assert await rest(first) < len(NOTE)
        assert await rest(second) >= len(NOTE)
        assert await rest(third) >= len(NOTE)
