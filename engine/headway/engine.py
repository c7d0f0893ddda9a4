"""`open_engine`, which assembles all other parts of Headway."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import trio

from headway._arguments import (
    check_flag,
    check_listen,
    check_report,
    check_seconds,
    check_store,
    refuse_own_name,
    together,
)
from headway._collector import gc_freezing
from headway._groups import only_error
from headway._keywords import check_keywords
from headway._loop_watch import watching_loop
from headway._process import SERVER, Placing, supervisor, worker_name
from headway._safe_report import safe_report
from headway._shutdown import ShutdownWatch
from headway._store_health import StoreHealth
from headway._trio import check_trio
from headway.access import Audit, Authorizer, Guarded
from headway.builtin import PacedChannel, builtin_app
from headway.cache import Informers, Isolation
from headway.client import Client
from headway.controller import App, sealed
from headway.errors import DeclarationError
from headway.events import HandlerFailed, Report
from headway.resource import Registry
from headway.rpc import Channel, InProcessChannel, Limits, Services
from headway.run import LEASE_TTL, STALL_LIMIT, ControllerStatus, Supervisor
from headway.service import (
    LeaseService,
    LeaseWaits,
    MigrationService,
    OriginService,
    ResourceService,
    TypesService,
    Versions,
    unregistered,
    watch_encoders,
)
from headway.storage import (
    Backend,
    StoreProblem,
    is_shared,
    last_leases,
    open_store,
    record_schemas,
    refuse_unfinished,
)

if TYPE_CHECKING:
    from ssl import SSLContext

_PACE = 0.02
"""The interval, in seconds, at which the engine's own controllers check their streams."""
_LAST_STATUS = 0.5
"""The time limit, in seconds, for sending the last status to watchers of the health service."""


class Engine:
    """A running engine, as returned by `open_engine` and `open_workers`.

    Attributes:
        client: reads and writes resources, without a controller's fence.
        addresses: the addresses it listens on, with the actual ports; empty unless ``listen`` was given.
        controllers: the controllers by name. For example, ``engine.controllers["accounts"].status()`` returns the state
            of one. If two apps have a controller of the same name, each is listed under "app/name".
    """

    def __init__(
        self,
        client: Client,
        revision: Callable[[], Awaitable[int]],
        supervisors: Sequence[Supervisor],
        addresses: Sequence[str] = (),
        informers: Sequence[Informers] = (),
        store: StoreHealth | None = None,
    ) -> None:
        self.client = client
        self.addresses = list(addresses)
        self._revision = revision
        self._supervisors = supervisors
        self._informers = informers
        self._store = store
        self.controllers = _by_name(supervisors)

    def accept_store(self) -> bool:
        """Accept the current state of a store that was rolled back (`StoreRolledBack`). This is an operator's decision.

        All cached data is discarded. The supervisors begin new runs within a minute, and these runs see the current
        content of the store. Return True if the store was rolled back; otherwise do nothing and return False. This
        method never blocks.
        """
        self._check_open()
        # Call every one of them: any() would stop at the first that returns True.
        accepted = {informers.accept_store() for informers in self._informers}
        return True in accepted

    @property
    def store_problem(self) -> StoreProblem | None:
        """The reason that the store cannot be used, up to two seconds old, or None. Always None for `open_workers`."""
        return None if self._store is None else self._store.problem

    def status(self) -> list[ControllerStatus]:
        """Return the state of every controller, including Headway's own."""
        return [supervisor.status() for supervisor in self._supervisors]

    async def wait_idle(self) -> None:
        """Wait until every controller is idle: every change so far is mapped and reconciled without failure.

        A controller that runs in several processes counts only with its work in this one; a singleton on standby owes
        nothing here. Keys that wait only for a time that they requested do not count. A key that keeps failing does
        count, so call this under a deadline (`trio.fail_after`).
        """
        check_trio("wait_idle")
        while True:
            await trio.lowlevel.checkpoint()
            self._check_open()
            # Every run begins with a commit, so no run has begun at revision 0.
            revision = max(1, await self._revision())
            for each in self._supervisors:
                await each.wait_idle(revision)
            if await self._revision() <= revision and all(each.checkpoint() >= revision for each in self._supervisors):
                return

    def _check_open(self) -> None:
        for each in self._supervisors:
            each.check_open()


@check_keywords
@asynccontextmanager
async def open_engine(
    store: str | AbstractAsyncContextManager[Backend],
    *apps: App,
    report: Report | None = None,
    lag_limit: float = 30.0,
    wrap_channel: Callable[[Channel], Channel] | None = None,
    listen: Sequence[str] = (),
    tls: SSLContext | None = None,
    access: Authorizer | None = None,
    insecure: bool = False,
    limits: Limits | None = None,
    process: str | None = None,
    lease_ttl: float = LEASE_TTL,
    stall_limit: float = STALL_LIMIT,
    shutdown_bound: float = 10.0,
    hard_exit: float | None = None,
    gc_freeze: bool = False,
    block_limit: float | None = 1.0,
    check_isolation: bool = False,
) -> AsyncIterator[Engine]:
    """``async with headway.open_engine("sqlite:staff.db", app) as engine: ...``

    Open the store, serve it within this process, and run the controllers of the apps and of Headway itself until the
    block ends. No task outlives the block.

    Args:
        store: ``memory:``, ``sqlite:PATH``, ``etcd://HOST:PORT,HOST:PORT/PREFIX``, or a backend.
        apps: the apps whose types and controllers the engine runs.
        report: a function called with every event (`headway.events`) as it happens. It must not block. If it raises,
            the
            event is lost, and standard error says so once. Default: log what an operator should know with structlog.
        lag_limit: the time, in seconds, that a type's stream may lag behind the known revision before it is replaced.
        wrap_channel: a function for tests that puts your own channel between the controllers and the service, such as
            `headway.testing.ScriptedChannel`. The engine's own client and controllers do not use it.
        listen: the addresses at which to serve gRPC, also under Consul's service name: "127.0.0.1:9000", "[::1]:0",
            "unix:/run/headway.sock".
        tls: the TLS context for TCP addresses, from `headway.rpc.server_tls`. A certificate that is renewed on disk is
            used without a restart.
        access: decides which network client may do what. Code within the process may do everything.
        insecure: let every client that can connect do everything. Use it instead of ``access``; never the default.
        limits: the limits for network clients: the number of connections in all and from one host, the size of a
            message, and more.
        process: the name of this process on a store that several engines have open at once (etcd), as for
            `open_workers`. On any other store the engine's name is ``server``.
        lease_ttl: the time, in seconds from 1 to 3,600, after which another process (`open_workers`, or an engine on
            the
            same store) takes over a controller that this one led when it died.
        stall_limit: the time, in seconds, within which a type that is being primed must make some progress, however
            small. Otherwise the controller's run ends with PrimingStalled, which names the type, and is restarted.
        shutdown_bound: the time, in seconds, within which every task should end after the block has ended. A task that
            is still running then is reported with its stack, again each time this period passes. The block still waits
            for it.
        hard_exit: the time, in seconds, after which the process exits with status 70 if tasks are still running, since
            nothing else can end a busy loop. Default: never.
        gc_freeze: turn Python's garbage collector off until every controller has reconciled all that it found at the
            start, for ten minutes at most, and exclude the objects that exist then from later collections
                (`gc.freeze`).
            With a million resources, a full collection blocks the event loop for half a second. Both affect the whole
            process, and the end of the block undoes both.
        block_limit: the time, in seconds, for which a task may block the event loop, in a blocking call or a long
            computation, before it is reported with its stack (`LoopBlocked`). None disables this check.
        check_isolation: for tests: compare the arguments of index functions, projections, predicates and mappers before
            and after every call. A function that mutates its argument fails with IsolationBroken, which names the
            function, and the block raises it as well when it ends.

    Raises:
        DeclarationError: if the apps do not fit together, if ``listen`` is given without ``access`` or ``insecure``, or
            if ``process`` is not a valid name.
        StoreUnusable: if the store cannot be opened.
        SchemaMismatch: if this program would misread the stored data.
        OSError: if an address cannot be bound.
    """
    check_trio("headway.open_engine")
    registry, definitions = together(apps)
    refuse_own_name(apps)
    check_store(store)
    check_report(report)
    check_listen(listen)
    for flag, value in (("insecure", insecure), ("gc_freeze", gc_freeze), ("check_isolation", check_isolation)):
        check_flag(flag, value)
    check_seconds("stall_limit", stall_limit)
    check_seconds("shutdown_bound", shutdown_bound)
    check_seconds("lease_ttl", lease_ttl)
    for field, given in (("hard_exit", hard_exit), ("block_limit", block_limit)):
        if given is not None:
            check_seconds(field, given)
    if listen and (access is None) is not insecure:
        raise DeclarationError(
            f"listen={list(listen)!r} needs either access=headway.access.Authorizer(...), which decides who may do "
            "what, or insecure=True, which lets every client that can connect do everything"
        )
    if process is not None:
        worker_name(process)
    if report is None:
        from headway.observe import log_report

        report = log_report()
    report = safe_report(report)
    opened = open_store(store) if isinstance(store, str) else store
    async with sealed(apps), gc_freezing(gc_freeze) as freeze, opened as backend:
        if freeze is not None:
            report = freeze.hearing(report)
        watches = ExitStack()
        await refuse_unfinished(backend)
        await record_schemas(backend, registry)
        failed = functools.partial(_report_failed, report)
        waits = LeaseWaits()
        versions = Versions(registry, report)
        services = _services(
            ResourceService(backend, registry, versions=versions),
            OriginService(backend, registry, versions=versions),
            LeaseService(backend, waits=waits),
        )
        # Other engines or programs may also reach a store that was passed in.
        lasting = isinstance(store, str) and not listen and last_leases(backend, lasting=True)
        channel = InProcessChannel(services, report=failed, lasting_leases=lasting)
        ending: ShutdownWatch | None = None
        isolation = Isolation() if check_isolation else None
        try:
            async with trio.open_nursery() as nursery:
                watches.enter_context(watching_loop(nursery, report, block_limit))
                ending = ShutdownWatch(nursery, report, bound=shutdown_bound, hard_exit=hard_exit)
                theirs = channel if wrap_channel is None else wrap_channel(channel)
                supervisors: list[Supervisor] = []
                all_informers: list[Informers] = []
                own = PacedChannel(channel, _PACE)
                builtin = builtin_app(registry, functools.partial(unregistered, backend, registry))
                # If this engine alone has the store, Headway's own controllers run only here and need no leases.
                shared = is_shared(backend)
                name = worker_name(process) if shared else SERVER
                for served, through_channel, placed_as in (
                    (definitions, theirs, name),
                    (together([builtin])[1], own, name if shared else None),
                ):
                    informers = Informers(through_channel, nursery, report, lag_limit=lag_limit, isolation=isolation)
                    all_informers.append(informers)
                    placing = Placing(informers, through_channel, registry, report, stall_limit, placed_as, lease_ttl)
                    supervisors += [supervisor(*each, placing) for each in served.items()]
                health = StoreHealth(backend, all_informers, report)
                nursery.start_soon(health.watch, name="the health of the store")
                for each in supervisors:
                    nursery.start_soon(each.supervise, name=f"controller {each.name}")
                if freeze is not None:
                    nursery.start_soon(freeze.first_pass, supervisors, name="the garbage collector")
                if access is None:
                    offered = services
                    offered.add(TypesService(registry))
                    offered.add(MigrationService(backend, registry))
                else:
                    serve = functools.partial(ResourceService, backend, registry, versions=versions)
                    as_origin = functools.partial(OriginService, backend, registry, versions=versions)
                    lease = functools.partial(LeaseService, backend, waits=waits)
                    rewrite = functools.partial(MigrationService, backend, registry)
                    audit = Audit(report)
                    nursery.start_soon(audit.report_rest, name="audit")
                    offered = _services(
                        Guarded(serve, access, registry, audit),
                        Guarded(as_origin, access, registry, audit),
                        Guarded(lease, access, registry, audit),
                        Guarded(rewrite, access, registry, audit),
                        # A caller without any right to a type must not learn its schema.
                        Guarded(lambda caller: TypesService(registry, caller.may_know), access, registry, audit),
                    )
                async with _listening(offered, registry, access, health, listen, tls, report, limits) as addresses:
                    unhear = access.hear(report) if access is not None else None
                    try:
                        where = functools.partial(_revision, backend)
                        yield Engine(Client(channel, registry), where, supervisors, addresses, all_informers, health)
                    finally:
                        if unhear is not None:
                            unhear()
                        ending.begin()
                        # Otherwise the server would give callers that wait for a lease its whole grace period.
                        waits.end()
                nursery.cancel_scope.cancel()
            if isolation is not None and isolation.broken:
                raise isolation.broken[0]
        except BaseExceptionGroup as group:
            # The caller's own exception leaves the block unchanged, not wrapped in the group of the engine's nursery.
            only = only_error(group)
            if only is group:
                raise
            raise only from only.__cause__
        finally:
            channel.close()
            watches.close()
            if ending is not None:
                ending.end()


async def _revision(backend: Backend) -> int:
    return backend.position.revision


def _services(*services: object) -> Services:
    return Services(*services, encoders=watch_encoders())


def _by_name(supervisors: Sequence[Supervisor]) -> dict[str, Supervisor]:
    names = [supervisor.name for supervisor in supervisors]
    return {
        supervisor.name if names.count(supervisor.name) == 1 else supervisor.fence_name: supervisor
        for supervisor in supervisors
    }


def _report_failed(report: Report, path: str, error: BaseException) -> None:
    report(HandlerFailed(path, error))


@asynccontextmanager
async def _listening(
    services: Services,
    registry: Registry,
    access: Authorizer | None,
    store: StoreHealth,
    listen: Sequence[str],
    tls: SSLContext | None,
    notify: Report,
    limits: Limits | None,
) -> AsyncIterator[Sequence[str]]:
    """Serve the services at the addresses. Network code is imported only if there are any."""
    if not listen:
        yield ()
        return
    from headway._standard import add_standard_services
    from headway.rpc import open_server

    health = add_standard_services(services, registry, access)
    store.follow(lambda problem: health.set_all(serving=problem is None))
    async with open_server(services, listen, tls=tls, limits=limits, notify=notify) as server:
        try:
            yield server.addresses
        finally:
            health.end()
            # The server ends the watches at once. Clients that read must first learn that it no longer serves.
            with trio.move_on_after(_LAST_STATUS, shield=True):
                await health.wait_sent()
