"""Methods of one question and one answer, as the handlers that grpclib and the channels call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from grpclib.const import Cardinality, Handler

from headway.rpc import ANSWER

Method = tuple[Callable[[Any], Awaitable[Any]], type[Any], type[Any]]
"""What answers, and the messages that it takes and gives."""


def unary_handlers(service: str, **methods: Method) -> dict[str, Handler]:
    """The handlers of a service, by their paths. The schema has the same methods: `test_methods.py` compares them."""
    return {
        f"/{service}/{name}": Handler(_unary(answer), Cardinality.UNARY_UNARY, asked, answered)
        for name, (answer, asked, answered) in methods.items()
    }


def _unary(answer: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[None]]:
    async def serve(stream: Any) -> None:
        await stream.send_message(await answer(await stream.recv_message()))

    # For a channel in the process, which needs no stream between question and answer.
    setattr(serve, ANSWER, (serve, answer))
    return serve
