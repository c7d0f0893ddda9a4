"""The names of Hypercorn that the server of the pages depends on exist and are unchanged.

Only `hypercorn.trio.serve` and `Config` are documented.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.utils import wrap_app


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (TCPServer.__init__, ["self", "app", "config", "context", "state", "stream"]),
        (TCPServer.__await__, ["self"]),
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
