"""The other processes of one server: each answers the questions of the others, so that any can answer for all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import trio

from headway._gen.headway.observe import v1 as observe_pb
from headway.engine import Engine
from headway.events import ignore
from headway.rpc import Channel, Limits, Services, open_channel, open_server
from headway.why._attend import attend, pass_answer, relay
from headway.why._attending import Attending, asker_of
from headway.why._extension import observer_of
from headway.why._service import ATTEND, ObserveService, QuestionDecoder

_LIMITS = Limits(message_size=64 << 20)
"""The limits among the processes, which trust each other: an answer, or a page of metrics, may be long."""


@asynccontextmanager
async def beside_siblings(
    engine: Engine, process: str, own: str, others: Mapping[str, str], *services: Any
) -> AsyncIterator[None]:
    """Answer the questions of the other processes of this server while the block runs, and let them answer its own.

    Each process listens at a Unix socket that only the others can reach. They attend there as workers attend at a
    server. The workers that are connected to this process attend at the others too, through this process.

    Args:
        process: the name of this process.
        own: the path of its socket.
        others: the paths of the sockets of the others, by their names. They need not exist yet.
        services: further services for the socket.
    """
    host = observer_of(engine)
    between = Services(ObserveService(host, engine._registry, between=True), *services)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(open_server(between, [f"unix:{own}"], limits=_LIMITS, grace=0.0))
        channels: list[Channel] = []
        for path in others.values():
            opened = open_channel(f"unix:{path}", decoders={ATTEND: QuestionDecoder})
            channels.append(await stack.enter_async_context(opened))

        numbers = {name: number for number, name in enumerate(sorted((process, *others)), 1)}
        by_number = {numbers[name]: channel for name, channel in zip(others, channels, strict=True)}

        async def pass_on(answer: observe_pb.AnswerRequest) -> bool:
            # A caller may send any number, so this costs one call at most.
            asker = by_number.get(asker_of(answer.number))
            return asker is not None and await pass_answer(asker, answer)

        def relay_to_all(worker: Attending) -> None:
            for each in channels:
                nursery.start_soon(relay, each, worker, name=f"worker {worker.process} for another process")

        async with trio.open_nursery() as nursery:
            for name, channel in zip(others, channels, strict=True):
                # While another process is away, its supervisor reports that.
                nursery.start_soon(
                    attend, channel, process, host.supervisors, ignore, host, name=f"questions of {name}"
                )
            host.siblings, host.number, host.pass_on = tuple(others), numbers[process], pass_on
            with host.following(relay_to_all):
                try:
                    yield
                finally:
                    host.pass_on = None
                    nursery.cancel_scope.cancel()
