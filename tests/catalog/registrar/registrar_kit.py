"""Local services that can be ill or gone, and files of a registrar that checks them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

HOST = "127.0.0.1"


class LocalService:
    """An HTTP server that answers with a status of its own."""

    def __init__(self) -> None:
        self.port = 0
        self.status = 200
        self.asked = 0
        # Whether it answers at all.
        self.answers = True
        self._scope = trio.CancelScope()

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until `stop`: on a free port, and later again on the same."""
        with trio.CancelScope() as self._scope:
            async with trio.open_nursery() as nursery:
                listeners = await nursery.start(partial(trio.serve_tcp, self._answer, self.port, host=HOST))
                self.port = listeners[0].socket.getsockname()[1]
                task_status.started()

    def stop(self) -> None:
        """Close the port."""
        self._scope.cancel()

    async def _answer(self, stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            self.asked += 1
            if not self.answers:
                await trio.sleep_forever()
            await stream.send_all(b"HTTP/1.1 %d Some\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok" % self.status)


@asynccontextmanager
async def local_service() -> AsyncIterator[tuple[LocalService, trio.Nursery]]:
    """Serve a local service until the block ends. Start it again in the nursery."""
    async with trio.open_nursery() as nursery:
        service = LocalService()
        await nursery.start(service.serve)
        yield service, nursery
        nursery.cancel_scope.cancel()


def write_file(path: Path, port: int, *, after: str = "0s", name: str = "web-1", timeout: str = "20s") -> Path:
    """Write a file with one workload and an HTTP check of it."""
    file = path / "registrar.yaml"
    file.write_text(f"""
type: catalog.v2beta1.Workload
name: {name}
metadata: {{rack: r1}}
data:
  addresses: [{{host: {HOST}}}]
  ports: {{http: {{port: {port}, protocol: PROTOCOL_HTTP}}}}
---
type: catalog.v2beta1.HealthChecks
name: checks
data:
  workloads: {{prefixes: [web-]}}
  health_checks:
  - name: alive
    http: {{url: "http://{HOST}:{port}/health"}}
    interval: 0.02s
    timeout: {timeout}
    deregister_critical_after: {after}
""")
    return file
