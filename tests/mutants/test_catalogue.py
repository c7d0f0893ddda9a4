"""Every mutant of the catalogue still fits the source, so that `make mutants` can run it."""

from __future__ import annotations

import pytest

from tests.mutants.__main__ import ROOT, mutated
from tests.mutants.catalogue import MUTANTS, Mutant


def test_there_are_enough_and_each_has_its_name() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 24


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_fits(mutant: Mutant) -> None:
    source = (ROOT / "engine" / "headway" / mutant.file).read_text()
    compile(mutated(mutant, source), mutant.file, "exec")
    assert (ROOT / "tests" / mutant.tests).exists()
