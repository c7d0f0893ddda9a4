"""The public keys of an issuer, as it publishes them: a JWKS. Keys that are weak or of no use are left out. No I/O.

The keys and signatures are joserfc's. It is imported when the first JWKS is read.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from headway.access._jwt_text import LONGEST_KID, usual_algorithm
from headway.errors import DeclarationError, InvalidArgument

if TYPE_CHECKING:
    from joserfc.jwk import ECKey, OKPKey, RSAKey

MOST_KEYS = 100
"""The number of keys of one issuer."""
MOST_BYTES = 262_144
"""The size of a JWKS and of a discovery document."""

_CURVES = {"P-256": ("ES256",), "P-384": ("ES384",), "P-521": ("ES512",)}
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_RSA_BITS = (2048, 8192)
_LEAST_EXPONENT = 65537
_PRIVATE = ("d", "p", "q", "dp", "dq", "qi", "k")
# The points of small order of Curve25519: with one of them as a key, anyone can sign. The last bit is the sign of x.
_SMALL_ORDER = frozenset(
    bytes.fromhex(text)
    for text in (
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    )
)


class IssuerKey(NamedTuple):
    """A public key of an issuer, as one entry of its JWKS has it. Several entries may have the same key.

    Attributes:
        kid: its id, which tokens name; empty if it has none.
        algorithms: the algorithms that it verifies.
        thumbprint: the digest of the key (RFC 7638), which no two keys share.
    """

    kid: str
    algorithms: tuple[str, ...]
    thumbprint: str
    key: RSAKey | ECKey | OKPKey


class Keys:
    """The keys of an issuer at one moment.

    Attributes:
        left_out: the keys that are not used, each with the reason.
    """

    __slots__ = ("_entries", "left_out")

    def __init__(self, entries: Iterable[IssuerKey] = (), left_out: tuple[str, ...] = ()) -> None:
        # A list, because some issuers publish one key under several ids, or once for each of its algorithms.
        self._entries = tuple(entries)
        self.left_out = left_out

    def __len__(self) -> int:
        return len({each.thumbprint for each in self._entries})

    def can_verify(self, thumbprint: str, alg: str) -> bool:
        """Return True if the key with this thumbprint is one of them, and verifies this algorithm."""
        return any(each.thumbprint == thumbprint and alg in each.algorithms for each in self._entries)

    @property
    def names(self) -> tuple[str, ...]:
        """The ids of the keys, in order. A key without one has its thumbprint."""
        return tuple(sorted({each.kid or each.thumbprint for each in self._entries}))

    def are(self, other: Keys) -> bool:
        """Return True if the other ones are the same keys, under the same ids and for the same algorithms."""
        return {each[:3] for each in self._entries} == {each[:3] for each in other._entries}

    def find(self, kid: str | None, alg: str) -> IssuerKey | None:
        """Return the only key that a token with this kid and algorithm can be signed with, or None."""
        found = {
            each.thumbprint: each
            for each in self._entries
            if alg in each.algorithms and (kid is None or each.kid == kid)
        }
        return next(iter(found.values())) if len(found) == 1 else None

    def has(self, kid: str) -> bool:
        """Return True if there is a key with this id, for whatever algorithm."""
        return any(each.kid == kid for each in self._entries)


class NoKeys(InvalidArgument):
    """The issuer publishes a JWKS, and none of its keys can be used: keys that were known before are withdrawn."""


def check_joserfc() -> None:
    """Raise DeclarationError if the library for JWTs is not installed."""
    try:
        import joserfc.jwk
        import joserfc.jwt  # noqa: F401
    except ImportError as error:
        raise DeclarationError("issuers of logins need joserfc: pip install 'headway[jwt]'") from error


def read_keys(text: str | bytes) -> Keys:
    """Return the keys of a JWKS.

    Raises:
        InvalidArgument: it is not a JWKS.
        NoKeys: no key of it can be used, or it holds a private key.
    """
    if len(text) > MOST_BYTES:
        raise InvalidArgument(f"the JWKS has {len(text)} bytes, and {MOST_BYTES} are allowed")
    try:
        document = json.loads(text if isinstance(text, str) else text.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"the JWKS is not JSON: {error!s:.200}") from None
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise InvalidArgument('the JWKS must be an object with a list of keys, such as {"keys": [{"kty": "RSA", ...}]}')
    if len(entries) > MOST_KEYS:
        raise InvalidArgument(f"the JWKS has {len(entries)} keys, and {MOST_KEYS} are allowed")
    keys: list[IssuerKey] = []
    left_out: list[str] = []
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict):
            # Its content is not shown: it may be a secret.
            left_out.append(f'keys[{number}]: it is no key: expected an object, such as {{"kty": "RSA", ...}}')
            continue
        name = f"keys[{number}] (kid {str(entry.get('kid', 'missing'))[:100]!r})"
        if any(each in entry for each in _PRIVATE if not (each == "k" and entry.get("kty") != "oct")):
            raise NoKeys(f"the JWKS holds a private key or a secret, {name}: publish public keys only")
        try:
            keys.append(_made(entry))
        except _LeftOut as error:
            left_out.append(f"{name}: {error}")
    if not keys:
        why = f": {'; '.join(left_out)[:500]}" if left_out else ""
        raise NoKeys(f"the JWKS has no key that can be used{why}")
    return Keys(keys, tuple(left_out))


class _LeftOut(Exception):
    """A key cannot be used. The message is the reason."""


def _made(entry: Mapping[str, Any]) -> IssuerKey:
    from joserfc.errors import JoseError
    from joserfc.jwk import ECKey, OKPKey, RSAKey

    if entry.get("use", "sig") != "sig":
        raise _LeftOut(f"its use is {str(entry['use'])[:20]!r}, and signatures need 'sig'")
    operations = entry.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        raise _LeftOut("its key_ops lack 'verify'")
    kid = entry.get("kid", "")
    if not isinstance(kid, str):
        raise _LeftOut("its kid is not a text")
    if len(kid) > LONGEST_KID:
        raise _LeftOut(f"its kid has {len(kid)} characters, and tokens name at most {LONGEST_KID}")
    kty, crv = entry.get("kty"), entry.get("crv")
    key: RSAKey | ECKey | OKPKey
    try:
        if kty == "RSA":
            modulus, exponent = _number(entry, "n"), _number(entry, "e")
            if not _RSA_BITS[0] <= modulus.bit_length() <= _RSA_BITS[1]:
                raise _LeftOut(f"it has {modulus.bit_length()} bits; RSA keys have {_RSA_BITS[0]} to {_RSA_BITS[1]}")
            if exponent < _LEAST_EXPONENT or exponent.bit_length() > 256 or not exponent % 2 or not modulus % 2:
                raise _LeftOut(f"its exponent must be odd, and at least {_LEAST_EXPONENT}")
            algorithms: tuple[str, ...] = _RSA
            key = RSAKey.import_key({"kty": "RSA", "n": entry["n"], "e": entry["e"]})
        elif kty == "EC" and crv in _CURVES:
            algorithms = _CURVES[crv]
            key = ECKey.import_key({"kty": "EC", "crv": crv, "x": entry["x"], "y": entry["y"]})
        elif kty == "OKP" and crv == "Ed25519":
            point = _bytes(entry, "x")
            if point[:31] + bytes([point[31] & 0x7F]) in _SMALL_ORDER:
                raise _LeftOut("its point has a small order, so that anyone could sign")
            algorithms = ("EdDSA",)
            key = OKPKey.import_key({"kty": "OKP", "crv": crv, "x": entry["x"]})
        else:
            raise _LeftOut(f"kty {str(kty)[:20]!r} with crv {str(crv)[:20]!r} is not a public key that is supported")
        # Only now does joserfc build the key, and finds that a point is not on its curve.
        _ = key.public_key
    except (JoseError, binascii.Error, ValueError, TypeError, KeyError, IndexError) as error:
        raise _LeftOut(f"it is not a valid key ({type(error).__name__})") from None
    if (alg := entry.get("alg")) is not None:
        alg = usual_algorithm(alg)
        if alg not in algorithms:
            raise _LeftOut(f"its alg {str(alg)[:20]!r} does not fit the key")
        algorithms = (alg,)
    return IssuerKey(kid, algorithms, key.thumbprint(), key)


def _bytes(entry: Mapping[str, Any], name: str) -> bytes:
    text = entry[name]
    return base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)


def _number(entry: Mapping[str, Any], name: str) -> int:
    return int.from_bytes(_bytes(entry, name), "big")
