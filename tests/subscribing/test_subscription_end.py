"""The end of a subscription: of its block, and by an event that cannot be read."""

from __future__ import annotations

import pytest
import trio
import trio.testing

import headway
from headway.errors import Closed, PayloadError
from tests.helpers.plain_types import Rate, Team

app = headway.App("staff")
TEAM = app.type("staff", "v1", "Team", Team)
RATES = app.topic("rates", Rate, snapshot=lambda _: {})
# Another program's declaration of the same topic, with another class.
MISTAKEN = headway.App("other").topic("rates", Team, snapshot=lambda _: {})


async def test_subscription_is_closed_with_its_block() -> None:
    """Reading raises Closed, also in a task that waits when the block ends."""
    ended = trio.Event()

    async def other(batches: headway.subscribing.Subscription) -> None:
        with pytest.raises(Closed, match="block has ended"):
            await anext(batches)
        ended.set()

    async with headway.open_engine("memory:", app) as engine, trio.open_nursery() as nursery:
        async with engine.client.subscribe([TEAM]) as batches:
            assert (await anext(batches)).snapshot
            nursery.start_soon(other, batches)
            await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(10):
            await ended.wait()
        with pytest.raises(Closed, match=r"client\.subscribe"):
            await anext(batches)


async def test_event_that_cannot_be_read_ends_the_subscription() -> None:
    """A later batch would be applied to a state that lacks the event. The position stays before it."""
    async with (
        headway.open_engine("memory:", app) as engine,
        engine.client.subscribe([TEAM, headway.Subject(MISTAKEN, "EUR")]) as batches,
    ):
        begin = (await anext(batches)).position
        RATES.publish({"EUR": Rate(cents=1)})
        for name in ("a", "b"):
            with pytest.raises(PayloadError, match="has events"):
                await anext(batches)
            await engine.client.create(TEAM.new(name))
        assert batches.position == begin
