"""What a forked child loses of its parent's descriptors."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import os, resource, socket
from contextlib import suppress
from headway.base import in_forked_child, silence_in_forked_child

listening = socket.create_server(("127.0.0.1", 0))
silence_in_forked_child(listening)
in_forked_child(held := type("Held", (), {})(), lambda _: os.write(1, b"released\\n"))
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
with suppress(OSError):
    while True:
        os.open(os.devnull, os.O_RDONLY)
if child := os.fork():
    os.waitpid(child, 0)
else:
    os.write(1, os.readlink(f"/proc/self/fd/{listening.fileno()}").encode())
    os._exit(0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
def test_child_of_a_process_without_a_free_descriptor_keeps_nothing() -> None:
    """One that cannot be replaced keeps no lock from being released after it."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=30)
    assert (done.stdout, done.stderr) == ("released\n/dev/null", "")
