"""A checker of C8 on each commit of a simulated world's store, which also records the commits.

It never reads the store's own fences and leases, because these are what it checks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import trio

from headway.resource import Key, Kind, pb
from headway.storage import Fence, scope_of
from headway.testing import simulation
from headway.testing.history import digest_of

Scope = tuple[str, str]
"""(controller, member) of a fence."""


class Raised(NamedTuple):
    """A fence that was raised."""

    scope: Scope
    above: tuple[int, int]
    revision: int
    # The number of calls that the reconciles had made before.
    steps: int


class StoreGuard:
    """A guard that wraps the writing methods of a world's store.

    Attributes:
        raised: the raised fences, in order.
        starts: by scope and term: the revision of the commit that began a run.
        contents: the contents stored by each commit, as they were then. A bug may change a stored object afterwards.
    """

    def __init__(self, world: simulation.World, must: Callable[[str, object, str], None]) -> None:
        self._world = world
        self._must = must
        self.raised: list[Raised] = []
        self.starts: dict[tuple[Scope, int], int] = {}
        self.contents: dict[tuple[Kind, Key, int], str] = {}
        self._floors: dict[Scope, tuple[int, int]] = {}
        # By term: the ttl of its lease, and the time of its expiry unless it is renewed.
        self._ttls: dict[tuple[Scope, int], float] = {}
        self._leases: dict[tuple[Scope, int], float] = {}
        self._wrap(world.store)

    def _wrap(self, store: Any) -> None:
        commit, raise_fence = store.commit, store.raise_fence
        acquire, keep, release, end_all = store.acquire_lease, store.keep_lease, store.release_lease, store.end_leases

        async def commit_checked(operations: Any, fence: Fence | None = None) -> Any:
            # No other task runs between a commit and its return.
            position = await commit(operations, fence)
            if fence is not None:
                self._may_write(fence)
            for each in operations:
                stored = store.now.get((each.kind, each.key)) if hasattr(each, "key") else None
                if stored is not None and int(stored.version) == position.revision:
                    self.contents[each.kind, each.key, position.revision] = content_of(stored)
            return position

        async def raise_checked(controller: str, member: str, term: int, number: int) -> Any:
            raised = await raise_fence(controller, member, term, number)
            above, revision = raised.fence[2:], raised.position.revision
            self._floors[controller, member] = above
            self.raised.append(Raised((controller, member), above, revision, len(self._world.trace.steps)))
            if raised.fence.number == 1:
                self.starts[(controller, member), raised.fence.term] = revision
            return raised

        async def acquire_checked(name: str, holder: str, ttl: float, attempt: str = "") -> Any:
            acquired = await acquire(name, holder, ttl, attempt)
            if acquired.acquired:
                scope, term = scope_of(name), acquired.held.lease.term
                self._floors[scope] = max(self._floors.get(scope, (0, 0)), (term, 0))
                self._ttls[scope, term] = ttl
                self._leases[scope, term] = trio.current_time() + ttl
            return acquired

        async def keep_checked(name: str, holder: str, term: int) -> Any:
            await keep(name, holder, term)
            scope = scope_of(name)
            self._leases[scope, term] = trio.current_time() + self._ttls[scope, term]

        async def release_checked(name: str, holder: str, term: int) -> Any:
            await release(name, holder, term)
            self._leases[scope_of(name), term] = -1.0

        def end_checked() -> None:
            end_all()
            for lease in self._leases:
                self._leases[lease] = -1.0

        store.commit, store.raise_fence = commit_checked, raise_checked
        store.acquire_lease, store.keep_lease = acquire_checked, keep_checked
        store.release_lease, store.end_leases = release_checked, end_checked

    def _may_write(self, fence: Fence) -> None:
        scope = fence.controller, fence.member
        floor = self._floors.get(scope, (0, 0))
        self._must("C8", fence[2:] >= floor, f"{fence} wrote when the fence was at {floor}")
        until = self._leases.get((scope, fence.term))
        now = trio.current_time()
        self._must("C8", until is None or now <= until, f"{fence} wrote at {now}, when its lease had ended at {until}")


def content_of(resource: pb.Resource) -> str:
    value = b"" if resource.data is None else resource.data.value
    return f"{digest_of(resource)} {value.hex()} {sorted(resource.metadata.items())}"
