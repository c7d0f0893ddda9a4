"""The names of Hypercorn that the server of the pages depends on exist and are unchanged.

Only `hypercorn.trio.serve` and `Config` are documented.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from hypercorn.protocol import ProtocolWrapper
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.utils import wrap_app

_BEFORE = ("app", "config", "context", "task_group")
_AFTER = ("ssl", "client", "server", "send")


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (TCPServer.__init__, ["self", "app", "config", "context", "state", "stream"]),
        (TCPServer.__await__, ["self"]),
        (TCPServer._read_data, ["self"]),
        (ProtocolWrapper.__init__, ["self", *_BEFORE, "state", *_AFTER, "alpn_protocol"]),
        (H11Protocol.__init__, ["self", *_BEFORE, "connection_state", *_AFTER]),
        (H11Protocol._check_protocol, ["self", "event"]),
        (H11Protocol._send_error_response, ["self", "status_code"]),
        (WorkerContext.__init__, ["self", "max_requests"]),
        (wrap_app, ["app", "wsgi_max_body_size", "mode"]),
    ],
)
def test_function_has_the_expected_parameters(function: Any, expected: list[str]) -> None:
    """If this fails, read the new version of Hypercorn first."""
    assert list(inspect.signature(function).parameters) == expected


async def test_ending_server_sets_hypercorns_event() -> None:
    """The idle connections wait for this event."""
    assert "terminated" in TCPServer._idle_timeout.__code__.co_names
    terminated = WorkerContext(None).terminated
    await terminated.set()
    assert terminated.is_set()


def test_connection_reads_nothing_before_its_protocol_is_replaced() -> None:
    """The first call that reads is the one that is overridden, and each request is checked by what is overridden."""
    run = TCPServer.run.__code__.co_names
    assert run.index("ProtocolWrapper") < run.index("_read_data")
    assert "receive_some" not in run
    assert "receive_some" in TCPServer._read_data.__code__.co_names
    checks = H11Protocol._handle_events.__code__.co_names
    assert checks.index("_check_protocol") < checks.index("_create_stream")
