"""The methods of a service: how many messages go each way, and the function that answers."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple


class Cardinality(enum.Enum):
    """How many messages a method takes and sends. Each value is a pair: whether requests and replies are streams."""

    UNARY_UNARY = (False, False)
    UNARY_STREAM = (False, True)
    STREAM_UNARY = (True, False)
    STREAM_STREAM = (True, True)

    @property
    def client_streaming(self) -> bool:
        """True if the caller sends a stream."""
        return self.value[0]

    @property
    def server_streaming(self) -> bool:
        """True if the service sends a stream."""
        return self.value[1]


class Handler(NamedTuple):
    """A method of a service.

    Attributes:
        func: a coroutine function that answers a call. It takes a stream with ``recv_message`` and ``send_message``.
        cardinality: how many messages go each way.
        request_type: the type of its requests.
        reply_type: the type of its replies.
    """

    func: Callable[[Any], Awaitable[None]]
    cardinality: Cardinality
    request_type: type[Any]
    reply_type: type[Any]
