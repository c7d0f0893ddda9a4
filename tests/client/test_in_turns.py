"""A long list of results is made in parts, between which others run."""

from __future__ import annotations

import trio

from headway.client import Client
from headway.client._in_turns import TURN
from headway.resource import Resource, ResourceType, pb, resource_key
from headway.rpc import InProcessChannel
from headway.service import ResourceService
from headway.storage import MemoryBackend, Put
from tests.helpers.declared import NOTE, Note, a_note, registry

COUNT = 3 * TURN + 10


class Made(trio.abc.Instrument):
    """How many views were made in each step of any task."""

    def __init__(self) -> None:
        self.now = 0
        self.steps: list[int] = []

    def after_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002 - the protocol's
        self.steps.append(self.now)
        self.now = 0


class Counted(ResourceType[Note]):
    """Counts the views of its resources."""

    made: Made

    def view(self, message: pb.Resource) -> Resource[Note]:
        self.made.now += 1
        return super().view(message)


async def test_a_list_in_the_process_lets_others_run_while_it_is_made() -> None:
    backend, made = MemoryBackend(max_changes=1), Made()
    notes = [a_note(f"n{number:05}") for number in range(COUNT)]
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
    assert [each.name for each in listed] == [f"n{number:05}" for number in range(COUNT)]
    assert max(made.steps) == TURN
    assert sum(made.steps) + made.now == COUNT
