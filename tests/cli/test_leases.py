"""`headway leases`: who holds which lease."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import headway as headway_package
from headway.client import LeaseClient
from headway.rpc import InProcessChannel, Services
from headway.service import LeaseService, ResourceService
from headway.storage import MemoryBackend
from tests.cli.broken import mapper_that_raises
from tests.cli.terminal import Terminal


@asynccontextmanager
async def serving(*names: str) -> AsyncIterator[str]:
    """Serve a store in which a process called web-7 holds these leases."""
    app, backend = mapper_that_raises(), MemoryBackend()
    services = Services(ResourceService(backend, app.registry), LeaseService(backend))
    for name in names:
        assert (await LeaseClient(InProcessChannel(services)).acquire(name, "web-7", 600)).acquired
    opened = headway_package.open_engine(
        backend,
        app,
        network=headway_package.Network(["127.0.0.1:0"], insecure=True),
        report=headway_package.events.ignore,
    )
    async with opened as engine:
        yield engine.addresses[0]


async def test_leases_are_shown_with_their_holders_and_times(terminal: Terminal) -> None:
    """All, or those of one app; and for programs."""
    async with serving("staff/teams", "other/jobs") as server:
        shown = await terminal("leases", "staff/", server=server)
        head, line = shown.stdout.splitlines()
        assert head.split() == ["LEASE", "HOLDER", "SINCE", "RENEWED", "ENDS", "TTL", "TERM"]
        assert line.split()[:2] == ["staff/teams", "web-7"]
        assert "600 s" in line
        assert "other/jobs" in (await terminal("leases", server=server)).stdout
        [found] = json.loads((await terminal("leases", "staff/", "-o", "json", server=server)).stdout)
        assert (found["name"], found["holder"], found["ttl"]) == ("staff/teams", "web-7", 600)
        assert 0 < found["expires_in"] <= 600
        nothing = await terminal("leases", "nosuch/", server=server)
        assert (nothing.returncode, nothing.stdout) == (0, "")
        assert nothing.stderr == "no lease is held whose name begins with 'nosuch/'\n"
