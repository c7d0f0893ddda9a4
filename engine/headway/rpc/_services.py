"""The services of a process, registered once and offered on every interface from here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from grpclib.const import Cardinality, Handler

from headway.resource import check_field_count, decode, encode
from headway.rpc._wire import Codec, StreamEncoder

Function = Callable[[Any], Awaitable[None]]
Interceptor = Callable[[str, Any, Function], Awaitable[None]]
"""``await interceptor(path, stream, handler)``: calls ``await handler(stream)``, or raises, or answers by itself."""


class FastCodec:
    """The compiled codec of betterproto2's messages."""

    encode = staticmethod(encode)
    decode = staticmethod(decode)


MOST_FIELDS = 12_000
"""Fields of one request, with those of all messages in it. A payload counts as one: it is bytes to the service."""

# Bytes that are decoded without counting: they can't have more fields than are decoded in some milliseconds.
_SHORT_REQUEST = 16 << 10


class RequestCodec(FastCodec):
    """The codec of a server: nobody makes it decode for long, before it is known who asks."""

    @staticmethod
    def decode(cls: type[Any], data: bytes) -> Any:
        """The request. Raises PayloadError when it has more than MOST_FIELDS fields."""
        if len(data) > _SHORT_REQUEST:
            check_field_count(cls, data, MOST_FIELDS)
        return decode(cls, data)


class Services:
    """Which handler answers which method, and how what it sends becomes bytes.

    Args:
        services: objects with grpclib's ``__mapping__``; their handlers are Trio's.
        encoders: for methods whose handlers send something else than messages.
        interceptors: are called around every handler, the first outermost.
        otherwise: answers every other method of the network; it is given the stream of a call, and no interceptor
            stands around it.
    """

    def __init__(
        self,
        *services: Any,
        encoders: Mapping[str, StreamEncoder] | None = None,
        interceptors: Sequence[Interceptor] = (),
        codec: Codec | None = None,
        otherwise: Function | None = None,
    ) -> None:
        self.codec: Codec = codec or RequestCodec()
        self.handlers: dict[str, Handler] = {}
        self.encoders: dict[str, StreamEncoder] = dict(encoders or {})
        self._interceptors = tuple(interceptors)
        self._otherwise = None if otherwise is None else Handler(otherwise, Cardinality.STREAM_STREAM, bytes, bytes)
        for service in services:
            self.add(service)

    def add(self, service: Any) -> None:
        """Offer one more service."""
        for path, handler in service.__mapping__().items():
            self._add(path, handler)

    def handler(self, path: str) -> Handler | None:
        """What answers a method, if anything does."""
        return self.handlers.get(path, self._otherwise)

    @property
    def forwards(self) -> bool:
        """Whether another server answers, which has limits of its own."""
        return self._otherwise is not None

    @property
    def names(self) -> list[str]:
        """The full names of the services, in order."""
        return sorted({path[1:].partition("/")[0] for path in self.handlers})

    def _add(self, path: str, handler: Handler) -> None:
        function: Function = handler.func
        for interceptor in reversed(self._interceptors):
            function = _around(interceptor, path, function)
        self.handlers[path] = handler._replace(func=function)

    def __mapping__(self) -> dict[str, Handler]:
        """All handlers: a registry is a service itself, so that a channel in the process takes it as one."""
        return self.handlers


def _around(interceptor: Interceptor, path: str, function: Function) -> Function:
    async def intercepted(stream: Any) -> None:
        await interceptor(path, stream, function)

    return intercepted
