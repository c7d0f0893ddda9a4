"""The choice of the endings of a machine's example."""

from __future__ import annotations

import random
from collections.abc import Iterable

from hypothesis import currently_in_test_context, note
from hypothesis import strategies as st

draws = st.integers(0, 2**32 - 1)
"""What is drawn for a choice."""


def chosen(names: Iterable[str], count: int, *done: object) -> list[str]:
    """Return different names, chosen by what the rules of the example have done.

    Hypothesis repeats parts of an example in others. If it draws the names, a run of 20 examples has about 16 different
    choices, and misses one of 22 endings.
    """
    found = random.Random(repr(done)).sample(sorted(names), count)
    # A script that repeats an example runs outside of a test.
    if currently_in_test_context():
        note(f"at the end: {found!r}")
    return found
