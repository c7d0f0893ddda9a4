"""Batches of commits. The commits that arrive while transactions are under way share the next transaction.

A call to etcd costs many times more than its operations. Each commit of a batch keeps its own outcome and its own
revision: its comparisons are the same as if it were alone, and it follows the earlier ones in the transaction.

A commit is sent alone, at once, if it touches the same keys as another one of the batch (`Draft.fits_with`), or
compares a key that a transaction under way writes. If etcd rejects a batch, each of its commits is sent alone.

Under load two transactions alternate: while etcd makes one durable, this process prepares the other. So a transaction
takes at most half of the commits that wait or are under way.

Commits that add to the same limited numbers share a transaction as long as there is room for all of them. While such a
transaction is under way, others that add to them wait: their decision needs its result (`is_outdated`).

There is no background task. A writer that finds no leader leads one transaction, and hands over to the first waiting
writer. Invariants:

1. While a writer waits, another one leads, or `MOST_UNDER_WAY` transactions are under way. Each takes a bounded time.
   So no writer waits longer than `LONGEST_WAIT` and one transaction, regardless of the number of writers.
2. A leader's own commit is in the transaction. It is the first of those that waited.
3. A commit is in one transaction at a time. It is sent again only if etcd's reply shows that it was not applied.
4. A canceled writer leaves only while its commit has not been sent. Once it has been sent, the writer waits for the
   outcome.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import trio

from headway.errors import HeadwayError, InvalidArgument, OutcomeUnknown, Unavailable
from headway.storage.etcd._client import CALL_TIMEOUT
from headway.storage.etcd.layout import PLACES, Draft, TransactionReply, revision_of

MOST_UNDER_WAY = 2
"""The number of transactions at a time. While one is being made durable, the next one is prepared."""

SHARED_BY_ALL = 32
"""The number of commits up to which a batch takes all that wait. Two small transactions cost more than one."""

MOST_OPERATIONS = 100
"""The limit of operations, and of comparisons, of a batch. etcd accepts 128 of each, with the head and anchor."""

MOST_BYTES = 256 << 10
"""The limit of bytes of the resources in a batch. A commit with more than a quarter of it is sent alone."""

LONGEST_WAIT = CALL_TIMEOUT
"""The maximum wait of a commit in seconds. It fails if etcd does not answer, or not as fast as commits arrive."""


class _Waiting:
    __slots__ = ("again", "alone", "committed", "done", "draft", "error", "since", "task")

    def __init__(self, draft: Draft, since: float) -> None:
        self.draft = draft
        self.since = since
        # The task that sleeps until the commit is done, or until its writer becomes the leader.
        self.task: trio.lowlevel.Task | None = None
        self.done = False
        self.committed: int | None = None
        self.error: HeadwayError | None = None
        # True if it must be sent alone: it does not fit into the batch, or the batch failed, perhaps because of others.
        self.alone = False
        # True if it must be decided again, without a transaction: the limited numbers that it adds to have changed.
        self.again = False

    def wake(self) -> None:
        """Wake the writer, unless it is awake."""
        task, self.task = self.task, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    def finish(self) -> None:
        """Wake the writer: the commit has ended."""
        self.done = True
        self.wake()


class Batcher:
    """The batches of commits to one store.

    Args:
        write: makes the commits of several drafts in one transaction. It must not be canceled. Its errors show if the
            transaction may have happened.
    """

    def __init__(self, write: Callable[[Sequence[Draft]], Awaitable[TransactionReply]]) -> None:
        self._write = write
        # Every commit reads the time, and the clock itself answers faster than `trio.current_time`.
        self._now = trio.lowlevel.current_clock().current_time
        self._waiting: list[_Waiting] = []
        self._leading = False
        self._under_way = 0
        # The number of commits in the batches under way.
        self._sent_together = 0
        # The keys that each transaction under way writes. A commit that compares one of them is based on older state.
        # It will most likely be rejected, together with its batch.
        self._writing: list[set[bytes]] = []
        # The keys of the limited numbers that each transaction under way adds to, and etcd's revision of the last one
        # that has ended, by key.
        self._adding: list[set[bytes]] = []
        self._added: dict[bytes, int] = {}

    def is_outdated(self, draft: Draft) -> bool:
        """Return True if its decision lacks a transaction that adds to the same limited numbers."""
        return not all(each.isdisjoint(draft.claims) for each in self._adding) or any(
            draft.compared[key] < self._added.get(key, 0) for key in draft.claims
        )

    def forget(self) -> None:
        """Forget which transactions have added: the store has another history now, perhaps of lower revisions."""
        self._added.clear()

    @trio.lowlevel.enable_ki_protection
    async def submit(self, draft: Draft) -> int | None:
        """Make a commit. Return None if one of its comparisons fails. Then nothing was changed.

        A cancellation is raised only if the commit has not been sent and never will be.
        """
        alone = draft.alone or draft.size > MOST_BYTES // 4
        for each in self._writing:
            alone = alone or not each.isdisjoint(draft.compared)
        if alone:
            return await self._alone(draft)
        mine = _Waiting(draft, self._now())
        self._waiting.append(mine)
        if self._leading or self._under_way == MOST_UNDER_WAY:
            # Sleep until the commit is done or its writer leads, without an event or a cancel scope for each commit.
            mine.task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(partial(self._leave, mine))
        if not mine.done:
            await self._lead()
        if mine.again:
            return None
        if mine.alone:
            return await self._alone(draft)
        if mine.error is not None:
            raise mine.error
        return mine.committed

    def _leave(self, mine: _Waiting, _: object) -> trio.lowlevel.Abort:
        """Let a canceled writer leave if its commit has not been sent."""
        if mine not in self._waiting:
            return trio.lowlevel.Abort.FAILED
        # Another writer leads, or this one would be awake. So there is nothing to hand on.
        self._waiting.remove(mine)
        return trio.lowlevel.Abort.SUCCEEDED

    async def _alone(self, draft: Draft) -> int | None:
        return _made(await self._sent([draft]), 0)

    async def _sent(self, drafts: Sequence[Draft]) -> TransactionReply:
        writing = set[bytes]().union(*(draft.given for draft in drafts))
        adding = set[bytes]().union(*(draft.claims for draft in drafts))
        self._writing.append(writing)
        self._adding.append(adding)
        try:
            reply = await self._write(drafts)
            if reply.succeeded:
                self._added.update(dict.fromkeys(adding, reply.header.revision))  # type: ignore[union-attr]  # every reply has one
            return reply
        finally:
            self._writing.remove(writing)
            self._adding.remove(adding)

    async def _lead(self) -> None:
        """Send the waiting commits in one transaction."""
        self._leading = True
        # Writers that one transaction has woken run in the next turn of the loop, in any order, and arrive with their
        # next commits. One of them may be this leader, so only the turn after that one has seen them all.
        await trio.lowlevel.cancel_shielded_checkpoint()
        await trio.lowlevel.cancel_shielded_checkpoint()
        self._refuse_late()
        batch = self._taken()
        if not batch:
            self._hand_on()
            return
        self._under_way += 1
        self._sent_together += len(batch)
        self._hand_on()
        try:
            reply = await self._sent([each.draft for each in batch])
            for place, each in enumerate(batch):
                each.committed = _made(reply, place)
                # Others have added to the same numbers. Alone it would be rejected again.
                each.again = each.committed is None and bool(each.draft.claims)
                each.alone = len(batch) > 1 and each.committed is None and not each.again
        except HeadwayError as error:
            for each in batch:
                # The batch may be too large, even if no commit is.
                each.alone = len(batch) > 1 and isinstance(error, InvalidArgument)
                # Each writer raises its own error object, because raising adds a traceback to it.
                each.error = type(error)(*error.args)
                each.error.__cause__ = error
        except BaseException as error:
            for each in batch:
                each.error = OutcomeUnknown(f"a commit was interrupted and may have happened: {error!r}")
            raise
        finally:
            for each in batch:
                each.finish()
            self._under_way -= 1
            self._sent_together -= len(batch)
            self._hand_on()

    def _refuse_late(self) -> None:
        """Fail the commits that have waited too long, except for the first: its writer sends the batch."""
        since = self._now() - LONGEST_WAIT
        late = [each for each in self._waiting[1:] if each.since <= since]
        # The list is in order of arrival.
        del self._waiting[1 : len(late) + 1]
        for each in late:
            each.error = Unavailable(f"timed out: a commit waited {LONGEST_WAIT} s behind others; nothing was written")
            each.finish()

    def _taken(self) -> list[_Waiting]:
        """Take the first waiting commit, and those that fit with the earlier ones, until the batch is full."""
        batch: list[_Waiting] = []
        compared: dict[bytes, int] = {}
        taken: dict[bytes, Sequence[int]] = {}
        places = set[bytes]().union(*self._writing)
        operations = size = 0
        half = -(-(len(self._waiting) + self._sent_together) // MOST_UNDER_WAY)
        most_commits = min(max(half, SHARED_BY_ALL), PLACES)
        for each in self._waiting:
            draft = each.draft
            operations, size = operations + draft.operations, size + draft.size
            most = max(operations, len(compared) + len(draft.compared))
            if batch and (most > MOST_OPERATIONS or size > MOST_BYTES or len(batch) == most_commits):
                break
            batch.append(each)
            each.again = bool(draft.claims) and (self.is_outdated(draft) or not draft.has_room(taken))
            each.alone = len(batch) > 1 and not each.again and not draft.fits_with(compared, places)
            if each.alone or each.again:
                each.finish()
            else:
                compared |= draft.compared
                places.update(draft.given)
                for key, claim in draft.claims.items():
                    before = taken.get(key, (0,) * len(claim.adds))
                    taken[key] = [added + more for added, more in zip(before, claim.adds, strict=True)]
        self._waiting = self._waiting[len(batch) :]
        return [each for each in batch if not (each.alone or each.again)]

    def _hand_on(self) -> None:
        self._leading = bool(self._waiting) and self._under_way < MOST_UNDER_WAY
        if self._leading:
            self._waiting[0].wake()


def _made(reply: TransactionReply, place: int) -> int | None:
    return revision_of(reply.header.revision, place) if reply.succeeded else None  # type: ignore[union-attr]  # every reply has one
