"""Watches over HTTP, as lines of JSON (NDJSON) or as server-sent events.

A client that reads slowly delays only its own watch: nothing is buffered but the part being sent. If it reads nothing
of that for the server's `Bounds.stall`, its connection is closed.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

import trio
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send
from typing_extensions import override

from headway.base import Steps, finished
from headway.errors import HistoryCompacted, PayloadError, StoreChanged
from headway.http._answer import HEADERS, refused, send_pieces
from headway.http._bounds import HeldReply
from headway.http._call import ServedCall
from headway.http._document import json_steps, resource_steps
from headway.http._offered import Exchange
from headway.http._refusal import HttpRefusal, invalid
from headway.protobuf import decode, encode
from headway.resource import (
    Bookmark,
    Changes,
    EndOfSnapshot,
    Position,
    ResourceType,
    ScopeConfirmed,
    SnapshotChunk,
    StreamItem,
    pb,
    position,
    quoted,
)
from headway.service import WATCH_LIST

NDJSON = "application/x-ndjson"
EVENTS = "text/event-stream"
_BEGIN_AGAIN = (HistoryCompacted, StoreChanged)


class Watched(NamedTuple):
    """A request for a watch, and the form of its answer.

    Attributes:
        request: makes the request of the service, with the position to resume after or without it.
        events: True for server-sent events.
        restarts: True if a watch that cannot be resumed begins with a snapshot, instead of being refused.
    """

    type: ResourceType[Any]
    request: Callable[[bool], pb.WatchListRequest]
    events: bool
    restarts: bool


class WatchResponse(Response):
    """The answer to a request for a watch. It is an error if the watch is refused before its first event."""

    def __init__(self, exchange: Exchange, watched: Watched) -> None:
        super().__init__(None, 200)
        self._exchange = exchange
        self._watched = watched

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sent = _Sent(self._watched, send, self._exchange.reply)
        refusal: HttpRefusal | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(until_disconnected, receive, nursery.cancel_scope)
            nursery.start_soon(_while_connected, sent.keep_alive, self._exchange.offered.limits.heartbeat)
            with contextlib.suppress(_Gone):
                try:
                    await self._run(sent)
                except HttpRefusal as raised:
                    refusal = raised
            nursery.cancel_scope.cancel()
        if refusal is not None:
            # Not inside: Hypercorn reports a disconnection at the end of an answer, before it closes the connection.
            with contextlib.suppress(_Gone):
                await self._end(refusal, sent, scope, receive, send)

    async def _run(self, sent: _Sent) -> None:
        try:
            try:
                await self._watch(sent, resume=True)
            except _BEGIN_AGAIN:
                if sent.begun or not self._watched.restarts:
                    raise
                await self._watch(sent, resume=False)
        except _Gone:
            raise
        except Exception as error:  # noqa: BLE001  # one watch must not end the others of the server
            raise self._exchange.offered.refusal(WATCH_LIST, error) from None

    async def _watch(self, sent: _Sent, *, resume: bool) -> None:
        exchange = self._exchange
        offered = exchange.offered
        with contextlib.ExitStack() as held:

            async def requested() -> pb.WatchListRequest:
                # Only now is the caller known.
                held.enter_context(exchange.shares.watch(exchange.account, call.end_after))
                return self._watched.request(resume)

            call = ServedCall(exchange.caller, requested, exchange.reply.hold)
            with exchange.shares.ending(call.end_after):
                await call.run(offered.services, WATCH_LIST, offered.failed, sent)

    async def _end(self, refusal: HttpRefusal, sent: _Sent, scope: Scope, receive: Receive, send: Send) -> None:
        if sent.begun:
            await sent.fail(refusal)
        else:
            await refused(refusal)(scope, receive, send)


async def until_disconnected(receive: Receive, scope: trio.CancelScope) -> None:
    """Wait until the client has closed the connection, and cancel the scope then."""
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def _while_connected(repeat: Callable[[float], Awaitable[None]], seconds: float) -> None:
    with contextlib.suppress(_Gone):
        await repeat(seconds)


class _Gone(Exception):
    """The client has closed the connection."""


class _Sent:
    """The part of a watch that has been sent, as a function that sends the next item.

    Attributes:
        begun: True if the answer has begun, so that an error can only be its last event.
    """

    def __init__(self, watched: Watched, send: Send, reply: HeldReply) -> None:
        self.begun = False
        self._reply = reply
        self._type = watched.type
        self._events = watched.events
        self._send = send
        # Events are sent whole.
        self._turn = trio.Lock()
        self._here: Position | None = None
        self._last = trio.current_time()

    async def __call__(self, item: StreamItem | ScopeConfirmed) -> None:
        """Send the events of an item."""
        if isinstance(item, ScopeConfirmed):
            return
        async with self._turn:
            await send_pieces(self._of(item), self._body)
            if isinstance(item, Changes) and self._here is not None and not item.changes[-1].more:
                self._here = self._here._replace(revision=item.changes[-1].revision)

    async def fail(self, refusal: HttpRefusal) -> None:
        """Send the error that ends the watch."""
        async with self._turn:
            await self._body(self._event("failed", {"status": refusal.code, **refusal.body()}))
            await self._deliver({"type": "http.response.body", "body": b"", "more_body": False})

    async def keep_alive(self, seconds: float) -> None:
        """Repeat the position after each time without an event, until canceled."""
        while True:
            await trio.sleep_until(self._last + seconds)
            if trio.current_time() < self._last + seconds:
                continue
            async with self._turn:
                if self._here is not None:
                    await self._body(self._event("bookmark", {}, self._here))
                else:
                    # It is still reading the snapshot, and has sent nothing that could be repeated.
                    self._last = trio.current_time()

    async def _body(self, data: bytes) -> None:
        if not self.begun:
            self.begun = True
            kind = f"{EVENTS}; charset=utf-8" if self._events else NDJSON
            # Proxies would hold events back.
            headers = {**HEADERS, "content-type": kind, "x-accel-buffering": "no"}
            await self._deliver({"type": "http.response.start", "status": 200, "headers": _raw(headers)})
        self._reply.hold(len(data))
        await self._deliver({"type": "http.response.body", "body": data, "more_body": True})
        self._reply.hold(0)
        self._last = trio.current_time()

    async def _deliver(self, message: Message) -> None:
        try:
            await self._send(message)
        except Exception as error:
            # Hypercorn raises whatever its libraries raise for a closed connection.
            raise _Gone from error

    def _of(self, item: StreamItem) -> Iterable[Steps[bytes]]:
        if not self.begun and not isinstance(item, Bookmark):
            # The empty id keeps a browser from resuming in the middle of the snapshot.
            yield self._event_steps("snapshot", id="")
        if isinstance(item, SnapshotChunk):
            for resource in item.resources:
                yield self._event_steps("upsert", resource)
        elif isinstance(item, EndOfSnapshot):
            self._here = item.position
            yield self._event_steps("endOfSnapshot", here=item.position)
        elif isinstance(item, Bookmark):
            self._here = item.position
            yield self._event_steps("resumed" if item.resumed else "bookmark", here=item.position)
        else:
            for change in item.changes:
                # A commit with several changes is complete only after the last of them.
                whole = None if change.more or self._here is None else self._here._replace(revision=change.revision)
                yield self._event_steps("delete" if change.deleted else "upsert", change.resource, whole)

    def _event(self, name: str, content: dict[str, Any], here: Position | None = None) -> bytes:
        return finished(self._written(name, content, here))

    def _event_steps(
        self, name: str, resource: pb.Resource | None = None, here: Position | None = None, id: str | None = None
    ) -> Steps[bytes]:
        content = {} if resource is None else {"resource": (yield from resource_steps(self._type, resource))}
        return (yield from self._written(name, content, here, id))

    def _written(
        self, name: str, content: dict[str, Any], here: Position | None, id: str | None = None
    ) -> Steps[bytes]:
        if here is not None:
            id = position_text(here)
            content = {**content, "position": id}
        if not self._events:
            return (yield from json_steps({"type": name, **content})) + b"\n"
        line = "" if id is None else f"id: {id}\n"
        return f"event: {name}\n{line}data: ".encode() + (yield from json_steps(content)) + b"\n\n"


def _raw(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]


_LONGEST = 1024


def position_text(here: Position) -> str:
    """Return a position as a text for URLs and headers."""
    return base64.urlsafe_b64encode(encode(here.message())).decode().rstrip("=")


def position_of(text: str) -> Position:
    """Return the position of a text. Raises HttpRefusal (400) for any other text."""
    try:
        if len(text) > _LONGEST or not text.isascii():
            raise ValueError
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        here = position(decode(pb.Position, data))
    except (binascii.Error, ValueError, PayloadError):
        here = None
    if here is None or not here.store_id:
        raise invalid(f"position {quoted(text)} is invalid: use the position of an event, or of a list")
    return here
