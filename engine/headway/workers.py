"""`open_workers`: the controllers of a process that doesn't have the store."""

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
from headway.controller import LEASE_TTL, STALL_LIMIT, App, sealed
from headway.engine import Engine
from headway.errors import NotHeadway, SchemaMismatch
from headway.events import Report
from headway.rpc import Channel, WithMetadata

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

    Runs the controllers of the apps against engines that listen on the network, until the block ends; then everything
    ends, and what was held is given back. Which of several processes runs which controller is its ``placement``. The
    contract is that of controllers beside the store. Headway's own controllers run there.

    ``workers.wait_idle()`` waits until what runs in this process owes nothing, up to where the store stands and what
    that has written itself; of what other processes run it says nothing. ``workers.status()`` likewise.

    Args:
        endpoints: addresses of engines on one store; any of them serves. Or a channel, for a test: what types its
            server has is not compared.
        apps: whose types and controllers; the engines must know the types.
        process: the name of this process, which no other has and which it should keep over restarts: then it takes
            over at once what it held before. Unless given, the host's name and some random digits.
        token: what the engines know the process by, where they ask. It needs the right to write the controllers'
            leases.
        tls: for endpoints that are TCP, as `headway.rpc.client_tls` makes it.
        server_name: the name that the certificates must have, if it isn't the endpoint's host.
        insecure: send the token to other hosts over plain TCP, where others may read it on the way.
        timeout: seconds for a call.
        lease_ttl: seconds, from 1 to 3,600, after which another process takes over what one that has died held.
        report, lag_limit, stall_limit, shutdown_bound, hard_exit, gc_freeze, block_limit: as of `open_engine`.

    Raises DeclarationError for apps that don't go together, and a name that a process can't have; InvalidArgument for a
    token that would be sent to another host without ``tls`` and without ``insecure``; NotHeadway, from within the
    block, when what answers at the endpoints is not an engine; SchemaMismatch likewise, when it and this program would
    misread each other's resources. An engine that cannot be reached is tried again for as long as
    it takes; the report and the status say so.
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
    # A test's channel is its own matter, and each call by it may count.
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
            # The caller's own error comes out as it went in, not wrapped in the nursery.
            only = only_error(group)
            if only is group:
                # Several controllers, and the block's own call, may have been told of it.
                refused, others = group.split((SchemaMismatch, NotHeadway))
                if refused is None or others is not None:
                    raise
                raise next(leaves(refused)) from None
            raise only from only.__cause__
        finally:
            watches.close()
            if ending is not None:
                ending.end()
