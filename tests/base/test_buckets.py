"""Token buckets by key, compared with a plain model that keeps one bucket for each key forever."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.base import Buckets

TICK = Fraction(1, 64)
"""Times are multiples of this, and rates are powers of 2, so that the floating-point numbers are exact."""


class Model:
    """A bucket for every key that has ever been seen, filled by counting."""

    def __init__(self, per_second: Fraction, burst: int) -> None:
        self._per_second, self._burst = per_second, burst
        self._held: dict[str, tuple[Fraction, Fraction]] = {}

    def tokens(self, key: str, now: Fraction) -> Fraction:
        tokens, at = self._held.get(key, (Fraction(self._burst), now))
        return min(Fraction(self._burst), tokens + (now - at) * self._per_second)

    def wait(self, key: str, now: Fraction) -> Fraction:
        return max((1 - self.tokens(key, now)) / self._per_second, Fraction(0))

    def spend(self, key: str, now: Fraction) -> None:
        self._held[key] = self.tokens(key, now) - 1, now


rates = st.sampled_from([Fraction(1, 4), Fraction(1), Fraction(8), Fraction(32)])
calls = st.lists(st.tuples(st.integers(0, 200), st.sampled_from("abcdef")), max_size=60)


@given(rates, st.integers(1, 5), calls)
def test_n7_buckets_do_what_the_model_does(per_second: Fraction, burst: int, calls: list[tuple[int, str]]) -> None:
    buckets: Buckets[str] = Buckets(float(per_second), burst)
    model, now = Model(per_second, burst), Fraction(1000)
    for ticks, key in calls:
        now += ticks * TICK
        wait = buckets.wait(key, float(now))
        assert wait == float(model.wait(key, now))
        if wait == 0:
            buckets.spend(key, float(now))
            model.spend(key, now)


@pytest.mark.parametrize("group", [None, "abc".__contains__], ids=["one group", "two groups"])
@given(per_second=rates, burst=st.integers(1, 5), capacity=st.integers(1, 4), calls=calls)
def test_n7_no_key_ever_spends_more_than_its_own_bucket_would_allow(
    per_second: Fraction, burst: int, capacity: int, calls: list[tuple[int, str]], group: Any
) -> None:
    """However few buckets there are. A key that has to share one waits at least as long, and never for ever."""
    buckets: Buckets[str] = Buckets(float(per_second), burst, capacity, group=group)
    model, now = Model(per_second, burst), Fraction(1000)
    for ticks, key in calls:
        now += ticks * TICK
        wait = buckets.wait(key, float(now))
        assert float(model.wait(key, now)) <= wait <= float(1 / per_second)
        if wait == 0:
            buckets.spend(key, float(now))
            model.spend(key, now)
        assert len(buckets) <= capacity


def test_n7_million_callers_take_the_memory_of_the_capacity() -> None:
    buckets: Buckets[int] = Buckets(1.0, 2, capacity=100)
    for caller in range(100_000):
        if not buckets.wait(caller, caller / 50):
            buckets.spend(caller, caller / 50)
    assert len(buckets) <= 100


def test_buckets_that_are_full_again_make_room_for_others() -> None:
    buckets: Buckets[str] = Buckets(1.0, 1, capacity=2)
    for key in "ab":
        buckets.spend(key, 0.0)
    buckets.spend("c", 0.5)
    assert buckets.wait("d", 0.5) == 1.0, "the keys without a bucket share one"
    assert buckets.wait("d", 1.5) == 0.0
    buckets.spend("d", 1.5)
    assert buckets.wait("e", 1.5) == 0.0, "the buckets of a and b are full again, so d and e have their own"


def test_keys_without_a_bucket_share_one_of_their_group() -> None:
    buckets: Buckets[str] = Buckets(1.0, 1, capacity=1, group=lambda key: key[0])
    for key, wait in (("a1", 0.0), ("a2", 0.0), ("a3", 1.0), ("b1", 0.0), ("b2", 1.0)):
        assert buckets.wait(key, 0.0) == wait
        if not wait:
            buckets.spend(key, 0.0)
    assert [buckets.wait(key, 1.0) for key in ("a1", "a2", "a3", "b1")] == [0.0] * 4


def test_key_that_gets_a_bucket_begins_with_what_the_shared_one_has_left() -> None:
    buckets: Buckets[str] = Buckets(1.0, 5, capacity=1)
    for key in "abbbbb":
        assert buckets.wait(key, 0.0) == 0.0
        buckets.spend(key, 0.0)
    buckets.spend("b", 1.0)
    assert buckets.wait("a", 1.0) == 0.0, "its bucket was full again, and b has one now"
    assert buckets.wait("b", 1.0) == 1.0


def test_few_buckets_that_fill_slowly_do_not_keep_the_others_from_making_room() -> None:
    """A key that has been quiet for longest may have spent its whole burst, so that its bucket is not full for long."""
    buckets: Buckets[int] = Buckets(0.01, 10, capacity=100)
    for heavy in range(20):
        for _ in range(10):
            buckets.spend(heavy, 0.0)
    for light in range(20, 100):
        buckets.spend(light, 0.0)
    for new in range(100, 150):
        for _ in range(9):
            assert buckets.wait(new, 200.0) == 0.0, "it has a bucket of its own"
            buckets.spend(new, 200.0)
    assert [buckets.wait(heavy, 50.0) for heavy in range(20)] == [50.0] * 20


def test_caller_that_waits_as_long_as_it_is_told_is_not_refused_again() -> None:
    """Whatever the rounding errors of the time and of the rate."""
    for per_second in (0.3, 3.0, 7.0, 333.3):
        buckets: Buckets[str] = Buckets(per_second, 3)
        now = 1_234_567.891
        for _ in range(1000):
            wait = buckets.wait("a", now)
            now += wait
            assert buckets.wait("a", now) == 0.0
            buckets.spend("a", now)


@pytest.mark.parametrize("per_second", [0.5, 20.0])
def test_long_run_is_the_rate_and_a_pause_allows_the_burst(per_second: float) -> None:
    buckets: Buckets[str] = Buckets(per_second, 10)
    spent = 0
    for step in range(10_000):
        if not buckets.wait("a", step / 100):
            buckets.spend("a", step / 100)
            spent += 1
    assert spent == 10 + int(100 * per_second - per_second / 100)
