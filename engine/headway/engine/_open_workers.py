"""`open_workers`: run controllers in a process that does not open the store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext

from typing_extensions import Unpack

from headway.base import async_block, check_options, check_trio
from headway.client import Client
from headway.controller import App, sealed
from headway.engine._arguments import check_endpoints, check_flag, program_of, report_of
from headway.engine._around import tracing_by
from headway.engine._built_in import comparison_of, of_workers
from headway.engine._collector import GcFreeze
from headway.engine._connect import Connection, find_engine
from headway.engine._engine import Engine
from headway.engine._extension import Host, check_extensions, start_tasks
from headway.engine._given import WorkerOptions
from headway.engine._options import Timing, given_or_default
from headway.engine._placing import Placing, worker_name
from headway.engine._running import journal_of, opened_journal, recorded_events, start_controllers, watched_nursery
from headway.errors import NotHeadway, SchemaMismatch
from headway.informers import Informers
from headway.rpc import Channel, WithMetadata, token_metadata
from headway.service import WATCH_LIST


@check_options(WorkerOptions.__annotations__)
@async_block
async def open_workers(
    endpoints: str | Sequence[str] | Channel, *apps: App, **options: Unpack[WorkerOptions]
) -> AsyncIterator[Engine]:
    """``async with headway.open_workers("10.0.0.1:9000", app, process="web-1") as workers: ...``

    Run the controllers of the apps against engines that listen on the network, until the block ends. No task outlives
    the block, and its leases are released. With several processes, each controller's ``placement`` decides where it
    runs. All guarantees are the same as in the engine's own process. Headway's own controllers run in the engine.

    ``workers.wait_idle()`` waits until the controllers in this process have no pending work, up to the store's current
    revision and their own writes. Like ``workers.status()``, it ignores other processes.

    Args:
        endpoints: the addresses of engines on one store; any one of them suffices. For a test, pass a channel; its
            server's types and topics are not compared.
        apps: the apps whose controllers run. The engines must know the types.
        process: the unique name of this process. Keep it over restarts, so that the process takes over at once what it
            held before. Default: the host's name and some random digits.
        token: the token for engines that authenticate clients, or a function that returns it, such as
            `headway.rpc.token_file`. It must allow writing the controllers' leases.
        tls: the TLS context for TCP endpoints, from `headway.rpc.client_tls`.
        server_name: the name that the certificates must have. Default: the endpoint's host.
        insecure: allow sending the token to other hosts over plain TCP, where others may read it on the way.
        timeout: the timeout of a call, in seconds.
        report, timing, journal, tracing, gc_freeze: as for `open_engine`.
        extensions: packages that add controllers and tasks. Services and wrappers belong to `open_engine`.

    An engine that cannot be reached is retried without limit; the report and the status say so.

    Raises:
        DeclarationError: if the apps do not fit together, or if ``process`` is not a valid name.
        InvalidArgument: if an argument of the connection is invalid, or a token would be sent to another host without
            ``tls`` and without ``insecure``.
        NotHeadway: from within the block, if the server at an endpoint is not an engine.
        SchemaMismatch: from within the block, if the server and this program would misread each other's resources or
            events.
    """
    check_trio("headway.open_workers")
    extensions = options.get("extensions", ())
    check_extensions(extensions, workers=True)
    apps = (*apps, *(app for each in extensions for app in each.apps))
    # The test controls its own channel, and may count every call on it.
    opens = isinstance(endpoints, str | Sequence)
    # It imports the built-in types that the registry has.
    own, decoders = of_workers(attend=opens)
    program = program_of(apps)
    registry = program.registry
    report = report_of(options.get("report"))
    timing = given_or_default("timing", options.get("timing"), Timing, "Timing(lease_ttl=15)")
    gc_freeze = options.get("gc_freeze", True)
    check_flag("gc_freeze", gc_freeze)
    check_endpoints(endpoints)
    connection = Connection.of(options)
    name = worker_name(options.get("process"))
    around = tracing_by(options.get("tracing"))
    comparison = comparison_of(registry, program.topics.values()) if opens else comparison_of(())
    opened: AbstractAsyncContextManager[Channel] = (
        connection.open(endpoints, comparison, {WATCH_LIST: around.decoder, **decoders})
        if isinstance(endpoints, str | Sequence)
        else nullcontext(endpoints)
    )
    # Several controllers, and the block's own call, may raise the same error.
    alike = (SchemaMismatch, NotHeadway)
    journaled = opened_journal(journal_of(options.get("journal")))
    with GcFreeze(gc_freeze) as freeze:
        async with sealed(apps), journaled as (recorded, start_writing), opened as bare:
            report = freeze.wrap(report)
            named = bare if (metadata := token_metadata(connection.token)) is None else WithMetadata(bare, metadata)
            channel = around.channel(named, remote=True, asks=True)
            client = Client(channel, registry)
            host = Host(
                None,
                registry,
                report,
                client,
                process=name,
                journal=recorded,
                loading=freeze.load,
                topics=program.topics,
            )
            host.channel = channel
            async with (
                recorded_events(channel, registry, report) as events,
                watched_nursery(timing, report, alike) as (nursery, _),
            ):
                start_writing(nursery)
                nursery.start_soon(events.run, name="events")
                informers = Informers(channel, nursery, report, lag_limit=timing.lag_limit)
                host.informers = informers
                own_extensions = [extension(host) for extension in own]
                host.supervisors += Placing(
                    host=host,
                    informers=informers,
                    events=events,
                    channel=channel,
                    timing=timing,
                    around=around,
                    process=host.process,
                ).supervisors(program.definitions)
                nursery.start_soon(comparison.wait_refused, channel, name="types that the server would misread")
                if not host.supervisors and opens:
                    nursery.start_soon(find_engine, channel, report, name="finding an engine")
                with around.apart():
                    start_controllers(nursery, host.supervisors, freeze)
                host.listening.set()
                start_tasks(nursery, host, *own_extensions, *extensions)
                types = [type for definition in program.definitions.values() for type in definition.types]

                async def revision() -> int:
                    return (await informers.linearizable(types[0])).revision if types else 0

                try:
                    yield Engine(
                        client,
                        revision,
                        host.supervisors,
                        informers=[informers],
                        registry=registry,
                        report=report,
                        observe=host.observer,
                        on_accepted=around.forget,
                    )
                finally:
                    host.ending.close()
