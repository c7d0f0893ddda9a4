"""The kit finds every reconciler of the corpus that is wrong, and passes its corrected twin."""

from __future__ import annotations

import time

import pytest

import tests.helpers.corpus.answers
import tests.helpers.corpus.loops
import tests.helpers.corpus.memory
import tests.helpers.corpus.order  # noqa: F401  # each declares its cases
from headway.testing import simulation
from tests.helpers.corpus.staff import CASES

LIMIT = 20.0
"""Seconds in which a wrong one is found."""


def test_the_corpus_is_whole() -> None:
    assert len(CASES) >= 24


@pytest.mark.deep
@pytest.mark.parametrize("name", CASES)
def test_the_wrong_one_is_found(name: str) -> None:
    began = time.process_time()
    with pytest.raises(simulation.Refuted):
        CASES[name].explore(right=False)
    assert time.process_time() - began < LIMIT


@pytest.mark.deep
@pytest.mark.parametrize("name", CASES)
def test_its_corrected_twin_passes(name: str) -> None:
    print(CASES[name].explore(right=True))
