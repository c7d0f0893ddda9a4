"""The paths of the page: its files, its streams, its questions, and its changes."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from importlib.resources import files
from typing import Any

import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from headway._gen.headway.observe import v1 as observe_pb
from headway._gen.headway.pause.v1 import Pause
from headway.api import Code
from headway.base import in_slices
from headway.errors import PermissionDenied
from headway.http import (
    HEADERS,
    Endpoint,
    Exchange,
    Further,
    HttpRefusal,
    Offered,
    Query,
    ServedCall,
    Shares,
    Verb,
    answer,
    delete,
    invalid,
    json_steps,
    object_of,
    patch,
    put,
)
from headway.page._about import about, document, relatives
from headway.page._events import Emit, EventsResponse
from headway.page._happened import EventSearch
from headway.page._leases import leases
from headway.page._quotas import quotas
from headway.page._search import ROWS, Search
from headway.page._service import EVENTS, LIVE, SEARCH, SESSION, Event
from headway.page._visitor import Visits, check_origin
from headway.pauses import PAUSE, controller_problem, pause_name
from headway.resource import ResourceId, ResourceType, TypeName, pb, quoted
from headway.rpc import TOKEN_HEADER
from headway.service import RESOURCE_SERVICE
from headway.why import OBSERVE_SERVICE

_RESOURCE = ("type", "partition", "namespace", "name")
_AGAIN = 1.0
"""The time between two looks at a resource, in seconds."""
_AS_IT_IS = 5.0
"""The time after which a resource is sent although nothing but the time has changed."""


def page_paths(offered: Offered, *, writes: bool) -> Further:
    """Return the paths of the page, for `headway.http.open_http`.

    Args:
        offered: what the server offers, with the `PageService` among its services.
        writes: True if callers may also change things.
    """
    assets = Assets()

    def further(shares: Shares) -> Mapping[str, ASGIApp]:
        page = _Page(Visits(offered, shares, writes=writes))
        file = partial(_file, assets)
        return {
            "/": page.endpoint(GET=file),
            "/assets/{name}": page.endpoint(GET=file),
            "/page/session": page.endpoint(GET=page.session, POST=page.sign_in, DELETE=page.sign_out),
            "/page/live": page.endpoint(GET=page.live),
            "/page/search": page.endpoint(GET=_search),
            "/page/events": page.endpoint(GET=_events),
            "/page/leases": page.endpoint(GET=_leases),
            "/page/quotas": page.endpoint(GET=_quotas),
            "/page/resource": page.endpoint(GET=page.resource),
            "/page/relatives": page.endpoint(GET=_relatives),
            "/page/api/{group}/{version}/{kind}/{name}": page.changing(
                PUT=partial(put, shown=document), PATCH=partial(patch, shown=document), DELETE=delete
            ),
            "/page/pause": page.changing(POST=_pause),
            "/page/resume": page.changing(POST=_resume),
            "/page/retry": page.changing(POST=_retry),
        }

    return further


class _Page:
    """The paths that know their visitor."""

    def __init__(self, visits: Visits) -> None:
        self._visits = visits

    def endpoint(self, **methods: Verb) -> ASGIApp:
        """Return the application of a path that changes nothing stored."""
        return Endpoint(self._visits.exchange, methods)

    def changing(self, **methods: Verb) -> ASGIApp:
        """Return the application of a path whose methods change something, for requests of the page itself only."""

        def checked(verb: Verb) -> Verb:
            async def check(exchange: Exchange) -> Response:
                return await verb(self._visits.writing(exchange.request))

            return check

        return Endpoint(self._visits.exchange, {name: checked(verb) for name, verb in methods.items()})

    async def session(self, exchange: Exchange) -> Response:
        """Answer who the visitor is, or why they have no rights. Every page asks this first."""
        Query(exchange.request.scope["query_string"], ())
        session = self._visits.session(exchange.request)
        made: dict[str, Any] = {"controlled": exchange.offered.access is not None, "signedIn": session is not None}
        try:
            found: dict[str, Any] = await exchange.call(SESSION, _nothing)
        except PermissionDenied as error:
            return answer(200, {**made, "allowed": False, "message": str(error)})
        return answer(200, {**made, **found, "allowed": True, "csrf": self._visits.csrf(exchange.request)})

    async def sign_in(self, exchange: Exchange) -> Response:
        """Exchange a token for a session."""
        request = exchange.request
        check_origin(request)
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise HttpRefusal(415, Code.INVALID_ARGUMENT.name, "content-type must be application/json")
        if exchange.offered.access is None:
            raise invalid("this server has no access control, so there is nothing to sign in to")
        # The sender may be a stranger, or a browser with a session whose token has expired. So limit the body.
        async with exchange.body(small=True) as body:
            token = (await object_of(body)).get("token")
        if not isinstance(token, str) or not token.isascii() or not token.isprintable() or not token:
            raise invalid('token must be the text of a token: {"token": "hw_..."}')
        # The guard of the service identifies the caller, and reports one without a valid token.
        visitor = Exchange(exchange.offered, exchange.shares, request, {TOKEN_HEADER: token})
        found: dict[str, Any] = await visitor.call(SESSION, _nothing)
        response = answer(204)
        # The token may have been revoked since.
        self._visits.begin(request, token, response)
        assert found
        return response

    async def sign_out(self, exchange: Exchange) -> Response:
        """End the session."""
        check_origin(exchange.request)
        response = answer(204)
        self._visits.end(exchange.request, response)
        return response

    async def live(self, exchange: Exchange) -> Response:
        """Send the state of the controllers as it changes."""
        Query(exchange.request.scope["query_string"], ())

        async def produce(emit: Emit) -> None:
            call = ServedCall(exchange.caller, _nothing, exchange.reply.hold)
            await call.run(exchange.offered.services, LIVE, exchange.offered.failed, emit)

        return EventsResponse(exchange, self._visits.session(exchange.request), produce)

    async def resource(self, exchange: Exchange) -> Response:
        """Send a resource, and why it is or is not done, as that changes."""
        type, id = _named(exchange, Query(exchange.request.scope["query_string"], _RESOURCE))

        async def produce(emit: Emit) -> None:
            last, until = b"", 0.0
            while True:
                shown = await about(exchange, type, id)
                # The sentences say how long ago something was, so they always differ.
                told = shown["why"] or {}
                lasting = await in_slices(
                    json_steps({**shown, "why": {name: told[name] for name in ("states", "timeline") if name in told}})
                )
                if lasting != last or trio.current_time() >= until:
                    await emit(Event("resource", await in_slices(json_steps(shown))))
                    last, until = lasting, trio.current_time() + _AS_IT_IS
                await trio.sleep(_AGAIN)

        return EventsResponse(exchange, self._visits.session(exchange.request), produce)


async def _file(assets: Assets, exchange: Exchange) -> Response:
    found = assets.answer(exchange.request.path_params.get("name", INDEX), exchange.request)
    if found is None:
        raise HttpRefusal(404, Code.NOT_FOUND.name, f"{quoted(exchange.request.url.path)} not found")
    return found


async def _search(exchange: Exchange) -> Response:
    """Answer with some resources of a type."""
    known = ("type", "partition", "namespace", "q", "condition", "state", "failing", "cursor", "rows")
    query = Query(exchange.request.scope["query_string"], known)
    name = _type_name(query.text("type"))
    if (failing := query.text("failing")) not in ("", "yes"):
        raise invalid(f"failing {quoted(failing)} must be yes, or left out")

    async def requested() -> Search:
        return Search(
            name.message(),
            query.text("partition"),
            query.text("namespace"),
            query.text("q"),
            query.text("condition"),
            query.text("state"),
            query.text("cursor"),
            query.number("rows", ROWS) or ROWS,
            bool(failing),
        )

    return answer(200, await exchange.call(SEARCH, requested))


async def _events(exchange: Exchange) -> Response:
    """Answer with the newest events of resources."""
    query = Query(exchange.request.scope["query_string"], ("partition", "namespace", "q", "warnings", "cursor"))
    if (warnings := query.text("warnings")) not in ("", "yes"):
        raise invalid(f"warnings {quoted(warnings)} must be yes, or left out")

    async def requested() -> EventSearch:
        return EventSearch(
            query.text("partition"), query.text("namespace"), query.text("q"), bool(warnings), query.text("cursor")
        )

    return answer(200, await exchange.call(EVENTS, requested))


async def _quotas(exchange: Exchange) -> Response:
    Query(exchange.request.scope["query_string"], ())
    return answer(200, await quotas(exchange))


async def _leases(exchange: Exchange) -> Response:
    query = Query(exchange.request.scope["query_string"], ("prefix",))
    return answer(200, await leases(exchange, query.text("prefix")))


async def _relatives(exchange: Exchange) -> Response:
    _, id = _named(exchange, Query(exchange.request.scope["query_string"], _RESOURCE))
    return answer(200, await relatives(exchange, id))


async def _pause(exchange: Exchange) -> Response:
    controller, body = await _controller(exchange)
    reason = body.get("reason", "")
    if not isinstance(reason, str) or len(reason) > 1000:
        raise invalid("reason must be a text of at most 1000 characters")
    pause = PAUSE.new(pause_name(controller), Pause(controller=controller, reason=reason))
    request = pb.WriteRequest(resource=pause.message())
    await exchange.call(f"/{RESOURCE_SERVICE}/Write", _returning(request))
    return answer(204)


async def _resume(exchange: Exchange) -> Response:
    controller, _ = await _controller(exchange)
    request = pb.DeleteRequest(id=PAUSE.id(pause_name(controller)).message())
    await exchange.call(f"/{RESOURCE_SERVICE}/Delete", _returning(request))
    return answer(204)


async def _retry(exchange: Exchange) -> Response:
    controller, body = await _controller(exchange)
    parts = [body.get(name, "") for name in _RESOURCE]
    if not all(isinstance(each, str) for each in parts):
        raise invalid(f"{', '.join(_RESOURCE)} must be texts")
    name = _type_name(parts[0])
    id = ResourceId(name, parts[3], parts[1], parts[2]).message()
    request = observe_pb.RetryRequest(id=id, controller=controller)
    reply = await exchange.call(f"/{OBSERVE_SERVICE}/Retry", _returning(request))
    return answer(200, {"running": reply.running})


async def _controller(exchange: Exchange) -> tuple[str, dict[str, Any]]:
    # It is received before the service checks any right.
    async with exchange.body(small=True) as text:
        body = await object_of(text)
    controller = body.get("controller")
    if not isinstance(controller, str):
        raise invalid('controller must be a name, such as "staff/teams"')
    if problem := controller_problem(controller):
        raise invalid(problem)
    return controller, body


def _named(exchange: Exchange, query: Query) -> tuple[ResourceType[Any] | None, ResourceId]:
    """Return the id that a query names, and its type if it is registered. Raises HttpRefusal."""
    name = _type_name(query.text("type"))
    # Raise nothing for an unknown type: the services decide what the caller may learn about it.
    type = exchange.offered.registry.find(name)
    partition, namespace = ("", "") if type is None else type.default_units
    units = query.text("partition") or partition, query.text("namespace") or namespace
    return type, ResourceId(name, query.text("name"), *units)


def _type_name(text: str) -> TypeName:
    parts = text.rsplit(".", 2)
    if len(parts) != 3:
        raise invalid(f"type {quoted(text)} must be group.version.Kind, such as staff.v1.Team")
    return TypeName(*parts)


def _returning(message: Any) -> Callable[[], Awaitable[Any]]:
    async def requested() -> Any:
        return message

    return requested


async def _nothing() -> None:
    """Return the message of a request that has none."""


_POLICY = (
    *("default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'"),
    *("base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"),
    # No script can make markup of a text, even by mistake.
    *("require-trusted-types-for 'script'", "trusted-types 'none'"),
)
_HEADERS: Mapping[str, str] = {
    **HEADERS,
    "cache-control": "no-cache",
    "content-security-policy": "; ".join(_POLICY),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
}
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
INDEX = "index.html"


class Assets:
    """The files of the page by name."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[bytes, str, str]] = {}
        for each in files("headway.page").joinpath("assets").iterdir():
            kind = _TYPES.get(f".{each.name.rpartition('.')[2]}")
            if kind is not None:
                content = each.read_bytes()
                self._files[each.name] = content, kind, f'"{hashlib.sha256(content).hexdigest()[:16]}"'

    def answer(self, name: str, request: Request) -> Response | None:
        """Return the answer to a request for a file, or None if no file has this name."""
        found = self._files.get(name)
        if found is None:
            return None
        content, kind, tag = found
        headers = {**_HEADERS, "etag": tag}
        if request.headers.get("if-none-match") == tag:
            return Response(None, 304, headers)
        return Response(content, 200, headers, kind)
