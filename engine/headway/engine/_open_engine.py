"""`open_engine`, which assembles all other parts of Headway."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial

from typing_extensions import Unpack

from headway.base import async_block, check_options, check_trio
from headway.cache import Isolation
from headway.client import Client
from headway.controller import App, sealed
from headway.engine._arguments import check_backend, check_flag, check_store, combine_apps, program_of, report_of
from headway.engine._around import tracing_by
from headway.engine._built_in import built_in
from headway.engine._collector import GcFreeze
from headway.engine._engine import Engine
from headway.engine._extension import Extension, Host, check_extensions, start_tasks
from headway.engine._given import EngineOptions
from headway.engine._late_controllers import LateControllers
from headway.engine._options import Network, Timing, given_or_default
from headway.engine._placing import SERVER, Placing, worker_name
from headway.engine._running import journal_of, opened_journal, recorded_events, start_controllers, watched_nursery
from headway.engine._services import EngineServices
from headway.engine._serving import Offer, serving
from headway.engine._store_health import StoreHealth
from headway.informers import Informers
from headway.rpc import Channel
from headway.run import Supervisor
from headway.storage import Backend, is_shared, last_leases, open_store, refuse_unfinished


@check_options(EngineOptions.__annotations__)
@async_block
async def open_engine(
    store: str | AbstractAsyncContextManager[Backend], *apps: App, **options: Unpack[EngineOptions]
) -> AsyncIterator[Engine]:
    """``async with headway.open_engine("sqlite:staff.db", app) as engine: ...``

    Open the store, serve it within this process, and run the controllers of the apps and of Headway itself until the
    block ends. No task outlives the block.

    Args:
        store: ``memory:``, ``sqlite:PATH``, ``etcd://HOST:PORT,HOST:PORT/PREFIX``,
            ``postgresql://USER@HOST/DATABASE``, or a backend.
        apps: the apps whose types and controllers the engine runs.
        report: a function called with every event (`headway.events`) as it happens. It must not block. If it raises,
            the event is lost, and standard error says so once. Default: log what an operator should know with
            structlog.
        network: the addresses at which the engine serves clients, and their rights. Default: it serves this process.
        timing: the durations of leases, of the shutdown and of what is reported as too slow.
        process: the name of this process on a store that several engines have open at once, as for
            `open_workers`. On any other store the engine's name is ``server``.
        journal: a file for the record of what the controllers did, or a `headway.journal.JournalOptions`. By default,
            this record is only in memory. `Engine.why` answers from it.
        tracing: the OpenTelemetry provider of the tracer. Default: the one that the program has configured, if any.
            It needs ``pip install 'headway[otel]'``.
        gc_freeze: keep full collections of Python's garbage collector from traversing the resources again and again.
            There are none until every controller has reconciled all that it found at the start, for ten minutes at
            most, or while the first copies from elsewhere arrive. If one is due then, the objects that exist are
            excluded from later ones (`gc.freeze`), also those of the program. Later ones are rarer: with a million
            resources, one blocks the event loop for half a second. All this affects the whole process, and the end of
            the block undoes it. It freezes nothing if the program has disabled collection or frozen objects.
        extensions: packages that add types, services, wrappers around services, controllers and tasks.

    Raises:
        DeclarationError: if the apps do not fit together, if a library for `Network.http` is not installed, or if
            ``process`` is not a valid name.
        StoreUnusable: if the store cannot be opened.
        SchemaMismatch: if this program would misread the stored data.
        OSError: if an address cannot be bound.
    """
    async with run_engine(store, apps, options) as engine:
        yield engine


@asynccontextmanager
async def run_engine(
    store: str | AbstractAsyncContextManager[Backend],
    apps: Sequence[App],
    options: EngineOptions,
    *,
    wrap_channel: Callable[[Channel], Channel] | None = None,
    isolation: Isolation | None = None,
    own: Callable[[], Sequence[Callable[[Host], Extension]]] = built_in,
) -> AsyncIterator[Engine]:
    """Run an engine until the block ends. See `open_engine`, and `headway.testing.open_engine` for the last three."""
    check_trio("headway.open_engine")
    check_store(store)
    extensions = options.get("extensions", ())
    check_extensions(extensions)
    gc_freeze = options.get("gc_freeze", True)
    check_flag("gc_freeze", gc_freeze)
    with GcFreeze(gc_freeze) as freeze:
        late_apps = [app for each in extensions for app in each.late_apps]
        apps = [*apps, *(app for each in extensions for app in each.apps), *late_apps]
        own_parts = own()  # It imports the built-in types that the registry has.
        registry, definitions, topics = program_of(apps)
        late = {name: definitions.pop(name) for name in combine_apps(late_apps)[1]}
        network = given_or_default(
            "network", options.get("network"), Network, "Network(['127.0.0.1:9000'], insecure=True)"
        )
        timing = given_or_default("timing", options.get("timing"), Timing, "Timing(lease_ttl=15)")
        name = worker_name(options.get("process"))
        around = tracing_by(options.get("tracing"))
        report = report_of(options.get("report"))
        journaled = opened_journal(journal_of(options.get("journal")))
        opened = open_store(store) if isinstance(store, str) else store
        async with sealed(apps), journaled as (recorded, start_writing), opened as backend:
            check_backend(backend)
            report = freeze.wrap(report)
            await refuse_unfinished(backend)
            host = Host(
                around.store(backend),
                registry,
                report,
                network=network,
                process=name if is_shared(backend) else SERVER,
                journal=recorded,
                topics=topics,
                loading=freeze.load,
            )
            own_extensions = [extension(host) for extension in own_parts]
            with around.apart():
                for opening in (opening for each in (*own_extensions, *extensions) for opening in each.openings):
                    await opening(host)
            services = EngineServices(host, own_extensions, extensions)
            # Other engines or programs may also reach a store that was passed in.
            lasting = isinstance(store, str) and not network.listen and last_leases(backend, lasting=True)
            async with (
                services.open_channels(lasting_leases=lasting) as bare,
                recorded_events(bare[0], registry, report) as events,
                watched_nursery(timing, report) as (nursery, ending),
            ):
                start_writing(nursery)
                nursery.start_soon(events.run, name="events")
                channel, privileged = map(around.channel, bare)
                client, own_client = Client(channel, registry), Client(privileged, registry)

                # The controllers of the program, and Headway's own.
                used = channel if wrap_channel is None else wrap_channel(channel)
                watching = partial(Informers, lag_limit=timing.lag_limit, isolation=isolation)
                informers = watching(used, nursery, report)
                own_informers = watching(privileged, nursery, report)
                host.informers = own_informers
                placing = Placing(
                    host=host,
                    informers=informers,
                    events=events,
                    channel=used,
                    timing=timing,
                    around=around,
                    process=host.process,
                )
                # If this engine alone has the store, Headway's own controllers run only here and need no leases.
                own_name = host.process if is_shared(backend) else None
                own_placing = replace(placing, informers=own_informers, channel=privileged, process=own_name)

                def begin(late: Sequence[Supervisor]) -> None:
                    host.supervisors.extend(late)
                    with around.apart():
                        start_controllers(nursery, late)

                own_definitions = combine_apps([app for each in own_extensions for app in each.apps])[1]
                own_late = combine_apps([app for each in own_extensions for app in each.late_apps])[1]
                host.supervisors += placing.supervisors(definitions) + own_placing.supervisors(own_definitions)
                later = placing.supervisors(late) + own_placing.supervisors(own_late)
                late_controllers = LateControllers(later, registry, own_informers, own_client, begin)
                late_controllers.start(nursery)
                start_tasks(nursery, host, *own_extensions, *extensions)
                health = StoreHealth(backend, [informers, own_informers], report)
                nursery.start_soon(health.watch, name="the health of the store")
                with around.apart():
                    start_controllers(nursery, host.supervisors, freeze)

                offer = Offer(host=host, apps=apps, services=services, health=health, around=around)
                async with serving(offer, nursery) as addresses:
                    try:
                        yield Engine(
                            client,
                            partial(_revision, backend),
                            host.supervisors,
                            addresses.grpc,
                            [informers, own_informers],
                            health,
                            registry=registry,
                            report=report,
                            observe=host.observer,
                            begin_late=late_controllers.begin_if_wanted,
                            http=addresses.http,
                        )
                    finally:
                        ending.begin()
                        # Otherwise the server would give callers that wait for a lease its whole grace period.
                        host.ending.close()


async def _revision(backend: Backend) -> int:
    return backend.position.revision
