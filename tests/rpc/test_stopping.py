"""A server that stops ends the calls that have exceeded its grace, before it closes their connections."""

from __future__ import annotations

import trio
from grpclib.const import Status
from h2.events import ResponseReceived

from headway import rpc
from tests.rpc.raw_kit import HEADERS, connected
from tests.rpc.rpc_kit import WAIT
from tests.rpc.test_last_words import stopping


async def test_call_that_exceeds_the_grace_receives_a_final_status() -> None:
    """Without one, its caller could not distinguish a stopping server from a failing network."""
    async with stopping(grace=0.01) as server, connected(server.it.where) as raw:
        raw.h2.send_headers(1, [(name, WAIT if name == ":path" else value) for name, value in HEADERS])
        raw.h2.send_data(1, rpc.framed(b""), end_stream=True)
        await raw.flush()
        await server.it.echo.until_waiting(1)
        server.stop()
        with trio.fail_after(30):
            ended = await raw.until(lambda event: isinstance(event, ResponseReceived))
        assert isinstance(ended, ResponseReceived)
        said = dict(ended.headers)
        assert said[b"grpc-status"] == str(Status.UNAVAILABLE.value).encode()
        assert said[b"grpc-message"] == b"the server is stopping"
        assert server.it.echo.cancelled == 1
        assert await raw.goaway() is not None
