"""Authorizers that accept the logins of a test's issuer."""

from __future__ import annotations

from typing import Any

from headway.access import Access, Authorizer, Binding, Issuer, Policy, Rule, read_keys
from headway.resource import TypeName
from tests.helpers.login_issuer import EC_KEY, ED_KEY, RSA_KEY, jwks, public_jwk

ISS = "https://login.example.com"
TEAM = TypeName("staff", "v1", "Team")
ALL = Rule(verbs=["*"], type="*", partition="*", namespace="*")
KEYS = jwks(public_jwk(RSA_KEY, kid="a"), public_jwk(EC_KEY, kid="e"), public_jwk(ED_KEY, kid="d", alg="EdDSA"))


def issuer(**changes: Any) -> Issuer:
    """Return an issuer whose group ops are operators."""
    bindings = [Binding(claims={"groups": "ops"}, policies=["operators"])]
    given = {"name": "corp", "issuer": ISS, "audiences": ["headway"], "bindings": bindings}
    return Issuer(**{**given, **changes})


def access(*issuers: Issuer, keys: str = KEYS, policies: tuple[str, ...] = ("operators", "readers")) -> Access:
    """Return an access with these issuers, which have keys from the beginning."""
    used = issuers or (issuer(),)
    return Access([Policy(name, [ALL]) for name in policies], (), used, {each.name: read_keys(keys) for each in used})


def authorizer(**options: Any) -> Authorizer:
    """Return an authorizer that accepts the logins of one issuer."""
    return Authorizer(access(), **options)
