"""Text that is safe on a terminal: what a server sends can't move its cursor or change its colours."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from headway._safe_text import plain as plain


def json_text(value: Any, *, indent: int | None = None) -> str:
    """JSON in which only what can't be printed is escaped."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    # JSON escapes the control characters of ASCII, and neither DEL nor those beyond.
    return _BEYOND.sub(lambda found: _escaped(found.group()), text)


def _escaped(character: str) -> str:
    if character.isprintable():
        return character
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]


_BEYOND = re.compile("[\x7f-\U0010ffff]")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns under their heads, without blanks at the ends of lines."""
    lines = [tuple(head), *(tuple(map(plain, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
