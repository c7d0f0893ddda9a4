"""Make a new token: the only place where a secret is made, and the only moment at which it is known."""

from __future__ import annotations

import secrets
from collections.abc import Collection

from headway.access._tokens import ACCESSOR_BYTES, PREFIX, SECRET_BYTES, Token, hash_of


def new_token(
    policies: Collection[str], *, expires_at: float | None = None, description: str = ""
) -> tuple[str, Token]:
    """The text of a new token, to be shown once and kept nowhere, and what is to be kept of it.

    Args:
        policies: the names of the policies that its bearer gets.
        expires_at: seconds since the epoch from which on it is refused; None for never.
        description: whose it is and what for.

    Raises InvalidArgument when one of these is wrong.
    """
    accessor = secrets.token_hex(ACCESSOR_BYTES)
    text = f"{PREFIX}_{accessor}_{secrets.token_hex(SECRET_BYTES)}"
    token = Token(
        accessor=accessor, hash=hash_of(text), policies=policies, expires_at=expires_at, description=description
    )
    return text, token
