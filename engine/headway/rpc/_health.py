"""The standard health service (grpc.health.v1): which services serve, asked once or watched."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import trio
from grpclib import GRPCError
from grpclib.const import Cardinality, Handler, Status

from headway.resource import field, message
from headway.rpc._open_streams import OpenStreams, bound_request

UNKNOWN, SERVING, NOT_SERVING, SERVICE_UNKNOWN = 0, 1, 2, 3


@message(name="grpc.health.v1.HealthCheckRequest")
class HealthCheckRequest:
    """The name of a service. An empty one is the whole server."""

    service: str = field(1)


@message(name="grpc.health.v1.HealthCheckResponse")
class HealthCheckResponse:
    """One of the numbers above."""

    # An enum on the wire is what an int is.
    status: int = field(1)


class Health:
    """Answers Check and Watch. All services serve until `set` or `set_all` says otherwise.

    Args:
        services: the names that are known, besides the empty one.
        streams: bounds how many watches there are.
    """

    def __init__(self, *services: str, streams: OpenStreams | None = None) -> None:
        self._statuses = dict.fromkeys(("", *services), SERVING)
        self._streams = streams or OpenStreams()
        self._changed = trio.Event()
        self._ended = False
        # Watches that have not been told the last change.
        self._untold: set[object] = set()
        self._watches: set[object] = set()
        self._told = trio.Event()

    def add(self, services: Iterable[str]) -> None:
        """Know further services. They serve."""
        for each in services:
            self._statuses.setdefault(each, SERVING)

    def set(self, service: str, *, serving: bool) -> None:
        """Change the status of one service. The empty name is the whole server."""
        self._set([service], serving)

    def set_all(self, *, serving: bool) -> None:
        """Change the status of every service and of the whole server."""
        self._set(list(self._statuses), serving)

    def end(self) -> None:
        """Let nothing serve from now on, whatever is set later."""
        self.set_all(serving=False)
        self._ended = True

    def _set(self, services: Iterable[str], serving: bool) -> None:
        if self._ended:
            return
        self._statuses |= dict.fromkeys(services, SERVING if serving else NOT_SERVING)
        self._untold = set(self._watches)
        self._changed.set()
        self._changed = trio.Event()

    async def wait_told(self) -> None:
        """Wait until every watch has been told the last change. Bound it: a client that does not read never is."""
        while self._untold:
            self._told = trio.Event()
            await self._told.wait()

    def __mapping__(self) -> dict[str, Handler]:
        """The two methods."""
        check, watch = Cardinality.UNARY_UNARY, Cardinality.UNARY_STREAM
        return {
            "/grpc.health.v1.Health/Check": Handler(self._check, check, HealthCheckRequest, HealthCheckResponse),
            "/grpc.health.v1.Health/Watch": Handler(self._watch, watch, HealthCheckRequest, HealthCheckResponse),
        }

    async def _check(self, stream: Any) -> None:
        bound_request(stream)
        request: HealthCheckRequest = await stream.recv_message()
        status = self._statuses.get(request.service)
        if status is None:
            raise GRPCError(Status.NOT_FOUND, f"service {request.service!r} not found")
        await stream.send_message(HealthCheckResponse(status=status))

    async def _watch(self, stream: Any) -> None:
        with self._streams.one(stream):
            request: HealthCheckRequest = await stream.recv_message()
            watch = object()
            self._watches.add(watch)
            try:
                await self._tell(stream, request.service, watch)
            finally:
                self._watches.discard(watch)
                self._told_one(watch)

    async def _tell(self, stream: Any, service: str, watch: object) -> None:
        told = None
        while True:
            changed = self._changed
            status = self._statuses.get(service, SERVICE_UNKNOWN)
            if status != told:
                await stream.send_message(HealthCheckResponse(status=status))
                told = status
            if changed is self._changed:
                self._told_one(watch)
                await changed.wait()

    def _told_one(self, watch: object) -> None:
        self._untold.discard(watch)
        if not self._untold:
            self._told.set()
