"""What the groups of rules of a run machine share: its parts, and what the machine does for them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import headway
from headway.resource import ResourceType
from headway.testing import LiveRun
from tests.helpers.contract import Witness
from tests.helpers.faulty_channel import FaultyChannel
from tests.helpers.faulty_stream import KindStreams
from tests.helpers.noted_pools import NotedPools
from tests.helpers.restorable import Backup, RestorableBackend

names = st.sampled_from(["a", "b", "c"])
members = st.sampled_from(["m1", "m2", "m3"])
kinds = st.sampled_from([0, 1, 2])
thens = st.sampled_from(["catches up", "hangs", "is slow", "stands still"])
# Changes by users: an operation, a name of each type, and the pool of a member.
operations = st.sampled_from(["pool", "no pool", "member", "no member", "no summary", "spoilt summary"])
changes = st.lists(st.tuples(operations, names, members), max_size=3)

Wanted = list[tuple[str, str, str]]
"""Changes by users, as `changes` draws them."""


class MachineParts(LiveRun):
    """A base of mixins with rules. `RunMachine` has the methods.

    Attributes:
        users: a client that needs no engine.
        written: the number of changes that users have made.
        restarts: the number of processes that have ended.
    """

    engine: headway.Engine
    users: headway.Client
    store: RestorableBackend
    channel: FaultyChannel
    pools: NotedPools
    witness: Witness
    backup: Backup | None
    written: int
    restarts: int

    async def _open(self) -> None:
        """Open an engine on the store."""
        raise NotImplementedError

    async def _close(self) -> None:
        """End the engine."""
        raise NotImplementedError

    def nothing_is_broken(self) -> None:
        """Check the contract."""
        raise NotImplementedError

    def converge(self) -> None:
        """End all faults, and check that the controller recovers."""
        raise NotImplementedError

    def kinds(self) -> list[ResourceType[Any]]:
        """Return every type whose streams may have faults."""
        return [self.pools.pool, self.pools.member, self.pools.summary, self.pools.note]

    def fall_behind(self, kind: int, name: str, member: str, delete: bool, back: int, then: Any) -> None:
        """Break a stream just after a change, and answer from a replica that does not have it yet."""
        raise NotImplementedError

    def _change(self, changes: Wanted) -> None:
        """Make changes, whether or not an engine is open."""
        raise NotImplementedError

    def _pass(self, seconds: float) -> None:
        """Let time pass."""
        raise NotImplementedError

    def _is_running(self) -> bool:
        """Return True if the cache of the present run can be read."""
        raise NotImplementedError

    def _streams(self, kind: int) -> KindStreams:
        """Return the streams of the type with this number."""
        raise NotImplementedError
