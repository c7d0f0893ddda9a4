"""The ID token of a login, checked for the client that asked for it. No I/O; time is an argument."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headway.access._issuers import ALGORITHMS, Binding, Issuer
from headway.access._jwks import Keys
from headway.access._jwt_text import JwtRefused, shown
from headway.access._logins import Logins
from headway.errors import Unauthenticated


def check_id_token(
    text: str, *, issuer: str, client: str, keys: Keys, now: float, nonce: str | None, subject: str | None = None
) -> Mapping[str, Any]:
    """Return the claims of an ID token for this client.

    Args:
        now: the time in seconds since the epoch. The two clocks may differ by 30 s.
        nonce: the nonce of the request, which the token must have; None if the request had none.
        subject: the subject of the login that is renewed; None for a new login.

    Raises Unauthenticated if the issuer has not signed it, or has signed it for something else.
    """
    try:
        # A server checks a token in the same way. Its policies play no part here.
        rules = Issuer(
            name="login",
            issuer=issuer,
            audiences=[client],
            bindings=[Binding(claims={}, policies=["login"])],
            algorithms=ALGORITHMS,
            # The keys are given. So the issuer's URL may also be one of loopback without TLS.
            jwks_file="given",
        )
        claims = Logins({"login": rules}, {"login": keys}).find(text, now).claims
        _check_request(claims, client, nonce, subject)
    except JwtRefused as refused:
        raise Unauthenticated(f"{issuer}: its ID token is refused: {refused.why}") from None
    return claims


def _check_request(claims: Mapping[str, Any], client: str, nonce: str | None, subject: str | None) -> None:
    if nonce is not None and claims.get("nonce") != nonce:
        raise JwtRefused("claims", "its nonce is not the one of this login: it may be the answer to another one")
    audiences = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
    if "azp" in claims and claims["azp"] != client:
        raise JwtRefused("claims", f"its azp {shown(claims['azp'])} is not this client, {client!r}")
    if len(audiences) > 1 and "azp" not in claims:
        raise JwtRefused("claims", "it has several audiences and no azp, which says for which client it is")
    if subject is not None and claims["sub"] != subject:
        raise JwtRefused("claims", f"its sub {shown(claims['sub'])} is another user than the login's, {subject!r}")
