"""The protocol of a store, and what every store promises. `_abilities.py` has what only some stores can do.

A store keeps a history of commits, and resources by kind (group and kind, without the version) and key (partition,
namespace, name). `headway.testing.check_backend` checks these promises:

1. Every commit that changes something has its own revision, a whole number above all earlier ones. No revision is
   used twice, not even after a restart or a crash. A resource's ``version`` is the decimal revision of its last
   change. A deletion has the revision of its commit.
2. A commit is atomic. Its checks (version, uid, fence) and its changes are one transaction.
3. An acknowledged commit is as durable as the store (in memory: as long as the process lives).
4. `commit` is canceled before it begins or not at all.
5. A watch delivers a snapshot, the end of the snapshot with its revision, and then every later change exactly once.
   Changes come in order of revision, and all changes of a commit together. A resumed watch instead delivers every
   change after a position. No change is missing between snapshot and tail, no older change follows a newer one, and
   everything up to a bookmark has been delivered. A resource that is now stored as another version of its kind counts
   as two changes of one commit (`changes_of`): the old one is deleted, then the new one is stored.
6. A slow watcher never blocks a writer. A watcher that needs changes which are no longer kept gets HistoryCompacted,
   never a gap.
7. The store and its callers share the resources that they pass to each other. Neither side modifies them.
8. The stores of this package have linearizable reads: a read sees every commit acknowledged before it began.
9. A lease has one holder at a time, in one term. Terms only grow: the end of a term, a restart or a crash never takes
   them back. A term begins with a commit and ends with one: a release, the next term (of any holder), or, once its time
   has passed, the next commit that carries a fence or changes a lease (in PostgreSQL: its own). The commit that ends a
   term also raises the fence that the lease governs (`scope_of`) above that term. No write that carries the term is
   stored after it, even while the lease has no new holder (C8). While a lease is held, its fence is raised only in the
   lease's term. No term is granted twice, not even to a repeated request. A late release, renewal or write of an
   earlier term therefore never affects a later one.
10. The time of a lease runs by the monotonic clock of the process or of etcd's leader, or by PostgreSQL's clock. A
    lease never expires early by that clock. After a restart of the process or the leader, a lease that was held counts
    as held for a whole ttl and can be renewed.
11. A store that takes rules of commits (`_rules.py`) asks them before each commit that concerns them, and lets them
    follow it, in the commit's own transaction. So no writers exceed together what a rule limits.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

from headway.resource import Key, Kind, Position, StreamItem, pb
from headway.storage._leases import Acquired, CurrentLease
from headway.storage._operations import Fence, Operation, Raised, Within


class Watch(Protocol):
    """An open watch. Its items follow promise 5. A chunk of changes always ends at the end of a commit."""

    # So that an implementation can have slots.
    __slots__ = ()

    async def next(self) -> StreamItem:
        """Wait for the next item and return it. A canceled call has taken no item.

        Raises:
            HistoryCompacted: this watcher has fallen too far behind.
        """
        ...

    def close(self) -> None:
        """Release what the watch holds. Idempotent."""
        ...


class ListsResources(Protocol):
    """A source of lists: a `Backend`, or a store's file that has not been opened as a store."""

    async def list(
        self, kind: Kind, within: Within, *, after: Key | None = None, limit: int = 0
    ) -> tuple[Sequence[pb.Resource], Position]:
        """Return the stored resources of a kind, all versions of it, in order of key, and a position.

        Args:
            after: return only resources behind this key. No resource need have it.
            limit: the maximum number of resources to return. 0 for all.
        """
        ...


class Backend(ListsResources, Protocol):
    """A store. The module's docstring lists what it promises."""

    @property
    def position(self) -> Position:
        """The store's id, the id of its current session, and the revision of the last commit."""
        ...

    async def read(self, kind: Kind, key: Key) -> tuple[pb.Resource | None, Position]:
        """Return the stored resource, or None, and a position of the store when it was so."""
        ...

    async def list_by_owner(self, owner_uid: str) -> tuple[Sequence[pb.Resource], Position]:
        """Return the resources that a uid owns, even if the owner was deleted. An empty uid owns nothing."""
        ...

    async def kinds(self) -> Sequence[Kind]:
        """Return the kinds that have stored resources, in order, including kinds that no program knows."""
        ...

    async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:
        """Apply all operations in one commit and return its position. A commit without changes makes no revision.

        Every store accepts 32 operations. Each store has its own limit above that. The operations check the state
        before the commit.

        Raises:
            VersionConflict, WrongUid, StillOwns, FenceLowered: the commit was rejected and has changed nothing.
            UnknownTerm: the fence carries a term that was never granted. The commit has changed nothing.
            CommitRefused: a rule of the store has refused the commit, which has changed nothing.
            ValueError: two operations change the same resource.
            OutcomeUnknown: the commit may have happened. Only stores on a disk or a network raise it.
            RemoteError: any other kind of it means that the commit has not happened. Only such stores raise it.
        """
        ...

    async def watch(self, kind: Kind, within: Within, resume_after: Position | None = None) -> Watch:
        """Watch a kind. Raise StoreMismatch or HistoryCompacted if the watch cannot resume after that position."""
        ...

    async def raise_fence(self, controller: str, member: str, term: int, number: int) -> Raised:
        """Raise a fence by a commit. With term 0, raise it to one above the stored term.

        Raises:
            FenceLowered: (term, number) is not above the stored pair, or the lease that governs the fence is held in
                another term.
        """
        ...

    async def record_checkpoint(self, fence: Fence, revision: int) -> None:
        """Record that the fence's controller has no pending work up to a revision.

        Recording it does not make a new revision. A revision below the recorded one is ignored.

        Raises:
            FenceLowered: the fence is below the stored one.
            UnknownTerm: the term of the fence is above the stored one.
        """
        ...

    async def acquire_lease(self, name: str, holder: str, ttl: float, attempt: str = "") -> Acquired:
        """Acquire a lease for ``ttl`` seconds by a commit, unless another holder has it.

        The new term is above all earlier ones, even if the same holder has the lease now. Its fence starts at number 0
        of that term. A repeated request also begins a new term, because its first answer may have been lost.

        A request is late if the current term began with the same attempt and is in use: its holder has renewed it or
        raised its fence. A late request acquires nothing, and the term continues. An empty attempt never equals
        another. A request that acquires nothing makes no revision.
        """
        ...

    async def keep_lease(self, name: str, holder: str, term: int) -> None:
        """Renew a lease for a whole ttl from now. Makes no revision. Raise TermEnded if the term has ended."""
        ...

    async def release_lease(self, name: str, holder: str, term: int) -> None:
        """End a term early, by a commit. Do nothing if it has already ended."""
        ...

    async def list_leases(self, name_prefix: str = "") -> tuple[Sequence[CurrentLease], Position]:
        """Return the held leases whose names begin with the prefix, in order of name, and a position."""
        ...

    async def wait_lease_ended(self, name: str, term: int) -> None:
        """Wait until the lease is not held in this term."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
