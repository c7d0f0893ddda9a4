"""Answers of server-sent events. Nothing is buffered but the event that is being sent."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

import trio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from headway.errors import HeadwayError, Unauthenticated
from headway.http import HEADERS, Exchange, HttpRefusal, json_bytes, refused, until_disconnected
from headway.page._service import Event
from headway.page._sessions import Session

Emit = Callable[[Event], Awaitable[None]]


class EventsResponse(Response):
    """A response of events. A refusal before the first event is an HTTP error. A later one is sent as the last event.

    Args:
        session: the visitor's session, whose end also ends the response; None for a visitor without one.
        produce: sends the events, until canceled.
    """

    def __init__(self, exchange: Exchange, session: Session | None, produce: Callable[[Emit], Awaitable[None]]) -> None:
        super().__init__(None, 200)
        self._exchange = exchange
        self._session = session
        self._produce = produce
        self._scope = trio.CancelScope()
        self._error: HeadwayError | None = None
        self._begun = False
        self._turn = trio.Lock()

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def emit(event: Event) -> None:
            await self._send(send, b"event: %s\ndata: %s\n\n" % (event.name.encode(), event.data))

        refusal: HttpRefusal | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(until_disconnected, receive, nursery.cancel_scope)
            nursery.start_soon(self._keep_alive, send)
            refusal = await self._refusal(emit)
            nursery.cancel_scope.cancel()
        # Not inside: Hypercorn reports a disconnection at the end of an answer, before it closes the connection.
        if refusal is not None and not self._begun:
            await refused(refusal)(scope, receive, send)
        elif refusal is not None:
            await emit(Event("failed", json_bytes({"status": refusal.code, **refusal.body()})))
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _refusal(self, emit: Emit) -> HttpRefusal | None:
        """Send the events, and return the error that has ended them."""
        exchange = self._exchange
        try:
            with contextlib.ExitStack() as held:
                held.enter_context(exchange.shares.watch(exchange.account, self._end_after))
                held.enter_context(exchange.shares.ending(self._end_after))
                if self._session is not None:
                    self._session.ends.add(self._end_after)
                    held.callback(self._session.ends.discard, self._end_after)
                    self._scope.deadline = min(self._scope.deadline, self._session.until)
                with self._scope:
                    await self._produce(emit)
            if self._scope.cancelled_caught:
                raise self._error or Unauthenticated("the session has ended: sign in again")
        except Exception as error:  # noqa: BLE001  # one stream must not end the others of the server
            return exchange.offered.refusal(exchange.request.url.path, error)
        return None

    def _end_after(self, seconds: float, error: HeadwayError) -> None:
        self._error = error
        self._scope.deadline = min(self._scope.deadline, trio.current_time() + seconds)

    async def _send(self, send: Send, body: bytes) -> None:
        async with self._turn:
            if not self._begun:
                self._begun = True
                headers = {**HEADERS, "content-type": "text/event-stream; charset=utf-8"}
                raw = [(name.encode(), value.encode()) for name, value in headers.items()]
                await send({"type": "http.response.start", "status": 200, "headers": raw})
            # It counts toward the memory that unread answers may take.
            self._exchange.reply.hold(len(body))
            await send({"type": "http.response.body", "body": body, "more_body": True})
            self._exchange.reply.hold(0)

    async def _keep_alive(self, send: Send) -> None:
        """Send a comment from time to time, so that both ends notice a lost connection."""
        while True:
            await trio.sleep(self._exchange.offered.limits.heartbeat)
            if self._begun:
                await self._send(send, b":\n\n")
