"""The topics that a client and a server both have are compared as their types are."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import headway
from headway.errors import SchemaMismatch
from headway.protobuf import field, message
from headway.resource import describe
from headway.subscription import Topic
from headway.versions import differences
from tests.helpers.compared import OTHER, OWNER, RATES, SAID_OF_TOPIC, Compared, Lists


def program(topic: Topic[Any]) -> headway.App:
    app = headway.App("bank")
    app.registry.register(OWNER)
    app.topics[topic.name] = topic
    return app


def told(server: type[Any] | None, client: type[Any] | None) -> list[str]:
    """Return the differences of a topic by its message classes. None stands for bytes."""
    theirs, ours = (Topic("rates", each, lambda _: {}).described() for each in (server, client))
    return [str(each) for each in differences(describe([], [theirs]), [], [ours])]


async def subscribes(client: headway.Client) -> None:
    async with client.subscribe([OTHER]) as batches:
        await anext(batches)


async def test_client_that_would_misread_events_fails_at_its_first_call() -> None:
    """Whatever it calls. A client that declares the topic alike gets the events."""
    async with headway.open_engine(
        "memory:", program(RATES), network=headway.Network(["127.0.0.1:0"], insecure=True)
    ) as engine:
        async with headway.connect(engine.addresses, program(OTHER)) as client:
            with pytest.raises(SchemaMismatch) as caught:
                await client.list(OWNER)
            assert str(caught.value) == SAID_OF_TOPIC
            with pytest.raises(SchemaMismatch):
                await subscribes(client)
        async with headway.connect(engine.addresses, program(RATES)) as other, other.subscribe([RATES]) as batches:
            (event,) = (await anext(batches)).events
            assert isinstance(event, headway.subscribing.Published)
            assert event.data.cents == 108


async def test_program_with_topics_alone_makes_a_first_call() -> None:
    lists = Lists(describe([], [RATES.described()]))
    lists.may_answer.set()
    channel = Compared(lists, topics=[OTHER])
    with trio.fail_after(20), pytest.raises(SchemaMismatch):
        await channel.comparison.wait_refused(channel)


def test_either_side_of_a_topic_may_be_newer() -> None:
    """The rules are those of types. Neither the name of the class nor a topic that one side lacks is a difference."""

    @message
    class Price:
        cents: int = field(1, kind="int32")
        currency: str = field(3)

    @message(renamed={1: "cents"})
    class Newer:
        amount: int = field(1)
        shade: str = field(4)

    assert told(Price, Newer) == told(Newer, Price) == []
    assert told(None, None) == []
    assert differences(describe([], [RATES.described()]), [], [Topic("raw", None, lambda _: {}).described()]) == []


def test_bytes_and_messages_are_different_events() -> None:
    @message
    class Price:
        cents: int = field(1)

    assert told(None, Price) == [
        "topic rates: expected events of bytes as the server has it, got messages; "
        "declare the topic without a message class, or change the server's program"
    ]
    assert told(Price, None) == [
        "topic rates: expected events of messages as the server has it, got bytes; "
        "declare the topic with a message class, or change the server's program"
    ]
