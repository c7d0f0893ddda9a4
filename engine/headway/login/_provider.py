"""An issuer as a client of it sees it: its endpoints, and requests to them that are bounded in time and size."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import trio

from headway.access import Keys, read_keys
from headway.base import plain, repr_text
from headway.errors import DeclarationError, InvalidArgument, Unauthenticated, Unavailable
from headway.rpc import is_loopback

try:
    import httpx
    import joserfc  # noqa: F401
except ImportError as error:
    raise DeclarationError(f"logins need {error.name}: pip install 'headway[login]'") from error

TIMEOUT = 10.0
"""The time for one request with its whole answer, in seconds."""
MOST_BYTES = 262_144
"""The size of an answer."""
_LONGEST_URL = 2_000
_LONGEST_TEXT = 200
_DISCOVERY = "/.well-known/openid-configuration"


class Provider(NamedTuple):
    """The endpoints of an issuer, from its discovery document. An endpoint that it lacks is empty.

    Attributes:
        names_itself: True if each of its answers to a browser has its name (RFC 9207).
        scopes: the scopes that it says it supports.
    """

    issuer: str
    authorization: str
    token: str
    keys: str
    device: str
    revocation: str
    names_itself: bool
    scopes: tuple[str, ...]


class Asker:
    """A client of HTTP for one issuer. It follows no redirect, uses no proxy, and reads no endless answer."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def get(self, url: str) -> dict[str, Any]:
        """Return the JSON object at a URL. Raises Unavailable."""
        status, answer = await self._ask("GET", url, None)
        if status != 200 or answer is None:
            raise Unavailable(f"{url}: expected status 200 with a JSON object, got {status}{_refusal(answer)}")
        return answer

    async def post(self, url: str, form: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        """Return the status of a form's answer and its JSON object, empty without one. Raises Unavailable."""
        status, answer = await self._ask("POST", url, form)
        if status >= 500 or 300 <= status < 400:
            raise Unavailable(f"{url}: expected an answer, got status {status}{_refusal(answer)}")
        return status, answer or {}

    async def _ask(self, method: str, url: str, form: Mapping[str, str] | None) -> tuple[int, dict[str, Any] | None]:
        # Compressed answers could grow without end.
        headers = {"accept": "application/json", "accept-encoding": "identity"}
        received = bytearray()
        try:
            with trio.fail_after(TIMEOUT):
                async with self._client.stream(method, url, data=form, headers=headers) as answer:
                    with trio.CancelScope() as reading:
                        async for some in answer.aiter_raw():
                            received += some
                            if len(received) > MOST_BYTES:
                                # httpx's generators end only where they read. Python would end them outside of the
                                # task.
                                reading.cancel()
            if len(received) > MOST_BYTES:
                raise Unavailable(f"{url}: its answer has more than {MOST_BYTES} bytes")
        except trio.TooSlowError:
            raise Unavailable(f"{url}: no complete answer within {TIMEOUT:g} s") from None
        except httpx.HTTPError as error:
            raise Unavailable(f"{url}: {_failure(error)}") from None
        try:
            found = json.loads(received.decode())
        except (ValueError, RecursionError):
            found = None
        return answer.status_code, found if isinstance(found, dict) else None


@asynccontextmanager
async def open_asker(authority: str = "") -> AsyncIterator[Asker]:
    """Yield a client that trusts the authorities in a PEM file, or the system's. Raises InvalidArgument."""
    try:
        context = ssl.create_default_context(cafile=authority or None)
    except OSError as error:
        raise InvalidArgument(f"--authority {authority}: {error.strerror or error}: give a PEM file") from None
    async with httpx.AsyncClient(verify=context, trust_env=False, follow_redirects=False, timeout=TIMEOUT) as client:
        yield Asker(client)


def check_url(what: str, url: object) -> str:
    """Return a URL to which secrets may be sent: one for HTTPS, or for loopback. Raises InvalidArgument."""
    right = "it must be an https:// URL without a user or a fragment, such as https://login.example.com"
    if not isinstance(url, str) or len(url) > _LONGEST_URL or not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidArgument(f"{what} {repr_text(url)} is not valid: {right}")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise InvalidArgument(f"{what} {url!r} is not valid: {right}") from None
    secure = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
    if not secure or not parts.hostname or "@" in parts.netloc or "#" in url or "\\" in url:
        raise InvalidArgument(f"{what} {url!r} is not valid: {right}; http:// is allowed for loopback only")
    return url


async def discovered(asker: Asker, issuer: str) -> Provider:
    """Return the endpoints of an issuer.

    Raises:
        InvalidArgument: its URL, or one of its endpoints, could not keep a secret.
        Unauthenticated: the document is of another issuer, or the issuer cannot do PKCE with S256.
        Unavailable: it gives no such document.
    """
    check_url("the issuer", issuer)
    if "?" in issuer:
        raise InvalidArgument(f"the issuer {issuer!r} has a query: give the URL that its tokens have as iss")
    url = issuer.rstrip("/") + _DISCOVERY
    found = await asker.get(url)
    if found.get("issuer") != issuer:
        raise Unauthenticated(
            f"{url}: its issuer is {repr_text(found.get('issuer'))}, expected {issuer!r}: give the exact issuer"
        )
    methods = found.get("code_challenge_methods_supported", ["S256"])
    if not isinstance(methods, list) or "S256" not in methods:
        raise Unauthenticated(f"{url}: it does not support PKCE with S256, without which a code can be stolen")
    scopes = found.get("scopes_supported", [])

    def endpoint(name: str, *, needed: bool = False) -> str:
        return check_url(f"{url}: {name}", found[name]) if needed or found.get(name) is not None else ""

    for name in ("token_endpoint", "jwks_uri"):
        if name not in found:
            raise Unavailable(f"{url}: {name} is missing")
    return Provider(
        issuer,
        endpoint("authorization_endpoint"),
        endpoint("token_endpoint", needed=True),
        endpoint("jwks_uri", needed=True),
        endpoint("device_authorization_endpoint"),
        endpoint("revocation_endpoint"),
        found.get("authorization_response_iss_parameter_supported") is True,
        tuple(each for each in scopes if isinstance(each, str)) if isinstance(scopes, list) else (),
    )


async def keys_of(asker: Asker, provider: Provider) -> Keys:
    """Return the keys of an issuer. Raises Unavailable."""
    try:
        return read_keys(json.dumps(await asker.get(provider.keys)))
    except InvalidArgument as error:
        raise Unavailable(f"{provider.keys}: {error}") from None


def refusal(answer: Mapping[str, Any], *, otherwise: str) -> str:
    """Return the reason of an OAuth error for a person. It may come from anyone, and is shown as short plain text."""
    code, text = answer.get("error"), answer.get("error_description")
    shown = [plain(each)[:_LONGEST_TEXT] for each in (code, text) if isinstance(each, str) and each]
    return ": ".join(shown) or otherwise


def _failure(error: httpx.HTTPError) -> str:
    # Upon a failure of TLS, the text of httpx is empty.
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            why = cause.verify_message.rstrip(".")
            return f"its certificate is not trusted ({why}): give the file of its authority with --authority"
        cause = cause.__cause__ or cause.__context__
    return plain(str(error))[:_LONGEST_TEXT] or type(error).__name__


def _refusal(answer: Mapping[str, Any] | None) -> str:
    why = "" if answer is None else refusal(answer, otherwise="")
    return f" ({why})" if why else ""
