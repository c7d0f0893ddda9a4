"""The delay before an attempt is repeated: twice as long each time, with jitter."""

from __future__ import annotations

from headway.base._chance import chance

_FIRST_WAIT = 0.05


def retry_delay(failures: int, longest: float = 5.0) -> float:
    """Return the seconds to wait before an attempt after ``failures`` failed ones: doubling, up to ``longest``.

    Up to half of it is random, so that the many clients of a server that is back do not reach it at the same moment.
    """
    ceiling = min(_FIRST_WAIT * 2.0 ** min(failures, 16), longest)
    return chance.uniform(ceiling / 2, ceiling)
