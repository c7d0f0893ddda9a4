"""A griffe extension: docstrings introduce a program with `::`, which Markdown would show as it stands."""

from __future__ import annotations

import re
from typing import Any

import griffe

_INTRODUCTION = re.compile(r"^( *)::\n|(?<=\S)::\n", re.MULTILINE)


def without_colons(text: str) -> str:
    """Return a docstring whose `::` in a line of its own is gone, and is a colon at the end of a sentence."""
    return _INTRODUCTION.sub(lambda found: "\n" if found[1] is not None else ":\n", text)


class Docstrings(griffe.Extension):
    """Rewrite the docstrings as they are loaded."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = without_colons(obj.docstring.value)
