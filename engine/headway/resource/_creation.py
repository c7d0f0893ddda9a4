"""Creation tokens, which distinguish a retried creation from a creation by another writer."""

from __future__ import annotations

import hashlib
import secrets

from headway.resource._ids import Key, Kind

_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def new_create_token() -> str:
    """Return a new token for one creation."""
    return secrets.token_hex(16)


def uid_ending(token: str, kind: Kind, key: Key) -> str:
    """Return the last 16 characters of the uid of a resource created with a token: the random part of a ULID.

    They also depend on the name, so that a token never gives two resources the same uid. The first part of a uid is the
    time, so that a later creation with the same token gets another uid.
    """
    named = "\0".join((token, *kind, *key)).encode(errors="surrogatepass")
    number = int.from_bytes(hashlib.blake2b(named, digest_size=10).digest())
    return "".join(_DIGITS[number >> shift & 31] for shift in range(75, -1, -5))
