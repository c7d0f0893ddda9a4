"""Subscribe to topics: their current events, and then what each call publishes."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from grpclib.const import Status

from headway.storage import MemoryBackend
from headway.subscription import (
    Topic,
)
from tests.helpers.calls import refused
from tests.helpers.subscribing import (
    RATES,
    Subscriber,
    a_service,
    a_snapshot,
    commits,
    current,
    everything,
    of_topic,
    publish,
    shown,
    subscriber,
)


async def test_m2_topic_begins_with_the_current_events(anywhere: Subscriber) -> None:
    """Then comes what is published, in the order of the calls, each call whole."""
    current["EUR"] = current["CHF"] = b"x"
    async with anywhere.open(of_topic("rates")) as items:
        found, position = await a_snapshot(items)
        assert found == ["rates/CHF", "rates/EUR"]
        assert position.store is None
        publish("EUR", "USD")
        publish("CHF")
        assert await commits(items, 2) == [["rates/EUR", "rates/USD"], ["rates/CHF"]]


async def test_m6_subscriber_gets_only_the_subjects_it_asked_for(anywhere: Subscriber) -> None:
    """One call is one batch, as far as its subjects are asked for."""
    current["EUR"] = current["CHF"] = b"x"
    async with anywhere.open(of_topic("rates", "EUR"), of_topic("rates", "USD")) as items:
        assert (await a_snapshot(items))[0] == ["rates/EUR"]
        publish("CHF")
        publish("CHF", "EUR", "USD")
        assert await commits(items, 1) == [["rates/EUR", "rates/USD"]]


async def test_m1_unknown_topic_and_missing_wildcard_are_refused(in_memory: Subscriber) -> None:
    for subject, said in [
        (of_topic("nothing"), "subjects[0].topic 'nothing' not found: no app of this engine declares it"),
        (of_topic("plain"), "subjects[0]: topic plain doesn't support everything: name a subject"),
        (of_topic("plain", "*"), "must be a subject of the topic; for all of them send everything"),
    ]:
        async with in_memory.open(subject) as items:
            await refused(anext(items), Status.INVALID_ARGUMENT, said)
    async with in_memory.open(of_topic("plain", "EUR")) as items:
        assert shown(await anext(items)) == "end"


async def test_m5_ended_subscription_frees_its_topic(anywhere: Subscriber) -> None:
    current["EUR"] = b"x"
    async with anywhere.open(of_topic("rates", "EUR")) as items:
        await a_snapshot(items)
        assert (RATES.subscribers, RATES.kept_snapshots) == (1, 1)
    while RATES.subscribers:
        await trio.lowlevel.checkpoint()
    assert RATES.kept_snapshots == 0


async def test_slow_subscriber_of_a_topic_is_told_to_take_a_new_snapshot(in_memory: Subscriber) -> None:
    """The publisher never waits for it."""
    async with in_memory.open(of_topic("rates")) as items:
        await a_snapshot(items)
        for _ in range(10_001):
            publish("EUR")
        assert shown(await anext(items)) == "new snapshot"
        found, position = await a_snapshot(items)
        assert found == ["rates/EUR"]
        assert position.topics == (RATES.position,)


async def test_m7_reset_topic_makes_its_subscribers_take_a_new_snapshot(anywhere: Subscriber) -> None:
    """Nothing that was published before the reset follows the snapshot. Old positions can't be resumed."""
    current["EUR"] = b"x"
    async with anywhere.open(of_topic("rates"), everything()) as items:
        _, before = await a_snapshot(items)
        publish("CHF")
        current.clear()
        RATES.reset()
        assert shown(await anext(items)) == "new snapshot"
        assert (await a_snapshot(items))[0] == []
        publish("USD")
        assert await commits(items, 1) == [["rates/USD"]]
    async with anywhere.open(of_topic("rates"), everything(), after=before) as items:
        assert shown(await anext(items)) == "new snapshot"


async def test_m8_every_subscriber_sees_one_order(in_memory: Subscriber) -> None:
    """Whatever the pace of each, and however publishers take turns."""
    seen: dict[int, list[str]] = {}

    async def read(number: int, started: trio.Event) -> None:
        async with in_memory.open(of_topic("rates")) as items:
            await a_snapshot(items)
            started.set()
            seen[number] = []
            while len(seen[number]) < 300:
                seen[number] += [each for batch in await commits(items, 1) for each in batch]
                for _ in range(number):
                    await trio.lowlevel.checkpoint()

    async def write(number: int) -> None:
        for each in range(100):
            publish(f"{number}-{each}")
            await trio.lowlevel.checkpoint()

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            for number in range(4):
                started = trio.Event()
                nursery.start_soon(read, number, started)
                await started.wait()
            for number in range(3):
                nursery.start_soon(write, number)
    assert len(seen[0]) == 300
    assert seen[0] == seen[1] == seen[2] == seen[3]


async def test_event_that_is_published_during_a_snapshot_follows_it() -> None:
    """The program's function may publish what it finds out. The snapshot may lack it."""
    found: list[bytes] = [b"late"]

    def publishing(_: str) -> dict[str, bytes]:
        if found:
            topic.publish({"EUR": found.pop()})
        return {}

    topic: Topic[bytes] = Topic("rates", None, publishing, wildcard=True)
    backend = MemoryBackend()
    async with (
        subscriber(backend, a_service(backend, {"rates": topic})) as caller,
        caller.open(of_topic("rates", "EUR")) as items,
    ):
        assert (await a_snapshot(items))[0] == []
        with trio.fail_after(10):
            assert await commits(items, 1) == [["rates/EUR"]]


async def test_m4_failed_snapshot_of_a_topic_is_reported_and_not_kept() -> None:
    """The subscriber learns no more than that it failed, and the next one calls the function again."""
    fails = [OSError("the secret")]

    def broken(_: str) -> dict[str, bytes]:
        if fails:
            raise fails.pop()
        return {}

    topic: Topic[bytes] = Topic("broken", None, broken, wildcard=True)
    backend = MemoryBackend()
    async with subscriber(backend, a_service(backend, {"broken": topic})) as caller:
        async with caller.open(of_topic("broken")) as items:
            with pytest.raises(Exception, match="the snapshot of topic broken failed") as caught:
                await anext(items)
        assert "secret" not in str(caught.value)
        assert [str(each) for each in caller.unexpected] == ["the secret"]
        async with caller.open(of_topic("broken")) as items:
            assert shown(await anext(items)) == "end"
    assert topic.subscribers == 0
