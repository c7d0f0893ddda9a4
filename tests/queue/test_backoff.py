"""The back-off: its formula, its maximum, and the arguments that it refuses."""

import math
from typing import Any

import pytest

from headway.errors import InvalidArgument
from headway.queue import Backoff


def test_each_failure_doubles_the_delay() -> None:
    """From a base of 1 ms the first five delays are 1, 2, 4, 8 and 16 ms."""
    backoff = Backoff(base=0.001)
    assert [backoff.delay(failures) for failures in range(5)] == [0.001, 0.002, 0.004, 0.008, 0.016]


def test_default_delays_range_from_5_milliseconds_to_1000_seconds() -> None:
    backoff = Backoff()
    assert backoff.delay(0) == 0.005
    assert backoff.delay(17) == 0.005 * 2**17
    assert backoff.delay(18) == 1000.0


@pytest.mark.parametrize("failures", [64, 1023, 1024, 10**6, 10**30])
def test_overflowing_power_gives_the_maximum(failures: int) -> None:
    """Any number of failures gives the maximum, never a negative delay or an error."""
    assert Backoff().delay(failures) == 1000.0


def test_negative_failure_count_is_refused() -> None:
    with pytest.raises(ValueError, match="failures is -1"):
        Backoff().delay(-1)


@pytest.mark.parametrize("base", [0.0, -1.0, math.inf, math.nan, "1", None, True])
def test_base_that_is_not_positive_is_refused(base: Any) -> None:
    """The error names the field, the value, and a valid value."""
    with pytest.raises(
        InvalidArgument, match=rf"base must be a finite number of seconds above 0, such as base=0.005, not {base!r}"
    ):
        Backoff(base=base)


@pytest.mark.parametrize("maximum", [0.5, -1.0, math.inf, math.nan, "9", None])
def test_maximum_below_the_base_is_refused(maximum: Any) -> None:
    """The error names the field, the value, and a valid value."""
    with pytest.raises(InvalidArgument, match=rf"maximum must be .*(above 0|at least base).*, not {maximum!r}"):
        Backoff(base=1.0, maximum=maximum)


def test_maximum_equal_to_the_base_gives_a_constant_delay() -> None:
    backoff = Backoff(base=2.0, maximum=2.0)
    assert {backoff.delay(failures) for failures in range(50)} == {2.0}
