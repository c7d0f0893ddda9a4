"""Interruptions of streams: since when they last, how many streams have failed, and when they end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from headway.cache import Informer
from headway.notify._interruptions import Interruption, Interruptions
from headway.resource import TypeName

TEAM = TypeName("staff", "v1", "Team")


class Stream(SimpleNamespace):
    """The state of an informer's stream, which has failed once."""

    def __init__(self) -> None:
        store = SimpleNamespace(primed=True, gathered=0)
        super().__init__(cut_off=("away", 3.0), failures=1, received=7, store=store)

    def noted(self, interruptions: Interruptions) -> Interruption | None:
        return interruptions.note(TEAM, cast("Informer", self))


def test_every_failed_stream_counts_once_since_the_first() -> None:
    """The informer counts anew when a stream has delivered something. Other notes of one state change nothing."""
    interruptions, stream = Interruptions(), Stream()
    for _ in range(2):
        assert stream.noted(interruptions) == Interruption("away", 3.0, 1)
    stream.failures, stream.cut_off = 3, ("refused", 5.0)
    for _ in range(2):
        assert stream.noted(interruptions) == Interruption("refused", 3.0, 3)
    stream.failures, stream.received = 1, 8
    for _ in range(2):
        assert stream.noted(interruptions) == Interruption("refused", 3.0, 4)


def test_interruption_lasts_until_the_end_of_a_snapshot() -> None:
    """A new stream alone does not end it: the content is still that from before."""
    interruptions, stream = Interruptions(), Stream()
    stream.noted(interruptions)
    stream.cut_off, stream.store.gathered = None, 5
    assert stream.noted(interruptions) == interruptions.of(TEAM) == Interruption("away", 3.0, 1)
    stream.store.gathered = 0
    assert stream.noted(interruptions) is interruptions.of(TEAM) is None
