"""The form of a mutant, and the source with one in it."""

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


def mutated(mutant: Mutant, source: str) -> str:
    """Return the source with the mutant. Raises ValueError unless the source has the changed text exactly once."""
    found = source.count(mutant.old)
    if found != 1:
        raise ValueError(f"{mutant.name}: {mutant.old!r} is {found} times in {mutant.file}, not once")
    return source.replace(mutant.old, mutant.new)
