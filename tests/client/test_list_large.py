"""A list of a million resources over a network, and what it costs the server."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from grpclib import GRPCError
from grpclib.const import Status

from headway.client import Client
from headway.resource import pb
from headway.rpc import open_channel
from headway.service import WATCH_LIST, WatchDecoder
from tests.helpers.declared import NOTE, registry

ROOT = Path(__file__).parents[2]
COUNT = 1_000_000
LIST = "/headway.resource.v1.ResourceService/List"
MOST_MORE = 64 << 20


def most_resident(process: int) -> int:
    """Return the most bytes of memory that a process has had."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert found is not None
    return int(found[1]) << 10


@contextmanager
def serving(socket: str) -> Iterator[int]:
    """A server with the resources; the id of its process."""
    command = [sys.executable, "-m", "tests.client.large_store", str(COUNT), socket]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process.pid
        finally:
            process.kill()


@pytest.mark.deep
@pytest.mark.timeout(900)
async def test_a_list_of_a_million_costs_its_server_little(tmp_path: Path) -> None:
    """The unpaged List is refused before it is built; the client's list is whole, and sent in pieces."""
    socket = str(tmp_path / "server")
    with serving(socket) as process:
        before = most_resident(process)
        async with open_channel(f"unix:{socket}", decoders={WATCH_LIST: WatchDecoder}, timeout=60.0) as channel:
            everything = pb.ListRequest(type=NOTE.name.message(), tenancy=pb.Tenancy(partition="*", namespace="*"))
            with pytest.raises(GRPCError, match=r"page_size.*--prefix") as refused:
                await channel.unary(LIST, everything, pb.ListResponse)
            assert refused.value.status is Status.RESOURCE_EXHAUSTED
            listed = await Client(channel, registry()).list(NOTE)
        assert (len(listed), len({each.name for each in listed})) == (COUNT, COUNT)
        more = most_resident(process) - before
        print(f"{before >> 20} MiB before, {more >> 20} MiB more")
        assert more < MOST_MORE
