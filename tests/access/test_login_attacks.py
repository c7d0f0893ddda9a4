"""Every known attack on JWTs is refused, with one message for the bearer and a reason for the operator."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import random
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from headway.access import REFUSED, Access
from headway.errors import PermissionDenied
from headway.rpc import TOKEN_HEADER
from tests.access.logins import ALL, ISS, authorizer
from tests.helpers.login_issuer import EC_KEY, ED_KEY, RSA_KEY, b64, claims, part, public_jwk, signed

HEADER = {"alg": "RS256", "kid": "a"}
GOOD = signed(HEADER, claims(ISS))
OWN = ed25519.Ed25519PrivateKey.generate()
"""The attacker's own key."""


def by_hmac(secret: bytes, alg: str = "HS256", kid: str = "a") -> str:
    text = f"{part({'alg': alg, 'kid': kid})}.{part(claims(ISS))}"
    return f"{text}.{b64(hmac.new(secret, text.encode(), hashlib.sha256).digest())}"


def pem(encoding: serialization.Encoding = serialization.Encoding.PEM) -> bytes:
    return RSA_KEY.public_key().public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo)


def unsigned(alg: Any, signature: str = "", **header: Any) -> str:
    return f"{part({'alg': alg, 'kid': 'a', **header})}.{part(claims(ISS))}.{signature}"


def with_header(**header: Any) -> str:
    """A token with a right signature by the issuer, and further parameters."""
    return signed({**HEADER, **header}, claims(ISS))


def stolen(kid: Any) -> str:
    """A token by the attacker's key under a kid that some servers would use for a path or a query."""
    return signed({"alg": "EdDSA", "kid": kid}, claims(ISS), OWN)


def with_claims(**changes: Any) -> str:
    return signed(HEADER, claims(ISS, **changes))


def with_payload(old: str, new: str) -> str:
    """A token that the issuer signs although its payload is odd JSON."""
    text = json.dumps(claims(ISS))
    assert old in text
    return signed(HEADER, text.replace(old, new).encode())


def tail_changed(text: str) -> str:
    """The same bytes by another text: the unused bits of the last character are set."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return text[:-1] + alphabet[alphabet.index(text[-1]) ^ 1]


def spliced() -> str:
    """The signature of one token under the payload of another."""
    root = part(claims(ISS, sub="root"))
    head, _, signature = GOOD.split(".")
    return f"{head}.{root}.{signature}"


def ecdsa(r: int, s: int) -> str:
    text = f"{part({'alg': 'ES256', 'kid': 'e'})}.{part(claims(ISS))}"
    return f"{text}.{b64(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""The order of the group of P-256."""

ATTACKS: dict[str, tuple[Callable[[], str], str]] = {
    **{f"alg {name}": (lambda name=name: unsigned(name), "signature") for name in ("none", "None", "NONE", "nOnE")},  # type: ignore[misc]  # the name is bound
    "alg none, signed by nobody, with a signature": (lambda: unsigned("none", b64(b"x")), "algorithm"),
    "alg none with a space": (lambda: unsigned("none ", b64(b"x")), "algorithm"),
    "alg empty": (lambda: unsigned("", b64(b"x")), "algorithm"),
    "alg null": (lambda: unsigned(None, b64(b"x")), "malformed"),
    "alg missing": (lambda: f"{part({'kid': 'a'})}.{part(claims(ISS))}.{b64(b'x')}", "malformed"),
    "alg a list": (lambda: unsigned(["RS256"], b64(b"x")), "malformed"),
    "alg in lower case": (lambda: signed({"alg": "rs256", "kid": "a"}, claims(ISS)), "algorithm"),
    "HS256 with the public key in PEM": (lambda: by_hmac(pem()), "algorithm"),
    "HS256 with the public key in DER": (lambda: by_hmac(pem(serialization.Encoding.DER)), "algorithm"),
    "HS256 with the JWK": (lambda: by_hmac(json.dumps(public_jwk(RSA_KEY)).encode()), "algorithm"),
    "HS256 with the modulus": (lambda: by_hmac(public_jwk(RSA_KEY)["n"].encode()), "algorithm"),
    "HS256 with an empty secret": (lambda: by_hmac(b""), "algorithm"),
    "HS512": (lambda: by_hmac(pem(), "HS512"), "algorithm"),
    "RS256 with a signature by HMAC": (lambda: by_hmac(pem(), "RS256"), "signature"),
    "another algorithm of the same key": (lambda: signed({"alg": "RS512", "kid": "a"}, claims(ISS)), "algorithm"),
    "an EC key as RS256": (lambda: signed({"alg": "RS256", "kid": "e"}, claims(ISS), EC_KEY), "algorithm"),
    "an RSA key as ES256": (lambda: signed({"alg": "ES256", "kid": "a"}, claims(ISS)), "algorithm"),
    "an Ed25519 key as ES256": (lambda: signed({"alg": "ES256", "kid": "d"}, claims(ISS), ED_KEY), "algorithm"),
    "a curve that is not supported": (
        lambda: signed({"alg": "ES256K", "kid": "e"}, claims(ISS), ec.generate_private_key(ec.SECP256K1())),
        "algorithm",
    ),
    "an unknown kid": (lambda: stolen("x"), "unknown_key"),
    "another key under a known kid": (lambda: stolen("d"), "signature"),
    "kid as a path": (lambda: stolen("../../../../dev/null"), "unknown_key"),
    "kid as a query": (lambda: stolen("x' UNION SELECT 'secret' --"), "unknown_key"),
    "kid as a command": (lambda: stolen("a; cat /etc/passwd"), "unknown_key"),
    "kid with a null byte": (lambda: stolen("a\0"), "unknown_key"),
    "kid a number": (lambda: stolen(7), "malformed"),
    "kid a list": (lambda: stolen(["a"]), "malformed"),
    "kid empty": (lambda: stolen(""), "malformed"),
    "kid very long": (lambda: stolen("a" * 256), "malformed"),
    "jku": (lambda: with_header(jku="https://evil.example.com/keys"), "header"),
    "x5u": (lambda: with_header(x5u="https://evil.example.com/cert"), "header"),
    "jwk, signed by it": (
        lambda: signed({"alg": "EdDSA", "kid": "own", "jwk": public_jwk(OWN)}, claims(ISS), OWN),
        "header",
    ),
    "x5c": (lambda: with_header(x5c=[base64.b64encode(pem()).decode()]), "header"),
    "crit with an unknown extension": (lambda: with_header(crit=["exp2"], exp2=1), "header"),
    "crit with b64": (lambda: with_header(crit=["b64"], b64=False), "header"),
    "crit empty": (lambda: with_header(crit=[]), "header"),
    "b64 without crit": (lambda: with_header(b64=False), "header"),
    "zip": (
        lambda: signed({**HEADER, "zip": "DEF"}, zlib.compress(json.dumps(claims(ISS)).encode())[2:-4]),
        "header",
    ),
    "a nested token": (lambda: signed({**HEADER, "cty": "JWT"}, GOOD.encode()), "header"),
    "a nested token without cty": (lambda: signed(HEADER, GOOD.encode()), "malformed"),
    "a token for logout": (lambda: with_header(typ="logout+jwt"), "header"),
    "a proof of possession": (lambda: with_header(typ="dpop+jwt"), "header"),
    "typ a list": (lambda: with_header(typ=["JWT"]), "header"),
    "encrypted": (lambda: ".".join((part({"alg": "RSA-OAEP", "enc": "A128GCM"}), "AA", "AA", "AA", "AA")), "malformed"),
    "JSON serialization": (lambda: json.dumps({"payload": part(claims(ISS)), "signatures": []}), ""),
    "the signature is empty": (lambda: GOOD.rpartition(".")[0] + ".", "signature"),
    "the signature is missing": (lambda: GOOD.rpartition(".")[0], "malformed"),
    "a fourth part": (lambda: f"{GOOD}.{b64(b'x')}", "malformed"),
    "the payload of another token": (spliced, "signature"),
    "a signature of zeros": (lambda: f"{GOOD.rpartition('.')[0]}.{b64(bytes(256))}", "signature"),
    "ECDSA r=0 s=0": (lambda: ecdsa(0, 0), "signature"),
    "ECDSA r=0 s=1": (lambda: ecdsa(0, 1), "signature"),
    "ECDSA r=n s=n": (lambda: ecdsa(ORDER, ORDER), "signature"),
    "ECDSA in DER": (
        lambda: f"{part({'alg': 'ES256', 'kid': 'e'})}.{part(claims(ISS))}.{b64(bytes.fromhex('3006020100020100'))}",
        "signature",
    ),
    "other bits after the last byte": (lambda: tail_changed(GOOD), "malformed"),
    "padding": (lambda: GOOD + "==", "malformed"),
    "the other alphabet": (lambda: "+".join((GOOD[:-5], GOOD[-4:])), "malformed"),
    "a line break in the payload": (lambda: GOOD.replace(".", ".\n", 1), "malformed"),
    "characters that decoders skip": (lambda: f"{GOOD[:-6]}!!!!{GOOD[-6:]}", "malformed"),
    "not ASCII": (lambda: GOOD[:-1] + "é", "malformed"),
    "a lone surrogate": (lambda: GOOD[:-1] + "\ud800", "malformed"),
    "sub twice": (lambda: with_payload('"sub": "ada"', '"sub": "ada", "sub": "root"'), "malformed"),
    "sub twice, once by an escape": (
        lambda: with_payload('"sub": "ada"', '"sub": "ada", "s\\u0075b": "x"'),
        "malformed",
    ),
    "a key twice within a claim": (
        lambda: with_claims(groups=None) and with_payload('["ops"]', '{"a":1,"a":2}'),
        "malformed",
    ),
    "alg twice": (lambda: signed(b'{"alg":"none","alg":"RS256","kid":"a"}', claims(ISS)), "malformed"),
    "a payload of another encoding": (lambda: signed(HEADER, json.dumps(claims(ISS)).encode("utf-16")), "malformed"),
    "a payload with a byte order mark": (
        lambda: signed(HEADER, json.dumps(claims(ISS)).encode("utf-8-sig")),
        "malformed",
    ),
    "a payload that is a list": (lambda: signed(HEADER, [claims(ISS)]), "malformed"),
    "a payload with something after it": (
        lambda: signed(HEADER, json.dumps(claims(ISS)).encode() + b"{}"),
        "malformed",
    ),
    "a deep payload": (lambda: signed(HEADER, b"[" * 4000 + b"]" * 4000), "malformed"),
    "a number of many digits": (lambda: with_payload('"sub"', f'"n": {"9" * 5000}, "sub"'), "malformed"),
    "expired": (lambda: with_claims(exp=1_700_000_000), "expired"),
    "exp missing": (lambda: with_claims(exp=None), "claims"),
    "exp a text": (lambda: with_claims(exp="9999999999"), "claims"),
    "exp true": (lambda: with_claims(exp=True), "claims"),
    "exp NaN": (lambda: with_claims(exp=float("nan")), "malformed"),
    "exp infinite": (lambda: with_claims(exp=float("inf")), "malformed"),
    "exp too large for a float": (lambda: with_payload('"exp"', '"exp": 1e400, "x"'), "claims"),
    "exp very late": (lambda: with_claims(exp=2**60), "claims"),
    "exp negative": (lambda: with_claims(exp=-1), "claims"),
    "not yet valid": (lambda: with_claims(nbf=4_000_000_000), "not_yet_valid"),
    "nbf a text": (lambda: with_claims(nbf="0"), "claims"),
    "issued in the future": (lambda: with_claims(iat=4_000_000_000), "not_yet_valid"),
    "iss missing": (lambda: with_claims(iss=None), "issuer"),
    "iss of another": (lambda: with_claims(iss="https://evil.example.com"), "issuer"),
    "iss with a slash": (lambda: with_claims(iss=f"{ISS}/"), "issuer"),
    "iss in upper case": (lambda: with_claims(iss=ISS.upper()), "issuer"),
    "iss a list": (lambda: with_claims(iss=[ISS]), "issuer"),
    "iss an object": (lambda: with_claims(iss={ISS: 1}), "issuer"),
    "aud missing": (lambda: with_claims(aud=None), "audience"),
    "aud of another": (lambda: with_claims(aud="billing"), "audience"),
    "aud a list of others": (lambda: with_claims(aud=["billing", "headway2"]), "audience"),
    "aud empty": (lambda: with_claims(aud=[]), "audience"),
    "aud a list in a list": (lambda: with_claims(aud=[["headway"]]), "audience"),
    "aud a list with a number": (lambda: with_claims(aud=["headway", 1]), "audience"),
    "aud an object": (lambda: with_claims(aud={"headway": True}), "audience"),
    "aud the beginning": (lambda: with_claims(aud="head"), "audience"),
    "sub missing": (lambda: with_claims(sub=None), "claims"),
    "sub empty": (lambda: with_claims(sub=""), "claims"),
    "sub a number": (lambda: with_claims(sub=1), "claims"),
    "sub very long": (lambda: with_claims(sub="a" * 256), "claims"),
    "sub with a line break": (lambda: with_claims(sub="ada\nroot logged in"), "claims"),
    "sub written from right to left": (lambda: with_claims(sub="ada\u202etoor"), "claims"),
    "claims that no binding matches": (lambda: with_claims(groups=["guests"]), "no_binding"),
    "a group whose name begins alike": (lambda: with_claims(groups=["ops2"]), "no_binding"),
    "groups missing": (lambda: with_claims(groups=None), "no_binding"),
    "groups an object": (lambda: with_claims(groups={"ops": True}), "no_binding"),
    "groups a list in a list": (lambda: with_claims(groups=[["ops"]]), "no_binding"),
    "very long": (lambda: with_claims(x="a" * 20_000), "malformed"),
    "a long header": (lambda: with_header(x="a" * 4_000), "malformed"),
    "nothing but dots": (lambda: "ey..", "malformed"),
    "very many dots": (lambda: "ey" + "." * 10_000, "malformed"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_is_refused(name: str) -> None:
    """The bearer learns the same in each case. The operator gets the reason, in one short line."""
    access = authorizer()
    made, reason = ATTACKS[name]
    text = made()

    with pytest.raises(PermissionDenied) as refused:
        access.identify({TOKEN_HEADER: text})

    assert str(refused.value) == REFUSED
    assert refused.value.__cause__ is None
    why = access.refusal({TOKEN_HEADER: text})
    assert why.reason == reason
    assert why.why.isprintable()
    assert len(why.why) < 400
    assert GOOD.rpartition(".")[2] not in why.why


def test_the_token_that_attacks_change_is_good() -> None:
    """Otherwise the table above would show nothing."""
    access = authorizer()

    for text in (GOOD, with_claims(aud=["other", "headway"]), with_header(typ="at+jwt", x5t="abc"), with_claims(nbf=1)):
        assert access.identify({TOKEN_HEADER: text}).allows("write", ALL._type, "default", "default", "x")


def test_without_issuers_every_jwt_is_refused() -> None:
    """A JWT is then a token that does not exist."""
    access = authorizer()
    access.replace(Access())

    with pytest.raises(PermissionDenied, match="may be mistyped"):
        access.identify({TOKEN_HEADER: GOOD})
    assert access.refusal({TOKEN_HEADER: GOOD}) == (None, "token not found", "", "")


def test_every_change_of_one_character_is_refused() -> None:
    """The text of a login has no character that does not matter."""
    access = authorizer()
    chosen = random.Random(18)
    for place in chosen.sample(range(len(GOOD)), 150):
        other = chosen.choice("AZaz09-_.=")
        if other != GOOD[place]:
            with pytest.raises(PermissionDenied):
                access.identify({TOKEN_HEADER: GOOD[:place] + other + GOOD[place + 1 :]})


@pytest.mark.parametrize("bits", [1024, 1536])
def test_weak_key_of_an_issuer_is_not_used(bits: int) -> None:
    """See test_jwks.py for the other keys that are left out."""
    from tests.access.logins import access

    weak = rsa.generate_private_key(65537, bits)
    keys = json.dumps({"keys": [public_jwk(RSA_KEY, kid="a"), {**public_jwk_of_weak(weak), "kid": "w"}]})
    accepting = authorizer()
    accepting.replace(access(keys=keys))

    with pytest.raises(PermissionDenied):
        accepting.identify({TOKEN_HEADER: signed({"alg": "RS256", "kid": "w"}, claims(ISS), weak)})


def public_jwk_of_weak(key: rsa.RSAPrivateKey) -> dict[str, Any]:
    """The JWK of a key that joserfc warns of."""
    numbers = key.public_key().public_numbers()
    return {
        "kty": "RSA",
        "e": b64(numbers.e.to_bytes(3, "big")),
        "n": b64(numbers.n.to_bytes(key.key_size // 8, "big")),
    }
