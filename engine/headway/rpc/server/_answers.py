"""How the handler of a call is called: it receives the request, and what it returns is sent."""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine, Iterator
from typing import Any

from grpclib import GRPCError
from grpclib.exceptions import StreamTerminatedError
from h2.exceptions import ProtocolError

from headway.api import Code, Handler, Interrupted
from headway.errors import HeadwayError
from headway.rpc._told import told
from headway.rpc.server._stream import ServerStream
from headway.rpc.server._whole import WholeCall


def answered(handler: Handler, stream: ServerStream | WholeCall) -> Coroutine[Any, Any, None]:
    """Run a handler, within the block that admits its calls."""
    return (_answer if handler.admit is None else _admitted)(handler, stream)


async def _admitted(handler: Handler, stream: ServerStream | WholeCall) -> None:
    assert handler.admit is not None
    async with handler.admit(stream):
        await _answer(handler, stream)


async def _answer(handler: Handler, stream: ServerStream | WholeCall) -> None:
    if handler.cardinality.client_streaming:
        assert isinstance(stream, ServerStream)
        both = _Both(stream)
        try:
            await handler.func(stream, both)
        except HeadwayError as error:
            raise both.original(error) from None
        return
    request = stream.received() if isinstance(stream, WholeCall) else await stream.recv_message()
    if not handler.cardinality.server_streaming:
        await stream.send_message(await handler.func(stream, request))
        return
    async with handler.func(stream, request) as items:
        async for item in items:
            await stream.send_message(item)


class _Both:
    """The messages of a call in both directions, for its service. They fail with errors of a call (`headway.api`)."""

    def __init__(self, stream: ServerStream) -> None:
        self._stream = stream
        self._failed: tuple[HeadwayError, Exception] | None = None

    async def recv_message(self) -> Any:
        with self._failing():
            return await self._stream.recv_message()

    async def send_message(self, message: Any) -> None:
        with self._failing():
            await self._stream.send_message(message)

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except GRPCError as error:
            self._failed = told(error), error
            raise self._failed[0] from error
        except (StreamTerminatedError, ProtocolError) as error:
            self._failed = Interrupted(Code.UNAVAILABLE, str(error)), error
            raise self._failed[0] from error

    def original(self, error: HeadwayError) -> Exception:
        """Return what has failed, if the service lets that error end the call."""
        failed = self._failed
        return failed[1] if failed is not None and failed[0] is error else error
