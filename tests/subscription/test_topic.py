"""Topics: what a program publishes, and what is kept of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

import headway
from headway.errors import DeclarationError, HistoryCompacted, InvalidArgument, PayloadError
from headway.resource import AnyMessage, Position
from headway.subscription import SubscriptionPosition, Topic, TopicLog, TopicPosition
from tests.helpers.plain_types import Rate


def nothing(_: str) -> Mapping[str, Any]:
    return {}


def datum(text: str = "x") -> AnyMessage:
    return AnyMessage(value=text.encode())


def topic(**rest: Any) -> Topic[Rate]:
    return Topic("rates", Rate, rest.pop("snapshot", nothing), **rest)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": ""}, "a topic's name is required"),
        ({"name": "Rates"}, "is not a valid name"),
        ({"payload": int}, "payload <class 'int'> must be a @headway.message class, or left out for bytes"),
        ({"snapshot": None}, "snapshot must be a function, not None"),
        ({"snapshot": trio.sleep}, "must be a plain function"),
        ({"wildcard": 1}, "wildcard must be True or False, not 1"),
    ],
)
def test_m1_wrong_declaration_is_refused_with_its_form(given: dict[str, Any], said: str) -> None:
    right: dict[str, Any] = {"name": "rates", "payload": Rate, "snapshot": nothing, "wildcard": False}
    with pytest.raises(DeclarationError) as caught:
        headway.App("staff").topic(**{**right, **given})
    assert said in str(caught.value)
    assert "The form is: " in str(caught.value)
    assert "app.topic(" in str(caught.value)


def test_m1_topic_of_an_existing_name_is_refused() -> None:
    app = headway.App("staff")
    app.topic("rates", Rate, snapshot=nothing)
    with pytest.raises(DeclarationError, match="topic 'rates' already exists"):
        app.topic("rates", snapshot=nothing)


async def test_m1_two_apps_with_one_topic_cannot_run_together() -> None:
    apps = [headway.App(name) for name in ("one", "two")]
    for app in apps:
        app.topic("rates", snapshot=nothing)
    with pytest.raises(DeclarationError, match="two apps declare topic 'rates'"):
        async with headway.open_engine("memory:", *apps):
            pytest.fail("it runs")


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ({"*": Rate()}, "stands for all subjects"),
        ({"": Rate()}, "must have from 1 to 255 printable characters"),
        ({"a" * 256: Rate()}, "must have from 1 to 255 printable characters"),
        ({"a\n": Rate()}, "must have from 1 to 255 printable characters"),
        ({1: Rate()}, "must be a string"),
        ({"EUR": 1}, "the event of 'EUR' must be a Rate, not 1"),
        ({}, "expects events by subject"),
        ([("EUR", Rate())], "expects events by subject"),
        ({str(each): Rate() for each in range(10_001)}, "publish at most 10000 in one call"),
    ],
)
def test_m1_publishing_something_wrong_publishes_nothing(events: Any, said: str) -> None:
    """That includes the wildcard. An error names what is wrong."""
    rates = topic(wildcard=True)
    with pytest.raises(InvalidArgument, match=said):
        rates.publish(events)
    assert rates.position.number == 0


def test_large_events_are_refused() -> None:
    """A client could not receive them."""
    raw: Topic[bytes] = Topic("raw", None, nothing)
    with pytest.raises(InvalidArgument, match="it must have at most 1048576"):
        raw.publish({"a": bytes(1 << 20)})
    with pytest.raises(InvalidArgument, match="publish at most 1048576 bytes in one call"):
        raw.publish({str(each): bytes(300_000) for each in range(4)})
    assert raw.position.number == 0


def test_largest_call_is_published() -> None:
    raw: Topic[bytes] = Topic("raw", None, nothing)
    assert raw.publish({str(each): b"" for each in range(10_000)}).number == 1


def test_m6_what_one_call_publishes_has_one_position() -> None:
    """Positions count calls. They are returned, and nothing else is needed to compare them."""
    rates = topic()
    first = rates.publish({"EUR": Rate(cents=1), "CHF": Rate(cents=2)})
    second = rates.publish({"EUR": Rate(cents=3)})
    assert (first.topic, first.number, second.number) == ("rates", 1, 2)
    assert first.incarnation == second.incarnation
    assert second == rates.position
    calls, reached = rates.log.take(0, None)
    assert [(number, [each.subject for each in events]) for number, events in calls] == [
        (1, ["EUR", "CHF"]),
        (2, ["EUR"]),
    ]
    assert reached == 2
    assert [number for number, _ in rates.log.take(0, {"CHF"})[0]] == [1]


def test_published_event_is_a_copy() -> None:
    rates, rate = topic(), Rate(cents=1)
    rates.publish({"EUR": rate})
    rate.cents = 2
    ((_, (event,)),) = rates.log.take(0, None)[0]
    assert rates.decoded(event.data) == Rate(cents=1)


def test_event_of_another_class_is_refused() -> None:
    raw: Topic[bytes] = Topic("raw", None, nothing)
    raw.publish({"a": b"\x00\xff"})
    ((_, (event,)),) = raw.log.take(0, None)[0]
    assert raw.decoded(event.data) == b"\x00\xff"
    with pytest.raises(PayloadError, match="topic rates has events"):
        topic().decoded(event.data)


def test_m3_any_kept_position_can_be_resumed() -> None:
    """In Consul only the very last one can."""
    log = TopicLog("rates", max_events=3)
    for number in range(5):
        log.append({"EUR": datum(str(number))})
    assert (log.floor, log.head) == (2, 5)
    for after in (2, 3, 4, 5):
        calls, reached = log.take(after, None)
        assert [number for number, _ in calls] == [*range(after + 1, 6)]
        assert reached == 5
    for after in (0, 1, 6):
        with pytest.raises(HistoryCompacted, match="keeps what was published after 2, up to 5"):
            log.take(after, None)


def test_log_is_bounded_by_bytes_too() -> None:
    log = TopicLog("rates", max_bytes=100)
    for _ in range(5):
        log.append({"EUR": datum("x" * 40)})
    assert (log.floor, log.head) == (3, 5)


def test_newest_call_is_kept_whole_however_large() -> None:
    log = TopicLog("rates", max_events=2)
    log.append({"EUR": datum()})
    log.append({str(each): datum() for each in range(5)})
    assert log.floor == 1
    assert len(log.take(1, None)[0][0][1]) == 5


def test_topic_keeps_ten_thousand_events() -> None:
    rates = topic()
    for _ in range(10_010):
        rates.publish({"EUR": Rate()})
    assert rates.log.head - rates.log.floor == 10_000


def test_subscriber_takes_a_bounded_number_of_calls_at_once() -> None:
    log = TopicLog("rates")
    for _ in range(1500):
        log.append({"EUR": datum()})
    calls, reached = log.take(0, {"CHF"})
    assert (calls, reached) == ([], 1000)
    assert log.take(1000, None)[1] == 1500


@given(
    published=st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True), max_size=30),
    wanted=st.sets(st.sampled_from("abc"), min_size=1),
    reads=st.lists(st.booleans(), min_size=30, max_size=30),
)
def test_m8_order_is_that_of_the_calls_for_every_subscriber(
    published: list[list[str]], wanted: set[str], reads: list[bool]
) -> None:
    """A subscriber gets each call once, whole and in order, or is told that it has missed some."""
    log, at = TopicLog("rates", max_events=10), 0
    got: list[tuple[int, set[str]] | None] = []
    for subjects, reads_now in zip(published, reads, strict=False):
        log.append({subject: datum() for subject in subjects})
        if reads_now:
            try:
                calls, at = log.take(at, wanted)
            except HistoryCompacted:
                assert at < log.floor
                at = log.head
                got.append(None)
                continue
            got += [(number, {each.subject for each in events}) for number, events in calls]
    numbers = [each[0] for each in got if each is not None]
    assert numbers == sorted(set(numbers))
    for each in got:
        if each is not None:
            assert each[1] == set(published[each[0] - 1]) & wanted
    if None not in got:
        assert numbers == [i + 1 for i, each in enumerate(published[:at]) if set(each) & wanted]


async def test_m4_snapshots_are_shared_until_something_is_published() -> None:
    """A failed one is not kept, nor one without a subscriber."""
    asked: list[str] = []
    fails = True

    def current(subject: str) -> dict[str, Rate]:
        asked.append(subject)
        if fails:
            raise OSError("no rates")
        return {"EUR": Rate(cents=len(asked))}

    rates = topic(snapshot=current)
    with rates.subscribed(frozenset(["EUR"])):
        with pytest.raises(OSError, match="no rates"):
            rates.snapshot("EUR")
        fails = False
        first = rates.snapshot("EUR")
        assert rates.snapshot("EUR") is first
        assert len(asked) == 2
        rates.publish({"EUR": Rate(cents=9)})
        assert rates.snapshot("EUR") is not first
        assert rates.kept_snapshots == 1
    assert rates.kept_snapshots == 0
    rates.snapshot("EUR")
    assert rates.kept_snapshots == 0


@pytest.mark.parametrize("change", [lambda rates: rates.publish({"CHF": Rate()}), Topic.reset], ids=["event", "reset"])
async def test_snapshot_during_which_the_state_changes_is_not_kept(change: Callable[[Topic[Rate]], object]) -> None:
    """It may lack the change, and a later subscriber does not get an event from before its snapshot."""

    def current(subject: str) -> dict[str, Rate]:
        found = {subject: Rate(cents=1)}
        change(rates)
        return found

    rates = topic(snapshot=current)
    with rates.subscribed(frozenset(["EUR"])):
        rates.snapshot("EUR")
        assert rates.kept_snapshots == 0


def test_m5_last_subscriber_frees_what_was_kept_for_it() -> None:
    rates = topic(snapshot=lambda _: {})
    with rates.subscribed(frozenset(["EUR", "CHF"])):
        with rates.subscribed(frozenset(["EUR"])):
            rates.snapshot("EUR")
            rates.snapshot("CHF")
            assert rates.subscribers == 3
        assert rates.kept_snapshots == 2
    assert (rates.subscribers, rates.kept_snapshots) == (0, 0)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"CHF": Rate()}, "was called with 'EUR': it must return the events by subject that this selects"),
        ({"EUR": Rate(), "CHF": Rate()}, "was called with 'EUR'"),
        ([Rate()], "was called with 'EUR'"),
        (None, "was called with 'EUR'"),
    ],
)
def test_wrong_snapshot_says_what_is_right(answer: object, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        topic(snapshot=lambda _: answer).snapshot("EUR")


async def test_async_snapshot_in_disguise_is_refused() -> None:
    async def later() -> None:
        """Never run."""

    with pytest.raises(TypeError, match="snapshot of topic rates"):
        topic(snapshot=lambda _: later()).snapshot("EUR")


def test_m7_reset_begins_another_incarnation_without_the_old_events() -> None:
    """Consul keeps the buffer of a refreshed topic, so old events could follow the new snapshot."""
    rates = topic()
    before = rates.publish({"EUR": Rate()})
    rates.reset()
    assert rates.position.incarnation != before.incarnation
    assert rates.log.take(0, None) == ([], 0)


async def test_m7_snapshot_after_a_reset_is_a_new_one() -> None:
    """The kept one shows the state that was replaced."""
    state = {"EUR": Rate(cents=1)}
    rates = topic(snapshot=lambda _: state)
    with rates.subscribed(frozenset(["EUR"])):
        rates.snapshot("EUR")
        state["EUR"] = Rate(cents=2)
        rates.reset()
        (event,) = rates.snapshot("EUR")
    assert rates.decoded(event.data) == Rate(cents=2)


@pytest.mark.parametrize("change", [lambda rates: rates.publish({"EUR": Rate()}), Topic.reset], ids=["event", "reset"])
async def test_change_of_a_topic_wakes_its_subscribers(change: Callable[[Topic[Rate]], object]) -> None:
    rates = topic()
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rates.wait, rates.position)
            await trio.testing.wait_all_tasks_blocked()
            change(rates)


async def test_topic_with_subscribers_refuses_another_thread() -> None:
    """Waking a task there would break Trio."""
    rates = topic()
    with rates.subscribed(frozenset(["EUR"])):
        for call in (lambda: rates.publish({"EUR": Rate()}), rates.reset):
            with pytest.raises(InvalidArgument, match="has subscribers on Trio"):
                await trio.to_thread.run_sync(call)
        await trio.to_thread.run_sync(trio.from_thread.run_sync, rates.publish, {"EUR": Rate()})
    assert rates.position.number == 1


def test_position_survives_as_text() -> None:
    """Any other text is refused."""
    position = SubscriptionPosition(
        Position("store", "session", 7), (TopicPosition("rates", "i", 2), TopicPosition("raw", "j", 0)), "abc"
    )
    assert SubscriptionPosition.parse(str(position)) == position
    assert SubscriptionPosition.parse(str(SubscriptionPosition())) == SubscriptionPosition()
    for wrong in ("!", "é", "AAA", str(position)[:-3]):
        with pytest.raises(InvalidArgument, match="is not a position of a subscription"):
            SubscriptionPosition.parse(wrong)
