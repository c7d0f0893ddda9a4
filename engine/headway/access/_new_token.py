"""Creation of tokens: the only place that generates a secret, and the only time at which it is known."""

from __future__ import annotations

import secrets
from collections.abc import Collection

from headway.access._tokens import ACCESSOR_BYTES, PREFIX, SECRET_BYTES, Token, hash_of


def new_token(
    policies: Collection[str], *, expires_at: float | None = None, description: str = ""
) -> tuple[str, Token]:
    """Return the text of a new token, to be shown once and never stored, and the `Token` to store.

    Args:
        policies: the names of the policies that its bearer gets.
        expires_at: the time from which it is refused, in seconds since the epoch; None for never.
        description: its owner and purpose.

    Raises InvalidArgument if one of these is invalid.
    """
    accessor = secrets.token_hex(ACCESSOR_BYTES)
    text = f"{PREFIX}_{accessor}_{secrets.token_hex(SECRET_BYTES)}"
    token = Token(
        accessor=accessor, hash=hash_of(text), policies=policies, expires_at=expires_at, description=description
    )
    return text, token
