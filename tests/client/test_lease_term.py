"""What a holder knows of its term: sure for a part of the ttl from before it asked, and never again once it wasn't."""

from __future__ import annotations

from headway.client import LeaseTerm


def test_a_term_is_held_for_four_fifths_of_its_ttl_from_before_it_was_asked_for() -> None:
    """Whenever the answer came."""
    term = LeaseTerm(3, 10.0, 100.0)
    assert (term.number, term.until) == (3, 108.0)
    assert term.is_held(107.9)
    assert not term.is_held(108.0)


def test_a_renewal_counts_from_before_it_was_sent_and_never_takes_time_away() -> None:
    """An answer to an earlier request may come after that to a later one."""
    term = LeaseTerm(3, 10.0, 100.0)
    term.renewed(106.0, 107.0)
    assert term.until == 114.0
    term.renewed(103.0, 108.0)
    assert term.until == 114.0
    assert term.is_held(113.9)


def test_what_was_lost_stays_lost() -> None:
    """By its time, seen or not before the renewal came, or by the server's word."""
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


def test_a_process_that_pauses_counts_on_less_of_its_ttl() -> None:
    """It needs time for a pause before it hears that its time is over, and for one while it ends; half stays."""
    for pause, counted in ((0.0, 8.0), (1.0, 8.0), (1.5, 7.0), (2.0, 6.0), (2.5, 5.0), (60.0, 5.0)):
        assert LeaseTerm(3, 10.0, 100.0, pause).until == 100.0 + counted
        renewed = LeaseTerm(3, 10.0, 100.0)
        renewed.renewed(104.0, 105.0, pause)
        assert renewed.until == max(108.0, 104.0 + counted), "what is sure already stays so"
