"""Parse the JSON of an API server, which accepts more levels than Python's parser. Pure."""

from __future__ import annotations

import json
import re
from typing import Any

_MOST_LEVELS = 200
_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]|[^"\[\]{}]+')

TOO_DEEP = object()
"""Stands for a value that is too deep. It is no JSON, so that no payload can be made of it, and no request."""


def parsed(text: bytes) -> Any:
    """Return the value of a JSON text. If it has too many levels, the deepest ones are `TOO_DEEP`.

    Otherwise one object with a thousand levels would end the stream of all others. Raises ValueError for other texts.
    """
    try:
        return json.loads(text)
    except RecursionError:
        return json.loads(_cut(text), parse_constant=lambda _: TOO_DEEP)


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
