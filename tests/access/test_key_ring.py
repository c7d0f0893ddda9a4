"""When the keys of an issuer are read again. Without a clock."""

from __future__ import annotations

from headway.access import read_keys
from headway.access._key_ring import KeyRing
from tests.access.logins import KEYS, issuer


def test_reading_that_was_asked_for_is_done_once() -> None:
    """The next one is due after the usual interval again."""
    ring = KeyRing(issuer(refresh_interval=300))
    ring.begin(100)
    ring.loaded(read_keys(KEYS), 101)
    assert ring.due() == 401
    ring.want()
    assert ring.due() == 110
    ring.begin(110)
    ring.loaded(read_keys(KEYS), 111)
    assert ring.due() == 411


def test_pause_after_failures_doubles_up_to_a_bound() -> None:
    """It is never longer than the usual interval."""
    for interval, longest in ((30, 30), (86_400, 60)):
        ring, pauses = KeyRing(issuer(refresh_interval=interval)), list[float]()
        for _ in range(20):
            ring.failed(1_000)
            pauses.append(ring.due() - 1_000)
        assert pauses[:5] == [1, 2, 4, 8, 16]
        assert pauses[-1] == max(pauses) == longest
