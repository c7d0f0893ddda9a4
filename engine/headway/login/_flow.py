"""The authorization code flow of a native app: a browser, PKCE, and a callback on loopback (RFC 8252, 7636, 9207)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from urllib.parse import parse_qsl, urlencode, urlsplit

import h11
import trio

from headway.base import block_nursery
from headway.errors import Unauthenticated, Unavailable
from headway.login._kept import KeptLogin
from headway.login._provider import Asker, Provider, refusal
from headway.login._tokens import Request, checked, redeem

PATH = "/callback"
_MOST_CONNECTIONS = 16
_MOST_BYTES = 16_384
_PATIENCE = 10.0
# Fixed texts: nothing of a request is shown again.
_DONE = "You are logged in. Close this window, and go back to the terminal.\n"
_FAILED = "The login has failed. The terminal says why. You may close this window.\n"
_OTHER = "This is not the answer to a login that is waiting here.\n"


class Callback:
    """The one answer that a login waits for. Requests that are not this answer change nothing.

    Args:
        state: the secret of the login, which its answer has.
        port: the port at which the answer is due.
    """

    def __init__(self, provider: Provider, state: str, port: int) -> None:
        self._provider = provider
        self._state = state
        self._host = f"127.0.0.1:{port}"
        self._answered = trio.Event()
        self._code = ""
        self._problem = ""

    async def code(self) -> str:
        """Wait for the answer, and return its code. Raises Unauthenticated if it has none."""
        await self._answered.wait()
        if self._problem:
            raise Unauthenticated(self._problem)
        return self._code

    def take(self, method: bytes, host: str, target: str) -> tuple[int, str]:
        """Return the status and the text for a request. The first one with the right state is the answer."""
        try:
            parts = urlsplit(target)
        except ValueError:
            # Such as "//[": any page may send it.
            return 400, _OTHER
        # A page of another site reaches this port by a name of its own (DNS rebinding), and has another Host.
        if method != b"GET" or host != self._host or parts.path != PATH or self._answered.is_set():
            return 404, _OTHER
        try:
            pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True, max_num_fields=20)
        except ValueError:
            return 400, _OTHER
        given = dict(pairs)
        if not hmac.compare_digest(given.get("state", "").encode(), self._state.encode()):
            return 400, _OTHER
        if len(given) != len(pairs):
            self._problem = "the answer of the browser has a parameter twice"
        else:
            self._problem = self._problem_of(given)
            self._code = given.get("code", "")
        self._answered.set()
        return (400, _FAILED) if self._problem else (200, _DONE)

    def _problem_of(self, given: Mapping[str, str]) -> str:
        issuer = self._provider.issuer
        iss = given.get("iss")
        if iss is None and self._provider.names_itself:
            return f"the answer of the browser lacks iss, which {issuer} promises to send"
        if iss is not None and iss != issuer:
            # Mix-up: the answer of another issuer, whose code must not be sent to this one.
            return f"the answer of the browser is of another issuer than {issuer}"
        if "error" in given:
            return f"{issuer} refused the login: {refusal(given, otherwise='no reason given')}"
        return "" if given.get("code") else f"{issuer}: its answer has no code"


async def by_browser(asker: Asker, provider: Provider, asked: Request, show: Callable[[str], None]) -> KeptLogin:
    """Log in by a browser on this machine.

    Args:
        show: called with the URL to open, once the callback listens.

    Raises:
        Unauthenticated: the issuer refused, or its answer is not the one to this login.
        Unavailable: the issuer does not answer, or the time is over.
    """
    if not provider.authorization:
        raise Unavailable(f"{provider.issuer} has no authorization_endpoint: use --device")
    verifier, state, nonce = secrets.token_urlsafe(48), secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1", backlog=_MOST_CONNECTIONS)
    port = listener.socket.getsockname()[1]
    callback, back = Callback(provider, state, port), f"http://127.0.0.1:{port}{PATH}"
    query = {
        "response_type": "code",
        "client_id": asked.client,
        "redirect_uri": back,
        "scope": asked.scope(provider),
        "state": state,
        "nonce": nonce,
        "code_challenge": challenge(verifier),
        "code_challenge_method": "S256",
    }
    separator = "&" if "?" in provider.authorization else "?"
    serve = partial(_serve, callback, trio.Semaphore(_MOST_CONNECTIONS))
    async with block_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        show(f"{provider.authorization}{separator}{urlencode(query)}")
        with trio.move_on_after(asked.patience) as waiting:
            code = await callback.code()
        nursery.cancel_scope.cancel()
    if waiting.cancelled_caught:
        raise Unavailable(f"no login within {asked.patience:g} s: run the command again")
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": back, "code_verifier": verifier}
    return await checked(asker, provider, asked, await redeem(asker, provider, asked, form), nonce=nonce)


def challenge(verifier: str) -> str:
    """Return the code challenge of a verifier (S256)."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


async def _serve(callback: Callback, free: trio.Semaphore, stream: trio.SocketStream) -> None:
    """Answer one request of a connection."""
    with trio.move_on_after(_PATIENCE):
        try:
            free.acquire_nowait()
        except trio.WouldBlock:
            await trio.aclose_forcefully(stream)
            return
        try:
            async with stream:
                await _answer(callback, stream)
        except (trio.BrokenResourceError, h11.ProtocolError):
            # The browser, or something else, went away.
            return
        finally:
            free.release()


async def _answer(callback: Callback, stream: trio.SocketStream) -> None:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_MOST_BYTES)
    while (event := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(bytes(await stream.receive_some(_MOST_BYTES)))
    if not isinstance(event, h11.Request):
        return
    hosts = [value.decode("latin-1") for name, value in event.headers if name == b"host"]
    status, text = callback.take(event.method, hosts[0] if len(hosts) == 1 else "", event.target.decode("latin-1"))
    body = text.encode()
    headers = [
        ("content-type", "text/plain; charset=utf-8"),
        ("content-length", str(len(body))),
        ("cache-control", "no-store"),
        ("referrer-policy", "no-referrer"),
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
        ("connection", "close"),
    ]
    sent = connection.send(h11.Response(status_code=status, headers=headers)) or b""
    # The browser gets its page although the command goes on, or ends.
    with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
        await stream.send_all(sent + body)
