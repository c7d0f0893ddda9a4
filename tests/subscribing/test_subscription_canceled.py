"""A subscription that is canceled at any step, at either end, leaves no task, no watch and no subscriber."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from headway.client import Client
from headway.rpc import InProcessChannel
from headway.storage import MemoryBackend
from headway.subscribing import OpenSubscriptions
from headway.subscription import Topic
from tests.helpers.cancel_everywhere import cancel_at_every_step
from tests.helpers.declared import CHILD, NOTE, registry
from tests.helpers.subscribing import a_service, commit, put


async def test_subscription_is_canceled_at_every_step(autojump_clock: MockClock) -> None:
    backend, streams = MemoryBackend(), OpenSubscriptions()
    topic: Topic[bytes] = Topic("rates", None, lambda _: {"EUR": b"1"}, wildcard=True)
    client = Client(InProcessChannel(a_service(backend, {"rates": topic}, streams=streams)), registry())
    numbers = iter(range(10**6))

    async def program() -> None:
        async with client.subscribe([NOTE, CHILD, topic]) as batches:
            position = (await anext(batches)).position
            await commit(backend, put(f"n{next(numbers)}"), put(f"n{next(numbers)}", type=CHILD))
            await anext(batches)
            topic.publish({"EUR": b"2"})
            await anext(batches)
        async with client.subscribe([NOTE, CHILD, topic], resume_after=position) as batches:
            await anext(batches)

    def check() -> None:
        assert len(streams) == topic.subscribers == topic.kept_snapshots == 0
        assert not streams._waits

    with trio.fail_after(10_000):
        assert await cancel_at_every_step(program, check) > 30
