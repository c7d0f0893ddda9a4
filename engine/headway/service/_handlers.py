"""Adapters from unary methods to the handlers that grpclib and the channels call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from grpclib.const import Cardinality, Handler

from headway.rpc import ANSWER

Method = tuple[Callable[[Any], Awaitable[Any]], type[Any], type[Any]]
"""A function that serves a method, and the types of its request and its response."""


def unary_handlers(service: str, **methods: Method) -> dict[str, Handler]:
    """Return the handlers of a service by path. `test_methods.py` checks that they match the schema."""
    return {
        f"/{service}/{name}": Handler(_unary(answer), Cardinality.UNARY_UNARY, asked, answered)
        for name, (answer, asked, answered) in methods.items()
    }


def _unary(answer: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[None]]:
    async def serve(stream: Any) -> None:
        await stream.send_message(await answer(await stream.recv_message()))

    # In-process channels call the function directly, without a stream.
    setattr(serve, ANSWER, (serve, answer))
    return serve
