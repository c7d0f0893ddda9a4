"""A mutant of the catalogue."""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """A change of the source.

    Attributes:
        name: the wrong behavior.
        file: the changed file, relative to engine/headway.
        old: the text to replace, which the file has exactly once.
        new: the replacement.
        tests: the test file that must fail, relative to tests.
        only: an expression for pytest's ``-k`` that selects tests of that file. All are run if it is empty.
    """

    name: str
    file: str
    old: str
    new: str
    tests: str
    only: str = ""
