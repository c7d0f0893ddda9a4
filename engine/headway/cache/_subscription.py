"""What one run has of a shared type: its feed, its indexes, and the pins of its views."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import trio

from headway.cache._indexes import IndexTable, IsUndecodable
from headway.cache._type_store import Applied, TypeStore
from headway.cache._view import Pin
from headway.errors import HeadwayError
from headway.resource import Key, pb

LINGER_LIMIT = 100_000
"""How many changes are kept for a controller that has no run: as many as a store keeps of its history."""


class Subscription:
    """What one run has of a shared type: its feed and its indexes."""

    def __init__(
        self,
        gate: TypeStore,
        tables: dict[str, IndexTable],
        leave: Callable[[Subscription], None],
        is_undecodable: IsUndecodable,
    ) -> None:
        self.gate = gate
        self.is_undecodable = is_undecodable
        self.tables = tables
        self._leave = leave
        # The revision at which the subscription began: what it was built over is complete up to there.
        self.joined_at = gate.frontier
        self._feed: list[Applied] = []
        self._lingers = False
        self._gave_up = False
        self._failure: HeadwayError | None = None
        self._woken = trio.Event()
        # Invariant: empty unless a view is open; then its steps cost what they must, and else nothing.
        self.pins: list[Pin] = []

    def applied(self, applied: Sequence[Applied]) -> None:
        """The gate has applied these; called in the same step."""
        for table in self.tables.values():
            table.apply(applied)
        self._keep(applied)

    def overtaken(self, overtaken: Sequence[Applied]) -> None:
        """These happened and are not held; they are mapped alone."""
        self._keep(overtaken)

    def _keep(self, changes: Sequence[Applied]) -> None:
        if self._lingers and len(self._feed) + len(changes) > LINGER_LIMIT:
            self._feed, self._gave_up = [], True
        elif not self._gave_up:
            self._feed.extend(changes)

    def wake(self) -> None:
        """Something was applied or the frontier has moved."""
        self._woken.set()

    def fail(self, error: HeadwayError) -> None:
        """The data is void: the run must end."""
        self._failure = error
        self._woken.set()
        for pin in self.pins:
            pin.fail(error)

    # --- for reads ---

    @property
    def revision(self) -> int:
        """See `Held`."""
        return self.gate.frontier

    def find(self, key: Key) -> pb.Resource | None:
        """See `Held`."""
        return self.gate.entries.get(key)

    def everything(self) -> Mapping[Key, pb.Resource]:
        """See `Held`."""
        return self.gate.entries

    def table(self, name: str) -> IndexTable | None:
        """See `Held`."""
        return self.tables.get(name)

    def pin(self, revision: int, on_change: Callable[[], None]) -> Pin:
        """Hold on to the state at a revision, not below any that is known now, until `unpin`."""
        pin = Pin(self.gate, self.tables, revision, on_change)
        self.pins.append(pin)
        return pin

    def unpin(self, pin: Pin) -> None:
        """The view has been closed."""
        self.pins.remove(pin)

    # --- for the run ---

    @property
    def pending(self) -> bool:
        """Whether something was applied that `next` has not handed out yet."""
        return bool(self._feed)

    def check(self) -> None:
        """Raise what has made the data void, if something has."""
        if self._failure is not None:
            raise self._failure

    async def next(self) -> list[Applied]:
        """Wait until something was applied or the frontier has moved, and return what was applied since last time.

        Raises StoreChanged or StoreRolledBack when the data is void. Cancelled, it has taken nothing.
        """
        await self._woken.wait()
        self.check()
        self._woken = trio.Event()
        return self.take()

    def take(self) -> list[Applied]:
        """What was applied since last time, without waiting."""
        feed, self._feed = self._feed, []
        return feed

    def linger(self) -> None:
        """Its run has ended: go on with the feed alone, until the next run takes it.

        A feed that grows past LINGER_LIMIT is given up, so that a controller which can't start doesn't fill the memory.
        The next run then has what the cache holds and, for deletions, the store's history, as after a new start.
        """
        self.tables = {}
        self._lingers = True

    def close(self) -> None:
        """End the subscription. Idempotent."""
        self._leave(self)
