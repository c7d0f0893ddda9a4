"""Many questions at once: their callers take turns."""

from __future__ import annotations

import trio

from headway._gen.headway.observe import v1 as observe_pb
from headway.api import Call
from headway.resource import ResourceId, pb
from headway.why import ObserveHost, ObserveService, Why
from tests.helpers.declared import an_id
from tests.helpers.versions import V1, versions


class LoopTurns(trio.abc.Instrument):
    """The number of turns of the loop so far."""

    def __init__(self) -> None:
        self.count = 0

    def after_io_wait(self, timeout: float) -> None:  # noqa: ARG002  # as trio calls it
        self.count += 1


async def test_no_turn_of_the_loop_answers_two_questions() -> None:
    """A thousand questions of one caller, sent at once, would otherwise delay every other caller by all of them."""
    turns = LoopTurns()
    begun, answered = list[int](), list[int]()

    async def read(_: ResourceId) -> pb.Resource | None:
        return None

    host = ObserveHost(read)

    async def ask(id: ResourceId) -> Why:
        begun.append(turns.count)
        return await host.why(id)

    service = ObserveService(host, versions(), ask=ask)

    async def question() -> None:
        await service.why(Call(), observe_pb.WhyRequest(id=an_id("core", V1)))
        answered.append(turns.count)

    trio.lowlevel.add_instrument(turns)
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(question)
    trio.lowlevel.remove_instrument(turns)
    assert len(set(begun)) == len(set(answered)) == 20
