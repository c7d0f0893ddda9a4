"""`open_engine`: the only file that knows every room."""

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
from headway.controller import LEASE_TTL, STALL_LIMIT, App, ControllerStatus, Supervisor, sealed
from headway.errors import DeclarationError
from headway.events import HandlerFailed, Report
from headway.resource import Registry
from headway.rpc import Channel, InProcessChannel, Limits, Services
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
"""Seconds at which the engine's own controllers look at their streams."""
_LAST_STATUS = 0.5
"""Seconds in which the watches of health can send that the server stops."""


class Engine:
    """A running engine. Made by `open_engine` and `open_workers`.

    Attributes:
        client: reads and writes resources, as nobody's controller.
        addresses: where it listens, with the ports that it was given; empty unless it was told to listen.
        controllers: by name; ``engine.controllers["accounts"].status()`` says how one is. Where two apps have one of
            the same name, it is here under "app/name".
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
        """Go on with a store that went back (`StoreRolledBack`), as it is now: an operator's decision.

        Everything held of it is given up and the controllers' next runs, which their supervisors begin within a
        minute, see what the store has now. Returns whether it went back; if not, nothing is done. Never blocks.
        """
        self._check_open()
        # Every one of them is told, not only those up to the first that says yes.
        accepted = {informers.accept_store() for informers in self._informers}
        return True in accepted

    @property
    def store_problem(self) -> StoreProblem | None:
        """Why the store can't be used, as of the last two seconds; None if it can. Of `open_workers` it is None."""
        return None if self._store is None else self._store.problem

    def status(self) -> list[ControllerStatus]:
        """What every controller is doing now, Headway's own among them."""
        return [supervisor.status() for supervisor in self._supervisors]

    async def wait_idle(self) -> None:
        """Wait until no controller owes anything: every change so far is mapped and reconciled without failure.

        Of controllers that run in several processes this counts what is this one's: a singleton that stands by owes
        nothing here. Keys that only wait for a time that they asked for don't count; a key that keeps failing does, so
        put this under a deadline (`trio.fail_after`).
        """
        check_trio("wait_idle")
        while True:
            await trio.lowlevel.checkpoint()
            self._check_open()
            # Every run begins with a commit, so that at revision 0 none has begun yet.
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

    Opens the store, serves it in the process, and runs the controllers of the apps, and Headway's own, until the block
    ends; then everything ends: no task outlives the block.

    Args:
        store: ``memory:``, ``sqlite:PATH``, ``etcd://HOST:PORT,HOST:PORT/PREFIX``, or a backend.
        apps: whose types and controllers.
        report: is called with every event (`headway.events`) as it happens; it must not block. One that raises
            loses the event, and standard error says so once. Unless given, what an operator should know is logged by
            structlog.
        lag_limit: seconds that a type's stream may stand below what is known before another one is tried.
        wrap_channel: puts a channel of yours between the controllers and the service, for a test: for example
            `headway.testing.ScriptedChannel`. The engine's own client and controllers don't use it.
        listen: addresses at which the services are offered by gRPC, under Consul's name of them too: "127.0.0.1:9000",
            "[::1]:0", "unix:/run/headway.sock".
        tls: for those that are TCP, as `headway.rpc.server_tls` makes it. A certificate that is renewed on disk is used
            without a restart.
        access: says who may do what there. What is in the process may do everything.
        insecure: everybody who can connect may do everything; instead of ``access``, and never by default.
        limits: what clients are held to there: how many connections, from one host too, how large a message, and more.
        process: on a store that several engines have open at the same time (etcd): the name of this process, as for
            `open_workers`. On any other one the engine is ``server``.
        lease_ttl: seconds, from 1 to 3,600, after which another process takes over a controller that this one led when
            it died (`open_workers`, or an engine on the same store).
        stall_limit: seconds in which a type that is being primed must make some progress, however small; otherwise the
            controller's run ends with PrimingStalled, which names the type, and is started again.
        shutdown_bound: seconds in which every task should have ended when the block has; what has not is reported then,
            with its stack, and again after as many. The block waits for it all the same.
        hard_exit: seconds after which the process is ended instead, with exit status 70: what is still there may be a
            loop that nothing else can end. Unless given, never.
        gc_freeze: keep Python's garbage collector off until every controller has reconciled all that it has found, for
            ten minutes at most, and leave out of later collections what is in memory then (`gc.freeze`). With a million
            resources a full collection stops the loop for half a second. Both concern the whole process. The end of the
            block undoes them.
        block_limit: seconds for which a task may hold the event loop, by waiting without `await` or by a long
            computation, before it is named with its stack (`LoopBlocked`). None: nothing watches the loop.
        check_isolation: compare what index functions, projections, predicates and mappers are given to read before and
            after every call. One that has changed it fails with IsolationBroken, which names it, and so does the block,
            when it ends. For tests.

    Raises DeclarationError for apps that don't go together, for listening without saying to whom, and for a name that a
    process can't have; StoreUnusable for a store that can't be opened; SchemaMismatch for a program that would misread
    what is stored; OSError for an address that can't be had.
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
            f"listen={list(listen)!r} needs either access=headway.access.Authorizer(...), which says who may do what, "
            "or insecure=True, with which everybody who can connect may do everything"
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
        # A store that was handed in may be reached by others, too.
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
                # Where this engine alone has the store, Headway's own run here alone, and need no leases.
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
                        # What a type looks like isn't said to those who may do nothing with it.
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
                        # Else the server would give callers that wait for a lease all of its grace.
                        waits.end()
                nursery.cancel_scope.cancel()
            if isolation is not None and isolation.broken:
                raise isolation.broken[0]
        except BaseExceptionGroup as group:
            # The caller's own error comes out as it went in, not wrapped in the engine's nursery.
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
    """Offer the services at the addresses; nothing of the network is loaded when there are none."""
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
            # The server ends the watches at once. A client that reads hears first that nothing serves any longer.
            with trio.move_on_after(_LAST_STATUS, shield=True):
                await health.wait_sent()
