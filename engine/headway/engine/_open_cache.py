"""`open_cache`, which opens a cache for a program that runs no controller, of engines on the network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from typing_extensions import Unpack

from headway.base import async_block, block_nursery, check_options, check_trio
from headway.cache import CachedType, Index, Query
from headway.controller import App, sealed
from headway.engine._arguments import check_endpoints, combine_apps, report_of
from headway.engine._built_in import comparison_of
from headway.engine._connect import Connection, find_engine
from headway.engine._given import ConnectionOptions
from headway.engine._options import Timing, given_or_default
from headway.events import Report
from headway.informers import Informers
from headway.rpc import Channel, WithMetadata, token_metadata

if TYPE_CHECKING:
    from headway.notify import PrimedCache


@check_options(ConnectionOptions.__annotations__)
@async_block
async def open_cache(
    endpoints: str | Sequence[str] | Channel,
    *apps: App,
    watches: Sequence[CachedType[Any]],
    indexes: Sequence[Index[Any, Any]] = (),
    queries: Sequence[Query[Any, Any]] = (),
    report: Report | None = None,
    timing: Timing | None = None,
    **options: Unpack[ConnectionOptions],
) -> AsyncIterator[PrimedCache]:
    """``async with headway.open_cache("10.0.0.1:9000", app, watches=[TEAM], indexes=[BY_LEAD]) as cache: ...``

    Keep the resources of some types in this process, for a program that runs no controller. The block begins when every
    type is primed: complete up to the position of the store at the time of the call. A server that cannot be reached is
    tried again without limit, so set a deadline around the block's beginning if you need one.

    Args:
        endpoints: the addresses of engines on one store; any one of them suffices. For a test, pass a channel; its
            server's types are not compared.
        apps: the apps that declare the types. Their controllers do not run here.
        watches: the types to keep, or projections of them.
        indexes: the indexes that you want to read.
        queries: the queries that you want to run.
        tls, server_name, token, insecure, timeout: as for `connect`.
        report: a function called with every event (`headway.events`). Default: log what an operator should know.
        timing: the `Timing.lag_limit` of the types' streams. Its other durations are for controllers.

    Raises:
        DeclarationError: if the apps, types, indexes and queries do not fit together.
        InvalidArgument: if a token would be sent to another host without ``tls`` and without ``insecure``.
        PermissionDenied: if the server denies one of the types, also from within the block.
        NotHeadway: if the server is not an engine.
        SchemaMismatch: if the server and this program would misread each other's resources.
    """
    check_trio("headway.open_cache")
    from headway.notify import Wanted, open_primed

    registry, _ = combine_apps(apps)
    wanted = Wanted(watches, indexes, queries)
    wanted.check(registry)
    check_endpoints(endpoints)
    connection = Connection.of(options)
    timing = given_or_default("timing", timing, Timing, "Timing(lag_limit=60)")
    report = report_of(report)
    opens = isinstance(endpoints, str | Sequence)
    comparison = comparison_of(registry if opens else ())
    opened: AbstractAsyncContextManager[Channel] = (
        connection.open(endpoints, comparison) if isinstance(endpoints, str | Sequence) else nullcontext(endpoints)
    )
    raised: Exception | None = None
    try:
        async with sealed(apps), opened as bare, block_nursery() as nursery:
            channel = bare if (metadata := token_metadata(connection.token)) is None else WithMetadata(bare, metadata)
            nursery.start_soon(comparison.wait_refused, channel, name="types that the server would misread")
            if opens:
                nursery.start_soon(find_engine, channel, report, name="finding an engine")
            informers = Informers(channel, nursery, report, lag_limit=timing.lag_limit)
            async with open_primed(wanted, informers, report, informers.accept_store) as cache:
                try:
                    yield cache
                except Exception as error:  # noqa: BLE001  # raised again below, because the channel's loop splits groups
                    raised = error
    except Exception:
        if raised is not None:
            # A task has failed as well, perhaps the one that canceled the block. Its exception becomes the context.
            raise raised  # noqa: B904  # it has a cause of its own, if any
        raise
    if raised is not None:
        raise raised
