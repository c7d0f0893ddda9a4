"""Streams that are due at the same moment, such as when a login ends, are not ended in one turn of the loop."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator

import pytest
import trio

from headway import rpc
from headway.access import Access, Authorizer, Guarded, new_token
from headway.api import Api, Call, Cardinality, method, stream
from headway.resource import Registry
from tests.rpc.raw_kit import HEADERS, connected
from tests.rpc.rpc_kit import Text

COUNT = 300
PATH = "/test.Quiet/Wait"


class Quiet(Api, service="test.Quiet"):
    """A service with streams that never end. It records by how many seconds each would be ended late.

    They are due at the given time of Trio's clock, or 1,000 seconds after they begin.
    """

    def __init__(self, due: float | None) -> None:
        self.due = due
        self.late: list[float] = []
        self.all_wait = trio.Event()

    @method("Wait", Text, Text, Cardinality.UNARY_STREAM)
    @stream
    async def wait(self, _call: Call, _request: Text) -> AsyncGenerator[Text, None]:
        due = trio.current_time() + 1000 if self.due is None else self.due
        self.late.append(trio.current_effective_deadline() - due)
        if len(self.late) == COUNT:
            self.all_wait.set()
        await trio.sleep_forever()
        yield Text()


@pytest.mark.parametrize("due", ["login", "deadline"])
async def test_streams_that_are_due_at_once_end_one_after_the_other(due: str) -> None:
    """Ten thousand that ended in one turn delayed every other caller by a second."""
    quiet = Quiet(trio.current_time() + 1000 if due == "login" else None)
    services = rpc.Services(quiet)
    fields = [("grpc-timeout", "1000S")]
    if due == "login":
        text, token = new_token([], expires_at=time.time() + 1000)
        services = rpc.Services(Guarded(lambda _: quiet, Authorizer(Access([], [token])), Registry()))
        fields = [("x-consul-token", text)]
    async with rpc.open_server(services, ["127.0.0.1:0"]) as server, connected(server.addresses[0]) as raw:
        for number in range(COUNT):
            raw.h2.send_headers(number * 2 + 1, [*HEADERS[:2], (":path", PATH), *HEADERS[3:], *fields])
            raw.h2.send_data(number * 2 + 1, rpc.framed(b""), end_stream=True)
        await raw.flush()
        with trio.fail_after(30):
            await quiet.all_wait.wait()
    assert max(quiet.late) > 0.01
