"""The state of an open store in etcd: its mirror, the tasks that wait for it, and the sending of commits."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import trio

from headway._gen.etcdserverpb import RangeRequest, TxnRequest
from headway.errors import HeadwayError, StoreUnusable, Unavailable
from headway.resource import Position
from headway.storage._rules import Rules, TableContent
from headway.storage._tables import Effect
from headway.storage._watch import Pulse
from headway.storage.etcd._batcher import Batcher
from headway.storage.etcd._client import CALL_TIMEOUT, EtcdClient, too_many_operations
from headway.storage.etcd.layout import (
    Draft,
    Layout,
    Mirror,
    TransactionReply,
    checkpoint_from,
    etcd_revision,
    putting,
    revision_of,
    scope_from,
    transaction,
    unchanged,
)


class _Batch:
    """The tasks that share one request."""

    __slots__ = ("done", "failure")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.failure: HeadwayError | None = None


class Confirmations:
    """Shared requests. Each task waits for a request that begins after the task asked for it.

    One request is under way at a time. All tasks that ask during it share the next one. So etcd gets few requests, even
    from many tasks.

    Args:
        nursery: the nursery of the task that makes the requests.
        question: makes the request. All tasks that share it raise its HeadwayErrors.
    """

    def __init__(self, nursery: trio.Nursery, question: Callable[[], Awaitable[None]]) -> None:
        self._nursery = nursery
        self._question = question
        self._next: _Batch | None = None
        self._asking = False

    async def ask(self) -> None:
        """Wait for the answer to a request that begins after this call."""
        batch = self._next
        if batch is None:
            batch = self._next = _Batch()
            if not self._asking:
                self._asking = True
                self._nursery.start_soon(self._run, name="etcd: read the revision")
        await batch.done.wait()
        if batch.failure is not None:
            # Each task raises its own error object, because raising adds a traceback to it.
            raise type(batch.failure)(*batch.failure.args) from batch.failure

    async def _run(self) -> None:
        batch: _Batch | None = None
        try:
            while self._next is not None:
                batch, self._next = self._next, None
                try:
                    await self._question()
                except HeadwayError as error:
                    batch.failure = error
                batch.done.set()
        finally:
            # Wake all waiting tasks, even after a cancellation.
            self._asking = False
            for left in (batch, self._next):
                if left is not None and not left.done.is_set():
                    left.failure = Unavailable("the store is being closed")
                    left.done.set()
            self._next = None


CATCH_UP = CALL_TIMEOUT
"""The seconds that a reader waits for the watch to deliver changes that are known to be committed."""

_AGAIN = 0.02


class Kept(NamedTuple):
    """A term of a lease that this engine has granted or renewed.

    Attributes:
        until: the earliest time when the lease can expire, by Trio's clock.
        renewed: True once its holder has renewed it through this engine.
    """

    term: int
    until: float
    renewed: bool


class Session:
    """One session of a store.

    Attributes:
        mirror: the current mirror. It is replaced when the store had to be read again.
        pulse: wakes the watchers of the current mirror at each of its changes. A new mirror has a new pulse.
        changed: wakes waiting tasks at each change of any mirror.
        counts: the number of rejected answers and of repeated reads, by reason.
        rules: the rules of commits.
        content: the content of the mirror, as rules see it.
        failing: True if the last transaction failed.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        client: EtcdClient,
        layout: Layout,
        mirror: Mirror,
        counts: Counter[str],
        suspect: Callable[[str], None],
        max_txn_ops: int,
        rules: Rules,
    ) -> None:
        self.client = client
        self.layout = layout
        self.mirror = mirror
        self.rules = rules
        self._rule_over(mirror)
        self.pulse = Pulse()
        self.changed = Pulse()
        self.counts = counts
        # The leases that were acquired or renewed through this engine.
        self.kept: dict[str, Kept] = {}
        self.failing = False
        self._suspect = suspect
        self._max_txn_ops = max_txn_ops
        self._confirmations = Confirmations(nursery, self._catch_up)
        self._batcher = Batcher(self._write)
        # Invariant: no revision of this history above this one and the mirror's has been returned to a caller.
        self._seen = mirror.head.revision
        self._stopped: Callable[[], HeadwayError] | None = None
        self._under_way = 0
        self._idle = trio.Event()

    # --- The store's revision -------------------------------------------------

    @property
    def position(self) -> Position:
        """The position of the latest revision that this session has returned, or that the mirror has."""
        return self.mirror.at(max(self._seen, self.mirror.head.revision))

    def at(self, revision: int) -> Position:
        """Record that a revision is about to be returned to a caller, and return its position."""
        if revision > self._seen:
            self._seen = revision
        return self.mirror.at(revision)

    async def confirm(self) -> None:
        """Wait until the mirror has every commit, of any engine, that was made before the call.

        Raises:
            Unavailable: etcd cannot be reached, or its watch does not deliver the commits in time.
        """
        await self._confirmations.ask()

    async def _catch_up(self) -> None:
        """Read the store's revision, and wait until the mirror has reached it."""
        mirror, delivered = self.mirror, self.mirror.head.revision
        revision = await self.read_head()
        if etcd_revision(revision) < etcd_revision(delivered):
            self._suspect(f"a linearizable read returned revision {revision} after the watch had delivered {delivered}")
            raise Unavailable(f"etcd at {self.client.where} answered with an older state than before")
        with trio.move_on_after(CATCH_UP):
            while self.mirror.head.revision < revision:
                await self.changed.wait()
                if self.mirror.store_id != mirror.store_id:
                    raise Unavailable(f"the store at {self.client.where} was replaced during the read")
            return
        self._suspect(f"the watch has not delivered the commits up to {revision} in time")
        raise Unavailable(
            f"timed out: the watch of etcd at {self.client.where} is at revision {self.mirror.head.revision} and has "
            f"not delivered the commits up to {revision} within {CATCH_UP} s"
        )

    async def read_checkpoints(self, controller: str) -> dict[str, int]:
        """Read the checkpoints of a controller, by member, linearizably. Raise Unavailable on failure."""
        keys, split = self.layout.checkpoints(controller), self.layout.split
        reply = await self.client.range(RangeRequest(key=keys.key, range_end=keys.end))
        return {scope_from(split(kv.key)[1])[1]: checkpoint_from(kv) for kv in reply.kvs}

    async def read_head(self) -> int:
        """Read the revision of the first commit of the last transaction, linearizably. Raise Unavailable on failure."""
        reply = await self.client.range(RangeRequest(key=self.layout.head, keys_only=True))
        if not reply.kvs:
            self._suspect("the head key is missing")
            raise Unavailable(
                f"the head key of the store at {self.client.where} is missing: give etcd its data back, or restart "
                "every server to found an empty store"
            )
        return revision_of(reply.kvs[0].mod_revision)

    # --- Commits -------------------------------------------------------------

    def draft(self) -> Draft:
        """Return an empty commit that is based on the mirror's state."""
        return Draft(self.layout, self.mirror)

    def submit(self, draft: Draft) -> Awaitable[int | None]:
        """Make a commit. Return None if one of its comparisons fails. Then nothing was changed.

        A cancellation is raised only if the commit has not been sent and never will be.

        Raises:
            InvalidArgument: the commit has more operations than etcd accepts. It cannot be split, since it would no
                longer be one commit.
        """
        if draft.needs > self._max_txn_ops:
            raise too_many_operations(draft.needs, self._max_txn_ops, self.client.where)
        if draft.trace is not None and draft.needs == self._max_txn_ops:
            # A trace never keeps a commit from being made: its own key has no room.
            draft.trace = None
        return self._batcher.submit(draft)

    def is_outdated(self, draft: Draft) -> bool:
        """Return True if this process has added to the same limited numbers what the mirror does not have yet."""
        return self._batcher.is_outdated(draft)

    async def wait_changed(self) -> None:
        """Wait until the mirror changes, or for a moment: a transaction may end without a change."""
        with trio.move_on_after(_AGAIN):
            await self.changed.wait()

    async def _write(self, drafts: Sequence[Draft]) -> TransactionReply:
        """Make several commits in one transaction: all of them or none. It is not canceled and takes a bounded time."""
        nonce, given = os.urandom(8), self.mirror.given
        changes: dict[bytes, Effect] = {}
        for draft in drafts:
            changes.update(draft.given)
        if changes:
            # Their head takes them out again. A draft that only notes a checkpoint changes nothing and writes no head.
            given[nonce] = changes
        reply: TransactionReply | None = None
        try:
            with trio.CancelScope(shield=True):
                reply = await self.client.write(transaction(self.layout, drafts, nonce))
        finally:
            self.failing = reply is None
            if reply is None or not reply.succeeded:
                given.pop(nonce, None)
        assert reply is not None, "only an error leaves it unset"
        return reply

    async def probe(self) -> None:
        """Raise an error if etcd cannot be reached or accepts no writes."""
        await self.confirm()
        if self.failing:
            # No key has revision -1, so this transaction writes nothing. An etcd that is out of space still rejects it.
            never = unchanged(self.layout.anchor, -1)
            await self.client.read(TxnRequest(compare=[never], success=[putting(self.layout.anchor)]))
            self.failing = False

    async def wait_newer(self, mirror: Mirror, version: int) -> None:
        """Bring the mirror up to date after etcd has refused a commit that was based on this version of ``mirror``."""
        await self.confirm()
        if self.mirror is mirror and mirror.version == version:
            # The end of a lease is not a commit, so there may be no revision to wait for.
            await self.wait_changed()

    # --- The beginning and the end -------------------------------------------

    def replace(self, mirror: Mirror, why: Callable[[], HeadwayError], *, same_history: bool) -> None:
        """Replace the mirror. Watchers of the old one raise the error that ``why`` returns."""
        # In the same history, a commit may have been answered after the mirror was read. Revisions of another history
        # mean nothing in this one.
        self._seen = max(self._seen, mirror.head.revision) if same_history else mirror.head.revision
        pulse, self.pulse = self.pulse, Pulse()
        if same_history:
            mirror.traces = self.mirror.traces
        else:
            self._batcher.forget()
        self.mirror = mirror
        self._rule_over(mirror)
        pulse.stop(why)
        self.changed.beat()

    def _rule_over(self, mirror: Mirror) -> None:
        """Let the rules begin with the content of a mirror, and follow it."""
        content, rules = TableContent(mirror.tables), self.rules
        self.content = content
        rules.begin(content)

        def follow(applied: Sequence[Effect]) -> None:
            if rules.concern(applied):
                rules.follow(content.changes(applied))

        mirror.applied = follow

    def use(self) -> Session:
        """Return self. Raise the error of a stopped session."""
        if self._stopped is not None:
            raise self._stopped()
        return self

    def begin(self) -> None:
        """Note that a commit begins."""
        self._under_way += 1

    def end(self) -> None:
        """Note that a commit has ended."""
        self._under_way -= 1
        if not self._under_way:
            self._idle.set()

    def stop(self, why: Callable[[], HeadwayError]) -> None:
        """Let all waiting tasks and all later calls raise the error that ``why`` returns."""
        self._stopped = self._stopped or why
        self.pulse.stop(self._stopped)
        self.changed.stop(self._stopped)

    async def wait_idle(self) -> None:
        """Wait until the commits under way have ended. Each ends in bounded time."""
        while self._under_way:
            self._idle = trio.Event()
            await self._idle.wait()


def closed(where: str) -> Callable[[], HeadwayError]:
    """Return a function that makes the error for the use of a closed store."""
    return lambda: StoreUnusable(f"the store at {where} is closed")
