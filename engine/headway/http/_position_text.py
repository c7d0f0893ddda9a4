"""Positions in a store's history as opaque texts, for queries and for the ids of events."""

from __future__ import annotations

import base64
import binascii

from headway.errors import PayloadError
from headway.http._refusal import invalid
from headway.protobuf import decode, encode
from headway.resource import Position, pb, position, quoted

_LONGEST = 1024


def position_text(here: Position) -> str:
    """Return a position as a text for URLs and headers."""
    return base64.urlsafe_b64encode(encode(here.message())).decode().rstrip("=")


def position_of(text: str) -> Position:
    """Return the position of a text. Raises HttpRefusal (400) for any other text."""
    try:
        if len(text) > _LONGEST or not text.isascii():
            raise ValueError
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        here = position(decode(pb.Position, data))
    except (binascii.Error, ValueError, PayloadError):
        here = None
    if here is None or not here.store_id:
        raise invalid(f"position {quoted(text)} is invalid: use the position of an event, or of a list")
    return here
