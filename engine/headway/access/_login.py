"""A login: a JWT whose signature and claims have been verified, and what it stands for. No I/O; time is an argument."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from headway.access._jwt_text import JwtRefused, Presented, shown

if TYPE_CHECKING:
    from headway.access._issuers import Issuer
    from headway.access._jwks import IssuerKey

_LONGEST_SUBJECT = 255
# A float has whole seconds up to here. Later times are mistakes.
_LAST = 2**40
# joserfc has a class for this name that warns of its ambiguity. The keys here are of the one curve.
_MODELS = {"EdDSA": "Ed25519"}


class Login(NamedTuple):
    """A verified JWT.

    Attributes:
        issuer: the name of its issuer in the access file.
        subject: the claim ``sub``.
        policies: the names of the policies that its claims give.
        expires_at: the time at which it expires: its ``exp`` plus the issuer's leeway, in seconds since the epoch.
        claims: all of its claims.
        key: the thumbprint of the key that signed it.
        alg: the algorithm of the signature.
    """

    issuer: str
    subject: str
    policies: tuple[str, ...]
    expires_at: float
    claims: Mapping[str, Any]
    key: str
    alg: str

    def __repr__(self) -> str:
        # Without the claims, which may be personal.
        return f"<Login {self.name}>"

    @property
    def accessor(self) -> str:
        """The public name of the caller, which all of their tokens share."""
        return f"{self.issuer}/{self.subject}"

    @property
    def name(self) -> str:
        """The name that operators see."""
        return self.accessor

    def holds(self, now: float) -> bool:
        """Return True if the login is valid at this time (seconds since the epoch)."""
        return now < self.expires_at


def verified(presented: Presented, issuer: Issuer, key: IssuerKey, now: float) -> Login:
    """Return the login of a JWT that this key of the issuer has signed.

    Raises:
        JwtRefused: the signature is wrong, the claims are invalid at this time, or no binding matches.
    """
    _check_signature(presented, issuer, key)
    claims = presented.claims
    subject = claims.get("sub")
    if not isinstance(subject, str) or not 0 < len(subject) <= _LONGEST_SUBJECT or not subject.isprintable():
        raise JwtRefused(
            "claims", f"its sub must be a text of 1 to {_LONGEST_SUBJECT} printable characters", issuer.name
        )
    caller = f"{issuer.name}/{subject}"
    try:
        _check_claims(claims, issuer, now)
    except JwtRefused as refused:
        raise JwtRefused(refused.reason, refused.why, issuer.name, caller) from None
    expires_at = float(claims["exp"]) + issuer.leeway
    policies = issuer.policies_of(claims)
    if not policies:
        raise JwtRefused("no_binding", "no binding of its issuer matches its claims", issuer.name, caller)
    return Login(issuer.name, subject, policies, expires_at, claims, key.thumbprint, presented.alg)


def _check_signature(presented: Presented, issuer: Issuer, key: IssuerKey) -> None:
    from joserfc.errors import JoseError
    from joserfc.jws import JWSRegistry

    # The algorithm is the issuer's choice and the key's, and the token only names one of them.
    assert presented.alg in issuer.algorithms
    assert presented.alg in key.algorithms
    model = JWSRegistry.algorithms[_MODELS.get(presented.alg, presented.alg)]
    try:
        model.check_key(key.key)
        right = model.verify(presented.signed, presented.signature, key.key)
    except (JoseError, ValueError):
        right = False
    if not right:
        raise JwtRefused("signature", f"its signature is not one of key {shown(key.kid)}", issuer.name)


def _check_claims(claims: Mapping[str, Any], issuer: Issuer, now: float) -> None:
    from joserfc.errors import ExpiredTokenError, JoseError
    from joserfc.jwt import JWTClaimsRegistry

    for name in ("exp", "nbf", "iat"):
        # joserfc takes any number. One that no clock shows would overflow in sums.
        if name in claims and not (_is_number(value := claims[name]) and 0 <= value <= _LAST):
            raise JwtRefused("claims", f"its {name} {shown(value)} is not a time in seconds")
    audiences = claims.get("aud")
    listed = audiences if isinstance(audiences, list) else [audiences]
    if not all(isinstance(each, str) for each in listed) or not set(listed) & set(issuer.audiences):
        raise JwtRefused("audience", f"its aud {shown(audiences)} has none of the issuer's audiences")
    registry = JWTClaimsRegistry(
        now=int(now),
        leeway=int(issuer.leeway),
        iss={"essential": True, "value": issuer.issuer},
        aud={"essential": True, "values": list(issuer.audiences)},
        exp={"essential": True},
        sub={"essential": True},
    )
    try:
        registry.validate(dict(claims))
    except ExpiredTokenError:
        raise JwtRefused("expired", "it has expired") from None
    except JoseError as error:
        early = getattr(error, "claim", "") in ("nbf", "iat")
        raise JwtRefused("not_yet_valid" if early else "claims", f"{error!s:.200}") from None
    if now >= claims["exp"] + issuer.leeway:
        # joserfc counts whole seconds.
        raise JwtRefused("expired", "it has expired")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
