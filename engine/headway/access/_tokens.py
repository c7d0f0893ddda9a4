"""Tokens: their creation, their stored form, and the look-up of a presented one.

A token's text is ``hw_<accessor>_<secret>``. The accessor is its public name in files and logs. The secret is 256
random bits. The stored form is the SHA-256 of the whole text, so a hash is valid only for its own accessor.

The hash is fast and has no salt. Slow hashes and salts make it expensive to guess passwords that people choose, but
2^256 texts cannot be enumerated at any speed. A slow hash would let everyone who can reach the server keep it busy.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import secrets
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from headway.access._policy import Check, check_fields
from headway.errors import InvalidArgument, Unauthenticated
from headway.resource import name_problem

PREFIX = "hw"
ACCESSOR_BYTES = 8
SECRET_BYTES = 32

_ACCESSOR = re.compile(rf"[0-9a-f]{{{2 * ACCESSOR_BYTES}}}\Z")
_HASH = re.compile(r"sha256:[0-9a-f]{64}\Z")
_TEXT_LENGTH = len(PREFIX) + 2 * ACCESSOR_BYTES + 2 * SECRET_BYTES + 2
# Matches anything that looks like a token, even if truncated or misspelled.
_SECRET_IN_TEXT = re.compile(rf"\b{PREFIX}_[^\s_]*_[^\s'\"]+", re.IGNORECASE)

REFUSED = "the token is not valid here: it may be mistyped, expired or revoked"
"""The message for the bearer of any invalid token. It is always the same, so that it reveals nothing about tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """The stored form of a token. Its text cannot be recovered from this.

    Raises InvalidArgument with all of its problems.

    Attributes:
        accessor: its public name, the middle part of its text.
        hash: the result of ``hash_of`` for its text.
        policies: the names of the policies that its bearer has.
        expires_at: the time at which it expires, in seconds since the epoch; None for never.
        revoked: True if it is refused. (A token that is removed is refused as well; a revoked one stays listed.)
        description: its owner and purpose.
    """

    accessor: str
    hash: str = field(repr=False)
    policies: Collection[str]
    expires_at: float | None = None
    revoked: bool = False
    description: str = ""

    def __post_init__(self) -> None:
        check_fields("token", self, TOKEN_CHECKS)
        object.__setattr__(self, "policies", tuple(self.policies))

    @property
    def name(self) -> str:
        """The name that operators see: its accessor and its description."""
        return f"{self.accessor} ({self.description})" if self.description else self.accessor

    def holds(self, now: float) -> bool:
        """Return True if the token is valid at this time (seconds since the epoch)."""
        return not self.revoked and (self.expires_at is None or now < self.expires_at)


class TokenSet:
    """Tokens by accessor. Raises InvalidArgument if two have the same accessor."""

    __slots__ = ("_by_accessor",)

    def __init__(self, tokens: Iterable[Token] = ()) -> None:
        self._by_accessor: dict[str, Token] = {}
        for token in tokens:
            if self._by_accessor.setdefault(token.accessor, token) is not token:
                raise InvalidArgument(
                    f"tokens: duplicate accessor {token.accessor!r}; make a new token for one of them"
                )

    def __len__(self) -> int:
        return len(self._by_accessor)

    def __iter__(self) -> Iterator[Token]:
        return iter(self._by_accessor.values())

    def get(self, accessor: str) -> Token | None:
        """Return the token with this accessor, even if it is no longer valid."""
        return self._by_accessor.get(accessor)

    def find(self, text: str, now: float) -> Token:
        """Return the token whose text was presented, at a time in seconds since the epoch.

        Every text costs one look-up, one hash and one comparison. Each of these takes equally long whether the token is
        unknown, wrong, expired, revoked or valid. Raises the same Unauthenticated for every text that is not valid.
        """
        presented = text if len(text) == _TEXT_LENGTH else ""
        token = self._by_accessor.get(accessor_of(presented), _ABSENT)
        is_right = hmac.compare_digest(hash_of(presented), token.hash)
        if not (is_right & token.holds(now)):
            raise Unauthenticated(REFUSED)
        return token

    def refusal(self, text: str) -> tuple[str | None, str]:
        """Return the name of the token with the presented accessor, if it exists, and why `find` refuses the text.

        This is for the operator. The bearer only gets `REFUSED`.
        """
        token = self._by_accessor.get(accessor_of(text))
        if token is None:
            return None, "token not found"
        if not hmac.compare_digest(hash_of(text), token.hash):
            return token.name, "its secret is wrong"
        return token.name, "it is revoked" if token.revoked else "it has expired"


def accessor_of(text: str) -> str:
    """Return the middle part of a token's text. For any other text, the result names no token."""
    return text[len(PREFIX) + 1 : len(PREFIX) + 1 + 2 * ACCESSOR_BYTES]


def hash_of(text: str) -> str:
    """Return the stored form of a token's text."""
    # A text from the network may contain anything, such as lone surrogates, which UTF-8 cannot encode.
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def redacted(text: str) -> str:
    """Return the text without any tokens in it. For messages, which are logged."""
    return _SECRET_IN_TEXT.sub(f"{PREFIX}_…", text)


# These messages never contain a hash or a possible text of a token.


def _accessor_problems(value: object) -> Iterator[str]:
    if not isinstance(value, str) or not _ACCESSOR.match(value):
        yield f"accessor {redacted(repr(value))} must be {2 * ACCESSOR_BYTES} hexadecimal digits in lower case"


def _hash_problems(value: object) -> Iterator[str]:
    if not isinstance(value, str) or not _HASH.match(value):
        is_text = isinstance(value, str) and redacted(value) != value
        what = "is the token itself, which must never be stored" if is_text else "is invalid"
        yield f"hash {what}: it must be 'sha256:' and 64 hexadecimal digits in lower case"


def _policies_problems(value: object) -> Iterator[str]:
    if isinstance(value, str) or not isinstance(value, Collection):
        yield f"policies {redacted(repr(value))} must be a list of the names of policies"
        return
    for name in value:
        if problem := name_problem("the name", name):
            yield f"policies: {redacted(problem)}"


def _expiry_problems(value: object) -> Iterator[str]:
    is_time = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if value is not None and not is_time:
        yield f"expires_at {redacted(repr(value))} must be seconds since the epoch, such as 1767225600"


def _revoked_problems(value: object) -> Iterator[str]:
    if not isinstance(value, bool):
        yield f"revoked {redacted(repr(value))} must be true or false"


def _description_problems(value: object) -> Iterator[str]:
    if not isinstance(value, str) or not value.isprintable():
        yield f"description {redacted(repr(value))} must be one line of printable text"
    elif redacted(value) != value:
        yield "description contains the text of a token, which must never be stored"


TOKEN_CHECKS: dict[str, Check] = {
    "accessor": _accessor_problems,
    "hash": _hash_problems,
    "policies": _policies_problems,
    "expires_at": _expiry_problems,
    "revoked": _revoked_problems,
    "description": _description_problems,
}

# Replaces a token that does not exist, so that the work is the same. No text has this hash.
_ABSENT = Token(accessor="0" * 2 * ACCESSOR_BYTES, hash="sha256:" + "0" * 64, policies=(), revoked=True)


def new_token(
    policies: Collection[str], *, expires_at: float | None = None, description: str = ""
) -> tuple[str, Token]:
    """Return the text of a new token, to be shown once and never stored, and the `Token` to store.

    Args:
        policies: the names of the policies that its bearer gets.
        expires_at: the time at which it expires, in seconds since the epoch; None for never.
        description: its owner and purpose.

    Raises InvalidArgument if one of these is invalid.
    """
    accessor = secrets.token_hex(ACCESSOR_BYTES)
    text = f"{PREFIX}_{accessor}_{secrets.token_hex(SECRET_BYTES)}"
    token = Token(
        accessor=accessor, hash=hash_of(text), policies=policies, expires_at=expires_at, description=description
    )
    return text, token
