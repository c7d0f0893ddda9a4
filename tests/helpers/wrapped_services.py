"""Services whose handlers a test replaces by its own, to refuse calls, delay them or lose their answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from headway.api import Call, Handler

Wrap = Callable[[str, Handler], Handler]
"""A function that returns what handles the calls of a path, in place of the given handler."""


class WrappedServices:
    """Services, each of whose handlers is what a function returns for it."""

    def __init__(self, wrap: Wrap, *services: Any) -> None:
        self._wrap = wrap
        self._services = services

    def __mapping__(self) -> dict[str, Handler]:
        return {
            path: self._wrap(path, handler)
            for service in self._services
            for path, handler in service.__mapping__().items()
        }


Around = Callable[[str, Call, Any, Callable[[Call, Any], Awaitable[Any]]], Awaitable[Any]]
"""A function that answers unary calls: ``await around(path, call, request, answer)``."""


def answering(around: Around) -> Wrap:
    """Return what lets a function answer all unary calls."""

    def wrap(path: str, handler: Handler) -> Handler:
        async def answer(call: Call, request: Any) -> Any:
            return await around(path, call, request, handler.func)

        return handler if handler.cardinality.server_streaming else handler._replace(func=answer)

    return wrap


def admitting(function: Callable[[Call], Awaitable[None]]) -> Callable[[Call], AbstractAsyncContextManager[None]]:
    """Return an `admit` that calls a function before the request is received."""

    @asynccontextmanager
    async def admit(call: Call) -> AsyncIterator[None]:
        await function(call)
        yield

    return admit


def unchanged(_: str, handler: Handler) -> Handler:
    """Return the handler."""
    return handler
