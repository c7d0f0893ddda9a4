"""`LeaseTerm`, a lease's term by its holder's own clock."""

from __future__ import annotations

from headway.client import LeaseTerm


def test_term_is_held_for_four_fifths_of_its_ttl_from_the_request_on() -> None:
    """The time of the reply does not matter."""
    term = LeaseTerm(3, 10.0, 100.0)
    assert (term.number, term.until) == (3, 108.0)
    assert term.is_held(107.9)
    assert not term.is_held(108.0)


def test_renewal_counts_from_its_request_and_never_shortens_the_term() -> None:
    """The reply to an earlier request may arrive after that to a later one."""
    term = LeaseTerm(3, 10.0, 100.0)
    term.renewed(106.0, 107.0)
    assert term.until == 114.0
    term.renewed(103.0, 108.0)
    assert term.until == 114.0
    assert term.is_held(113.9)


def test_lost_term_stays_lost() -> None:
    """It is lost by its time, noticed or not before a renewal, or by the server's reply."""
    late = LeaseTerm(3, 10.0, 100.0)
    late.renewed(107.0, 108.0)
    assert not late.is_held(108.0)
    seen = LeaseTerm(3, 10.0, 100.0)
    assert not seen.is_held(109.0)
    seen.renewed(107.0, 107.5)
    assert not seen.is_held(107.5)
    told = LeaseTerm(3, 10.0, 100.0)
    told.lost = True
    told.renewed(101.0, 102.0)
    assert not told.is_held(102.0)


def test_process_that_pauses_relies_on_less_of_its_ttl() -> None:
    """One pause may delay the deadline and another one the shutdown. At least half of the ttl is left."""
    for pause, counted in ((0.0, 8.0), (1.0, 8.0), (1.5, 7.0), (2.0, 6.0), (2.5, 5.0), (60.0, 5.0)):
        assert LeaseTerm(3, 10.0, 100.0, pause).until == 100.0 + counted
        renewed = LeaseTerm(3, 10.0, 100.0)
        renewed.renewed(104.0, 105.0, pause)
        assert renewed.until == max(108.0, 104.0 + counted), "what is sure already stays so"
