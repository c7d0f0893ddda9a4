"""`open_workers`: run controllers in a process that does not open the store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING

import trio

from headway._arguments import check_flag, check_report, check_seconds, refuse_own_name, together
from headway._collector import gc_freezing
from headway._compared import ComparedChannel
from headway._endpoints import find_engine, open_remote
from headway._groups import leaves, only_error
from headway._keywords import check_keywords
from headway._loop_watch import watching_loop
from headway._process import Placing, supervisor, worker_name
from headway._safe_report import safe_report
from headway._shutdown import ShutdownWatch
from headway._trio import check_trio
from headway.cache import Informers
from headway.client import Client
from headway.controller import App, sealed
from headway.engine import Engine
from headway.errors import NotHeadway, SchemaMismatch
from headway.events import Report
from headway.rpc import Channel, WithMetadata
from headway.run import LEASE_TTL, STALL_LIMIT

if TYPE_CHECKING:
    from ssl import SSLContext


@check_keywords
@asynccontextmanager
async def open_workers(
    endpoints: str | Sequence[str] | Channel,
    *apps: App,
    process: str | None = None,
    token: str = "",
    tls: SSLContext | None = None,
    server_name: str | None = None,
    insecure: bool = False,
    timeout: float = 30.0,
    report: Report | None = None,
    lease_ttl: float = LEASE_TTL,
    lag_limit: float = 30.0,
    stall_limit: float = STALL_LIMIT,
    shutdown_bound: float = 10.0,
    hard_exit: float | None = None,
    gc_freeze: bool = False,
    block_limit: float | None = 1.0,
) -> AsyncIterator[Engine]:
    """``async with headway.open_workers("10.0.0.1:9000", app, process="web-1") as workers: ...``

    Run the controllers of the apps against engines that listen on the network, until the block ends. No task outlives
    the block, and its leases are released. With several processes, each controller's ``placement`` decides where it
    runs. All guarantees are the same as in the engine's own process. Headway's own controllers run in the engine.

    ``workers.wait_idle()`` waits until the controllers in this process owe nothing, up to the store's current revision
    and their own writes. It and ``workers.status()`` cover this process only.

    Args:
        endpoints: the addresses of engines on one store; any one of them suffices. For a test, pass a channel; its
            server's types are not compared.
        apps: the apps whose controllers run. The engines must know the types.
        process: the unique name of this process. Keep it over restarts, so that the process takes over at once what it
            held before. Default: the host's name and some random digits.
        token: the token for engines that authenticate clients. It must allow writing the controllers' leases.
        tls: the TLS context for TCP endpoints, from `headway.rpc.client_tls`.
        server_name: the name that the certificates must have. Default: the endpoint's host.
        insecure: allow sending the token to other hosts over plain TCP, where others may read it on the way.
        timeout: the timeout of a call, in seconds.
        lease_ttl: the time, in seconds from 1 to 3,600, after which another process takes over the leases of one that
            has
            died.
        report, lag_limit, stall_limit, shutdown_bound, hard_exit, gc_freeze, block_limit: as for `open_engine`.

    An engine that cannot be reached is retried without limit; the report and the status say so.

    Raises:
        DeclarationError: if the apps do not fit together, or if ``process`` is not a valid name.
        InvalidArgument: if a token would be sent to another host without ``tls`` and without ``insecure``.
        NotHeadway: from within the block, if the server at an endpoint is not an engine.
        SchemaMismatch: from within the block, if the server and this program would misread each other's resources.
    """
    check_trio("headway.open_workers")
    registry, definitions = together(apps)
    refuse_own_name(apps)
    check_report(report)
    check_flag("insecure", insecure)
    check_flag("gc_freeze", gc_freeze)
    name = worker_name(process)
    for field, seconds in (("stall_limit", stall_limit), ("shutdown_bound", shutdown_bound), ("lease_ttl", lease_ttl)):
        check_seconds(field, seconds)
    for field, given in (("hard_exit", hard_exit), ("block_limit", block_limit)):
        if given is not None:
            check_seconds(field, given)
    if report is None:
        from headway.observe import log_report

        report = log_report()
    report = safe_report(report)
    ending: ShutdownWatch | None = None
    opened: AbstractAsyncContextManager[Channel]
    # The test controls its own channel, and may count every call on it.
    opens = isinstance(endpoints, str | Sequence)
    compared = registry if opens else ()
    if isinstance(endpoints, str | Sequence):
        opened = open_remote(endpoints, tls, server_name, timeout, token, insecure=insecure)
    else:
        opened = nullcontext(endpoints)
    async with sealed(apps), gc_freezing(gc_freeze) as freeze, opened as bare:
        if freeze is not None:
            report = freeze.hearing(report)
        watches = ExitStack()
        named = WithMetadata(bare, {"x-consul-token": token}) if token else bare
        channel = ComparedChannel(named, compared)
        try:
            async with trio.open_nursery() as nursery:
                watches.enter_context(watching_loop(nursery, report, block_limit))
                ending = ShutdownWatch(nursery, report, bound=shutdown_bound, hard_exit=hard_exit)
                informers = Informers(channel, nursery, report, lag_limit=lag_limit)
                placing = Placing(informers, channel, registry, report, stall_limit, name, lease_ttl)
                supervisors = [supervisor(*each, placing) for each in definitions.items()]
                nursery.start_soon(channel.wait_refused, name="types that the server would misread")
                if not supervisors and opens:
                    nursery.start_soon(find_engine, channel, report, name="finding an engine")
                for each in supervisors:
                    nursery.start_soon(each.supervise, name=f"controller {each.name}")
                if freeze is not None:
                    nursery.start_soon(freeze.first_pass, supervisors, name="the garbage collector")
                types = [type for definition in definitions.values() for type in definition.types]

                async def revision() -> int:
                    return (await informers.linearizable(types[0])).revision if types else 0

                try:
                    yield Engine(Client(channel, registry), revision, supervisors, informers=[informers])
                finally:
                    ending.begin()
                nursery.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            # The caller's own exception leaves the block unchanged, not wrapped in the nursery's group.
            only = only_error(group)
            if only is group:
                # Several controllers, and the block's own call, may have raised it.
                refused, others = group.split((SchemaMismatch, NotHeadway))
                if refused is None or others is not None:
                    raise
                raise next(leaves(refused)) from None
            raise only from only.__cause__
        finally:
            watches.close()
            if ending is not None:
                ending.end()
