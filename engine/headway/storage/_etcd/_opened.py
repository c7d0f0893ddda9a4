"""What there is while a store in etcd is open: its mirror, who waits for it, and how a commit is made."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import trio

from headway._gen.etcdserverpb import RangeRequest, TxnRequest, TxnResponse
from headway.errors import HeadwayError, StoreUnusable, Unavailable
from headway.resource import Position
from headway.storage._etcd._batcher import Made, Together
from headway.storage._etcd._client import CALL_TIMEOUT, EtcdClient
from headway.storage._etcd._failures import too_many_operations
from headway.storage._etcd._layout import Layout
from headway.storage._etcd._mirror import Mirror
from headway.storage._etcd._read_index import Confirmations
from headway.storage._etcd._records import etcd_revision, revision_of
from headway.storage._etcd._transaction import Draft, putting, transaction, unchanged
from headway.storage._tail import Pulse

CATCH_UP = CALL_TIMEOUT
"""Seconds for which a reader waits for the watch to say what the store is known to hold."""

_AGAIN = 0.02


class Kept(NamedTuple):
    """A term of a lease that this engine has granted or renewed.

    Attributes:
        until: the time up to which it is held at least, by Trio's clock.
        renewed: True once its holder has renewed it here.
    """

    term: int
    until: float
    renewed: bool


class Opened:
    """One opening of a store.

    Attributes:
        mirror: replaced when it had to be read anew.
        pulse: beats at each commit that the mirror hears of; of the present mirror's watchers.
        heard: beats at everything that the mirror hears of, whichever mirror.
        counts: what was refused, and what had to be read anew.
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
    ) -> None:
        self.client = client
        self.layout = layout
        self.mirror = mirror
        self.pulse = Pulse()
        self.heard = Pulse()
        self.counts = counts
        # The leases that were taken or kept alive here.
        self.kept: dict[str, Kept] = {}
        self.failing = False
        self._suspect = suspect
        self._max_txn_ops = max_txn_ops
        self._confirmations = Confirmations(nursery, self._catch_up)
        self._together = Together(self._write)
        # Invariant: no revision of this history above this one and the mirror's has been shown to anybody.
        self._seen = mirror.head.revision
        self._stopped: Callable[[], HeadwayError] | None = None
        self._under_way = 0
        self._idle = trio.Event()

    # --- Where the store stands ----------------------------------------------

    @property
    def position(self) -> Position:
        """The last revision that this opening has shown to anybody, or has heard of."""
        return self.mirror.at(max(self._seen, self.mirror.head.revision))

    def at(self, revision: int) -> Position:
        """The position of a revision that is shown to somebody."""
        self._seen = max(self._seen, revision)
        return self.mirror.at(revision)

    async def confirm(self) -> None:
        """Wait until the mirror has everything that was committed, by any engine, before this was called.

        Raises Unavailable when etcd can't be asked, or its watch doesn't say in time what it holds.
        """
        await self._confirmations.ask()

    async def _catch_up(self) -> None:
        """Read where the store stands, and wait until the mirror does, too."""
        mirror, heard = self.mirror, self.mirror.head.revision
        revision = await self.read_head()
        if etcd_revision(revision) < etcd_revision(heard):
            self._suspect(f"a linearizable read found revision {revision} after {heard} had been heard of")
            raise Unavailable(f"etcd at {self.client.where} answered with an older state than before")
        with trio.move_on_after(CATCH_UP):
            while self.mirror.head.revision < revision:
                await self.heard.wait()
                if self.mirror.store_id != mirror.store_id:
                    raise Unavailable(f"the store at {self.client.where} has been replaced meanwhile")
            return
        self._suspect(f"the watch has not said in time what was committed up to {revision}")
        raise Unavailable(
            f"the watch of etcd at {self.client.where} stands at revision {self.mirror.head.revision} and has not said "
            f"within {CATCH_UP} s what was committed up to {revision}"
        )

    async def read_head(self) -> int:
        """The revision of the first commit of the last transaction, by a linearizable read. Raises Unavailable."""
        reply = await self.client.range(RangeRequest(key=self.layout.head, keys_only=True))
        if not reply.kvs:
            self._suspect("the head is gone")
            raise Unavailable(f"the store at {self.client.where} has no head any more")
        return revision_of(reply.kvs[0].mod_revision)

    # --- Commits -------------------------------------------------------------

    def draft(self) -> Draft:
        """A commit on what the mirror believes."""
        return Draft(self.layout, self.mirror)

    async def submit(self, draft: Draft) -> Made | None:
        """Make a commit; None when something that it compares doesn't hold, and nothing was done.

        Not to be cancelled: call it where cancellation is shielded from. Raises InvalidArgument for a commit that etcd
        would refuse for its number of operations. It is never split: the parts would not be one commit.
        """
        if draft.needs > self._max_txn_ops:
            raise too_many_operations(draft.needs, self._max_txn_ops, self.client.where)
        return await self._together.submit(draft)

    async def _write(self, drafts: Sequence[Draft]) -> TxnResponse:
        """Make the commits of one transaction, or none of them."""
        nonce, given = os.urandom(8), self.mirror.given
        given[nonce] = drafts[0].given
        if len(drafts) > 1:
            given[nonce] = {key: new for draft in drafts for key, new in draft.given.items()}
        reply: TxnResponse | None = None
        try:
            reply = await self.client.write(transaction(self.layout, drafts, nonce))
        finally:
            self.failing = reply is None
            if reply is None or not reply.succeeded:
                given.pop(nonce, None)
        return reply

    async def probe(self) -> None:
        """Raise why etcd can't be asked, or takes no writes."""
        await self.confirm()
        if self.failing:
            # No key was ever put at revision -1, so that nothing is written; without room etcd refuses it all the same.
            never = unchanged(self.layout.anchor, -1)
            await self.client.read(TxnRequest(compare=[never], success=[putting(self.layout.anchor)]))
            self.failing = False

    async def believe_anew(self, believed: Mirror) -> None:
        """After a commit that was refused for what it compares: wait until the mirror knows better."""
        head, leases = believed.head, len(believed.leases)
        await self.confirm()
        if self.mirror is believed and believed.head is head and len(believed.leases) == leases:
            # A lease that has gone is no commit, so that there is no revision to wait for.
            with trio.move_on_after(_AGAIN):
                await self.heard.wait()

    # --- The beginning and the end -------------------------------------------

    def replace(self, mirror: Mirror, why: Callable[[], HeadwayError], *, same_history: bool) -> None:
        """Go on with another mirror; whoever watches the former one is told why."""
        # Of the same history a commit may have been answered that the mirror was read before; what was seen of another
        # history says nothing of this one.
        self._seen = max(self._seen, mirror.head.revision) if same_history else mirror.head.revision
        pulse, self.pulse = self.pulse, Pulse()
        self.mirror = mirror
        pulse.stop(why)
        self.heard.beat()

    def use(self) -> Opened:
        """Itself, unless it was stopped. Raises why."""
        if self._stopped is not None:
            raise self._stopped()
        return self

    def begin(self) -> None:
        """A commit begins."""
        self._under_way += 1

    def end(self) -> None:
        """A commit has ended."""
        self._under_way -= 1
        if not self._under_way:
            self._idle.set()

    def stop(self, why: Callable[[], HeadwayError]) -> None:
        """Refuse everything from now on, and tell all who wait."""
        self._stopped = self._stopped or why
        self.pulse.stop(self._stopped)
        self.heard.stop(self._stopped)

    async def wait_idle(self) -> None:
        """Wait until the commits under way have ended, each of which does in a bounded time."""
        while self._under_way:
            self._idle = trio.Event()
            await self._idle.wait()


def closed(where: str) -> Callable[[], HeadwayError]:
    """What who uses a closed store is told."""
    return lambda: StoreUnusable(f"the store at {where} is closed")
