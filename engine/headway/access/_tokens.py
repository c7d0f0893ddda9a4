"""Tokens: what is kept of them, and how a presented one is found among them.

A token's text is ``hw_<accessor>_<secret>``. The accessor names it, in files and logs, and is no secret; the secret is
256 random bits. What is kept is the SHA-256 of the whole text, so that a hash is good for its own accessor alone. A
slow hash, or a salt, makes guessing dear where people choose passwords; 2^256 texts can't be gone through at any
speed, and a slow hash would let everyone who can reach the server keep it busy.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from headway.access._policy import Check, check_fields
from headway.errors import InvalidArgument, PermissionDenied
from headway.resource import name_problem

PREFIX = "hw"
ACCESSOR_BYTES = 8
SECRET_BYTES = 32

_ACCESSOR = re.compile(rf"[0-9a-f]{{{2 * ACCESSOR_BYTES}}}\Z")
_HASH = re.compile(r"sha256:[0-9a-f]{64}\Z")
_TEXT_LENGTH = len(PREFIX) + 2 * ACCESSOR_BYTES + 2 * SECRET_BYTES + 2
# Whatever looks like a token, cut short or misspelt as it may be.
_SECRET_IN_TEXT = re.compile(rf"\b{PREFIX}_[^\s_]*_[^\s'\"]+", re.IGNORECASE)

REFUSED = "the token is not valid here: it may be mistyped, expired or revoked"
"""What the bearer of any token that doesn't hold is told. One sentence for all, as the reason is not theirs to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What is kept of a token: nothing from which its text could be had.

    Raises InvalidArgument with everything that is wrong with it.

    Attributes:
        accessor: its public name, the middle part of its text.
        hash: what ``hash_of`` makes of its text.
        policies: the names of the policies that its bearer has.
        expires_at: seconds since the epoch from which on it is refused; None for never.
        revoked: whether it is refused already. (A token that is left out is refused as well; this one stays listed.)
        description: whose it is and what for.
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
        """What operators know it by: its accessor and its description."""
        return f"{self.accessor} ({self.description})" if self.description else self.accessor

    def holds(self, now: float) -> bool:
        """Whether its bearer is to be let in at this time (seconds since the epoch)."""
        return not self.revoked and (self.expires_at is None or now < self.expires_at)


class TokenSet:
    """Tokens by accessor. Raises InvalidArgument when two have the same."""

    __slots__ = ("_by_accessor",)

    def __init__(self, tokens: Iterable[Token] = ()) -> None:
        self._by_accessor: dict[str, Token] = {}
        for token in tokens:
            if self._by_accessor.setdefault(token.accessor, token) is not token:
                raise InvalidArgument(f"tokens: two have the accessor {token.accessor!r}; make a new one for either")

    def __len__(self) -> int:
        return len(self._by_accessor)

    def __iter__(self) -> Iterator[Token]:
        return iter(self._by_accessor.values())

    def get(self, accessor: str) -> Token | None:
        """The token of that name, whether or not it still holds."""
        return self._by_accessor.get(accessor)

    def find(self, text: str, now: float) -> Token:
        """The token whose text was presented, at a time in seconds since the epoch.

        Every text costs one look-up, one hash and one comparison, and each of these takes as long whether the token
        is unknown, wrong, expired, revoked or good. Raises PermissionDenied, always the same, for all but good ones.
        """
        presented = text if len(text) == _TEXT_LENGTH else ""
        token = self._by_accessor.get(accessor_of(presented), _NOBODY)
        is_right = hmac.compare_digest(hash_of(presented), token.hash)
        if not (is_right & token.holds(now)):
            raise PermissionDenied(REFUSED)
        return token

    def refusal(self, text: str) -> tuple[str | None, str]:
        """Return the name of the token whose accessor was presented, if there is one, and why `find` refuses the text.

        For the operator; the bearer is told `REFUSED`.
        """
        token = self._by_accessor.get(accessor_of(text))
        if token is None:
            return None, "there is no such token"
        if not hmac.compare_digest(hash_of(text), token.hash):
            return token.name, "its text is wrong"
        return token.name, "it is revoked" if token.revoked else "it has expired"


def accessor_of(text: str) -> str:
    """The middle part of a token's text; of another text, something that names no token."""
    return text[len(PREFIX) + 1 : len(PREFIX) + 1 + 2 * ACCESSOR_BYTES]


def hash_of(text: str) -> str:
    """What is kept of a token's text."""
    # A text from the network may hold anything: lone surrogates have no UTF-8 of their own.
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def redacted(text: str) -> str:
    """The text, without the tokens that someone has put where they don't belong. For messages, which are logged."""
    return _SECRET_IN_TEXT.sub(f"{PREFIX}_…", text)


# None of these sentences has a hash in it, or what may be a token's text.


def _accessor_problems(value: object) -> Iterator[str]:
    if not isinstance(value, str) or not _ACCESSOR.match(value):
        yield f"accessor {redacted(repr(value))} must be {2 * ACCESSOR_BYTES} hexadecimal digits in lower case"


def _hash_problems(value: object) -> Iterator[str]:
    if not isinstance(value, str) or not _HASH.match(value):
        is_text = isinstance(value, str) and redacted(value) != value
        what = "is the token itself, which must be kept nowhere" if is_text else "is not one"
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
        yield "description has a token's text in it, which must be kept nowhere"


TOKEN_CHECKS: dict[str, Check] = {
    "accessor": _accessor_problems,
    "hash": _hash_problems,
    "policies": _policies_problems,
    "expires_at": _expiry_problems,
    "revoked": _revoked_problems,
    "description": _description_problems,
}

# Stands in for a token that isn't there: the work is the same, and no text has this hash.
_NOBODY = Token(accessor="0" * 2 * ACCESSOR_BYTES, hash="sha256:" + "0" * 64, policies=(), revoked=True)
