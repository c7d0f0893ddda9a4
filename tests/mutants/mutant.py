"""A mutant of the catalogue."""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """A change of the source.

    Attributes:
        name: what is wrong then.
        file: below engine/headway.
        old: what stands there once.
        new: what stands there instead.
        tests: what kills it, below tests.
        only: which of these tests, as pytest's ``-k`` has it; empty: all.
    """

    name: str
    file: str
    old: str
    new: str
    tests: str
    only: str = ""
