"""Long lists: they do not block the event loop, and a million resources cost the server little memory."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
from grpclib.const import Status

from headway.client import Client
from headway.errors import HeadwayError
from headway.resource import Resource, ResourceType, pb, resource_key
from headway.rpc import InProcessChannel, open_channel
from headway.service import WATCH_LIST, ResourceService, WatchDecoder
from headway.storage import MemoryBackend, Put
from tests.helpers.declared import NOTE, Note, a_note, registry
from tests.helpers.service_errors import status_of

ROOT = Path(__file__).parents[2]
COUNT = 1_000_000
LIST = "/headway.resource.v1.ResourceService/List"
MOST_MORE = 64 << 20
IN_PROCESS = 3010


def most_resident(process: int) -> int:
    """Return the peak memory of a process in bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert found is not None
    return int(found[1]) << 10


@contextmanager
def serving(socket: str) -> Iterator[int]:
    """Run a server of the resources, and yield the id of its process."""
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
async def test_list_of_a_million_needs_little_memory_of_the_server(tmp_path: Path) -> None:
    """The unpaged List is refused before it is built. The client's list is complete and sent in pieces."""
    socket = str(tmp_path / "server")
    with serving(socket) as process:
        before = most_resident(process)
        async with open_channel(f"unix:{socket}", decoders={WATCH_LIST: WatchDecoder}, timeout=60.0) as channel:
            everything = pb.ListRequest(type=NOTE.name.message(), tenancy=pb.Tenancy(partition="*", namespace="*"))
            with pytest.raises(HeadwayError, match=r"page_size.*--prefix") as refused:
                await channel.unary(LIST, everything, pb.ListResponse)
            assert status_of(refused.value) is Status.RESOURCE_EXHAUSTED
            listed = await Client(channel, registry()).list(NOTE)
        assert (len(listed), len({each.name for each in listed})) == (COUNT, COUNT)
        more = most_resident(process) - before
        print(f"{before >> 20} MiB before, {more >> 20} MiB more")
        assert more < MOST_MORE


class Made(trio.abc.Instrument):
    """The number of views made in each step of any task."""

    def __init__(self) -> None:
        self.now = 0
        self.steps: list[int] = []

    def after_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002 - the protocol's
        self.steps.append(self.now)
        self.now = 0


class Counted(ResourceType[Note]):
    """A type that counts the views of its resources."""

    made: Made

    def view(self, message: pb.Resource, decoded: Note | None = None) -> Resource[Note]:
        self.made.now += 1
        return super().view(message, decoded)


async def test_list_in_the_process_yields_to_other_tasks() -> None:
    """At most 1,000 results are made between two checkpoints."""
    backend, made = MemoryBackend(max_changes=1), Made()
    notes = [a_note(f"n{number:05}") for number in range(IN_PROCESS)]
    for note in notes:
        assert note.id is not None
        note.id.tenancy = pb.Tenancy(partition="default", namespace="default")
        note.id.uid = "U"
    await backend.commit([Put(NOTE.kind, resource_key(each), each, "") for each in notes])
    client = Client(InProcessChannel(ResourceService(backend, registry())), registry())
    counted = Counted("tests", "v1", "Note", Note)
    counted.made = made
    trio.lowlevel.add_instrument(made)
    try:
        listed = await client.list(counted)
    finally:
        trio.lowlevel.remove_instrument(made)
    assert [each.name for each in listed] == [f"n{number:05}" for number in range(IN_PROCESS)]
    assert max(made.steps) == 1000
    assert sum(made.steps) + made.now == IN_PROCESS
