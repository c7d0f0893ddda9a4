"""Handlers by path, for the tests of the channel inside a process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

from headway.api import Call, Cardinality, Handler, stream
from headway.resource import pb

Serve = Callable[[Call, pb.Type], Any]


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


def failing(make: Callable[[], Exception]) -> Serve:
    async def serve(_: Call, __: pb.Type) -> pb.Type:
        raise make()

    return serve


def raising(make: Callable[[], Exception], *, after: int = 0) -> Serve:
    @stream
    async def serve(_: Call, request: pb.Type) -> AsyncGenerator[object, None]:
        for number in range(after):
            yield pb.Type(group=request.kind, kind=str(number))
        raise make()

    return serve


def answering(message: object) -> Serve:
    async def serve(_: Call, __: pb.Type) -> object:
        return message

    return serve


def sending(*messages: object) -> Serve:
    @stream
    async def serve(_: Call, __: pb.Type) -> AsyncGenerator[object, None]:
        for message in messages:
            yield message

    return serve
