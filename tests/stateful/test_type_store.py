"""A state machine that compares `TypeStore` and `StreamMachine` with a store that keeps its whole history."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headway.cache import TypeStore
from headway.errors import StoreChanged
from headway.informers import FalseBookmark, StreamBroken, StreamMachine
from headway.resource import (
    Bookmark,
    Change,
    Changes,
    EndOfSnapshot,
    Position,
    ResourceType,
    SnapshotChunk,
    StreamItem,
    pb,
    resource_key,
)
from tests.helpers.resources import ACCOUNT, OTHER_STORE, STORE, TEAM
from tests.helpers.true_store import Reply, TrueStore, TypeStoreChecker

TYPES: dict[str, ResourceType[Any]] = {"team": TEAM, "account": ACCOUNT}
NAMES = ["ada", "ada", "grace"]
Write = tuple[ResourceType[Any], str, str]

sides = st.sampled_from(sorted(TYPES))
names = st.sampled_from(NAMES)
writes = st.lists(
    st.tuples(st.sampled_from([TEAM, ACCOUNT]), names, st.sampled_from(["write", "write", "delete"])),
    min_size=1,
    max_size=4,
)


class Server:
    """The server of one open stream: a replica that may lag, and the revision that it has sent."""

    def __init__(self, store: TrueStore, type: ResourceType[Any], replica: int, resumed_at: int | None) -> None:
        self.store = store
        self.type = type
        self.replica = replica
        self.sent: list[Changes] = []
        self.withheld: list[Change] = []
        self.snapshot: list[pb.Resource] | None = None
        if resumed_at is None:
            self.snapshot = list(store.state(type, replica).values())
        # The revision up to which everything was sent, and the number of changes sent of the next commit.
        self.sent_up_to = replica if resumed_at is None else resumed_at
        self.partly = 0

    def pending(self) -> list[Change]:
        return self.store.changes(self.type, self.sent_up_to, self.replica)[self.partly :]

    def next_snapshot_item(self, count: int) -> StreamItem:
        assert self.snapshot is not None
        taken, self.snapshot = self.snapshot[:count], self.snapshot[count:]
        if taken:
            return SnapshotChunk(taken)
        self.snapshot = None
        return EndOfSnapshot(self.store.position(self.sent_up_to))

    def next_changes(self, count: int) -> list[Change]:
        taken = self.pending()[:count]
        for change in taken:
            if change.more:
                self.partly += 1
            else:
                self.sent_up_to, self.partly = change.revision, 0
        return taken


class Side:
    """The store of one type with its stream, as an informer and its follower have them."""

    def __init__(self, store: TrueStore, type: ResourceType[Any]) -> None:
        self.store = store
        self.type = type
        self.type_store = TypeStore()
        self.checker = TypeStoreChecker(store, type, self.type_store)
        self.machine: StreamMachine | None = None
        self.server: Server | None = None
        self.distrusted = False
        self.refused_to_resume = False

    @property
    def resume_after(self) -> Position | None:
        type_store = self.type_store
        if not type_store.primed or self.distrusted or self.refused_to_resume:
            return None
        return Position(type_store.store_id, type_store.session, type_store.frontier)

    def open(self, replica: int, history_gone: bool, resumes_at: int = 0) -> None:
        """Open a stream at a server whose replica is at ``replica``. The server may refuse to resume."""
        resume_after = self.resume_after
        self.refused_to_resume = False
        self.machine, self.server = StreamMachine(self.type_store.store_id, resume_after), None
        self.type_store.restart()
        if resume_after is None:
            self.server = Server(self.store, self.type, replica, None)
        elif history_gone or resume_after.revision > replica:
            self.refused_to_resume = True
            self.open(replica, history_gone)
        else:
            revision = resume_after.revision + resumes_at
            self.server = Server(self.store, self.type, replica, revision)
            self.feed(Bookmark(self.store.position(revision), resumed=True))

    def feed(self, item: StreamItem) -> type[Exception] | None:
        """Feed one item as the follower would. Return the error that ended the stream, or None."""
        assert self.machine is not None
        try:
            checked = self.machine.feed(item)
        except (FalseBookmark, StreamBroken) as error:
            note(f"{self.type}: {error}")
            self.distrusted, self.server = True, None
            return type(error)
        if checked is not None:
            was_primed = self.type_store.primed
            applied = self.type_store.feed(checked)
            self.checker.fed(checked, was_primed, applied, self.type_store.take_overtaken())
            if isinstance(checked, EndOfSnapshot) and checked.position.revision >= self.type_store.frontier:
                self.distrusted = False
        if (
            self.distrusted
            and not isinstance(item, SnapshotChunk)
            and self.machine.frontier >= self.type_store.frontier
        ):
            self.server = None
        return None

    def reply(self, reply: Reply) -> None:
        applied = self.type_store.reply(*reply) or []
        self.checker.replied(reply, applied, self.type_store.take_overtaken())

    def live(self) -> Server | None:
        """Return the stream's server if a stream is open and past its snapshot."""
        return self.server if self.server is not None and self.server.snapshot is None else None


class TypeStoreMachine(RuleBasedStateMachine):
    """Drive two type stores. Every rule ends in the checker, which does not know how a store works."""

    def __init__(self) -> None:
        super().__init__()
        self.store = TrueStore(STORE)
        self.sides = {name: Side(self.store, type) for name, type in TYPES.items()}
        self.replies: list[tuple[Side, Reply]] = []

    @initialize(history=st.lists(writes, max_size=3), primed=st.booleans())
    def begin(self, history: list[list[Write]], primed: bool) -> None:
        for what in history:
            self.store.commit(1, what)
        for side in self.sides.values():
            side.open(self.store.head, False)
            while primed and side.server is not None and side.server.snapshot is not None:
                side.feed(side.server.next_snapshot_item(10))

    # --- the store ---

    @rule(gap=st.integers(1, 2), what=writes)
    def commit(self, gap: int, what: list[Write]) -> None:
        self.store.commit(gap, what)

    @rule(
        side=sides,
        name=names,
        verb=st.sampled_from(["write", "write", "delete", "nothing"]),
        before=writes,
        at_once=st.booleans(),
    )
    def write(self, side: str, name: str, verb: str, before: list[Write], at_once: bool) -> None:
        """Write as the controller, after a write by another writer. The reply may be delayed for long.

        ``nothing``: a status that is already stored, or a delete of an absent resource or incarnation. The reply has
        the current resource of that name.
        """
        self.store.commit(1, before)
        if verb != "nothing":
            self.store.commit(1, [(TYPES[side], name, verb)])
        reply = self.store.reply(TYPES[side], name)
        if at_once:
            self.sides[side].reply(reply)
        else:
            self.replies.append((self.sides[side], reply))

    @precondition(lambda self: self.replies)
    @rule(data=st.data())
    def deliver_reply(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.replies) - 1), label="which reply")
        side, reply = self.replies.pop(index)
        side.reply(reply)

    # --- streams ---

    @rule(
        side=sides,
        lag=st.sampled_from([0, 0, 1, 2, 4]),
        history_gone=st.booleans(),
        meanwhile=writes,
        told=st.sampled_from([1, 10, 10]),
    )
    def reconnect(self, side: str, lag: int, history_gone: bool, meanwhile: list[Write], told: int) -> None:
        """Leave the stream at any point, even inside a commit or a snapshot, and open another one.

        Its server may lag, or may have no history. It then sends a snapshot, and the rule delivers a part of it.
        """
        each = self.sides[side]
        self.store.commit(1, meanwhile)
        revisions = self.store.revisions
        each.open(revisions[max(0, len(revisions) - 1 - lag)], history_gone)
        for _ in range(min(told, 2)):
            if each.server is not None and each.server.snapshot is not None:
                each.feed(each.server.next_snapshot_item(told))

    @rule(
        side=sides,
        learns=st.sampled_from([0, 1, 2, 10, 10]),
        count=st.sampled_from([1, 1, 2, 3, 10]),
        repeat=st.sampled_from(["", "", "these", "older"]),
        data=st.data(),
    )
    def deliver(self, side: str, learns: int, count: int, repeat: str, data: st.DataObject) -> None:
        """Bring some commits to the replica, and deliver the next item of the stream.

        ``these``: every change of it is repeated. ``older``: an earlier change comes before it.
        """
        each = self.sides[side]
        if each.server is None:
            each.open(self.store.head, False)
            assert each.server is not None
        server = each.server
        later = [revision for revision in self.store.revisions if revision > server.replica]
        server.replica = [server.replica, *later[:learns]][-1]
        if server.snapshot is not None:
            each.feed(server.next_snapshot_item(count))
            return
        begun = bool(server.partly)
        changes = server.next_changes(count)
        if repeat == "these" and not begun and changes and not changes[-1].more:
            changes = [*changes, *changes]
        elif repeat == "older" and server.sent and (not begun or not changes):
            older = data.draw(st.sampled_from(server.sent), label="what again").changes
            changes = changes if older[-1].more else [*older, *changes]
        if changes:
            server.sent.append(Changes(changes))
            each.feed(Changes(changes))

    @precondition(lambda self: any(side.live() for side in self.sides.values()))
    @rule(side=sides)
    def bookmark(self, side: str) -> None:
        """Send a true bookmark: the replica's revision if everything has been sent, otherwise the revision sent."""
        server = self.sides[side].live()
        if server is None:
            return
        if server.partly:
            assert self.sides[side].feed(Bookmark(self.store.position(server.sent_up_to))) is StreamBroken
            return
        if not server.pending():
            server.sent_up_to = server.replica
        self.sides[side].feed(Bookmark(self.store.position(server.sent_up_to)))

    @rule(side=sides)
    def false_bookmark(self, side: str) -> None:
        """Withhold a commit, and send a bookmark as if it had been sent."""
        server = self.sides[side].live()
        if server is None or server.partly or not server.pending():
            return
        first = server.pending()[0].revision
        withheld = [change for change in server.pending() if change.revision == first]
        server.withheld += withheld
        server.sent_up_to = first
        if first > self.sides[side].type_store.frontier:
            self.sides[side].checker.hidden.update(resource_key(change.resource) for change in withheld)
        self.sides[side].feed(Bookmark(self.store.position(first)))

    @precondition(lambda self: any(side.server and side.server.withheld for side in self.sides.values()))
    @rule(side=sides)
    def tell_withheld(self, side: str) -> None:
        """Send the withheld commit. It ends the stream, and the next stream repairs the cache."""
        server = self.sides[side].live()
        if server is None or not server.withheld or server.partly:
            return
        assert self.sides[side].feed(Changes(server.withheld)) is FalseBookmark
        assert self.sides[side].resume_after is None
        self._mend(self.sides[side])
        assert not self.sides[side].checker.hidden

    def _mend(self, side: Side) -> None:
        """Open streams until one has an applied snapshot, as a follower would."""
        side.open(self.store.head, False)
        while side.server is not None and side.server.snapshot is not None:
            side.feed(side.server.next_snapshot_item(2))
        assert not side.distrusted

    @rule(side=sides, by=st.integers(1, 3))
    def resume_elsewhere(self, side: str, by: int) -> None:
        """A server resumes after another revision than the requested one, which breaks the stream."""
        each = self.sides[side]
        if each.resume_after is not None and each.type_store.frontier + by <= self.store.head:
            before = each.type_store.frontier
            each.open(self.store.head, False, resumes_at=by)
            assert each.distrusted
            assert each.type_store.frontier == before

    # --- another store ---

    @rule(side=sides, revision=st.integers(0, 50))
    def hear_another_store(self, side: str, revision: int) -> None:
        """A stream or a reply of another store is refused and changes nothing."""
        each = self.sides[side]
        if not each.type_store.store_id:
            return
        elsewhere = TrueStore(OTHER_STORE if self.store.store_id == STORE else STORE)
        each.machine, each.server = StreamMachine(each.type_store.store_id, None), None
        with pytest.raises(StoreChanged):
            each.machine.feed(EndOfSnapshot(elsewhere.position(revision)))
        with pytest.raises(StoreChanged):
            each.type_store.reply(("default", "default", "ada"), None, elsewhere.position(revision + 1000))
        for item in (EndOfSnapshot(elsewhere.position(1000)), Bookmark(elsewhere.position(1000))):
            with pytest.raises(StoreChanged):
                each.type_store.feed(item)
        each.checker.check()

    @invariant()
    def all_is_as_it_was(self) -> None:
        for side in self.sides.values():
            side.checker.check()

    def teardown(self) -> None:
        """Check that the next whole snapshot and its stream bring the current state."""
        for side in self.sides.values():
            if not side.checker.sound:
                return
            side.distrusted = True
            self._mend(side)
            assert side.type_store.entries == self.store.state(side.type, self.store.head)


# Hypothesis shrinks a failure for up to five minutes.
TestTypeStore = pytest.mark.timeout(400)(TypeStoreMachine.TestCase)
# Steps are cheap here, and a bug shows only when several of them meet at one key.
TestTypeStore.settings = settings(
    max_examples=4 * settings().max_examples,
    stateful_step_count=max(40, settings().stateful_step_count),
    report_multiple_bugs=False,
)
