"""Text that is safe on a terminal: what a server sends can't move its cursor or change its colours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def plain(text: str) -> str:
    """The text, with escapes in place of what can't be printed (line breaks too)."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns under their heads, without blanks at the ends of lines."""
    lines = [tuple(head), *(tuple(map(plain, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
