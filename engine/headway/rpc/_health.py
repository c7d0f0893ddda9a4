"""The standard health service (grpc.health.v1): which services serve, asked once or watched."""

from __future__ import annotations

from typing import Any

import trio
from grpclib import GRPCError
from grpclib.const import Cardinality, Handler, Status

from headway.resource import field, message

UNKNOWN, SERVING, NOT_SERVING, SERVICE_UNKNOWN = 0, 1, 2, 3


@message(name="grpc.health.v1.HealthCheckRequest")
class HealthCheckRequest:
    """Which service; empty: the whole server."""

    service: str = field(1)


@message(name="grpc.health.v1.HealthCheckResponse")
class HealthCheckResponse:
    """One of the numbers above."""

    # An enum on the wire is what an int is.
    status: int = field(1)


class Health:
    """Answers Check and Watch. What serves is what `set` has said last; the server itself serves from the start."""

    def __init__(self, *services: str) -> None:
        self._statuses = dict.fromkeys(("", *services), SERVING)
        self._changed = trio.Event()

    def set(self, service: str, *, serving: bool) -> None:
        """Say whether a service serves; the empty name is the whole server."""
        self._statuses[service] = SERVING if serving else NOT_SERVING
        self._changed.set()
        self._changed = trio.Event()

    def __mapping__(self) -> dict[str, Handler]:
        """The two methods."""
        check, watch = Cardinality.UNARY_UNARY, Cardinality.UNARY_STREAM
        return {
            "/grpc.health.v1.Health/Check": Handler(self._check, check, HealthCheckRequest, HealthCheckResponse),
            "/grpc.health.v1.Health/Watch": Handler(self._watch, watch, HealthCheckRequest, HealthCheckResponse),
        }

    async def _check(self, stream: Any) -> None:
        request: HealthCheckRequest = await stream.recv_message()
        status = self._statuses.get(request.service)
        if status is None:
            raise GRPCError(Status.NOT_FOUND, f"there is no service {request.service!r} here")
        await stream.send_message(HealthCheckResponse(status=status))

    async def _watch(self, stream: Any) -> None:
        request: HealthCheckRequest = await stream.recv_message()
        told = None
        while True:
            changed = self._changed
            status = self._statuses.get(request.service, SERVICE_UNKNOWN)
            if status != told:
                await stream.send_message(HealthCheckResponse(status=status))
                told = status
            await changed.wait()
