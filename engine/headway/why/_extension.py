"""The answers about stuck work as an extension of an engine, also where several processes are one server: each of them
answers the questions of the others, so that any can answer for all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import trio

from headway._gen.headway.observe import v1 as observe_pb
from headway.access import Caller
from headway.client import Client
from headway.engine import Engine, Extension, Host
from headway.events import ignore
from headway.pauses import PausesAlone
from headway.quotas import quotas_now
from headway.resource import ResourceId, pb, shared_message
from headway.rpc import Channel, Limits, Services, open_channel, open_server
from headway.service import TypesService
from headway.storage import CurrentLease, is_shared
from headway.why._absent import Absences
from headway.why._attend import attend, pass_answer, relay
from headway.why._attending import Attending, asker_of
from headway.why._host import ObserveHost
from headway.why._service import ATTEND, ObserveService, QuestionDecoder

_LIMITS = Limits(message_size=64 << 20)
"""The limits among the processes, which trust each other: an answer, or a page of metrics, may be long."""


def why_extension(host: Host) -> Extension:
    """Return the extension of an engine that answers why a resource is not done, and what is stuck."""
    backend, registry, network = host.backend, host.registry, host.network

    async def read(id: ResourceId) -> pb.Resource | None:
        return (await backend.read(id.type.unversioned, id.key))[0]

    async def leases(name_prefix: str) -> Sequence[CurrentLease]:
        return (await backend.list_leases(name_prefix))[0]

    def refusals() -> Mapping[str, int]:
        return {each.limit.name: each.refused for each in quotas_now(backend)}

    observe = ObserveHost(read, host.journal, leases)
    observe.supervisors = host.supervisors
    observe.names_callers = network.access is not None or not network.serves
    observe.refusals = refusals
    host.observer = observe
    host.ending.callback(observe.end)

    def service(_: Host, caller: Caller | None) -> ObserveService:
        return ObserveService(observe, registry, caller)

    async def find_absent(_: Host) -> None:
        client = Client(host.channel, registry)
        shared = is_shared(backend)
        absences = Absences(
            observe, client, registry, backend.kinds, shared=shared, report=host.report, ready=host.listening
        )
        await absences.follow()

    return Extension(services=[service], tasks=[find_absent])


def answering_extension(host: Host, *, attends: bool) -> Extension:
    """Return the extension of workers that answers the same about their process, and the questions of their server.

    Without ``attends``, it leaves the questions of the server alone.
    """

    async def read(id: ResourceId) -> pb.Resource | None:
        found = await host.client.get(host.registry.resolve(id.type), id)
        return None if found is None else shared_message(found)

    async def answer(_: Host) -> None:
        if host.supervisors:
            await attend(host.channel, host.process, host.supervisors, host.report)

    observe = ObserveHost(read, host.journal)
    observe.supervisors = host.supervisors
    host.observer = observe
    return Extension(tasks=[answer] if attends else ())


def observer_of(asked: Engine | Host) -> ObserveHost:
    """Return the host of the questions to an engine."""
    observer = asked._asked() if isinstance(asked, Engine) else asked.observer
    assert isinstance(observer, ObserveHost)
    return observer


@asynccontextmanager
async def answering(engine: Engine, addresses: Sequence[str]) -> AsyncIterator[Sequence[str]]:
    """Answer `headway why`, `retry`, `pause` and `resume` about this process at some addresses while the block runs.

    It is for a process that has no server of Headway to ask. Whoever can connect may ask about every resource, repeat
    reconciles, and pause controllers. Yields the addresses with their actual ports. Raises OSError if one cannot be
    bound.
    """
    observe = ObserveService(observer_of(engine), engine._registry)
    services = Services(observe, TypesService(engine._registry), PausesAlone(engine.client))
    async with open_server(services, addresses, grace=0.0) as server:
        yield server.addresses


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
