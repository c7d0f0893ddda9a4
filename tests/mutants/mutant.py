"""The form of a mutant, and the source with one in it."""

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


def mutated(mutant: Mutant, source: str) -> str:
    """Return the source with the mutant in it. Raise ValueError if the text to replace does not occur exactly once."""
    found = source.count(mutant.old)
    if found != 1:
        raise ValueError(f"{mutant.name}: {mutant.old!r} is {found} times in {mutant.file}, not once")
    return source.replace(mutant.old, mutant.new)
