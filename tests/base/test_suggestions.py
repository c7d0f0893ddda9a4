"""The suggestion for an unknown word is a word that was probably meant."""

from __future__ import annotations

import pytest

from headway.base import did_you_mean


@pytest.mark.parametrize(
    ("written", "known", "hint"),
    [
        ("retries", ["queries"], "; known: queries"),
        ("query", ["queries"], "; known: queries"),
        ("querys", ["queries", "writes"], "; did you mean 'queries'?"),
        ("write", ["queries", "writes"], "; did you mean 'writes'?"),
        ("laed", ["lead"], "; did you mean 'lead'?"),
        ("memebers", ["members", "note"], "; did you mean 'members'?"),
    ],
)
def test_only_a_close_word_is_suggested(written: str, known: list[str], hint: str) -> None:
    """A word that shares some letters by chance is not."""
    assert did_you_mean(written, known) == hint
