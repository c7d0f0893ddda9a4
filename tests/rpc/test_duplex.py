"""Calls in which both sides stream, and the statuses that make a client leave a server."""

from typing import Any

import pytest
import trio

from headway.api import Call, Cardinality, Duplex, Handler
from headway.errors import HeadwayError, Unavailable
from headway.protobuf import decode
from headway.resource import pb
from headway.rpc import Services, open_channel, open_server

ECHO, ASK = "/test.Echo/Both", "/test.Echo/One"


class Echo:
    """A service that answers each request with its own name. It ends when the client does or asks for it."""

    def __init__(self, refusal: HeadwayError | None = None) -> None:
        self.refusal = refusal
        self.asked = 0

    def __mapping__(self) -> dict[str, Handler]:
        return {
            ECHO: Handler(self.both, Cardinality.STREAM_STREAM, pb.Id, pb.Id),
            ASK: Handler(self.one, Cardinality.UNARY_UNARY, pb.Id, pb.Id),
        }

    async def both(self, _: Call, stream: Duplex) -> None:
        while (message := await stream.recv_message()) is not None:
            if message.name == "end":
                return
            await stream.send_message(pb.Id(name=f"heard {message.name}"))

    async def one(self, _: Call, request: pb.Id) -> pb.Id:
        self.asked += 1
        if self.refusal is not None:
            raise self.refusal
        return request


def decoder() -> Any:
    return lambda bodies: [decode(pb.Id, body) for body in bodies]


async def test_duplex_call_answers_each_request_while_it_is_open() -> None:
    """The call ends when the server ends it, or with the block."""
    async with (
        open_server(Services(Echo()), ["127.0.0.1:0"]) as server,
        open_channel(server.addresses[0], decoders={ECHO: decoder}) as channel,
    ):
        with trio.fail_after(30):
            async with channel.duplex(ECHO, pb.Id(name="first")) as call:
                answers = aiter(call)
                assert (await anext(answers)).name == "heard first"
                for name in ("second", "x" * 300_000):
                    await call.send(pb.Id(name=name))
                    assert (await anext(answers)).name == f"heard {name}"
                await call.send(pb.Id(name="end"))
                with pytest.raises(StopAsyncIteration):
                    await anext(answers)
            with pytest.raises(RuntimeError, match="inside"):
                await call.send(pb.Id(name="late"))


@pytest.mark.parametrize("avoids", [True, False])
async def test_status_decides_if_the_next_call_goes_to_another_server(avoids: bool) -> None:
    bad, good = Echo(Unavailable("no leader")), Echo()
    async with (
        open_server(Services(bad), ["127.0.0.1:0"]) as first,
        open_server(Services(good), ["127.0.0.1:0"]) as second,
        open_channel(
            [first.addresses[0], second.addresses[0]],
            avoids=lambda error: avoids and str(error) == "no leader",
        ) as channel,
    ):
        for attempt in range(3):
            if avoids and attempt:
                await channel.unary(ASK, pb.Id(name="a"), pb.Id)
            else:
                with pytest.raises(HeadwayError, match="no leader"):
                    await channel.unary(ASK, pb.Id(name="a"), pb.Id)
    assert (bad.asked, good.asked) == ((1, 2) if avoids else (3, 0))
