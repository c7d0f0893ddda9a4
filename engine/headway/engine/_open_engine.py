"""`open_engine`, which assembles all other parts of Headway."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING

from headway.access import Audit, Authorizer
from headway.base import async_block, check_keywords, check_trio
from headway.builtin import builtin_app
from headway.cache import Informers, Isolation
from headway.client import Client
from headway.controller import App, Definition, sealed
from headway.engine._arguments import (
    RunOptions,
    check_backend,
    check_flag,
    check_http,
    check_limits,
    check_listen,
    check_store,
    check_tls,
    check_wrap_channel,
    combine_apps,
    combine_topics,
    refuse_own_name,
    refuse_shared_names,
)
from headway.engine._collector import GcFreeze
from headway.engine._engine import Engine
from headway.engine._journaling import opened_journal
from headway.engine._late_controllers import LateControllers
from headway.engine._placing import SERVER, Placing, supervisor, worker_name
from headway.engine._recording import recorded_events
from headway.engine._running import start_controllers, watched_nursery
from headway.engine._services import EngineServices
from headway.engine._store_health import StoreHealth
from headway.engine._tracing import tracing_by
from headway.events import Report
from headway.journal import JOURNAL_BYTES
from headway.resource import PEERING
from headway.rpc import Budget, Channel, Limits
from headway.run import LEASE_TTL, STALL_LIMIT, Pauses, Supervisor
from headway.service import unregistered
from headway.storage import Backend, is_shared, last_leases, open_store, record_schemas, refuse_unfinished

if TYPE_CHECKING:
    from ssl import SSLContext

    from opentelemetry.trace import TracerProvider

    from headway.peering import PeerLinks

_PACE = 0.02
"""The interval, in seconds, at which the engine's own controllers read their streams.

They watch types that rarely change. Without this, every write of any resource would wake each of them just to learn
that nothing relevant happened.
"""


@check_keywords
@async_block
async def open_engine(
    store: str | AbstractAsyncContextManager[Backend],
    *apps: App,
    report: Report | None = None,
    lag_limit: float = 30.0,
    wrap_channel: Callable[[Channel], Channel] | None = None,
    peer_links: PeerLinks | None = None,
    listen: Sequence[str] = (),
    http: str | None = None,
    http_writes: bool = False,
    tls: SSLContext | None = None,
    access: Authorizer | None = None,
    insecure: bool = False,
    limits: Limits | None = None,
    share_ports: bool = False,
    process: str | None = None,
    lease_ttl: float = LEASE_TTL,
    stall_limit: float = STALL_LIMIT,
    shutdown_bound: float = 10.0,
    hard_exit: float | None = None,
    gc_freeze: bool = False,
    block_limit: float | None = 1.0,
    journal: str | PathLike[str] | None = None,
    journal_bytes: int = JOURNAL_BYTES,
    tracing: TracerProvider | None = None,
    check_isolation: bool = False,
) -> AsyncIterator[Engine]:
    """``async with headway.open_engine("sqlite:staff.db", app) as engine: ...``

    Open the store, serve it within this process, and run the controllers of the apps and of Headway itself until the
    block ends. No task outlives the block.

    Args:
        store: ``memory:``, ``sqlite:PATH``, ``etcd://HOST:PORT,HOST:PORT/PREFIX``, or a backend.
        apps: the apps whose types and controllers the engine runs.
        report: a function called with every event (`headway.events`) as it happens. It must not block. If it raises,
            the event is lost, and standard error says so once. Default: log what an operator should know with
            structlog.
        lag_limit: the time, in seconds, that a type's stream may lag behind the known revision before it is replaced.
            `math.inf` for never.
        wrap_channel: a function for tests that puts your own channel between the controllers and the service, such as
            `headway.testing.ScriptedChannel`. The engine's own client and controllers do not use it. It marks the
            errors that it raises itself with `headway.api.of_call`.
        peer_links: for tests: what connects this engine with its peers (`headway.peering`) in place of gRPC.
        listen: the addresses at which to serve gRPC, also under Consul's service name: "127.0.0.1:9000", "[::1]:0",
            "unix:/run/headway.sock".
        http: the address at which to serve resources as JSON over HTTP, and the live page: "127.0.0.1:8080". Without
            ``access``, it must be a loopback address. It needs ``pip install 'headway[http]'``.
        http_writes: let the live page also apply, delete, pause, resume and retry, within the rights of its visitor.
            The JSON API always writes.
        tls: the TLS context for TCP addresses, from `headway.rpc.server_tls`. A certificate that is renewed on disk is
            used without a restart.
        access: decides which network client may do what. Code within the process may do everything.
        insecure: let every client that can connect do everything. Use it instead of ``access``; never the default.
        limits: the limits for network clients: the number of connections in all and from one host, the size of a
            message, and more.
        share_ports: let engines in other processes listen on the same TCP ports (SO_REUSEPORT), as `headway serve
            --processes` does. Linux spreads new connections over them. They need one store in etcd.
        process: the name of this process on a store that several engines have open at once (etcd), as for
            `open_workers`. On any other store the engine's name is ``server``.
        lease_ttl: the time, in seconds from 1 to 3,600, after which another process (`open_workers`, or an engine on
            the same store) takes over a controller that this one led when it died.
        stall_limit: the time, in seconds, within which a type that is being primed must make some progress, however
            small. Otherwise the controller's run ends with PrimingStalled, which names the type, and is restarted.
        shutdown_bound: the time, in seconds, within which every task should end after the block has ended. A task that
            is still running then is reported with its stack, again each time this period passes. The block still waits
            for it.
        hard_exit: the time, in seconds, after which the process exits with status 70 if tasks are still running, since
            nothing else can end a busy loop. Default: never.
        gc_freeze: turn Python's garbage collector off until every controller has reconciled all that it found at the
            start, for ten minutes at most, and exclude the objects that exist then from later collections
            (`gc.freeze`). While the first copy of a peering arrives, only young objects are collected, and the copy is
            excluded as well. Full collections become rarer: with a million resources, one blocks the event loop for
            half a second. All this affects the whole process, and the end of the block undoes it.
        block_limit: the time, in seconds, for which a task may block the event loop, in a blocking call or a long
            computation, before it is reported with its stack (`LoopBlocked`). None disables this check.
        journal: a file to which the journal is also written, one JSON object a line. It is rotated.
        journal_bytes: the memory, in bytes, of the record of what the controllers did, from which `Engine.why` answers.
            0 keeps none.
        tracing: the OpenTelemetry provider of the tracer. Default: the one that the program has configured, if any.
            It needs ``pip install 'headway[otel]'``.
        check_isolation: for tests: compare the arguments of index functions, projections, predicates and mappers before
            and after every call. A function that mutates its argument fails with IsolationBroken, which names the
            function, and the block raises it as well when it ends.

    Raises:
        DeclarationError: if the apps do not fit together, if ``listen`` or ``http`` is given without ``access`` or
            ``insecure``, if a library for ``http`` is not installed, or if ``process`` is not a valid name.
        StoreUnusable: if the store cannot be opened.
        SchemaMismatch: if this program would misread the stored data.
        OSError: if an address cannot be bound.
    """
    check_trio("headway.open_engine")
    check_store(store)
    registry, definitions = combine_apps(apps)
    topics = combine_topics(apps)
    refuse_own_name(apps)
    refuse_shared_names(apps)
    options = RunOptions(
        *(report, lag_limit, stall_limit, lease_ttl, shutdown_bound, hard_exit, gc_freeze, block_limit),
        *(journal, journal_bytes),
    )
    options.check()
    check_listen(listen, access, insecure=insecure)
    check_tls(tls)
    check_http(http, access, tls, insecure=insecure)
    check_flag("http_writes", http_writes)
    check_flag("share_ports", share_ports)
    check_limits(limits)
    check_flag("check_isolation", check_isolation)
    check_wrap_channel(wrap_channel)
    if process is not None:
        worker_name(process)
    traced = tracing_by(tracing)
    report = options.safe_report()
    opened = open_store(store) if isinstance(store, str) else store
    with GcFreeze(gc_freeze) as freeze:
        async with sealed(apps), opened_journal(options) as (recorded, start_writing), opened as backend:
            check_backend(backend)
            report = freeze.wrap(report)
            await refuse_unfinished(backend)
            replaced = await record_schemas(backend, registry)
            services = EngineServices(traced.store(backend), registry, report, topics, recorded, replaced)
            services.peerings.loads = freeze.load
            if peer_links is not None:
                services.link_peers(peer_links)
            # Other engines or programs may also reach a store that was passed in.
            lasting = isinstance(store, str) and not listen and last_leases(backend, lasting=True)
            isolation = Isolation() if check_isolation else None
            async with (
                services.open_channels(report, lasting_leases=lasting) as bare,
                recorded_events(bare[0], registry, report) as events,
                watched_nursery(options, report) as (nursery, ending),
            ):
                start_writing(nursery)
                nursery.start_soon(events.run, name="events")

                def informers_of(used: Channel, pace: float = 0.0) -> Informers:
                    return Informers(used, nursery, report, lag_limit=lag_limit, pace=pace, isolation=isolation)

                def place(
                    used: Channel, app: dict[str, Definition], name: str | None, informers: Informers
                ) -> list[Supervisor]:
                    about = (pauses, events, used, registry, report, stall_limit, name, lease_ttl, recorded, traced)
                    placing = Placing(informers, *about)
                    return [supervisor(*each, placing) for each in app.items()]

                channel, privileged = map(traced.channel, bare)
                theirs = channel if wrap_channel is None else wrap_channel(channel)
                all_informers = [informers_of(theirs), informers_of(privileged, _PACE)]
                pauses = Pauses(all_informers[-1])
                nursery.start_soon(pauses.follow, name="paused controllers")
                builtin = builtin_app(registry, partial(unregistered, backend, registry), services.peerings)
                own = combine_apps([builtin])[1]
                if is_shared(backend):
                    name = worker_name(process)
                    names: tuple[str, str | None] = (name, name)
                else:
                    # This engine alone has the store: Headway's own controllers run only here and need no leases.
                    names = (SERVER, None)
                supervisors = place(theirs, definitions, names[0], all_informers[0])
                builtins = place(privileged, own, names[1], all_informers[1])
                of_peerings = [each for each, of in zip(builtins, own.values(), strict=True) if of.manages is PEERING]
                supervisors += [each for each in builtins if each not in of_peerings]

                services.observe.supervisors = supervisors
                services.observe.names_callers = access is not None or not (listen or http)

                def begin_peerings() -> None:
                    supervisors.extend(of_peerings)
                    with traced.apart():
                        start_controllers(nursery, of_peerings)

                late = LateControllers(all_informers[-1], Client(privileged, registry), PEERING, begin_peerings)
                nursery.start_soon(late.watch, name="the first peering")
                absences = services.absences(Client(privileged, registry), report)
                nursery.start_soon(absences.follow, name="controllers that run nowhere")
                health = StoreHealth(backend, all_informers, report)
                nursery.start_soon(health.watch, name="the health of the store")
                services.observe.refusals = health.refusals
                with traced.apart():
                    start_controllers(nursery, supervisors, freeze)
                async with AsyncExitStack() as network:
                    addresses: Sequence[str] = ()
                    http_address: str | None = None
                    replies: Budget | None = None
                    if listen or http is not None:
                        audit = Audit(report)
                        if access is not None:
                            from headway.access import keep_keys

                            nursery.start_soon(audit.report_rest, name="audit")
                            await nursery.start(keep_keys, access, report, name="keys of issuers")
                        offered = traced.services(services.for_clients(access, audit))
                        # Network code is imported only for an engine that listens.
                        if http is not None:
                            from headway.engine._http import beside_http, serving_http
                            from headway.page import PageHost

                            page = PageHost(
                                *(apps, services.observe, registry, backend),
                                writes=http_writes,
                                report=report,
                                refused=tuple if access is None else access.limiter.refused,
                            )
                            nursery.start_soon(page.follow, name="the numbers of the page")
                            pages = services.for_page(page, access, audit)
                            served = serving_http(
                                http, offered, pages, registry, access, tls, report, limits, writes=http_writes
                            )
                            http_address, replies = await network.enter_async_context(served)
                            limits = beside_http(limits)
                    if listen:
                        from headway.engine._network import listening

                        about_network = (access, health, listen, tls, report, limits)
                        server = listening(
                            offered, registry, topics, *about_network, share_ports=share_ports, replies=replies
                        )
                        nursery.start_soon(services.peerings.report.report_rest, name="refused peers")
                        services.peerings.encrypted = tls is not None
                        services.peerings.addresses = addresses = await network.enter_async_context(server)
                    services.peerings.listening.set()
                    if access is not None:
                        network.callback(access.subscribe(report))
                    # Otherwise the server would give callers that wait for a lease its whole grace period.
                    network.callback(services.end_waits)
                    network.callback(ending.begin)
                    where = partial(_revision, backend)
                    client = Client(channel, registry)
                    yield Engine(
                        client,
                        where,
                        supervisors,
                        addresses,
                        all_informers,
                        health,
                        registry=registry,
                        report=report,
                        observe=services.observe,
                        begin_late=late.begin_if_wanted,
                        http=http_address,
                    )
            if isolation is not None and isolation.broken:
                raise isolation.broken[0]


async def _revision(backend: Backend) -> int:
    return backend.position.revision
