"""The text of a value in an error is short, and shows where the value ends."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import headway
from headway.base import ended, error_text, repr_text


class _Broken:
    def __repr__(self) -> str:
        raise ValueError("no")


def test_short_value_is_shown_whole() -> None:
    assert repr_text({"a": [1, 2]}) == "{'a': [1, 2]}"
    assert repr_text("x" * 118) == repr("x" * 118)


def test_long_value_is_shown_with_its_end() -> None:
    """A sentence that goes on after it can be told from it."""
    shown = repr_text("a" * 1000 + "z")
    assert len(shown) == 120
    assert re.fullmatch(r"'a+…a+z'", shown)
    assert repr_text(["x" * 50] * 50).endswith("x']")
    assert len(repr_text("a" * 1000, 20)) == 20


def test_value_that_cannot_be_shown_is_named_by_its_class() -> None:
    assert repr_text(_Broken()) == "a _Broken, whose __repr__ raised ValueError"


def test_no_error_cuts_a_value_in_its_middle() -> None:
    """`{value!r:.120}` would end anywhere, and the sentence would seem to belong to the value."""
    sources = Path(headway.__file__).parent.rglob("*.py")
    assert [str(each) for each in sources if re.search(r"!r:\.\d", each.read_text())] == []


@pytest.mark.parametrize("text", ["no", "no.", "really?", "no!"])
def test_sentence_ends_with_one_mark(text: str) -> None:
    assert re.fullmatch(r"\w+[.?!]", ended(text))


def test_what_asyncio_raises_is_followed_by_one_mark() -> None:
    error = RuntimeError("no running event loop in thread 'MainThread'.")
    assert error_text(error).startswith("no running event loop in thread 'MainThread'. That is asyncio")
