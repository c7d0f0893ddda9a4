"""The store in an etcd cluster."""

from __future__ import annotations

import ssl
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import MappingProxyType, TracebackType
from typing import Self

import trio

from headway.errors import CommitRefused, StoreUnusable
from headway.resource import Key, Kind, Position, pb
from headway.storage._abilities import FiltersMetadata, ListsFences, OptimisticReads, Probed, Shared, TakesRules
from headway.storage._backend import Backend
from headway.storage._leases import Acquired, CurrentLease
from headway.storage._log import MAX_BYTES
from headway.storage._operations import Fence, Operation, Raised, Within, refuse_repeated_keys
from headway.storage._reads import count_for_rules, list_owned, list_within, read_snapshot
from headway.storage._resuming import check_resumable, resume
from headway.storage._rules import Rules
from headway.storage._traces import CommitTraces
from headway.storage._watch import LogWatch
from headway.storage.etcd import _commit, _lease
from headway.storage.etcd._address import EtcdAddress, etcd_address
from headway.storage.etcd._client import open_client
from headway.storage.etcd._follow import Follower
from headway.storage.etcd._founding import begin_session
from headway.storage.etcd._session import Session, closed
from headway.storage.etcd.layout import Layout

MAX_CHANGES, MAX_AGE = 100_000, 3600.0
MAX_TXN_OPS = 128
"""The default of etcd's own ``--max-txn-ops``."""


class EtcdBackend:
    """A `Backend` on a prefix of an etcd cluster, shared with any number of other engines. Open it with ``async with``.

    One watch keeps a mirror of the whole store in the process. A read first asks etcd for the store's revision.

    Opening raises Unavailable if no member can be reached, and StoreUnusable if the keys under the prefix cannot be
    used. It reads the history of up to 20,000 earlier transactions, as far as etcd has not compacted them.

    Args:
        url: ``etcd://host:port,host:port/prefix``. See `etcd_address` for its options. The other arguments take
            precedence over them.
        tls: the TLS context of the connections.
        max_changes: the number of changes of history to keep for watchers that resume. 100,000 by default.
        max_age: the maximum age of the kept history in seconds. 3600 by default.
        max_bytes: the number of bytes of history to keep, about as they are in memory. 256 MiB by default.
        max_txn_ops: the members' ``--max-txn-ops``. 128 by default, as in etcd. A commit that needs more operations is
            rejected before it is sent.

    Attributes:
        shared: True, because several engines may have the store open.
        filters_metadata: True, because its watches and lists filter by metadata.
        rules: the rules of its commits.
    """

    shared = True
    filters_metadata = True

    def __init__(
        self,
        url: str | EtcdAddress,
        *,
        tls: ssl.SSLContext | None = None,
        max_changes: int | None = None,
        max_age: float | None = None,
        max_bytes: int | None = None,
        max_txn_ops: int | None = None,
    ) -> None:
        address = etcd_address(url) if isinstance(url, str) else url
        self._address = address
        self._tls = tls
        self._max_changes = max_changes or address.max_changes or MAX_CHANGES
        self._max_age = max_age or address.max_age or MAX_AGE
        self._max_bytes = max_bytes or address.max_bytes or MAX_BYTES
        self._max_txn_ops = max_txn_ops or address.max_txn_ops or MAX_TXN_OPS
        self._counts: Counter[str] = Counter()
        self.rules = Rules()
        # Set while the store is open.
        self._opening: AbstractAsyncContextManager[Session] | None = None
        self._session: Session | None = None

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of rejected answers of etcd, and of repeated reads, by reason. For diagnosis."""
        return MappingProxyType(self._counts)

    async def __aenter__(self) -> Self:
        if self._opening is not None:
            raise StoreUnusable(f"the store at {self._address} is already open: an EtcdBackend cannot be entered twice")
        self._opening = _session(
            self._address,
            self._tls,
            self._counts,
            self.rules,
            max_changes=self._max_changes,
            max_age=self._max_age,
            max_bytes=self._max_bytes,
            max_txn_ops=self._max_txn_ops,
        )
        try:
            self._session = await self._opening.__aenter__()
        except BaseException:
            self._opening = None
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._opening is not None, "exited without being entered"
        opening, self._opening, self._session = self._opening, None, None
        await opening.__aexit__(kind, error, traceback)

    def _use(self) -> Session:
        if self._session is None:
            raise closed(str(self._address))()
        return self._session.use()

    @property
    def position(self) -> Position:
        """Return the store's current position. It includes commits of other engines once the mirror has them."""
        return self._use().position

    @property
    def traces(self) -> CommitTraces:
        """The contexts of traced commits, of all engines."""
        return self._use().mirror.traces

    async def read(self, kind: Kind, key: Key) -> tuple[pb.Resource | None, Position]:
        """Return the stored resource, or None, and a position."""
        session = self._use()
        await session.confirm()
        return session.mirror.tables.get(kind, key), session.mirror.position

    async def read_optimistic(self, kind: Kind, key: Key) -> tuple[pb.Resource | None, Position]:
        """Return the resource in the mirror, or None, and a position. Makes no request to etcd."""
        mirror = self._use().mirror
        return mirror.tables.get(kind, key), mirror.position

    async def list(
        self, kind: Kind, within: Within, *, after: Key | None = None, limit: int = 0
    ) -> tuple[Sequence[pb.Resource], Position]:
        """Return the matching resources of a kind, in order of key, and a position."""
        session = self._use()
        await session.confirm()
        mirror = session.mirror
        here = mirror.position
        return await list_within(mirror.tables, kind, within, after, limit), here

    async def list_by_owner(self, owner_uid: str) -> tuple[Sequence[pb.Resource], Position]:
        """Return the resources that a uid owns, and a position."""
        session = self._use()
        await session.confirm()
        mirror = session.mirror
        here = mirror.position
        return await list_owned(mirror.tables, owner_uid), here

    async def kinds(self) -> Sequence[Kind]:
        """Return the kinds that have stored resources, in order."""
        session = self._use()
        await session.confirm()
        return session.mirror.tables.kinds()

    async def commit(self, operations: Sequence[Operation], fence: Fence | None = None) -> Position:
        """Apply all operations in one commit and return its position.

        Raises:
            InvalidArgument: the commit is larger than etcd accepts.
            Unavailable: nothing was written.
            OutcomeUnknown: the commit may have happened.
            VersionConflict, WrongUid, StillOwns, FenceLowered, UnknownTerm, ValueError: as in `Backend.commit`.
        """
        refuse_repeated_keys(operations)
        session = self._use()
        # The code below always waits. A full checkpoint here would cost every write another turn of the loop.
        await trio.lowlevel.checkpoint_if_cancelled()
        session.begin()
        try:
            if self.rules.active:
                await count_for_rules(self.rules, operations)
            return await _commit.commit(session, operations, fence)
        except CommitRefused as error:
            self.rules.refused(error)
            raise
        finally:
            session.end()

    async def raise_fence(self, controller: str, member: str, term: int, number: int) -> Raised:
        """Raise a fence by a commit."""
        session = self._use()
        await trio.lowlevel.checkpoint()
        with _commit.whole(session):
            return await _commit.raise_fence(session, controller, member, term, number)

    async def record_checkpoint(self, fence: Fence, revision: int) -> None:
        """Record that the fence's controller has no pending work up to a revision."""
        session = self._use()
        await trio.lowlevel.checkpoint()
        with _commit.whole(session):
            await _commit.record_checkpoint(session, fence, revision)

    async def probe(self) -> None:
        """Raise an error if etcd cannot be read or written now."""
        await self._use().probe()

    async def list_fences(self) -> Sequence[Fence]:
        """Return every fence, in order of controller and member."""
        session = self._use()
        await session.confirm()
        return session.mirror.fences()

    async def count_for_rules(self) -> None:
        """Let the rules count everything that is stored and not counted yet."""
        await self._use().confirm()
        await count_for_rules(self.rules)

    async def acquire_lease(self, name: str, holder: str, ttl: float, attempt: str = "") -> Acquired:
        """Acquire a lease for ``ttl`` seconds, unless another holder has it.

        etcd ends the term some time after the ttl. It counts in whole seconds, and no term is shorter than a second or
        two.
        """
        return await _lease.acquire(self._use(), name, holder, ttl, attempt)

    async def keep_lease(self, name: str, holder: str, term: int) -> None:
        """Renew a lease for a whole ttl."""
        await _lease.keep(self._use(), name, holder, term)

    async def release_lease(self, name: str, holder: str, term: int) -> None:
        """End a term early."""
        session = self._use()
        await trio.lowlevel.checkpoint()
        await _lease.release(session, name, holder, term)

    async def list_leases(self, name_prefix: str = "") -> tuple[Sequence[CurrentLease], Position]:
        """Return the held leases whose names begin with the prefix, and a position."""
        return await _lease.listed(self._use(), name_prefix)

    async def wait_lease_ended(self, name: str, term: int) -> None:
        """Wait until the lease is not held in this term."""
        await _lease.wait_ended(self._use(), name, term)

    async def watch(self, kind: Kind, within: Within, resume_after: Position | None = None) -> LogWatch:
        """Watch a kind, from a snapshot or after a position. Its only request to etcd is for the store's revision."""
        session = self._use()
        await session.confirm()
        mirror = session.mirror
        if resume_after is None:
            cursor = mirror.log.cursor(kind, mirror.log.head)
            snapshot = read_snapshot(mirror.tables, kind, within)
            return LogWatch(mirror.log, session.pulse, mirror.at, cursor, within, snapshot)
        check_resumable(resume_after, mirror.position, mirror.timeline.lefts(), mirror.timeline.oldest)
        cursor = resume(mirror.log, kind, within, resume_after.revision)
        return LogWatch(mirror.log, session.pulse, mirror.at, cursor, within, None)


@asynccontextmanager
async def _session(
    address: EtcdAddress,
    tls: ssl.SSLContext | None,
    counts: Counter[str],
    rules: Rules,
    *,
    max_changes: int,
    max_age: float,
    max_bytes: int,
    max_txn_ops: int,
) -> AsyncIterator[Session]:
    layout = Layout(address.prefix)
    try:
        async with open_client(address, tls) as client, trio.open_nursery() as nursery:
            follower = Follower(client, layout, counts, max_changes=max_changes, max_age=max_age, max_bytes=max_bytes)
            await begin_session(client, layout)
            mirror, revision = await follower.begin()
            session = Session(nursery, client, layout, mirror, counts, follower.suspect, max_txn_ops, rules)
            nursery.start_soon(follower.run, session, revision + 1, name="etcd: follow the store")
            try:
                yield session
            finally:
                session.stop(closed(str(address)))
                with trio.CancelScope(shield=True):
                    await session.wait_idle()
                nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        # Raise the error of the caller's block itself, not in a group.
        if len(group.exceptions) > 1:
            raise
        raise group.exceptions[0] from group.exceptions[0].__cause__


def _meets_the_protocol() -> tuple[Backend, Shared, OptimisticReads, ListsFences, Probed, FiltersMetadata, TakesRules]:
    made = EtcdBackend("")
    return made, made, made, made, made, made, made
