"""The registry of a process's services, shared by all its interfaces."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from headway.api import Cardinality, Handler
from headway.errors import DeclarationError
from headway.protobuf import check_field_count, decode, encode
from headway.rpc._wire import Codec, StreamEncoder


class FastCodec:
    """The compiled codec of betterproto2's messages."""

    encode = staticmethod(encode)
    decode = staticmethod(decode)


MOST_FIELDS = 12_000
"""The maximum number of fields of one request, including nested messages. A payload is bytes and counts as one."""

# A request of up to this many bytes is decoded without counting its fields. Decoding it takes a few milliseconds.
_SHORT_REQUEST = 16 << 10


class RequestCodec(FastCodec):
    """The codec of a server. It limits the decoding time, because requests are decoded before authentication."""

    @staticmethod
    def decode(cls: type[Any], data: bytes) -> Any:
        """Decode a request.

        Raises:
            PayloadError: it has more than MOST_FIELDS fields.
        """
        if len(data) > _SHORT_REQUEST:
            check_field_count(cls, data, MOST_FIELDS)
        return decode(cls, data)


class Services:
    """The handlers of all methods, and the encoders of what they send.

    Args:
        services: objects whose ``__mapping__`` returns handlers by path, such as an `Api`. These run on Trio.
        encoders: by path, the encoders of methods whose handlers send something other than messages.
        codec: decodes requests and encodes messages. By default they are protobuf messages.
        otherwise: answers calls over the network to every other method, as ``await otherwise(call, messages)``.
    """

    def __init__(
        self,
        *services: Any,
        encoders: Mapping[str, StreamEncoder] | None = None,
        codec: Codec | None = None,
        otherwise: Callable[[Any, Any], Awaitable[None]] | None = None,
    ) -> None:
        self.codec: Codec = codec or RequestCodec()
        self.handlers: dict[str, Handler] = {}
        self.encoders: dict[str, StreamEncoder] = dict(encoders or {})
        self._otherwise = None if otherwise is None else Handler(otherwise, Cardinality.STREAM_STREAM, bytes, bytes)
        for service in services:
            self.add(service)

    def add(self, service: Any) -> None:
        """Add a service."""
        handlers = service.__mapping__()
        if taken := sorted(self.handlers.keys() & handlers):
            raise DeclarationError(f"two services have the method {taken[0]}: name one of them otherwise")
        self.handlers.update(handlers)

    def handler(self, path: str) -> Handler | None:
        """Return the handler of a method, or None if the method is not found."""
        return self.handlers.get(path, self._otherwise)

    @property
    def forwards(self) -> bool:
        """True if calls may be forwarded to another server, which has its own limits."""
        return self._otherwise is not None

    @property
    def names(self) -> list[str]:
        """The full names of the services, sorted."""
        return sorted({path[1:].partition("/")[0] for path in self.handlers})

    def __mapping__(self) -> dict[str, Handler]:
        """Return all handlers. With this method a registry can be passed to an in-process channel like a service."""
        return self.handlers
