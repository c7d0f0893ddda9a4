"""Polls and blocking queries of a program's own functions, under virtual time."""

from __future__ import annotations

from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import headway
from headway.base import chance
from headway.errors import DeclarationError, InvalidArgument, InvalidResult, NotPrimed
from headway.notify._fetches import retry_delay
from tests.helpers.fetched import Source, opened, received
from tests.helpers.resources import Team


async def test_o2_blocking_query_delivers_its_first_value_and_then_only_a_grown_index(
    autojump_clock: MockClock,
) -> None:
    """Each call is made with the index of the last value. The end of a wait without news changes nothing."""
    async with opened() as (source, _, updates):
        feed = updates.query(source.query)
        assert await received(updates) == [feed]
        assert (feed.value, feed.position) == ("first", headway.Position("", "", 1))
        source.set("second")
        assert await received(updates) == [feed]
        assert feed.value == "second"
        source.changed.unpark_all()
        assert await received(updates) == []
        await trio.sleep(3)
        source.set("tenth", 10)
        assert await received(updates) == [feed]
        assert (feed.value, feed.restored) == ("tenth", False)
        assert source.after == [0, 1, 2, 2, 10]


async def test_o_primed_waits_for_a_value_or_an_error_of_every_handle(autojump_clock: MockClock) -> None:
    """A handle without an answer holds it up. One that has failed does not."""
    go_on = trio.Event()

    async def slow() -> str:
        await go_on.wait()
        return "late"

    async with opened() as (source, _, updates):
        source.fail(ValueError("down"))
        failed, late = updates.poll(source.poll, max_age=1), updates.poll(headway.notify.Poll(slow), max_age=1)
        with trio.move_on_after(60) as patience:
            await updates.primed()
        assert patience.cancelled_caught
        assert isinstance(failed.error, ValueError)
        go_on.set()
        await updates.primed()
        assert late.value == "late"
        assert not failed.has_value


async def test_o7_call_after_an_index_of_zero_asks_for_index_one(autojump_clock: MockClock) -> None:
    """Otherwise it would not block. The value is delivered, and the answer counts as a failure."""
    async with opened() as (source, _, updates):
        source.set("without an index", 0)
        source.blocks = False
        feed = updates.query(source.query)
        await trio.sleep(200)
        assert await received(updates) == [feed]
        assert feed.value == "without an index"
        assert feed.error is None
        assert feed.failures > 4
        assert set(source.after[1:]) == {1}
        assert len(source.calls) < 12
        source.blocks = True
        source.set("with one", 5)
        await trio.sleep(200)
        assert await received(updates) == [feed]
        assert (feed.value, feed.failures) == ("with one", 0)


async def test_o_index_that_falls_is_delivered_and_marked(autojump_clock: MockClock) -> None:
    """The other side was restored. The next call is made with the lower index, so that it blocks there."""
    async with opened() as (source, _, updates):
        source.set("high", 100)
        feed = updates.query(source.query)
        assert await received(updates) == [feed]
        source.set("restored", 3)
        assert await received(updates) == [feed]
        assert (feed.value, feed.restored) == ("restored", True)
        assert feed.position == headway.Position("", "", 3)
        source.set("grown", 4)
        assert await received(updates) == [feed]
        assert (feed.value, feed.restored) == ("grown", False)
        assert source.after == [0, 100, 3, 4]


async def test_mark_of_a_restore_is_not_lost_on_a_slow_receiver(autojump_clock: MockClock) -> None:
    """The value has fallen and grown again since the last one that it received."""
    async with opened() as (source, _, updates):
        source.set("high", 100)
        feed = updates.query(source.query)
        await received(updates)
        source.set("restored", 3)
        await wait_all_tasks_blocked()
        source.set("grown", 200)
        await wait_all_tasks_blocked()
        assert await received(updates) == [feed]
        assert (feed.value, feed.restored) == ("grown", True)


async def test_o3_handles_of_equal_source_and_arguments_share_a_fetch(autojump_clock: MockClock) -> None:
    """Two declarations of one function are equal. Other arguments are another fetch."""
    async with opened() as (source, cache, updates), cache.notify() as other:
        again = headway.notify.BlockingQuery(source._query)
        one, two = updates.query(source.query, "eu"), other.query(again, "eu", correlation_id="two")
        us = updates.query(source.query, "us")
        await wait_all_tasks_blocked()
        assert source.after == [0, 0, 1, 1]
        assert one._answer is two._answer
        assert one._answer is not us._answer
        assert not one.hit
        assert not two.hit
        late = other.query(source.query, "eu")
        assert late.hit
        assert late.value == "first"
        assert len(source.calls) == 4


async def test_o_fetch_is_canceled_with_its_last_handle(autojump_clock: MockClock) -> None:
    """A call in progress ends at once. A new handle begins with a new fetch."""
    async with opened() as (source, cache, updates):
        one, two = updates.query(source.query), updates.query(source.query)
        await wait_all_tasks_blocked()
        one.close()
        await wait_all_tasks_blocked()
        assert source.canceled == 0
        two.close()
        await wait_all_tasks_blocked()
        assert source.canceled == 1
        assert not cache._answers._answers
        source.set("second", 5)
        three = updates.query(source.query)
        assert await received(updates) == [three]
        assert source.after == [0, 1, 0, 5]


async def test_o5_poll_is_called_again_when_its_value_is_too_old(autojump_clock: MockClock) -> None:
    """Up to a sixteenth is added at random. An equal value is not delivered, but is known to be current."""
    async with opened() as (source, _, updates):
        rates = updates.poll(source.poll, max_age=32)
        assert await received(updates) == [rates]
        await trio.sleep(331)
        assert await received(updates) == []
        gaps = [later - earlier for earlier, later in pairwise(source.times)]
        assert all(32 <= gap <= 34 for gap in gaps)
        assert len(set(gaps)) == len(gaps) >= 9
        assert 0 < rates.age <= 34
        assert rates.position is None
        source.value = "second"
        await trio.sleep(34)
        assert await received(updates) == [rates]
        assert rates.value == "second"


async def test_o5_equality_of_messages_is_by_their_fields(autojump_clock: MockClock) -> None:
    """A value whose comparison raises counts as changed."""

    class Odd:
        def __eq__(self, other: object) -> bool:
            raise RuntimeError("not comparable")

        __hash__ = None  # type: ignore[assignment]  # it is not hashable

    async with opened() as (source, _, updates):
        source.value = Team(members=["ada"])
        rates = updates.poll(source.poll, max_age=10)
        assert await received(updates) == [rates]
        source.value = Team(members=["ada"])
        await trio.sleep(11)
        assert await received(updates) == []
        source.value = Team(members=["grace"])
        await trio.sleep(11)
        assert await received(updates) == [rates]
        source.value = Odd()
        await trio.sleep(22)
        assert await received(updates) == [rates]


async def test_smallest_max_age_of_the_handles_counts(autojump_clock: MockClock) -> None:
    """A handle gets no first value that is older than it allows. When it is closed, the others' age counts again."""
    async with opened() as (source, _, updates):
        slow = updates.poll(source.poll, max_age=1000)
        await received(updates)
        await trio.sleep(500)
        source.value = "second"
        quick = updates.poll(source.poll, max_age=10)
        assert not quick.hit
        with pytest.raises(NotPrimed):
            _ = quick.value
        assert set(await received(updates)) == {slow, quick}
        assert quick.value == "second"
        await trio.sleep(100)
        assert 10 <= len(source.calls) <= 13
        quick.close()
        before = len(source.calls)
        await trio.sleep(900)
        assert len(source.calls) == before


async def test_handle_that_wants_a_newer_value_gets_an_equal_one(autojump_clock: MockClock) -> None:
    """The value is fetched again for it, and is its first, although it is the same. The other handle is not yielded."""
    async with opened() as (source, _, updates):
        slow = updates.poll(source.poll, max_age=1000)
        assert await received(updates) == [slow]
        await trio.sleep(500)
        quick = updates.poll(source.poll, max_age=10)
        with trio.fail_after(5):
            await updates.primed()
        assert (quick.value, quick.age) == ("first", 0.0)
        assert await received(updates) == [quick]


async def test_handle_that_wants_a_newer_value_does_not_wait_for_the_jitter(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The jitter spreads the later calls. The other handle is not yielded, and its next call counts from this one."""
    monkeypatch.setattr(chance, "random", lambda: 0.99)
    async with opened() as (source, _, updates):
        first = updates.poll(source.poll, max_age=3600)
        assert await received(updates) == [first]
        await trio.sleep(3601)
        assert len(source.calls) == 1
        second = updates.poll(source.poll, max_age=3600)
        with trio.fail_after(1):
            await updates.primed()
        assert (second.value, second.age) == ("first", 0.0)
        assert await received(updates) == [second]
        await trio.sleep(3601)
        assert len(source.calls) == 2


async def test_o6_failing_fetch_is_retried_with_back_off_and_jitter(autojump_clock: MockClock) -> None:
    """The first three retries are immediate, the later ones wait for 2, 4, 8 … 60 s, and up to as much again."""
    async with opened() as (source, _, updates):
        source.error = OSError("away")
        feed = updates.query(source.query)
        with trio.fail_after(1):
            await updates.primed()
        assert isinstance(feed.error, OSError)
        assert not feed.has_value
        with pytest.raises(NotPrimed, match="the first attempt failed: away") as caught:
            _ = feed.value
        assert caught.value.__cause__ is feed.error
        await trio.sleep(3600)
        gaps = [later - earlier for earlier, later in pairwise(source.times)]
        assert gaps[:3] == [0, 0, 0]
        for gap, least in zip(gaps[3:], [2, 4, 8, 16, 32, *[60] * 100], strict=False):
            assert least <= gap <= 2 * least
        assert len(set(gaps[8:])) > 5
        assert feed.failures == len(source.calls)


def test_o6_delay_is_bounded_for_any_number_of_failures() -> None:
    assert [retry_delay(failures) for failures in range(4)] == [0.0] * 4
    assert 60 <= retry_delay(10**9) <= 120


@pytest.mark.parametrize("kind", ["poll", "query"])
async def test_o6_every_failure_is_delivered_and_the_value_stays(kind: str, autojump_clock: MockClock) -> None:
    """A repeated equal error is visible, and so is its end. The age counts from the last success."""
    async with opened() as (source, _, updates):
        handle = updates.poll(source.poll, max_age=10) if kind == "poll" else updates.query(source.query)
        await received(updates)
        began = trio.current_time()
        source.fail(OSError("away"))
        await trio.sleep(12)
        assert await received(updates) == [handle]
        seen = handle.failures
        assert (handle.value, handle.has_value, str(handle.error)) == ("first", True, "away")
        assert 10 <= handle.age <= trio.current_time() - began + 1
        for _ in range(5):
            await anext(updates)
            seen += 1
            assert handle.failures == seen
        source.fail(None)
        await trio.sleep(200)
        # A blocking query that blocks again has not answered yet.
        source.set("second")
        await trio.sleep(20)
        assert await received(updates) == [handle]
        assert (handle.error, handle.failures, handle.value) == (None, 0, "second")


@pytest.mark.parametrize(
    "error", [SystemExit(3), BaseException("odd"), ExceptionGroup("two", [ValueError(), OSError()])]
)
async def test_o_failing_fetch_never_cancels_the_block(error: BaseException, autojump_clock: MockClock) -> None:
    """Whatever the function raises, the other handles go on."""
    async with opened() as (source, _, updates):
        sound = Source()
        source.error = error
        bad, good = updates.poll(source.poll, max_age=5), updates.poll(sound.poll, max_age=5)
        await updates.primed()
        assert bad.error is error
        await trio.sleep(300)
        sound.value = "second"
        await trio.sleep(10)
        assert good.value == "second"


async def test_query_that_does_not_block_is_called_once_a_second(autojump_clock: MockClock) -> None:
    """It returns the same index at once, again and again."""
    async with opened() as (source, _, updates):
        source.blocks = False
        updates.query(source.query)
        await trio.sleep(100)
        assert 95 <= len(source.calls) <= 105


@pytest.mark.parametrize("answer", [None, "text", (1,), (1, 2, 3), ("1", 2), (-1, 2), (True, 2)])
async def test_invalid_answer_of_a_query_is_an_error_of_the_handle(answer: object, autojump_clock: MockClock) -> None:
    """The error shows what was returned, and a correct example."""

    async def wrong(_: int) -> object:
        return answer

    async with opened() as (_, _, updates):
        query: headway.notify.BlockingQuery[object] = headway.notify.BlockingQuery(wrong)  # type: ignore[arg-type]  # it is wrong
        feed = updates.query(query)
        await updates.primed()
        assert isinstance(feed.error, InvalidResult)
        assert "wrong returned" in str(feed.error)


async def test_o1_wrong_sources_and_arguments_are_refused_at_once() -> None:
    """The function must be async and must take the arguments. A poll needs an age."""

    def plain() -> int:
        return 1

    for declare in (headway.notify.Poll, headway.notify.BlockingQuery):
        with pytest.raises(DeclarationError, match="must be an async function"):
            declare(plain)  # type: ignore[arg-type]  # the test passes a wrong function
    async with opened() as (source, cache, updates):

        async def none() -> int:
            return 1

        for age in (None, 0, -1, True, "30", float("inf"), float("nan")):
            with pytest.raises(InvalidArgument, match="max_age="):
                updates.poll(source.poll, max_age=age)  # type: ignore[arg-type]  # the test passes wrong arguments
        with pytest.raises(InvalidArgument, match="must take the 1 arguments"):
            updates.poll(headway.notify.Poll(none), "eu", max_age=1)
        with pytest.raises(InvalidArgument, match="must take an index"):
            updates.query(headway.notify.BlockingQuery(none))  # type: ignore[arg-type]  # the test passes a wrong function
        with pytest.raises(InvalidArgument, match="must be hashable"):
            updates.poll(source.poll, [], max_age=1)  # type: ignore[arg-type]  # the test passes a wrong argument
        assert not cache._answers._answers
