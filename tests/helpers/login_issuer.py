"""An issuer of logins: its keys, the JWTs that it signs, and a server for discovery over HTTPS."""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import h11
import trio
import trustme
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from joserfc.jwk import ECKey, OKPKey, RSAKey

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey

RSA_KEY = rsa.generate_private_key(65537, 2048)
"""One key for all tests, because making one takes long."""
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()


def b64(data: bytes) -> str:
    """Return data in base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def public_jwk(key: PrivateKey, **fields: Any) -> dict[str, Any]:
    """Return the public JWK of a private key, with further fields such as its kid."""
    made: RSAKey | ECKey | OKPKey
    if isinstance(key, rsa.RSAPrivateKey):
        made = RSAKey.import_key(key.public_key())
    elif isinstance(key, ed25519.Ed25519PrivateKey):
        made = OKPKey.import_key(key.public_key())
    else:
        made = ECKey.import_key(key.public_key())
    return {**made.as_dict(private=False), **fields}


def jwks(*keys: dict[str, Any]) -> str:
    """Return a JWKS of public JWKs."""
    return json.dumps({"keys": keys})


def part(value: Any) -> str:
    """Return one of the first two parts of a JWT: JSON, or bytes as they are."""
    return b64(value if isinstance(value, bytes) else json.dumps(value).encode())


def signed(header: Any, payload: Any, key: PrivateKey = RSA_KEY) -> str:
    """Return a JWT with exactly this header and payload, and a right signature."""
    text = f"{part(header)}.{part(payload)}"
    data = text.encode()
    if isinstance(key, rsa.RSAPrivateKey):
        signature = key.sign(data, padding.PKCS1v15(), hashes.SHA256())
    elif isinstance(key, ed25519.Ed25519PrivateKey):
        signature = key.sign(data)
    else:
        size = (key.curve.key_size + 7) // 8
        r, s = decode_dss_signature(key.sign(data, ec.ECDSA(hashes.SHA256())))
        signature = r.to_bytes(size, "big") + s.to_bytes(size, "big")
    return f"{text}.{b64(signature)}"


def claims(of: str, /, **changes: Any) -> dict[str, Any]:
    """Return the claims of a good login that ends in an hour. A change to None removes a claim."""
    good = {"iss": of, "sub": "ada", "aud": "headway", "exp": int(time.time()) + 3600, "groups": ["ops"]}
    return {name: value for name, value in {**good, **changes}.items() if value is not None}


class LoginIssuer:
    """An issuer that serves its discovery document and its keys over HTTPS.

    Attributes:
        url: its URL, which is also the claim ``iss``.
        authority: the path of the certificate of its authority.
        keys: the keys that it publishes, by kid.
        bodies: other answers, by path: a status, headers and a body.
        asked: the paths that were asked for, in order.
        agents: the programs that asked, by their own word; empty for one that gives none.
        silent: while True, requests get no answer.
        open: until it is set, requests wait.
    """

    def __init__(self, directory: Path, port: int, keys: Mapping[str, PrivateKey]) -> None:
        ca = trustme.CA()
        self.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        ca.issue_cert("127.0.0.1").configure_cert(self.tls)
        self.authority = str(directory / f"authority-{port}.pem")
        Path(self.authority).write_bytes(ca.cert_pem.bytes())
        self.url = f"https://127.0.0.1:{port}"
        self.keys = dict(keys)
        self.bodies: dict[str, tuple[int, dict[str, str], bytes]] = {}
        self.asked: list[str] = []
        self.agents: set[str] = set()
        self.silent = False
        self.open = trio.Event()
        self.open.set()

    def token(self, kid: str = "a", **changes: Any) -> str:
        """Return a JWT by the key with this id."""
        key = self.keys[kid]
        alg = (
            "RS256"
            if isinstance(key, rsa.RSAPrivateKey)
            else "EdDSA"
            if isinstance(key, ed25519.Ed25519PrivateKey)
            else "ES256"
        )
        return signed({"alg": alg, "kid": kid, "typ": "JWT"}, claims(self.url, **changes), key)

    def _answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        if path in self.bodies:
            return self.bodies[path]
        if path == "/.well-known/openid-configuration":
            return 200, {}, json.dumps({"issuer": self.url, "jwks_uri": f"{self.url}/keys"}).encode()
        if path == "/keys":
            return 200, {}, jwks(*(public_jwk(key, kid=kid) for kid, key in self.keys.items())).encode()
        return 404, {}, b""

    async def serve(self, stream: trio.SSLStream[trio.SocketStream]) -> None:
        """Answer the requests of one connection."""
        connection = h11.Connection(h11.SERVER)
        try:
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    connection.receive_data(bytes(await stream.receive_some()))
                elif isinstance(event, h11.Request):
                    path = event.target.decode()
                    self.asked.append(path)
                    self.agents.add(dict(event.headers).get(b"user-agent", b"").decode())
                    if self.silent:
                        await trio.sleep_forever()
                    await self.open.wait()
                    status, headers, body = self._answer(path)
                    head = [*headers.items(), ("content-length", str(len(body)))]
                    data = connection.send(h11.Response(status_code=status, headers=head)) or b""
                    await stream.send_all(data + (connection.send(h11.Data(data=body)) or b""))
                    connection.send(h11.EndOfMessage())
                elif isinstance(event, h11.EndOfMessage):
                    connection.start_next_cycle()
                else:
                    return
        except (trio.BrokenResourceError, h11.RemoteProtocolError, h11.LocalProtocolError):
            return


@asynccontextmanager
async def serving_issuer(directory: Path, **keys: PrivateKey) -> AsyncIterator[LoginIssuer]:
    """Run an issuer with these keys, or with one named ``a``."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    issuer = LoginIssuer(directory, listener.socket.getsockname()[1], keys or {"a": RSA_KEY})

    async def handle(stream: trio.SocketStream) -> None:
        await issuer.serve(trio.SSLStream(stream, issuer.tls, server_side=True, https_compatible=True))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, handle, [listener])
        yield issuer
        nursery.cancel_scope.cancel()
