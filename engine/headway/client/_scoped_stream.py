"""Streams of scopes by metadata, for their readers.

A server that doesn't know `metadata_filter` ignores it, and would send everything. So the first event of such a stream
confirms the filter, and a reader accepts nothing before it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from headway.api import Call, Channel, Metadata, ResourceApi, of_call
from headway.errors import FailedPrecondition
from headway.resource import ScopeConfirmed, pb


def open_watch_list(
    channel: Channel, request: pb.WatchListRequest, *, metadata: Metadata | None = None
) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
    """Open a WatchList stream. If the request has a metadata filter, the server has to confirm it.

    Reading then raises FailedPrecondition if the server does not know such filters.
    """
    opened = ResourceApi.over(channel).watch_list(Call(metadata), request)
    return _confirmed(opened, request.metadata_filter) if request.metadata_filter else opened


@asynccontextmanager
async def _confirmed(
    opened: AbstractAsyncContextManager[AsyncIterator[Any]], selector: str
) -> AsyncIterator[AsyncIterator[Any]]:
    async with opened as items:
        yield ConfirmedItems(items, selector)


class ConfirmedItems:
    """The items of a watch after the confirmation of its filter.

    Attributes:
        call: the call within the process, of which the reader may ask how far it is; None over a network.
    """

    def __init__(self, items: AsyncIterator[Any], selector: str) -> None:
        self._items = items
        self.call: Call | None = getattr(items, "call", None)
        self._selector = selector
        self._confirmed = False

    def __aiter__(self) -> ConfirmedItems:
        return self

    async def __anext__(self) -> Any:
        """Return the next item. Raises FailedPrecondition if the first one is not the confirmation."""
        if not self._confirmed:
            first = await self._items.__anext__()
            if first != ScopeConfirmed(self._selector):
                text = "update the server to a version of Headway with scopes"
                raise of_call(
                    FailedPrecondition(f"the server did not apply metadata_filter {self._selector!r}: {text}")
                )
            self._confirmed = True
        return await self._items.__anext__()
