"""Make text safe for a terminal: a server's text must not move the cursor or change colors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from headway._safe_text import plain as plain


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Return JSON in which only unprintable characters are escaped."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    # `json.dumps` escapes the control characters of ASCII, except DEL, but not those outside ASCII.
    return _BEYOND.sub(lambda found: _escaped(found.group()), text)


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]


_BEYOND = re.compile("[\x7f-\U0010ffff]")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a table with aligned columns, without trailing blanks."""
    lines = [tuple(head), *(tuple(map(plain, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
