"""What a store is: the protocol behind the resource service, and its promises.

A store keeps resources by kind (group and kind, whatever the version) and key (partition, namespace, name), and a
history of commits. What it promises, and what `headway.testing.check_backend` checks:

1. Every commit that changes something has a revision of its own, a whole number above every earlier one, never
   given out twice, not after a restart or a crash either. A resource's ``version`` is the decimal revision of its
   last change. A deletion has its commit's revision.
2. A commit happens whole or not at all. Its checks (version, uid, fence) and its changes are one transaction.
3. An acknowledged commit is durable, as far as the store is (memory: while the process lives).
4. `commit` is never abandoned half-way: it is cancelled before it began, or not at all.
5. A watch is a snapshot, its end with the revision it stands at, then every later change once, in order of
   revision, whole commits together; or, resumed, every change after a position. Nothing older follows anything
   newer, nothing is missing between snapshot and tail, and a bookmark is true. A resource that is stored as another
   version of its kind is two changes of its commit (`changes_of`): deleted as it was, then stored as it is.
6. A watcher that is slow blocks no writer. One that falls behind what is kept gets HistoryCompacted, never a gap.
7. What a store is given and what it hands out is shared, and written to by nobody.
8. Reads are linearizable in the stores of this package: they see every commit acknowledged before they began.
9. A lease is held by one holder, in one term. Its terms only grow, for ever: not an end, a restart or a crash takes
   them back. A term begins by a commit, and ends by one: a release, another's or the same holder's next term, or,
   when its time has passed, whatever commit bears a fence next or is about leases. The commit that ends a term raises
   the fence that the lease governs (`scope_of`) above it, so that nothing which bears that term is written from then
   on, with or without a successor (C8). While a lease is held, its fence is raised in its term alone.
   No term is granted twice, not to a repeated request either: so whatever names a former term and arrives late (a
   release, a renewal, a write) does nothing to a later one.
10. A lease's time is measured by the process' monotonic clock, or by etcd's leader's, and never ends early by it: after
    a restart of who measures it, a lease that was held counts as held for a whole ttl, and can be kept alive.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from headway.resource import Key, Kind, Position, StreamItem, pb
from headway.storage._leases import Acquired, HeldLease


class Fence(NamedTuple):
    """Who writes and in which of its lives; (term, number) is compared with what is stored for the other two."""

    controller: str
    member: str
    term: int
    number: int


class Raised(NamedTuple):
    """A fence raised by a commit. From ``position`` on nothing that carries a lower one is written.

    Attributes:
        fence: as it is stored now.
        position: of the commit.
        checkpoint: the revision recorded by `record_checkpoint`. Before the first record, it is the revision of the
            fence's first raise, because a controller owes nothing for what was before it.
    """

    fence: Fence
    position: Position
    checkpoint: int


@dataclass(frozen=True, slots=True)
class Put:
    """Store ``resource``, whose version the store fills in.

    ``expected`` is the version that must be stored now; empty: there must be nothing. A stored resource with
    another uid refuses it with WrongUid, before versions are compared. Ownership of ``resource`` passes to the
    store.
    """

    kind: Kind
    key: Key
    resource: pb.Resource
    expected: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete what has this kind and key, if it has this ``uid`` and this version.

    Nothing there, or another uid: nothing happens, and that is no error. Another version is a VersionConflict.
    """

    kind: Kind
    key: Key
    uid: str
    expected: str


@dataclass(frozen=True, slots=True)
class Require:
    """Do the commit only if what has this kind and key has this ``uid`` and, where ``expected`` is given, this version.

    Otherwise it is refused with VersionConflict, whatever is there instead. Changes nothing itself.
    """

    kind: Kind
    key: Key
    uid: str
    expected: str = ""


@dataclass(frozen=True, slots=True)
class RequireOwnsNothing:
    """Do the commit only if this uid owns nothing; otherwise it is refused with StillOwns. Changes nothing itself."""

    owner_uid: str


Operation = Put | Remove | Require | RequireOwnsNothing


def refuse_repeated_keys(operations: Sequence[Operation]) -> None:
    """Raise ValueError when two operations of one commit change the same resource: neither order would be right."""
    if len(operations) < 2:
        return
    seen: set[tuple[Kind, Key]] = set()
    for operation in operations:
        if isinstance(operation, Require | RequireOwnsNothing):
            continue
        place = (operation.kind, operation.key)
        if place in seen:
            raise ValueError(f"{'.'.join(operation.kind)} {'/'.join(operation.key)} is named twice in one commit")
        seen.add(place)


class Within(NamedTuple):
    """Which resources of a kind: partition and namespace exactly, or ``*`` for any, and the start of the name."""

    partition: str = "*"
    namespace: str = "*"
    name_prefix: str = ""

    @property
    def everything(self) -> bool:
        """Whether this filters nothing out."""
        return self.partition == "*" and self.namespace == "*" and not self.name_prefix

    def matches(self, key: Key) -> bool:
        """Whether a key is within."""
        return (
            (self.partition in ("*", key[0]))
            and (self.namespace in ("*", key[1]))
            and key[2].startswith(self.name_prefix)
        )


class Watch(Protocol):
    """One watcher. Its items follow promise 5; a chunk of changes ends with its commit."""

    async def next(self) -> StreamItem:
        """The next item, when there is one. Raises HistoryCompacted when this watcher has fallen too far behind.

        Cancelled, it has taken nothing.
        """
        ...

    def close(self) -> None:
        """Let go of what the watch holds. Idempotent."""
        ...


class ReadsAtOnce(Protocol):
    """What a store may do besides: read without waiting. Found by its method; see `read_for_commit`."""

    def read_nowait(self, kind: Kind, key: Key) -> tuple[pb.Resource | None, Position]:
        """As `Backend.read`, without a checkpoint."""
        ...


class Shared(Protocol):
    """What a store says that several engines may have open at once. Found by its attribute; see `is_shared`."""

    @property
    def shared(self) -> bool:
        """True."""
        ...


def is_shared(backend: Backend) -> bool:
    """Whether other engines may have the same store open: then nothing of this one's is the only one of its kind."""
    store: object = backend
    return bool(getattr(store, "shared", False))


def last_leases(backend: Backend, *, lasting: bool) -> bool:
    """Say whether leases last until they are given back, because only one process can ask the store for any.

    Returns whether the store knows what that means: the stores of this package that one process has alone do.
    """
    store: object = backend
    last = getattr(store, "last_leases", None)
    if last is not None:
        last(lasting=lasting)
    return last is not None


Read = Callable[[Kind, Key], Awaitable[tuple[pb.Resource | None, Position]]]
"""A way to read, as `Backend.read` is one."""


class OptimisticReads(Protocol):
    """What a store on a network may do besides: read what it believes. Found by its method; see `optimistic_read`."""

    async def read_believed(self, kind: Kind, key: Key) -> tuple[pb.Resource | None, Position]:
        """As `Backend.read`, and perhaps of a moment ago: others may have committed since."""
        ...


def optimistic_read(backend: Backend) -> Read | None:
    """A faster way to read for who commits next what it has read, requires all of it, and reads again when refused.

    A commit that is taken was decided on what was true; what else it leads to may not be. None: the store has none.
    """
    store: object = backend
    read: Read | None = getattr(store, "read_believed", None)
    return read


async def read_for_commit(backend: Backend, kind: Kind, key: Key) -> tuple[pb.Resource | None, Position]:
    """As `Backend.read`, for who commits next: without a checkpoint where the store can, as the commit has one."""
    store: object = backend
    read_nowait: Callable[[Kind, Key], tuple[pb.Resource | None, Position]] | None
    read_nowait = getattr(store, "read_nowait", None)
    return await backend.read(kind, key) if read_nowait is None else read_nowait(kind, key)


class Backend(Protocol):
    """A store. See the module's promises."""

    @property
    def position(self) -> Position:
        """Where the store stands: its id, this opening's incarnation, the revision of the last commit."""
        ...

    async def read(self, kind: Kind, key: Key) -> tuple[pb.Resource | None, Position]:
        """What is stored, and a position at which it was so."""
        ...

    async def list(
        self, kind: Kind, within: Within, *, after: Key | None = None, limit: int = 0
    ) -> tuple[Sequence[pb.Resource], Position]:
        """What is stored of a kind, all versions of it, in order of key.

        Only what comes after a key, where one is given (it need not be there), and at most ``limit``; 0: all.
        """
        ...

    async def list_by_owner(self, owner_uid: str) -> tuple[Sequence[pb.Resource], Position]:
        """What this uid owns, whether or not the owner is still there; an empty uid owns nothing."""
        ...

    async def kinds(self) -> Sequence[Kind]:
        """The kinds of which something is stored, in order, whether or not any program still knows them."""
        ...

    async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:
        """Do all operations in one commit and return its position; one that changes nothing makes no revision.

        Every store takes 32 operations; how many more is its own.
        What an operation asks of the store, it asks of the state before the commit. Raises VersionConflict, WrongUid,
        StillOwns, FenceLowered or UnknownTerm (the fence bears a term that was never granted), and then nothing was
        done; ValueError when two operations change the same resource.
        A store on a disk or a network raises RemoteError's kinds besides: OutcomeUnknown when the commit may have
        happened, any other one when it has not.
        """
        ...

    async def watch(self, kind: Kind, within: Within, resume_after: Position | None = None) -> Watch:
        """Watch a kind. Raises StoreMismatch or HistoryCompacted when it can't resume after that position."""
        ...

    async def raise_fence(self, controller: str, member: str, term: int, number: int) -> Raised:
        """Raise a fence by a commit; with term 0 to one above the stored term.

        Raises FenceLowered when (term, number) is not above what is stored, and when the lease that governs the fence
        is held in another term.
        """
        ...

    async def record_checkpoint(self, fence: Fence, revision: int) -> None:
        """Note beside the fence up to which revision its controller owes nothing; makes no revision.

        Raises FenceLowered when the fence is below the stored one, and UnknownTerm when its term is above. A lower
        revision than the one noted is ignored.
        """
        ...

    async def acquire_lease(self, name: str, holder: str, ttl: float, attempt: str = "") -> Acquired:
        """Take a lease for ``ttl`` seconds by a commit, unless another holds it.

        Whoever takes it has a higher term than anybody before, the present holder included, and its fence stands at
        number 0 of that term. So does a repeated request, whose first answer may have been lost. Only when the present
        term began by the same attempt and is in use (its holder has renewed it or raised its fence) is the request
        late: it is refused as another holder's is, and the term goes on. An empty attempt is never the same. Makes no
        revision when it takes nothing.
        """
        ...

    async def keep_lease(self, name: str, holder: str, term: int) -> None:
        """Put the expiry off to a whole ttl from now; makes no revision. Raises LeaseEnded when the term has ended."""
        ...

    async def release_lease(self, name: str, holder: str, term: int) -> None:
        """End a term early, by a commit. When it has ended already nothing happens, and that is no error."""
        ...

    async def list_leases(self, name_prefix: str = "") -> tuple[Sequence[HeldLease], Position]:
        """The leases that are held and whose names begin so, in order of name."""
        ...

    async def wait_lease_ended(self, name: str, term: int) -> None:
        """Return when the lease is not held in this term."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
