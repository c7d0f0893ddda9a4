"""The text of a JWT: strict parsing, before anything in it is believed. No I/O.

A library that verifies a signature accepts more than one text for the same token: other base64, keys that are given
twice, parameters that it ignores. Two programs may then read different tokens from one text. This module accepts one
form only, and refuses every header that asks for another key, another encoding or an extension.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, NamedTuple, NoReturn

from headway.access._tokens import PREFIX
from headway.base import plain, repr_text

MOST_BYTES = 12_288
"""The length of the longest token. The metadata of a request may have 16 KiB (`headway.rpc.Limits.header_size`)."""
_MOST_HEADER = 2_048
LONGEST_KID = 255
"""The length of the longest kid of a token, and so of a key that tokens can name."""
_TYPES = ("jwt", "at+jwt", "application/jwt", "application/at+jwt", "jose")
# Parameters that change which key verifies, or what is signed. Other parameters describe and may be ignored.
_FORBIDDEN = ("jku", "jwk", "x5u", "x5c", "crit", "b64", "zip", "enc", "cty", "epk", "p2c", "p2s")


class JwtRefused(Exception):
    """A JWT that is not accepted. The bearer learns none of this.

    Attributes:
        reason: one word of a fixed set, for metrics.
        why: a sentence for the operator.
        issuer: the name of the issuer in the access file; empty if the token is of none.
        caller: the name of the caller; empty unless the signature has been verified.
    """

    def __init__(self, reason: str, why: str, issuer: str = "", caller: str = "") -> None:
        super().__init__(why)
        self.reason = reason
        self.why = why
        self.issuer = issuer
        self.caller = caller


class Presented(NamedTuple):
    """A JWT as it was presented. Nothing in it is verified.

    Attributes:
        alg: the algorithm that it names.
        kid: the id of the key that it names; None if it names none.
        claims: its claims.
        signed: the bytes that the signature is of.
        signature: the signature.
    """

    alg: str
    kid: str | None
    claims: dict[str, Any]
    signed: bytes
    signature: bytes


def looks_like_jwt(text: str) -> bool:
    """Return True if a token is not one of Headway's own, but may be a JWT."""
    return "." in text and not text.startswith(f"{PREFIX}_")


def parsed(text: str) -> Presented:
    """Return the parts of a JWT. Raises JwtRefused if it is not in the one form that is accepted."""
    if len(text) > MOST_BYTES:
        raise JwtRefused("malformed", f"it has {len(text)} characters, and {MOST_BYTES} are allowed")
    if (dots := text.count(".")) != 2:
        raise JwtRefused("malformed", f"it has {dots + 1} parts, and a signed JWT has 3")
    parts = text.split(".")
    if len(parts[0]) > _MOST_HEADER:
        raise JwtRefused("malformed", f"its header has {len(parts[0])} characters, and {_MOST_HEADER} are allowed")
    header = _object(parts[0], "header")
    alg = _alg(header)
    kid = header.get("kid")
    if kid is not None and not (isinstance(kid, str) and 0 < len(kid) <= LONGEST_KID):
        raise JwtRefused("malformed", f"its kid must be a text of 1 to {LONGEST_KID} characters")
    claims = _object(parts[1], "payload")
    signature = _decoded(parts[2], "signature")
    if not signature:
        raise JwtRefused("signature", "it has no signature")
    return Presented(alg, kid, claims, f"{parts[0]}.{parts[1]}".encode(), signature)


def shown(value: object) -> str:
    """Return a value of a token for a log line: short, and in one line."""
    return plain(repr_text(value, 100))


def _alg(header: dict[str, Any]) -> str:
    for name in _FORBIDDEN:
        if name in header:
            raise JwtRefused("header", f"its header has {name}, which is never accepted")
    given = header.get("typ", "JWT")
    if not isinstance(given, str) or given.lower() not in _TYPES:
        raise JwtRefused("header", f"its typ {shown(given)} is not a type of logins")
    alg = header.get("alg")
    if not isinstance(alg, str):
        raise JwtRefused("malformed", "its header names no alg")
    # RFC 9864 has this name for what everyone calls EdDSA. Other curves of EdDSA are not supported.
    return usual_algorithm(alg)


def usual_algorithm(name: str) -> str:
    """Return the name by which this package knows an algorithm. RFC 9864 has a second one for EdDSA: Ed25519."""
    return "EdDSA" if name == "Ed25519" else name


def _object(part: str, what: str) -> dict[str, Any]:
    raw = _decoded(part, what)
    try:
        # Strict UTF-8: `json.loads` would guess the encoding of bytes.
        found = json.loads(raw.decode(), object_pairs_hook=_without_duplicates, parse_constant=_no_constant)
    except JwtRefused as refused:
        raise JwtRefused(refused.reason, f"its {what} {refused.why}") from None
    except (ValueError, RecursionError):
        # UnicodeDecodeError and JSONDecodeError are ValueErrors, as is the one for a number of too many digits.
        raise JwtRefused("malformed", f"its {what} is not JSON") from None
    if not isinstance(found, dict):
        raise JwtRefused("malformed", f"its {what} is not a JSON object")
    return found


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise JwtRefused("malformed", "has a key twice")
    return found


def _no_constant(name: str) -> NoReturn:
    raise JwtRefused("malformed", f"has {name}, which is not JSON")


def _decoded(part: str, what: str) -> bytes:
    """Return the bytes of a base64url text without padding, if it is the one text that encodes them."""
    try:
        raw = base64.b64decode(part + "=" * (-len(part) % 4), b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise JwtRefused("malformed", f"its {what} is not base64url") from None
    if base64.urlsafe_b64encode(raw).rstrip(b"=").decode() != part:
        raise JwtRefused("malformed", f"its {what} is not the canonical base64url of its bytes")
    return raw
