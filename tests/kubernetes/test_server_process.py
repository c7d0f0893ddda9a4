"""Processes of servers that tests start, without a server."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.helpers.server_process import ServerProcess


class Sleeping(ServerProcess):
    """A process that does nothing."""

    def __init__(self, folder: Path) -> None:
        self.name, self.log = "sleep", folder / "log"
        self._set_command(["sleep", "600"])

    def healthy(self, timeout: float = 1.0) -> bool:  # noqa: ARG002  # see the base class
        return self.running


def test_process_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    """A restored etcd once ended in the middle of a later test, when Trio ended the thread that had restored it."""
    server = Sleeping(tmp_path)
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    try:
        server.pause()
        server.resume()
        assert server.running
    finally:
        server.kill()
