"""The other processes of one server: each answers the questions of the others, so that any can answer for all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import trio

from headway._gen.headway.observe import v1 as observe_pb
from headway.engine._engine import Engine
from headway.events import ignore
from headway.rpc import Channel, Limits, Services

_LIMITS = Limits(message_size=64 << 20)
"""The limits among the processes, which trust each other: an answer, or a page of metrics, may be long."""


@asynccontextmanager
async def beside_siblings(
    engine: Engine, process: str, own: str, others: Mapping[str, str], *services: Any
) -> AsyncIterator[None]:
    """Answer the questions of the other processes of this server while the block runs, and let them answer its own.

    Each process listens at a Unix socket that the others alone can reach. There it takes the answers of each of them,
    as a server takes those of its workers. They are also told of the workers that are connected here.

    Args:
        process: the name of this process.
        own: the path of its socket.
        others: the paths of the sockets of the others, by their names. They need not exist yet.
        services: further services for the socket.
    """
    from headway.rpc import open_channel, open_server
    from headway.why import ATTEND, Attending, ObserveService, QuestionDecoder, attend, pass_answer, relay

    host, registry, supervisors = engine._asked(), engine._registry, engine._supervisors
    between = Services(ObserveService(host, registry, between=True), *services)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(open_server(between, [f"unix:{own}"], limits=_LIMITS, grace=0.0))
        channels: list[Channel] = []
        for path in others.values():
            opened = open_channel(f"unix:{path}", decoders={ATTEND: QuestionDecoder})
            channels.append(await stack.enter_async_context(opened))

        async def pass_on(answer: observe_pb.AnswerRequest) -> bool:
            found = False

            async def offer(channel: Channel) -> None:
                nonlocal found
                found |= await pass_answer(channel, answer)

            async with trio.open_nursery() as offering:
                for each in channels:
                    offering.start_soon(offer, each)
            return found

        def relay_to_all(worker: Attending) -> None:
            for each in channels:
                nursery.start_soon(relay, each, worker, name=f"worker {worker.process} for another process")

        async with trio.open_nursery() as nursery:
            for name, channel in zip(others, channels, strict=True):
                # While another process is away, its supervisor reports that.
                nursery.start_soon(attend, channel, process, supervisors, ignore, host, name=f"questions of {name}")
            host.pass_on = pass_on
            with host.following(relay_to_all):
                try:
                    yield
                finally:
                    host.pass_on = None
                    nursery.cancel_scope.cancel()
