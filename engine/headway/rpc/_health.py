"""The standard health service (grpc.health.v1), with one-time checks and watches."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import trio

from headway.api import Cardinality, Handler, stream
from headway.errors import NotFound
from headway.protobuf import field, message
from headway.rpc._limits import OpenStreams, bound_call, bound_request

UNKNOWN, SERVING, NOT_SERVING, SERVICE_UNKNOWN = 0, 1, 2, 3


@message(name="grpc.health.v1.HealthCheckRequest")
class HealthCheckRequest:
    """The name of a service. An empty name stands for the whole server."""

    service: str = field(1)


@message(name="grpc.health.v1.HealthCheckResponse")
class HealthCheckResponse:
    """A status: one of the constants above."""

    # An enum is encoded like an int.
    status: int = field(1)


class Health:
    """The health of a server. All services serve until `set` or `set_all` changes that.

    Args:
        services: the known names. The empty name is always known.
        streams: limits the number of watches.
    """

    def __init__(self, *services: str, streams: OpenStreams | None = None) -> None:
        self._statuses = dict.fromkeys(("", *services), SERVING)
        self._streams = streams or OpenStreams()
        self._changed = trio.Event()
        self._ended = False
        # Watches that have not sent the last change.
        self._behind: set[object] = set()
        self._watches: set[object] = set()
        self._sent = trio.Event()

    def add(self, services: Iterable[str]) -> None:
        """Add services. They serve."""
        for each in services:
            self._statuses.setdefault(each, SERVING)

    def set(self, service: str, *, serving: bool) -> None:
        """Set the status of one service. The empty name stands for the whole server."""
        self._set([service], serving)

    def set_all(self, *, serving: bool) -> None:
        """Set the status of every service and of the whole server."""
        self._set(list(self._statuses), serving)

    def end(self) -> None:
        """Set every status to not serving. Later changes are ignored."""
        self.set_all(serving=False)
        self._ended = True

    def _set(self, services: Iterable[str], serving: bool) -> None:
        if self._ended:
            return
        self._statuses |= dict.fromkeys(services, SERVING if serving else NOT_SERVING)
        self._behind = set(self._watches)
        self._changed.set()
        self._changed = trio.Event()

    async def wait_sent(self) -> None:
        """Wait until every watch has sent the last change. Use a timeout, because a client may never read."""
        while self._behind:
            self._sent = trio.Event()
            await self._sent.wait()

    def __mapping__(self) -> dict[str, Handler]:
        """Return the handlers of the two methods."""
        messages = HealthCheckRequest, HealthCheckResponse
        check = Handler(self._check, Cardinality.UNARY_UNARY, *messages, bound_call)
        watch = Handler(self._watch, Cardinality.UNARY_STREAM, *messages, self._counted)
        return {"/grpc.health.v1.Health/Check": check, "/grpc.health.v1.Health/Watch": watch}

    @asynccontextmanager
    async def _counted(self, call: Any) -> AsyncIterator[None]:
        with self._streams.one(call):
            bound_request(call)
            yield

    async def _check(self, _call: Any, request: HealthCheckRequest) -> HealthCheckResponse:
        status = self._statuses.get(request.service)
        if status is None:
            raise NotFound(f"service {request.service!r} not found")
        return HealthCheckResponse(status=status)

    @stream
    async def _watch(self, _call: Any, request: HealthCheckRequest) -> AsyncGenerator[HealthCheckResponse, None]:
        watch, sent = object(), None
        self._watches.add(watch)
        try:
            while True:
                changed = self._changed
                status = self._statuses.get(request.service, SERVICE_UNKNOWN)
                if status != sent:
                    yield HealthCheckResponse(status=status)
                    sent = status
                if changed is self._changed:
                    self._caught_up(watch)
                    await changed.wait()
        finally:
            self._watches.discard(watch)
            self._caught_up(watch)

    def _caught_up(self, watch: object) -> None:
        self._behind.discard(watch)
        if not self._behind:
            self._sent.set()
