"""An OpenID Connect issuer on loopback: a form for the password, codes with PKCE, devices, rotation and revocation."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import h11
import httpx
import trio
import trustme

from tests.helpers.login_issuer import RSA_KEY, jwks, public_jwk, signed

CLIENT, USER, PASSWORD = "headway", "ada", "correct horse"
Reply = tuple[int, dict[str, str], bytes]
FORM = """<!doctype html><title>Log in</title><form method="post" action="/authorize?{query}">
<input id="user" name="user"><input id="password" name="password" type="password"><button>Log in</button></form>"""


class OidcProvider:
    """An issuer.

    Attributes:
        life: the seconds after which its tokens expire.
        claims: changes of the next ID tokens. A change to None removes a claim.
        header: changes of their header.
        document: changes of the discovery document.
        bodies: other answers, by path.
        asked: the number of requests, by path and, of the token endpoint, by grant.
        back: changes of the parameters that a browser takes back.
        endless: the paths whose answer never ends; silent: those without an answer.
        refused: the number of refresh tokens that were used twice, or after their revocation.
        secrets: every secret that it has given out.
    """

    def __init__(self, port: int, scheme: str = "http") -> None:
        self.url = f"{scheme}://127.0.0.1:{port}"
        self.life = 3600.0
        self.claims: dict[str, Any] = {}
        self.header: dict[str, Any] = {}
        self.document: dict[str, Any] = {}
        self.back: dict[str, str | None] = {}
        self.bodies: dict[str, Reply] = {}
        self.asked: Counter[str] = Counter()
        self.endless: set[str] = set()
        self.silent: set[str] = set()
        self.refused = 0
        self.secrets: set[str] = set()
        self._was_asked = trio.Event()
        self.sign: Callable[[Any, Any], str] = signed
        self.keys = jwks(public_jwk(RSA_KEY, kid="a"))
        self._codes: dict[str, dict[str, str]] = {}
        self._refresh: set[str] = set()
        self._devices: dict[str, bool] = {}

    async def wait_for(self, what: str, number: int) -> None:
        """Wait until a path or a grant was asked for this often, and each was answered or is about to be."""
        while self.asked[what] < number:
            await self._was_asked.wait()

    def approve(self) -> None:
        """Approve all devices."""
        self._devices = dict.fromkeys(self._devices, True)

    def id_token(self, **more: Any) -> str:
        """Return an ID token."""
        now = time.time()
        given = {"iss": self.url, "sub": USER, "aud": CLIENT, "iat": int(now), "exp": now + self.life, **more}
        payload = {**given, "groups": ["ops"], **self.claims}
        text = self.sign(
            {"alg": "RS256", "kid": "a", **self.header}, {n: v for n, v in payload.items() if v is not None}
        )
        self.secrets.add(text)
        return text

    def tokens(self, **more: Any) -> Reply:
        """Return the answer with new tokens."""
        refresh = secrets.token_urlsafe(16)
        self._refresh.add(refresh)
        self.secrets.add(refresh)
        given = {"access_token": "unused", "token_type": "Bearer", "refresh_token": refresh}
        return _json({**given, "id_token": self.id_token(**more)})

    def answer(self, method: str, target: str, body: bytes) -> Reply:
        """Return the answer to a request."""
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        self.asked[parts.path] += 1
        self.asked[form.get("grant_type", "")] += 1
        self._was_asked.set()
        self._was_asked = trio.Event()
        if parts.path in self.bodies:
            return self.bodies[parts.path]
        match method, parts.path:
            case "GET", "/.well-known/openid-configuration":
                return _json({**self._document(), **self.document})
            case "GET", "/keys":
                return 200, {}, self.keys.encode()
            case "GET", "/authorize":
                return 200, {"content-type": "text/html"}, FORM.format(query=escape(urlencode(query))).encode()
            case "POST", "/authorize":
                return self._authorized(query, form)
            case "POST", "/token":
                return self._token(form)
            case "POST", "/device":
                device = secrets.token_urlsafe(16)
                self._devices[device] = False
                page = {"user_code": "WDJB-MJHT", "verification_uri": f"{self.url}/activate", "interval": 1}
                return _json({"device_code": device, "expires_in": 60, **page})
            case "POST", "/revoke":
                self._refresh.discard(form["token"])
                return 200, {}, b""
        return 404, {}, b""

    def _document(self) -> dict[str, Any]:
        names = {"authorization": "authorize", "token": "token", "device_authorization": "device"}
        return {
            "issuer": self.url,
            "jwks_uri": f"{self.url}/keys",
            **{f"{name}_endpoint": f"{self.url}/{path}" for name, path in names.items()},
            "revocation_endpoint": f"{self.url}/revoke",
            "code_challenge_methods_supported": ["S256"],
            "scopes_supported": ["openid", "offline_access"],
            "authorization_response_iss_parameter_supported": True,
        }

    def _authorized(self, query: dict[str, str], form: dict[str, str]) -> Reply:
        if (form.get("user"), form.get("password")) != (USER, PASSWORD):
            return 403, {}, b"wrong password"
        code = secrets.token_urlsafe(16)
        self.secrets.add(code)
        self._codes[code] = query
        given = {"code": code, "state": query["state"], "iss": self.url, **self.back}
        back = urlencode({name: value for name, value in given.items() if value is not None})
        return 302, {"location": f"{query['redirect_uri']}?{back}"}, b""

    def _token(self, form: dict[str, str]) -> Reply:
        if form.get("client_id") != CLIENT:
            return _json({"error": "invalid_client"}, 401)
        match form.get("grant_type"):
            case "authorization_code":
                query = self._codes.pop(form["code"], None)
                digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
                challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
                if (
                    query is None
                    or challenge != query["code_challenge"]
                    or form["redirect_uri"] != query["redirect_uri"]
                ):
                    return _json({"error": "invalid_grant", "error_description": "<b>PKCE</b>"}, 400)
                return self.tokens(nonce=query["nonce"])
            case "refresh_token":
                if form["refresh_token"] not in self._refresh:
                    # A second use shows that one was stolen: nobody keeps the login.
                    self.refused += 1
                    self._refresh.clear()
                    return _json({"error": "invalid_grant"}, 400)
                self._refresh.remove(form["refresh_token"])
                return self.tokens()
            case "urn:ietf:params:oauth:grant-type:device_code":
                if form["device_code"] not in self._devices:
                    return _json({"error": "expired_token"}, 400)
                if not self._devices[form["device_code"]]:
                    return _json({"error": "authorization_pending"}, 400)
                return self.tokens()
        return _json({"error": "unsupported_grant_type"}, 400)

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Answer one request of a connection."""
        connection = h11.Connection(h11.SERVER)
        method = target = ""
        body = b""
        async with stream:
            try:
                while True:
                    event = connection.next_event()
                    if event is h11.NEED_DATA:
                        connection.receive_data(bytes(await stream.receive_some()))
                    elif isinstance(event, h11.Request):
                        method, target = event.method.decode(), event.target.decode()
                    elif isinstance(event, h11.Data):
                        body += bytes(event.data)
                    elif isinstance(event, h11.EndOfMessage):
                        await self._reply(connection, stream, method, target, body)
                        return
                    else:
                        return
            except (trio.BrokenResourceError, h11.ProtocolError):
                return

    async def _reply(
        self, connection: h11.Connection, stream: trio.abc.Stream, method: str, target: str, body: bytes
    ) -> None:
        status, headers, data = self.answer(method, target, body)
        path = urlsplit(target).path
        if path in self.silent:
            await trio.sleep_forever()
        length = [] if path in self.endless else [("content-length", str(len(data)))]
        head = [*headers.items(), *length, ("connection", "close")]
        await stream.send_all(connection.send(h11.Response(status_code=status, headers=head)) or b"")
        while path in self.endless:
            await stream.send_all(connection.send(h11.Data(data=b" " * 65_536)) or b"")
        await stream.send_all(
            (connection.send(h11.Data(data=data)) or b"") + (connection.send(h11.EndOfMessage()) or b"")
        )


@asynccontextmanager
async def serving_provider(authority: Path | None = None) -> AsyncIterator[OidcProvider]:
    """Run an issuer while the block runs.

    Args:
        authority: where to write the authority of its certificate; None for one without TLS.
    """
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    provider = OidcProvider(port)
    listeners: list[trio.abc.Listener[Any]] = [listener]
    if authority is not None:
        ca, tls = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        ca.issue_cert("127.0.0.1").configure_cert(tls)
        await trio.Path(authority).write_bytes(ca.cert_pem.bytes())
        provider = OidcProvider(port, "https")
        listeners = [trio.SSLListener(listener, tls, https_compatible=True)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, provider.serve, listeners)
        yield provider
        nursery.cancel_scope.cancel()


def http_client(*, follow_redirects: bool = True, authority: Path | None = None) -> httpx.AsyncClient:
    """Return what stands for a browser. It waits as long as a busy machine may need."""
    trusted = ssl.create_default_context(cafile=authority)
    return httpx.AsyncClient(trust_env=False, follow_redirects=follow_redirects, timeout=60, verify=trusted)


def _json(found: Any, status: int = 200) -> Reply:
    return status, {"content-type": "application/json"}, json.dumps(found).encode()
