"""A channel to the subscribe service whose streams are lost, repeat themselves, or come from a server that lags."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

from grpclib.const import Status
from typing_extensions import override

from headway.rpc import Channel, PassingChannel
from headway.subscription import Commits
from tests.helpers.items import taking
from tests.helpers.service_errors import failed


class FaultySubscription(PassingChannel):
    """A channel over another one, with faults that a test sets.

    Attributes:
        drops: the number of items that are lost with their streams, from the next one on.
        status: the status of those losses; None for streams that end without one.
        repeats: the number of batches of commits that are delivered twice, from the next one on.
        behind: a channel to a server that lags, for the next streams.
        behind_for: the number of streams that it serves.
    """

    remote = True

    def __init__(self, inner: Channel) -> None:
        super().__init__(inner)
        self.drops = 0
        self.status: Status | None = Status.UNAVAILABLE
        self.repeats = 0
        self.behind: Channel | None = None
        self.behind_for = 0

    def heal(self) -> None:
        """End all faults."""
        self.drops = self.repeats = self.behind_for = 0
        self.behind = None

    @override
    def stream(self, path: str, request: Any, **_: Any) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        channel, again = self.inner, list[Any]()
        if self.behind is not None and self.behind_for:
            channel = self.behind
            self.behind_for -= 1

        async def take(items: AsyncIterator[Any]) -> Any:
            item = again.pop() if again else await anext(items)
            if self.drops:
                self.drops -= 1
                if self.status is None:
                    raise StopAsyncIteration
                raise failed(self.status, "lost")
            if self.repeats and isinstance(item, Commits):
                self.repeats -= 1
                again.append(item)
            return item

        return taking(channel.stream(path, request), take)
