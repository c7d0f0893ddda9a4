"""A run's subscription to an informer: its feed, its indexes, and the pins of its views."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import trio

from headway.cache._indexes import IndexTable, IsUndecodable
from headway.cache._type_store import Applied, TypeStore
from headway.cache._view import Pin
from headway.errors import HeadwayError
from headway.resource import Key, pb

LINGER_LIMIT = 100_000
"""The number of changes kept for a controller without a run, which equals the length of a store's history."""


class Subscription:
    """A run's subscription to an informer: its feed and its indexes."""

    def __init__(
        self,
        store: TypeStore,
        tables: dict[str, IndexTable],
        unsubscribe: Callable[[Subscription], None],
        is_undecodable: IsUndecodable,
    ) -> None:
        self.store = store
        self.is_undecodable = is_undecodable
        self.tables = tables
        self._unsubscribe = unsubscribe
        # The revision of its beginning. Its initial content is complete up to there.
        self.subscribed_at = store.frontier
        self._feed: list[Applied] = []
        self._lingers = False
        self._overflowed = False
        self._failure: HeadwayError | None = None
        self._woken = trio.Event()
        # Invariant: empty unless a view is open. Views cost something only while they are open.
        self.pins: list[Pin] = []

    def deliver(self, applied: Sequence[Applied], overtaken: Sequence[Applied]) -> None:
        """Index the changes that the store has just applied, add all to the feed, and wake the run.

        Overtaken changes happened but are not cached, so they are only mapped. If there are no changes, the frontier
        has moved.
        """
        if applied:
            for table in self.tables.values():
                table.apply(applied)
            self._add(applied)
        if overtaken:
            self._add(overtaken)
        self._woken.set()

    def _add(self, changes: Sequence[Applied]) -> None:
        if self._lingers and len(self._feed) + len(changes) > LINGER_LIMIT:
            self._feed, self._overflowed = [], True
        elif not self._overflowed:
            self._feed.extend(changes)

    def fail(self, error: HeadwayError) -> None:
        """Declare the data void, which ends the run."""
        self._failure = error
        self._woken.set()
        for pin in self.pins:
            pin.fail(error)

    # --- called by readers ---

    @property
    def revision(self) -> int:
        """The revision up to which the content is complete."""
        return self.store.frontier

    def find(self, key: Key) -> pb.Resource | None:
        """Return the resource with this key, or None."""
        return self.store.entries.get(key)

    def everything(self) -> Mapping[Key, pb.Resource]:
        """Return all resources."""
        return self.store.entries

    def table(self, name: str) -> IndexTable | None:
        """Return the index of this name, or None."""
        return self.tables.get(name)

    def pin(self, revision: int, on_change: Callable[[], object]) -> Pin:
        """Keep the state at a revision until `unpin`. The revision must not be below any that is known now."""
        pin = Pin(self.store, self.tables, revision, on_change)
        self.pins.append(pin)
        return pin

    def unpin(self, pin: Pin) -> None:
        """Release a pin, because its view has been closed."""
        self.pins.remove(pin)

    # --- called by the run ---

    @property
    def pending(self) -> bool:
        """True if changes were applied that `next` has not returned yet."""
        return bool(self._feed)

    def check(self) -> None:
        """Raise the error that made the data void, if there is one."""
        if self._failure is not None:
            raise self._failure

    async def next(self) -> list[Applied]:
        """Wait until a change was applied or the frontier has moved, and return the changes since the last call.

        Raises StoreChanged or StoreRolledBack if the data is void. If canceled, no change is lost.
        """
        await self._woken.wait()
        self.check()
        self._woken = trio.Event()
        return self.drain()

    def drain(self) -> list[Applied]:
        """Return the changes since the last call, without waiting."""
        feed, self._feed = self._feed, []
        return feed

    def linger(self) -> None:
        """Continue with the feed only, because the run has ended, until the next run takes it over.

        A feed that exceeds LINGER_LIMIT is discarded, so that a controller that cannot start does not fill the memory.
        The next run then uses the cache and, for deletions, the store's history, as after a restart of the process.
        """
        self.tables = {}
        self._lingers = True

    def close(self) -> None:
        """End the subscription. Idempotent."""
        self._unsubscribe(self)
