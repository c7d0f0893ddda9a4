"""`open_engine` for tests: with a channel of their own, links to peers, and checks of what functions change."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING

from typing_extensions import Unpack

from headway.base import async_block, check_options, repr_text
from headway.cache import Isolation
from headway.controller import App
from headway.engine import Engine, EngineOptions, built_in, run_engine
from headway.errors import DeclarationError
from headway.rpc import Channel
from headway.storage import Backend

if TYPE_CHECKING:
    from headway.peering import PeerLinks


@check_options(EngineOptions.__annotations__)
@async_block
async def open_engine(
    store: str | AbstractAsyncContextManager[Backend],
    *apps: App,
    wrap_channel: Callable[[Channel], Channel] | None = None,
    peer_links: PeerLinks | None = None,
    check_isolation: bool = False,
    **options: Unpack[EngineOptions],
) -> AsyncIterator[Engine]:
    """``async with headway.testing.open_engine("memory:", app, wrap_channel=channel.over) as engine: ...``

    Open an engine as `headway.open_engine` does, with three more options.

    Args:
        wrap_channel: a function that puts your own channel between the controllers and the service, such as
            `ScriptedChannel`. The engine's own client and controllers do not use it. It marks the errors that it raises
            itself with `headway.api.of_call`.
        peer_links: what connects this engine with its peers (`headway.peering`) in place of gRPC.
        check_isolation: compare the arguments of index functions, projections, predicates and mappers before and after
            every call. A function that mutates its argument fails with IsolationBroken, which names the function, and
            the block raises it as well when it ends.
    """
    if wrap_channel is not None and not callable(wrap_channel):
        raise DeclarationError(
            f"wrap_channel={repr_text(wrap_channel)} must be a function of a channel, such as "
            "wrap_channel=headway.testing.ScriptedChannel().over"
        )
    checked: object = check_isolation
    if not isinstance(checked, bool):
        raise DeclarationError(f"check_isolation={checked!r} must be True or False")
    isolation = Isolation() if check_isolation else None
    own = partial(built_in, peer_links)
    async with run_engine(store, apps, options, wrap_channel=wrap_channel, isolation=isolation, own=own) as engine:
        yield engine
    if isolation is not None and isolation.broken:
        raise isolation.broken[0]
