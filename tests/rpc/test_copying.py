"""The copying channel separates arguments from results, and passes on everything else unchanged."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from headway.api import Call, Cardinality, Handler, stream
from headway.resource import pb
from headway.rpc import CopyingChannel, InProcessChannel
from headway.service import copied

CALL, STREAM = "/test.Seen/Call", "/test.Seen/Stream"


class Seen:
    """A service that records the arguments of its handlers and returns them."""

    def __init__(self) -> None:
        self.requests: list[pb.Type] = []
        self.metadata: list[dict[str, str]] = []

    def __mapping__(self) -> dict[str, Handler]:
        return {
            CALL: Handler(self._answer, Cardinality.UNARY_UNARY, pb.Type, pb.Type),
            STREAM: Handler(self._send, Cardinality.UNARY_STREAM, pb.Type, pb.Type),
        }

    async def _answer(self, call: Call, request: pb.Type) -> pb.Type:
        self.requests.append(request)
        self.metadata.append(dict(call.metadata))
        return request

    @stream
    async def _send(self, call: Call, request: pb.Type) -> AsyncGenerator[pb.Type, None]:
        yield await self._answer(call, request)


async def test_copying_channel_copies_messages_and_keeps_metadata() -> None:
    """Two nested channels behave like one."""
    seen = Seen()
    channel = CopyingChannel(CopyingChannel(InProcessChannel(seen), copied), copied)
    request, metadata = pb.Type(group="a"), {"x-consul-token": "mine"}
    reply = await channel.unary(CALL, request, pb.Type, metadata=metadata)
    async with channel.stream(STREAM, request, metadata=metadata) as items:
        item = await anext(items)
    assert seen.metadata == [metadata, metadata]
    for given, got in zip(seen.requests, (reply, item), strict=True):
        assert request == given == got
        assert request is not given
        assert given is not got
    assert channel.knows_outcomes
