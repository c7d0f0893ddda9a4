"""The tokens that an issuer gives for a code, a device or a refresh token, with their ID token checked."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from headway.access import check_id_token
from headway.errors import InvalidArgument, Unauthenticated
from headway.login._kept import KeptLogin
from headway.login._provider import Asker, Provider, keys_of, refusal

_LONGEST = 12_288
_MOST_GROUPS = 200


class Request(NamedTuple):
    """The client that asks for a login, and what it asks for.

    Attributes:
        server: the server for which the login is.
        scopes: scopes beside ``openid``, and ``offline_access`` if the issuer knows it.
        authority: the path of the authorities of the issuer's certificate; empty for the system's.
        patience: seconds for the person.
    """

    server: str
    client: str = "headway"
    scopes: tuple[str, ...] = ()
    authority: str = ""
    patience: float = 300.0

    def scope(self, provider: Provider) -> str:
        """Return the scopes of the request. With ``offline_access``, a login can be renewed."""
        usual = ("openid", *(each for each in ("offline_access",) if each in provider.scopes))
        return " ".join(dict.fromkeys((*usual, *self.scopes)))


async def redeem(asker: Asker, provider: Provider, request: Request, form: Mapping[str, str]) -> dict[str, Any]:
    """Return the tokens that the issuer gives for a form. Raises Unauthenticated if it refuses."""
    status, answer = await asker.post(provider.token, {**form, "client_id": request.client})
    if status != 200 or "error" in answer:
        why = refusal(answer, otherwise=f"status {status}")
        raise Unauthenticated(f"{provider.issuer} refused the login: {why}")
    return answer


async def checked(
    asker: Asker,
    provider: Provider,
    request: Request,
    answer: Mapping[str, Any],
    *,
    nonce: str | None = None,
    subject: str | None = None,
) -> KeptLogin:
    """Return the login of an answer of the token endpoint. Raises Unauthenticated if its ID token is not for this.

    Args:
        nonce: the nonce of the request, if it had one.
        subject: the subject of the login that is renewed.
    """
    id_token = text_of(answer, "id_token")
    if not id_token:
        raise Unauthenticated(f"{provider.issuer}: its answer has no id_token: it may lack the scope openid")
    now = time.time()
    keys = await keys_of(asker, provider)
    claims = check_id_token(
        id_token,
        issuer=provider.issuer,
        client=request.client,
        keys=keys,
        now=now,
        nonce=nonce,
        subject=subject,
    )
    return KeptLogin(
        server=request.server,
        issuer=provider.issuer,
        client=request.client,
        authority=request.authority,
        subject=claims["sub"],
        groups=groups_of(claims),
        obtained_at=now,
        expires_at=float(claims["exp"]),
        id_token=id_token,
        refresh_token=text_of(answer, "refresh_token"),
    )


def text_of(answer: Mapping[str, Any], name: str) -> str:
    """Return a token of an answer, or an empty text. Raises InvalidArgument for anything else."""
    found = answer.get(name, "")
    if not isinstance(found, str) or len(found) > _LONGEST or not found.isascii() or not found.isprintable():
        raise InvalidArgument(f"the issuer's {name} must be at most {_LONGEST} printable ASCII characters")
    return found


def groups_of(claims: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the groups that an ID token names."""
    found = claims.get("groups", [])
    listed = found if isinstance(found, list) else [found]
    return tuple(each for each in listed if isinstance(each, str))[:_MOST_GROUPS]


async def revoke(asker: Asker, provider: Provider, login: KeptLogin) -> bool:
    """Revoke the refresh token of a login. Return False if the issuer has no endpoint for that (RFC 7009).

    Raises Unavailable or Unauthenticated if the issuer does not do so.
    """
    if not provider.revocation or not login.refresh_token:
        return False
    form = {"token": login.refresh_token, "token_type_hint": "refresh_token", "client_id": login.client}
    status, answer = await asker.post(provider.revocation, form)
    if status != 200:
        raise Unauthenticated(f"{provider.issuer}: not revoked: {refusal(answer, otherwise=f'status {status}')}")
    return True
