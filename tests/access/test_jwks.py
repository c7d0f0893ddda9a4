"""The keys of an issuer: which are used, and which are left out or refuse the whole set."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from headway.access import Access, Authorizer, read_keys
from headway.errors import InvalidArgument, PermissionDenied
from headway.rpc import TOKEN_HEADER
from tests.access.logins import ISS, access, issuer
from tests.helpers.login_issuer import EC_KEY, ED_KEY, RSA_KEY, b64, claims, jwks, public_jwk, signed

RSA_JWK = public_jwk(RSA_KEY, kid="a")


def number(value: int) -> str:
    return b64(value.to_bytes(math.ceil(value.bit_length() / 8), "big"))


LEFT_OUT: dict[str, tuple[dict[str, Any], str]] = {
    "RSA of 1024 bits": ({**RSA_JWK, "n": number(2**1023 + 1)}, "1024 bits"),
    "RSA of 16384 bits": ({**RSA_JWK, "n": number(2**16383 + 1)}, "16384 bits"),
    "an even modulus": ({**RSA_JWK, "n": number(2**2047)}, "must be odd"),
    "the exponent 1": ({**RSA_JWK, "e": "AQ"}, "at least 65537"),
    "the exponent 3": ({**RSA_JWK, "e": "Aw"}, "at least 65537"),
    "an even exponent": ({**RSA_JWK, "e": number(65538)}, "must be odd"),
    "no modulus": ({"kty": "RSA", "e": "AQAB"}, "not a valid key (KeyError)"),
    "a modulus that is not text": ({**RSA_JWK, "n": 7}, "not a valid key"),
    "a point that is not on its curve": ({**public_jwk(EC_KEY), "y": b64(bytes(32))}, "not a valid key"),
    "another curve": ({**public_jwk(EC_KEY), "crv": "secp256k1"}, "is not a public key that is supported"),
    "a curve that is a list": ({**public_jwk(EC_KEY), "crv": ["P-256"]}, "not a valid key"),
    "a key exchange": ({"kty": "OKP", "crv": "X25519", "x": b64(bytes(32))}, "is not a public key that is supported"),
    "a point of small order": ({**public_jwk(ED_KEY), "x": b64(bytes([1, *bytes(31)]))}, "small order"),
    "a point of small order, negated": ({**public_jwk(ED_KEY), "x": b64(bytes([1, *bytes(30), 128]))}, "small order"),
    "a short point": ({**public_jwk(ED_KEY), "x": b64(bytes(8))}, "not a valid key"),
    "for encryption": ({**RSA_JWK, "use": "enc"}, "its use is 'enc'"),
    "for wrapping keys": ({**RSA_JWK, "key_ops": ["wrapKey"]}, "its key_ops lack 'verify'"),
    "for something that is not a list": ({**RSA_JWK, "key_ops": None}, "its key_ops lack 'verify'"),
    "an algorithm of another key": ({**RSA_JWK, "alg": "ES256"}, "does not fit the key"),
    "for HS256": ({**RSA_JWK, "alg": "HS256"}, "does not fit the key"),
    "for encryption by its alg": ({**RSA_JWK, "alg": "RSA-OAEP"}, "does not fit the key"),
    "an alg that is a list": ({**RSA_JWK, "alg": ["RS256"]}, "does not fit the key"),
    "a kid that no token can name": ({**RSA_JWK, "kid": "a" * 256}, "its kid has 256 characters"),
    "a kid that is a number": ({**RSA_JWK, "kid": 7}, "its kid is not a text"),
    "an unknown kind": ({"kty": "AKP"}, "is not a public key that is supported"),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT_OUT)
def test_key_is_left_out(name: str) -> None:
    """The other keys of the set are used. Issuers publish keys for other purposes, too."""
    entry, why = LEFT_OUT[name]

    keys = read_keys(jwks(entry, public_jwk(EC_KEY, kid="e")))

    assert keys.names == ("e",)
    assert why in keys.left_out[0]
    assert keys.left_out[0].startswith("keys[0] (kid ")


@pytest.mark.parametrize("entry", ["AQAB", 7, None, [], True])
def test_entry_that_is_no_object_is_left_out(entry: object) -> None:
    """It says nothing about the other keys. Its content is not shown, because it may be a secret."""
    keys = read_keys(json.dumps({"keys": [entry, public_jwk(EC_KEY, kid="e")]}))

    assert keys.names == ("e",)
    assert keys.left_out == ('keys[0]: it is no key: expected an object, such as {"kty": "RSA", ...}',)


@pytest.mark.parametrize("accepted", ["Ed25519", "EdDSA"])
@pytest.mark.parametrize("named", ["Ed25519", "EdDSA"])
def test_both_names_of_ed25519_are_the_same_algorithm(accepted: str, named: str) -> None:
    """A token may have either name, and so may the access file and the key."""
    for of_key in ({}, {"alg": "Ed25519"}, {"alg": "EdDSA"}):
        text = signed({"alg": named, "kid": "d"}, claims(ISS), ED_KEY)
        keys = jwks(public_jwk(ED_KEY, kid="d", **of_key))

        assert (
            Authorizer(access(issuer(algorithms=[accepted]), keys=keys)).identify({TOKEN_HEADER: text}).name
            == "corp/ada"
        )


REFUSED: dict[str, tuple[str, str]] = {
    "no objects": ('{"keys": [7, "AQAB"]}', "has no key that can be used: keys[0]: it is no key: expected an object"),
    "nothing": ("", "is not JSON"),
    "a list": ("[]", "must be an object with a list of keys"),
    "one key": (json.dumps(RSA_JWK), "must be an object with a list of keys"),
    "no list": ('{"keys": {}}', "must be an object with a list of keys"),
    "no keys": ('{"keys": []}', "has no key that can be used"),
    "no key of use": (jwks({**RSA_JWK, "use": "enc"}), "has no key that can be used: keys"),
    "deep": ("[" * 100_000, "is not JSON"),
    "many": (jwks(*[RSA_JWK] * 101), "has 101 keys, and 100 are allowed"),
    "large": (json.dumps({"keys": [], "x": "a" * 300_000}), "bytes, and 262144 are allowed"),
    "a private key": (jwks({**RSA_JWK, "d": "AQAB"}), "holds a private key or a secret"),
    "a shared secret": (jwks(RSA_JWK, {"kty": "oct", "k": "AQAB"}), "holds a private key or a secret"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_set_is_refused(name: str) -> None:
    """See test_key_keeper.py for when known keys are used on."""
    text, why = REFUSED[name]

    with pytest.raises(InvalidArgument) as refused:
        read_keys(text)

    assert why in str(refused.value)
    assert "AQAB" not in str(refused.value)


def test_key_for_one_algorithm_verifies_no_other() -> None:
    """Otherwise the issuer's choice would be the token's."""
    keys = jwks(public_jwk(RSA_KEY, kid="a", alg="PS256"))
    accepting = Authorizer(access(keys=keys))

    with pytest.raises(PermissionDenied):
        accepting.identify({TOKEN_HEADER: signed({"alg": "RS256", "kid": "a"}, claims(ISS))})
    assert read_keys(keys).find("a", "PS256") is not None


def test_token_without_kid_needs_an_issuer_with_one_key() -> None:
    """With more keys, a stranger's token would cost a verification by each of them."""
    other = ec.generate_private_key(ec.SECP256R1())
    text = signed({"alg": "ES256"}, claims(ISS), EC_KEY)
    one = Authorizer(access(keys=jwks(public_jwk(EC_KEY), RSA_JWK)))
    two = Authorizer(access(keys=jwks(public_jwk(EC_KEY), public_jwk(other))))

    assert one.identify({TOKEN_HEADER: text}).name == "corp/ada"
    with pytest.raises(PermissionDenied):
        two.identify({TOKEN_HEADER: text})
    assert two.refusal({TOKEN_HEADER: text}).reason == "unknown_key"


def test_key_of_one_issuer_is_not_good_for_another() -> None:
    """Otherwise an issuer could log in as the users of another."""
    other = issuer(name="other", issuer="https://other.example.com")
    both = access(issuer(), other)
    keys = {"corp": read_keys(jwks(public_jwk(EC_KEY, kid="e"))), "other": read_keys(jwks(public_jwk(ED_KEY, kid="e")))}
    accepting = Authorizer(Access(both.policies.values(), issuers=both.issuers.values(), keys=keys))
    of_other = {"alg": "EdDSA", "kid": "e"}

    name = accepting.identify({TOKEN_HEADER: signed(of_other, claims(other.issuer), ED_KEY)}).name
    assert name == "other/ada"
    for text in (signed(of_other, claims(ISS), ED_KEY), signed({"alg": "ES256", "kid": "e"}, claims(ISS), ED_KEY)):
        with pytest.raises(PermissionDenied):
            accepting.identify({TOKEN_HEADER: text})


def test_two_keys_with_one_kid_verify_nothing() -> None:
    """Which of them a token means would depend on their order."""
    other = ec.generate_private_key(ec.SECP256R1())
    accepting = Authorizer(access(keys=jwks(public_jwk(EC_KEY, kid="e"), public_jwk(other, kid="e"))))

    with pytest.raises(PermissionDenied):
        accepting.identify({TOKEN_HEADER: signed({"alg": "ES256", "kid": "e"}, claims(ISS), EC_KEY)})


@pytest.mark.parametrize(
    "entries",
    [
        [{"kid": "b"}, {"kid": "a"}, {"kid": "c"}],
        [{"kid": "a", "alg": "RS256"}, {"kid": "a", "alg": "PS256"}],
        [{"kid": "a", "alg": "PS256"}, {"kid": "a"}, {"kid": "a", "use": "enc"}],
    ],
    ids=["by each id", "for each algorithm", "for encryption too"],
)
def test_key_that_is_published_more_than_once_is_known_by_every_entry(entries: list[dict[str, str]]) -> None:
    """WSO2 publishes one key under several ids. Each entry is one more way to name it, and hides no other."""
    keys = jwks(*({**RSA_JWK, **entry} for entry in entries))
    accepting = Authorizer(access(keys=keys))

    for header in ({"alg": "RS256", "kid": "a"}, {"alg": "RS256"}):
        assert accepting.identify({TOKEN_HEADER: signed(header, claims(ISS))}).name == "corp/ada"
    assert len(read_keys(keys)) == 1


def test_login_ends_when_its_key_is_no_longer_for_its_algorithm() -> None:
    """A stream goes on no longer than a new call with the same token is accepted."""
    accepting = Authorizer(access())
    identity = accepting.identify({TOKEN_HEADER: signed({"alg": "RS256", "kid": "a"}, claims(ISS))})
    ring = accepting.logins.rings["corp"]

    ring.loaded(read_keys(jwks({**RSA_JWK, "alg": "RS256"})), 0)
    assert identity.is_current()
    ring.loaded(read_keys(jwks({**RSA_JWK, "alg": "PS256"})), 1)
    assert not identity.is_current()
