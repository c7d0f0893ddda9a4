"""Parse the JSON of an API server, which accepts what Python does not: many levels, long numbers, and any bytes. Pure.

One such object would otherwise end the stream of all others, and any tenant may make one.
"""

from __future__ import annotations

import json
import re
from typing import Any

_MOST_LEVELS = 200
_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]|[^"\[\]{}]+')

UNREADABLE = object()
"""Stands for a value that Python does not read. It is no JSON, so that no payload can be made of it, and no request."""


def parsed(text: bytes) -> Any:
    """Return the value of a JSON text. The deepest of too many levels, and too long numbers, are `UNREADABLE`.

    Bytes that are not UTF-8 become surrogates, of which no payload can be made either. Raises ValueError for other
    texts.
    """
    try:
        return json.loads(text)
    except (RecursionError, ValueError):
        decoded = _cut(text).decode("utf-8", "surrogateescape")
        return json.loads(decoded, parse_int=_whole, parse_constant=lambda _: UNREADABLE)


def _whole(digits: str) -> Any:
    try:
        return int(digits)
    except ValueError:
        # Python reads no more than some thousand digits.
        return UNREADABLE


def _cut(text: bytes) -> bytes:
    kept: list[bytes] = []
    level = 0
    for found in _TOKENS.finditer(text):
        token = found[0]
        level += token in (b"[", b"{")
        if level <= _MOST_LEVELS:
            kept.append(token)
        elif level == _MOST_LEVELS + 1 and token in (b"[", b"{"):
            kept.append(b"NaN")
        level -= token in (b"]", b"}")
    return b"".join(kept)
