"""How a client waits when a limit of the server refuses its call, in virtual time."""

from __future__ import annotations

import copy
import pickle

import pytest
import trio
from grpclib.const import Status
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from headway.api import LimitedWaits, spread
from headway.rpc._limited import PUSHBACK, Limited, limited_in


@given(st.floats(0.001, 100), st.integers(0, 1000), st.floats(0.001, 1000))
def test_n7_wait_is_at_least_what_the_server_says_and_ends_before_the_deadline(
    seconds: float, repeats: int, left: float
) -> None:
    waited = spread(seconds, repeats, left)
    near = spread(seconds, repeats, own=left)
    assert near is not None
    assert near < left or seconds >= left
    if waited is None:
        assert seconds >= left
    else:
        assert seconds <= waited < left
        assert waited <= seconds + max(seconds, 30.0)


def test_n7_callers_that_are_refused_at_one_moment_come_back_at_different_ones() -> None:
    """And the more often they are refused, the wider they are spread."""
    for repeats, widest in ((0, 2.0), (3, 9.0)):
        waits = [spread(1.0, repeats) or 0.0 for _ in range(1000)]
        assert 1.0 <= min(waits) < 1.2
        assert widest * 0.95 < max(waits) <= widest
        assert len({round(each, 2) for each in waits}) > 50


async def test_waits_end_with_the_error_when_the_timeout_is_too_near(autojump_clock: MockClock) -> None:
    """The error is raised at once, and not after a wait that was for nothing."""
    waits = LimitedWaits(10.0)
    refused = Limited("too many calls", 2.0)
    before = -2.0
    try:
        while True:
            assert autojump_clock.current_time() >= before + 2.0
            before = autojump_clock.current_time()
            await waits.wait(refused)
    except Limited as error:
        raised = error
    assert raised is refused
    assert before == autojump_clock.current_time() <= 10.0


async def test_deadline_of_the_caller_may_be_moved_while_the_call_waits(autojump_clock: MockClock) -> None:
    """A lease ends the work of its holder at a deadline, and every renewal moves it."""
    with trio.move_on_after(1.0) as scope:
        async with trio.open_nursery() as nursery:

            async def renew() -> None:
                for _ in range(10):
                    await trio.sleep(0.5)
                    scope.deadline = trio.current_time() + 1.0
                nursery.cancel_scope.cancel()

            nursery.start_soon(renew)
            began = autojump_clock.current_time()
            await LimitedWaits(10.0).wait(Limited("too many calls", 2.0))
            assert 2.0 <= autojump_clock.current_time() - began <= 4.0
            nursery.cancel_scope.cancel()
    assert not scope.cancelled_caught


def test_error_survives_its_trailers_and_copies() -> None:
    error = Limited("too many calls", 0.0301, ("detail",))
    read = limited_in(Status.RESOURCE_EXHAUSTED, "too many calls", error.trailers(), ("detail",))
    assert read is not None
    for each in (read, copy.copy(read), pickle.loads(pickle.dumps(read))):
        assert (each.status, each.message, each.details) == (error.status, error.message, error.details)
        assert each.retry_after == 0.031, "rounded up, so that the call is not too early"


@pytest.mark.parametrize("pushback", ["", "-1", "soon", "1.5", "٣", "9" * 11])
def test_malformed_pushback_is_ignored(pushback: str) -> None:
    assert limited_in(Status.RESOURCE_EXHAUSTED, None, {PUSHBACK: pushback}) is None
    assert limited_in(Status.UNAVAILABLE, None, {PUSHBACK: "5"}) is None
