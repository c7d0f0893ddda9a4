"""Commits that go to etcd together: those that come while transactions are under way share the next one.

A call costs many times what its operations do. Each commit keeps its own outcome and its own revision: it is compared
as it would be alone, and stands behind those before it in the transaction. One that touches what another of them does
(`Draft.fits_with`), or compares what one under way writes, goes alone, at once; and where etcd doesn't take a
transaction of several, each of them does.

There is no background task. A writer that finds nobody leading leads one transaction, and hands on to the first of
those that wait. Invariants:

1. While anything waits, somebody leads, or `MOST_UNDER_WAY` transactions are under way, each for a bounded time. So
   nobody waits for longer than `LONGEST_WAIT` and one of them, however many wait.
2. Whoever leads has a commit in the transaction: the first of those that waited.
3. A commit is in one transaction at a time, and in none again unless etcd has said that it did nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import trio

from headway._gen.etcdserverpb import TxnResponse
from headway.errors import HeadwayError, InvalidArgument, OutcomeUnknown, Unavailable
from headway.storage._etcd._client import CALL_TIMEOUT
from headway.storage._etcd._records import PLACES, revision_of
from headway.storage._etcd._transaction import Draft

MOST_UNDER_WAY = 2
"""Transactions at a time: while one is being made durable the next is put together."""

MOST_OPERATIONS = 100
"""Operations of several commits, and comparisons: etcd takes 128 of each, the head's and the anchor's among them."""

MOST_BYTES = 256 << 10
"""Bytes of the resources of several commits; one that has a quarter of them shares no call."""

LONGEST_WAIT = CALL_TIMEOUT
"""Seconds after which who still waits is no longer to be sent: etcd doesn't answer, or not as fast as writers come."""


class Made(NamedTuple):
    """A commit that was made.

    Attributes:
        reply: to its transaction.
    """

    reply: TxnResponse
    revision: int


class _Waiting:
    __slots__ = ("alone", "done", "draft", "error", "made", "since", "turn")

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.since = trio.current_time()
        # Set when it is done, or when it is its writer who leads now.
        self.turn = trio.Event()
        self.done = False
        self.made: Made | None = None
        self.error: HeadwayError | None = None
        # Whether it is to go by itself: with others it can't be made, or perhaps wasn't because of them.
        self.alone = False

    def finish(self) -> None:
        """Let its writer go."""
        self.done = True
        self.turn.set()


class Together:
    """Those who commit to one store.

    Args:
        write: makes the commits of some drafts in one transaction; what it raises says whether that has happened.
    """

    def __init__(self, write: Callable[[Sequence[Draft]], Awaitable[TxnResponse]]) -> None:
        self._write = write
        self._waiting: list[_Waiting] = []
        self._leading = False
        self._under_way = 0
        # What each transaction that is under way writes. Who compares that was decided on before: it is most likely
        # refused, and whoever is with it.
        self._writing: list[set[bytes]] = []

    @trio.lowlevel.enable_ki_protection
    async def submit(self, draft: Draft) -> Made | None:
        """Make a commit; None when something that it compares doesn't hold, and nothing was done.

        Not to be cancelled: call it where cancellation is shielded from.
        """
        late = not all(each.isdisjoint(draft.believed) for each in self._writing)
        if draft.alone or late or draft.size > MOST_BYTES // 4:
            return await self._alone(draft)
        mine = _Waiting(draft)
        self._waiting.append(mine)
        if self._leading or self._under_way == MOST_UNDER_WAY:
            try:
                await mine.turn.wait()
            except BaseException:
                # KeyboardInterrupt respects no shield.
                if mine in self._waiting:
                    self._waiting.remove(mine)
                    self._hand_on()
                raise
        if not mine.done:
            await self._lead()
        if mine.alone:
            return await self._alone(draft)
        if mine.error is not None:
            raise mine.error
        return mine.made

    async def _alone(self, draft: Draft) -> Made | None:
        return _made(await self._sent([draft]), 0)

    async def _sent(self, drafts: Sequence[Draft]) -> TxnResponse:
        writing = set[bytes]().union(*(draft.places for draft in drafts))
        self._writing.append(writing)
        try:
            return await self._write(drafts)
        finally:
            self._writing.remove(writing)

    async def _lead(self) -> None:
        """Make one transaction of those who wait."""
        self._leading = True
        # Those whom one transaction has let go come with their next commits in one turn of the loop.
        await trio.lowlevel.cancel_shielded_checkpoint()
        self._refuse_late()
        batch = self._taken()
        self._under_way += 1
        self._hand_on()
        try:
            reply = await self._sent([each.draft for each in batch])
            for place, each in enumerate(batch):
                each.made = _made(reply, place)
                each.alone = len(batch) > 1 and each.made is None
        except HeadwayError as error:
            for each in batch:
                # Too large together, perhaps.
                each.alone = len(batch) > 1 and isinstance(error, InvalidArgument)
                # Everybody raises an error of their own: a traceback is added to each.
                each.error = type(error)(*error.args)
                each.error.__cause__ = error
        except BaseException as error:
            for each in batch:
                each.error = OutcomeUnknown(f"a commit was interrupted, which may have happened: {error!r}")
            raise
        finally:
            for each in batch:
                each.finish()
            self._under_way -= 1
            self._hand_on()

    def _refuse_late(self) -> None:
        """Let go of those who have waited for too long; but for the first, who leads."""
        since = trio.current_time() - LONGEST_WAIT
        late = [each for each in self._waiting[1:] if each.since <= since]
        # They wait in the order in which they have come.
        del self._waiting[1 : len(late) + 1]
        for each in late:
            each.error = Unavailable(f"a commit waited for {LONGEST_WAIT} s behind others; nothing was written")
            each.finish()

    def _taken(self) -> list[_Waiting]:
        """The first of those who wait, and whoever fits with those before, as long as there is room."""
        batch: list[_Waiting] = []
        believed: dict[bytes, int] = {}
        places = set[bytes]().union(*self._writing)
        operations = size = 0
        for each in self._waiting:
            draft = each.draft
            operations, size = operations + draft.operations, size + draft.size
            most = max(operations, len(believed) + len(draft.believed))
            if batch and (most > MOST_OPERATIONS or size > MOST_BYTES or len(batch) == PLACES):
                break
            batch.append(each)
            each.alone = len(batch) > 1 and not draft.fits_with(believed, places)
            if each.alone:
                each.finish()
            else:
                believed |= draft.believed
                places |= draft.places
        self._waiting = self._waiting[len(batch) :]
        return [each for each in batch if not each.alone]

    def _hand_on(self) -> None:
        self._leading = bool(self._waiting) and self._under_way < MOST_UNDER_WAY
        if self._leading:
            self._waiting[0].turn.set()


def _made(reply: TxnResponse, place: int) -> Made | None:
    return Made(reply, revision_of(reply.header.revision, place)) if reply.succeeded else None  # type: ignore[union-attr]  # every reply has one
