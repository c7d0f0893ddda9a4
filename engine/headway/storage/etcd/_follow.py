"""The task that keeps the mirror by one watch of the whole prefix. If the watch ends, it compares and reopens it."""

from __future__ import annotations

import contextlib
from collections import Counter
from enum import Enum, auto

import trio

from headway._gen.etcdserverpb import WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse
from headway._gen.mvccpb import KeyValue
from headway.errors import EngineBug, HeadwayError, HistoryCompacted, StoreUnusable
from headway.rpc import Duplex, Lagging
from headway.storage._operations import StoreMismatch
from headway.storage.etcd._client import EtcdClient, Unreadable, understood
from headway.storage.etcd._founding import begin_session
from headway.storage.etcd._session import Session
from headway.storage.etcd._snapshot import (
    check_same_history,
    check_standing,
    earliest,
    load_mirror,
    read_pages,
    read_standing,
)
from headway.storage.etcd.layout import LEASE, Layout, Lost, Mirror, OtherHistory, etcd_revision

SILENCE = 5.0
"""The seconds to wait for a response before the task asks the watch for progress and the store for its revision."""

AN_OPENINGS_HISTORY = 20_000
"""The number of earlier transactions that opening a store reads at most. They delay the first answer."""

_READING_HISTORY = 10.0
"""The timeout for reading history, in seconds. An opening retries with less of it, then uses none."""

_FIRST_WAIT, _LONGEST_WAIT = 0.05, 5.0


class Ended(Exception):
    """The watch must be opened again: etcd has ended it, or it is not reliable."""


class Compacted(Exception):
    """etcd has compacted the first revision of the watch."""


class _Next(Enum):
    FOLLOW = auto()
    REJOIN = auto()
    SNAPSHOT = auto()
    BEGIN_ANEW = auto()


class Follower:
    """The task that makes mirrors of a store and keeps them up to date."""

    def __init__(
        self,
        client: EtcdClient,
        layout: Layout,
        counts: Counter[str],
        *,
        max_changes: int,
        max_age: float,
        max_bytes: int,
    ) -> None:
        self._client = client
        self._layout = layout
        self._counts = counts
        self._max_changes = max_changes
        self._max_age = max_age
        self._max_bytes = max_bytes
        self._stream = trio.CancelScope()
        self._suspicion = ""
        self._wait = _FIRST_WAIT

    async def load(self, former: Mirror | None = None, revision: int = 0) -> tuple[Mirror, int]:
        """Return a new mirror, of now or of a revision, and the etcd revision of its reads."""
        return await load_mirror(
            self._client,
            self._layout,
            self._counts,
            former=former,
            revision=revision,
            max_changes=self._max_changes,
            max_age=self._max_age,
            max_bytes=self._max_bytes,
        )

    async def begin(self) -> tuple[Mirror, int]:
        """Return the first mirror, and the etcd revision to follow after.

        The mirror is made from an earlier state, and from a watch of the changes since. So it has their history. If
        they cannot be read, the mirror is made from the current state and has no history.
        """
        mirror: Mirror | None = None
        transactions = min(self._max_changes, AN_OPENINGS_HISTORY)
        with contextlib.suppress(HeadwayError, Lost, OtherHistory, Ended, Lagging):
            now = await read_standing(self._client, self._layout)
            if now.head is None:
                raise Ended("the head key is missing")
            for _ in range(2):
                begin = await earliest(self._client, self._layout, now, transactions)
                mirror, at = await self.load(mirror, begin)
                begun = mirror.head.sequence
                with trio.move_on_after(_READING_HISTORY):
                    await self._replay(mirror, at + 1, now.head.revision)
                    return mirror, etcd_revision(mirror.head.revision)
                # There was too much history, perhaps transactions of many commits. Try with half of what was read.
                transactions = (mirror.head.sequence - begun) // 2
                if not transactions:
                    break
        self._counts["openings without history"] += 1
        return await self.load(mirror)

    async def _replay(self, mirror: Mirror, start: int, head: int) -> None:
        """Apply to a mirror the changes from a revision up to a commit."""
        if mirror.head.revision == head:
            return
        async with self._client.watch(self._watch(start)) as stream:
            responses = aiter(stream)
            while mirror.head.revision < head:
                received: list[WatchResponse] = await anext(responses, [])
                if not received or any(response.canceled for response in received):
                    raise Ended("etcd has ended the watch")
                with understood(self._client.where):
                    for response in received:
                        mirror.receive(response.events, trio.current_time())
        mirror.interrupted()

    def suspect(self, why: str) -> None:
        """Note that an answer contradicts the mirror. End the watch and compare."""
        self._suspicion = why
        self._stream.cancel()

    async def run(self, session: Session, start: int) -> None:
        """Follow the store from etcd's revision ``start`` on, until canceled."""
        todo = _Next.FOLLOW
        while True:
            try:
                match todo:
                    case _Next.FOLLOW:
                        await self._follow(session, start)
                    case _Next.REJOIN:
                        start = await self._rejoin(session)
                    case _Next.SNAPSHOT:
                        start = await self._take_snapshot(session)
                    case _Next.BEGIN_ANEW:
                        start = await self._begin_anew(session)
                todo = _Next.FOLLOW
                continue
            except OtherHistory as error:
                self._counts["other histories"] += todo is not _Next.BEGIN_ANEW
                self._suspicion, todo = str(error), _Next.BEGIN_ANEW
            except (Lost, Compacted) as error:
                self._suspicion, todo = str(error), _Next.SNAPSHOT
            except Unreadable as error:
                text = str(error)
                session.stop(lambda text=text: StoreUnusable(text))  # type: ignore[misc]  # a lambda with a default
                return
            except (Ended, Lagging, HeadwayError):
                todo = _Next.REJOIN if todo is _Next.FOLLOW else todo
            except Exception as error:  # a store without this task must not seem to work
                text = f"the task that follows the store at {self._client.where} has failed: {error!r}"
                session.stop(lambda text=text: EngineBug(text))  # type: ignore[misc]  # as above
                raise
            session.mirror.interrupted()
            await trio.sleep(self._wait)
            self._wait = min(self._wait * 2, _LONGEST_WAIT)

    # --- Continuing after the end of a watch ---------------------------------

    async def _rejoin(self, session: Session) -> int:
        """Compare etcd with the mirror. Return the first etcd revision of the next watch."""
        # Taken before the read, because a commit made during the read may be answered before it.
        seen = (session.position, session.mirror.position)
        standing = await read_standing(self._client, self._layout)
        for position in seen:
            check_same_history(position, standing.store_id, standing.timeline, standing.head)
        mirror = session.mirror
        if standing.head is None or not check_standing(mirror, standing.head):
            # Begin with the last known commit. If the watch delivers it unchanged, this is the same history.
            mirror.rejoining = True
            return etcd_revision(mirror.head.revision)
        # No commit was made. Only leases can have changed without one.
        leases: list[KeyValue] = []
        await read_pages(self._client, self._layout.under(LEASE), standing.revision, leases.extend)
        with understood(self._client.where):
            mirror.load_leases(leases)
        session.changed.beat()
        return standing.revision + 1

    async def _take_snapshot(self, session: Session) -> int:
        """Begin with a new mirror of the same history."""
        # Taken before the read, as in `_rejoin`.
        seen = (session.position, session.mirror.position)
        mirror, revision = await self.load(session.mirror)
        for position in seen:
            check_same_history(position, mirror.store_id, mirror.timeline, mirror.head)
        self._counts["snapshots"] += 1
        why = self._suspicion
        gone = f"the store was read again at revision {mirror.head.revision}: {why}"
        session.replace(mirror, lambda: HistoryCompacted(gone), same_history=True)
        return revision + 1

    async def _begin_anew(self, session: Session) -> int:
        """Replace the mirror by one of the other store or history that etcd has now.

        Only a server that starts may found a store. An etcd that has come back without its data would otherwise become
        an empty store, on which every controller of a running server would act.
        """
        if (await read_standing(self._client, self._layout)).store_id is None:
            raise Ended("etcd has no store any more")
        await begin_session(self._client, self._layout)
        mirror, revision = await self.load()
        text = f"etcd at {self._client.where} now has another history: {self._suspicion}"
        session.replace(mirror, lambda: StoreMismatch(text), same_history=False)
        return revision + 1

    # --- One watch -----------------------------------------------------------

    async def _follow(self, session: Session, start: int) -> None:
        """Follow one watch until it ends. It always ends with an error."""
        self._suspicion = ""
        with trio.CancelScope() as self._stream:
            async with self._client.watch(self._watch(start)) as stream:
                await self._listen(session, stream)
        raise Ended(self._suspicion)

    def _watch(self, start: int) -> WatchCreateRequest:
        everything = self._layout.everything
        return WatchCreateRequest(
            key=everything.key,
            range_end=everything.end,
            start_revision=start,
            progress_notify=True,
            fragment=True,
        )

    async def _listen(self, session: Session, stream: Duplex) -> None:
        responses = aiter(stream)
        missing = 0
        while True:
            received: list[WatchResponse] | None = None
            with trio.move_on_after(SILENCE):
                received = await anext(responses, None)
                if received is None:
                    raise Ended("etcd has ended the watch")
            if received is None:
                missing = await self._ask(session, stream, missing)
                continue
            before = session.mirror.version
            try:
                for response in received:
                    self._receive(session, response)
            finally:
                if session.mirror.version != before:
                    session.pulse.beat()
                    session.changed.beat()

    def _receive(self, session: Session, response: WatchResponse) -> None:
        if response.canceled:
            if response.compact_revision:
                raise Compacted(f"etcd was compacted up to revision {response.compact_revision}")
            self._counts["watches cancelled"] += 1
            # Another member may succeed.
            raise Lagging(response.cancel_reason)
        if response.events:
            with understood(self._client.where):
                session.mirror.receive(response.events, trio.current_time())
            self._wait = _FIRST_WAIT
        elif not response.created:
            self._check_progress(session, response)

    def _check_progress(self, session: Session, response: WatchResponse) -> None:
        """Check a progress notification. It never moves the mirror, but it can show that the watch has lost changes."""
        claimed = response.header.revision if response.header is not None else 0
        if claimed >= etcd_revision(session.position.revision) > etcd_revision(session.mirror.head.revision):
            self._counts["false progress"] += 1
            raise Lagging(f"the watch claims to have delivered everything up to {claimed}")

    async def _ask(self, session: Session, stream: Duplex, missing: int) -> int:
        """Check after a silence that the watch is alive. Return the store's revision, which the watch must reach.

        ``missing`` is the result of the last call. Raise Lagging if the watch still has not reached it.
        """
        if missing > session.mirror.head.revision:
            self._counts["watches stalled"] += 1
            raise Lagging(f"the watch has not delivered the commits up to {missing} for {SILENCE} s")
        with trio.move_on_after(SILENCE):
            await stream.send(WatchRequest(progress_request=WatchProgressRequest()))
            return await session.read_head()
        return missing
