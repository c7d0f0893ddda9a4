"""The delay before another attempt doubles, stays below its bound, and differs from caller to caller."""

import pytest

from headway.base import retry_delay


@pytest.mark.parametrize(
    ("failures", "longest", "ceiling"),
    [
        (0, 5.0, 0.05),
        (1, 5.0, 0.1),
        (6, 5.0, 3.2),
        (7, 5.0, 5.0),
        (10_000, 5.0, 5.0),
        (10, 60.0, 51.2),
        (11, 60.0, 60.0),
    ],
)
def test_delay_lies_in_the_upper_half_of_what_doubles_with_each_failure(
    failures: int, longest: float, ceiling: float
) -> None:
    delays = {retry_delay(failures, longest) for _ in range(200)}
    assert all(ceiling / 2 <= delay <= ceiling for delay in delays)
    assert len(delays) > 100
