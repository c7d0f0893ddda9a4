"""Check the characters of a text, and find its end."""

from __future__ import annotations

import re
from collections.abc import Iterator

from headway.manifest._nodes import Place

_UNPRINTABLE = re.compile("[^\t\n\r -~\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


def end_of(text: str) -> Place:
    """Return the position after the last character."""
    lines = _BREAK.split(text)
    return Place(len(lines), len(lines[-1]) + 1)


def unprintable(text: str) -> Iterator[tuple[Place, str]]:
    """Yield the first character that is not allowed in YAML or HCL, if any, with a message."""
    # A byte order mark at the very beginning is not part of the text.
    found = _UNPRINTABLE.search(text.removeprefix("\ufeff"))
    if found is not None:
        code = ord(found.group())
        yield (
            end_of(found.string[: found.start()]),
            f"the character U+{code:04X} is not allowed in a manifest: write it as an escape in double quotes",
        )
