"""The answers of the page, with the rights of their caller.

Paths and messages are the page's own, so none of this is offered over gRPC.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from headway._gen.headway.observe import v1 as observe_pb
from headway.api import Api, Call, Cardinality, Exhausted, method, stream
from headway.base import give_way
from headway.errors import InvalidArgument, PermissionDenied
from headway.page._failing import failing_of
from headway.page._happened import AT_ONCE as EVENTS_AT_ONCE
from headway.page._happened import STEP as EVENT_STEP
from headway.page._happened import EventSearch, Newest
from headway.page._host import PageHost
from headway.page._overview import Visible, charted, drawn_elsewhere, overview, picture
from headway.page._parts import CANNOT_GO_ON, Place
from headway.page._search import Cursors, Search, find, has_condition, row
from headway.resource import EVENT, Key, Registry, ResourceId, TypeName, pb, resource_key
from headway.service import AccessChecks, admit_within, ask, check_text, resolve
from headway.why import ObservePermissions, ObserveService

PAGE_SERVICE = "headway.page"
LIVE = f"/{PAGE_SERVICE}/Live"
SEARCH = f"/{PAGE_SERVICE}/Search"
EVENTS = f"/{PAGE_SERVICE}/Events"
SESSION = f"/{PAGE_SERVICE}/Session"
WHY = f"/{PAGE_SERVICE}/Why"
CALLER_SEARCHES = 4
"""The number of searches of one caller at once."""


class Event(NamedTuple):
    """A server-sent event: its name, and its data as JSON."""

    name: str
    data: bytes


class PageService(Api, service=PAGE_SERVICE):
    """The page's own answers to one caller.

    Args:
        permissions: what the caller may do; without them, everything.
    """

    def __init__(self, host: PageHost, registry: Registry, permissions: ObservePermissions | None = None) -> None:
        self._host = host
        self._permissions = permissions
        self._access = AccessChecks(permissions, registry)
        self._observe = ObserveService(host.observe, registry, permissions, ask=host.whys.why)

    @method("Session", type(None), dict)
    async def session(self, _call: Call, _request: None) -> dict[str, Any]:
        """Answer who the caller is, if they have any right."""
        self._access.check_any_known()
        return {"caller": self._access.caller_name, "writes": self._host.writes, "lacks": self._host.lacks}

    @method("Live", type(None), Event, Cardinality.UNARY_STREAM)
    @stream
    async def live(self, _call: Call, _request: None) -> AsyncGenerator[Event, None]:
        """Yield the graph, the numbers of the last 15 minutes, and then each new state.

        A caller who reads slowly gets fewer states: nothing is kept for them.
        """
        visible = self._visible()
        host, types, at, looked = self._host, list(self._access.registry), 0, 0
        drawn = drawn_elsewhere(host, visible)
        yield Event("graph", _json(picture(host.graph, visible, drawn)))
        last: dict[str, Any] = {}
        with host.watching():
            while True:
                await host.wait_newer(looked)
                # All viewers are woken at once, and each of them looks through thousands of failures.
                await give_way()
                looked = host.number
                at, points = host.ring.since(at, charted(host, visible))
                if points:
                    yield Event("points", _json(points))
                if (now_drawn := drawn_elsewhere(host, visible)) != drawn:
                    drawn = now_drawn
                    yield Event("picture", _json(picture(host.graph, visible, drawn)))
                # The newest one, which may be newer than the one that was waited for.
                state = overview(host, visible, types)
                changed = {name: value for name, value in state.items() if value != last.get(name)}
                yield Event("state", _json(changed))
                last = state

    @method("Search", Search, dict)
    async def search(self, _call: Call, message: Search) -> dict[str, Any]:
        """Answer with some resources of a type."""
        access = self._access
        type = resolve(access, message.type, "type")
        within = admit_within(type, message.tenancy, "", absent_is_any=False)
        access.check_list(type.name, within)
        for field in ("text", "condition", "state"):
            check_text(field, getattr(message, field))
        described = repr(message._replace(type=pb.Type(), cursor="", rows=0)) + str(type.name)
        place = self._going_on(message.cursor, described)
        observes = self._observes
        form = self._host.forms.of(type)
        view = form.view

        def wanted(resource: pb.Resource) -> bool:
            if message.failing:
                key = resource_key(resource)
                if key not in fails or not observes(type.name, key):
                    return False
            if (message.condition or message.state) and not has_condition(resource, message.condition, message.state):
                return False
            # As in a list: the rights are those to the version that is searched.
            seen = view(resource)
            return seen is not None and access.shows(seen)

        with self._turn():
            fails = await failing_of(self._host, type.kind)
            text, rows = message.text.lower(), message.rows
            about = (self._host.parts, type, within, wanted, text, rows, place)
            found = await find(*about, ready=form.ready)
        answer: dict[str, Any] = {"columns": [*type.columns], "rows": []}
        for each in found.resources:
            # A payload may be large.
            await give_way()
            shown = await row(type, each, view(each))
            answer["rows"].append(shown)
            # A caller without the right to observe a resource must not learn whether it fails.
            if observes(type.name, key := resource_key(each)):
                shown["failing"] = fails.get(key, [])
        if found.rest is not None:
            answer["cursor"] = self._cursors.add(described, found.rest)
        if not access.restricted:
            # Other callers would learn the number of resources that they may not see.
            answer["examined"] = found.examined
        return answer

    @method("Events", EventSearch, dict)
    async def events(self, _call: Call, message: EventSearch) -> dict[str, Any]:
        """Answer with the newest events of resources."""
        access = self._access
        type = resolve(access, EVENT.message, "type")
        within = admit_within(type, message.tenancy, "", absent_is_any=False)
        access.check_list(type.name, within)
        check_text("text", message.text)
        described = repr(message._replace(cursor=""))
        place = self._going_on(message.cursor, described)
        newest = Newest(message)

        def note(resource: pb.Resource) -> bool:
            if access.shows(resource):
                newest.add(resource)
            # Only the events are kept, and not their resources.
            return False

        with self._turn():
            found = await find(
                self._host.parts, type, within, note, "", 1, place, step=EVENT_STEP, at_once=EVENTS_AT_ONCE
            )
        answer: dict[str, Any] = {"events": newest.shown(), "dropped": newest.dropped}
        if found.rest is not None:
            answer["cursor"] = self._cursors.add(described, found.rest)
        return answer

    @method("Why", observe_pb.WhyRequest, observe_pb.WhyResponse)
    async def why(self, call: Call, message: observe_pb.WhyRequest) -> observe_pb.WhyResponse:
        """Answer why a resource is not done, with an answer that its viewers share."""
        return await self._observe.why(call, message)

    @property
    def _cursors(self) -> Cursors:
        return self._host.cursors

    def _going_on(self, cursor: str, described: str) -> Place:
        """Return where a search begins, or goes on."""
        place = self._cursors.find(cursor, described) if cursor else Place()
        if place is None:
            raise InvalidArgument(CANNOT_GO_ON)
        return place

    def _visible(self) -> Visible:
        """Return what the caller may see. Raises PermissionDenied if that is nothing."""
        permissions, registry = self._permissions, self._access.registry
        known = frozenset(each.name for each in registry if self._access.knows(each.name))
        if permissions is None:
            return Visible(frozenset(each.fence_name for each in self._host.observe.supervisors), known, known, True)
        observed = frozenset(name for name in known if ask(permissions.may_observe_all, name))
        controllers = {
            each.fence_name
            for each in self._host.observe.supervisors
            if each.definition is not None and each.definition.manages.name in observed
        }
        if not observed:
            raise PermissionDenied("permission denied: you may not observe all resources of any type")
        whole = all(each.name in observed for each in registry)
        return Visible(frozenset(controllers), known, observed, whole, partial(ask, permissions.may_read_lease))

    def _observes(self, type: TypeName, key: Key) -> bool:
        permissions = self._permissions
        return permissions is None or ask(permissions.may_observe, ResourceId(type, key[2], key[0], key[1]))

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Count a search of the caller while the block runs."""
        account = getattr(self._permissions, "caller", "")
        searching = self._host.searching
        if searching.get(account, 0) >= CALLER_SEARCHES:
            raise Exhausted(f"you have {CALLER_SEARCHES} searches in progress: wait for one")
        searching[account] = searching.get(account, 0) + 1
        try:
            yield
        finally:
            searching[account] -= 1
            if not searching[account]:
                del searching[account]


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
