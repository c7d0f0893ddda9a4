"""The browser behind a request: its session, and the proof that a change comes from the page itself."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping

import trio
from starlette.requests import Request
from starlette.responses import Response

from headway.api import Code
from headway.http import Exchange, HttpRefusal, Offered, Shares
from headway.page._sessions import SECONDS, Session, Sessions
from headway.rpc import TOKEN_HEADER

CSRF = "x-headway-csrf"
# The ports that a browser leaves out of an origin.
_PORTS = {"http": ":80", "https": ":443"}


class Visits:
    """The visitors of a server.

    Args:
        offered: what the server offers to them.
        shares: the watches and bodies of all requests.
        writes: True if visitors may change things.
    """

    def __init__(self, offered: Offered, shares: Shares, *, writes: bool) -> None:
        self.offered = offered
        self.shares = shares
        self.writes = writes
        self.sessions = Sessions()
        # For visitors without a session.
        self._csrf = secrets.token_urlsafe(24)

    def exchange(self, request: Request) -> Exchange:
        """Return the exchange of a request. Only the session identifies its caller: other tokens are ignored."""
        session = self.session(request)
        return Exchange(self.offered, self.shares, request, _metadata(session))

    def writing(self, request: Request) -> Exchange:
        """Return the exchange of a request for a change. Raises HttpRefusal unless it comes from the page itself."""
        check_origin(request)
        if not self.writes:
            raise HttpRefusal(
                403,
                Code.PERMISSION_DENIED.name,
                "this page changes nothing: start the server with --http-writes (http_writes=True) to allow it",
            )
        if not hmac.compare_digest(request.headers.get(CSRF, "").encode(), self.csrf(request).encode()):
            raise HttpRefusal(403, Code.PERMISSION_DENIED.name, f"{CSRF} is missing or invalid: reload the page")
        return self.exchange(request)

    def session(self, request: Request) -> Session | None:
        """Return the session of a request, or None."""
        text = request.cookies.get(cookie_name(request), "")
        return self.sessions.find(text, trio.current_time()) if text else None

    def csrf(self, request: Request) -> str:
        """Return the secret that a request for a change must have."""
        session = self.session(request)
        return self._csrf if session is None else session.csrf

    def begin(self, request: Request, token: str, response: Response) -> Session:
        """End the session of the request, begin a new one, and set its cookie.

        The session ends if its token is revoked or gets other policies, even if this is undone before the next
        request.

        Raises Unauthenticated if the token is not valid.
        """
        access = self.offered.access
        assert access is not None
        identity = access.identify({TOKEN_HEADER: token})
        self._end(request)
        now = trio.current_time()
        text, session = self.sessions.begin(token, identity.account, now, identity.expires_in())
        session.ended = access.follow(identity, lambda: self.sessions.end(text))
        _set_cookie(request, response, text, int(SECONDS))
        return session

    def end(self, request: Request, response: Response) -> None:
        """End the session of a request, and remove its cookie."""
        self._end(request)
        _set_cookie(request, response, "", 0)

    def _end(self, request: Request) -> None:
        if text := request.cookies.get(cookie_name(request), ""):
            self.sessions.end(text)


def check_origin(request: Request) -> None:
    """Refuse a request that another site makes a browser send. Raises HttpRefusal.

    A browser names the site in these headers, which no script can set. So a request for a change that has a session,
    but none of them, comes from a browser whose headers a proxy has removed, or from another program that has the
    cookie. Other programs send no cookies by themselves.
    """
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    if origin is site is None and cookie_name(request) in request.cookies:
        raise HttpRefusal(
            403,
            Code.PERMISSION_DENIED.name,
            "the request has a session, but neither Origin nor Sec-Fetch-Site: every browser sends one of them with a "
            "change, and a proxy must pass it on",
        )
    schemes = [request.url.scheme]
    if site == "same-origin":
        # The browser has compared its own address, with the scheme. Behind a proxy that ends TLS, it is another one
        # than this server's. A header of the proxy would prove nothing, because anyone can send one.
        schemes.append("https")
    host = request.headers.get("host", "").lower()
    own = {f"{scheme}://{host.removesuffix(_PORTS[scheme])}" for scheme in schemes}
    if site not in (None, "same-origin") or (origin is not None and origin.lower() not in own):
        raise HttpRefusal(
            403,
            Code.PERMISSION_DENIED.name,
            "the request comes from another site, or through a proxy that does not pass on the Host",
        )


def cookie_name(request: Request) -> str:
    """Return the name of the cookie. It has the port, because browsers give cookies to all ports of a host."""
    server = request.scope.get("server")
    prefix = "__Host-" if request.url.scheme == "https" else ""
    return f"{prefix}headway-{server[1] if server else 0}"


def _set_cookie(request: Request, response: Response, text: str, seconds: int) -> None:
    secure = request.url.scheme == "https"
    response.set_cookie(
        cookie_name(request), text, max_age=seconds, path="/", secure=secure, httponly=True, samesite="strict"
    )


def _metadata(session: Session | None) -> Mapping[str, str]:
    return {} if session is None else {TOKEN_HEADER: session.token}
