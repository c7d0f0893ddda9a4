"""The answers about stuck work as an extension of an engine, and how to ask an engine for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headway.access import Caller
from headway.client import Client
from headway.engine import Engine, Extension, Host
from headway.quotas import quotas_now
from headway.resource import ResourceId, pb, shared_message
from headway.storage import CurrentLease, is_shared
from headway.why._absent import Absences
from headway.why._attend import attend
from headway.why._host import ObserveHost
from headway.why._service import ObserveService


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
