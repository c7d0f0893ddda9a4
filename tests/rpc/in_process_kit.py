"""Handlers by path, for the tests of the channel inside a process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from headway.api import Cardinality, Handler
from headway.resource import pb

Serve = Callable[[Any], Awaitable[None]]


class Service:
    """Handlers by path. A handler without a streaming name is unary."""

    def __init__(self, **handlers: Serve) -> None:
        self._handlers = handlers

    def __mapping__(self) -> dict[str, Handler]:
        return {
            f"/test/{name}": Handler(
                handler,
                Cardinality.UNARY_STREAM if name.startswith("stream") else Cardinality.UNARY_UNARY,
                pb.Type,
                pb.Type,
            )
            for name, handler in self._handlers.items()
        }


REQUEST = pb.Type(kind="Request")


def raising(make: Callable[[], Exception], *, after: int = 0) -> Serve:
    async def serve(stream: Any) -> None:
        request = await stream.recv_message()
        for number in range(after):
            await stream.send_message(pb.Type(group=request.kind, kind=str(number)))
        raise make()

    return serve


def sending(*messages: object) -> Serve:
    async def serve(stream: Any) -> None:
        await stream.recv_message()
        for message in messages:
            await stream.send_message(message)

    return serve
