"""A peer stream under cuts, crashes, changed exports, lost history and restores.

The copies are never older, torn or left behind.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headway.peering import PeerLimits
from headway.peering.stream import Copying, Exported
from headway.resource import pb
from tests.peering.stream_kit import OTHERS, TEAMS, Importing, Origin, Stream, originals

NAMES = st.sampled_from(["ada", "ben", "cyd", "dan"])
HUGE = "x" * 900
"""Content that does not fit into a message."""

COMMITS = st.dictionaries(NAMES, st.sampled_from(["1", "2", "bad", HUGE, None]), min_size=1)


class PeerStream(RuleBasedStateMachine):
    """One origin, one importing store, and one stream after the other between them."""

    def __init__(self) -> None:
        super().__init__()
        self.origin = Origin()
        self.store = Importing()
        self.compacted = 0
        self.refuses = True
        self.stores = 1
        # The origin's revision of each copy, by name: it never falls within one store.
        self.versions: dict[str, int] = {}
        self.accepted = ""
        self.exports: tuple[Exported, ...] = (TEAMS,)
        self.stream = self.connect()

    def connect(self) -> Stream:
        """Open another stream. Messages on the way are lost."""
        return Stream(
            self.origin,
            self.store,
            limits=PeerLimits(batch=2, window=5, resource_size=1000, subscriptions=1000),
            exports=self.exports,
            check=self.check,
            accepted=self.accepted,
            compacted=self.compacted,
        )

    def check(self, resource: pb.Resource) -> str | None:
        """Refuse bad content."""
        return "bad" if self.refuses and resource.data is not None and resource.data.value == b"bad" else None

    @rule(teams=COMMITS)
    def commit(self, teams: dict[str, str | None]) -> None:
        self.origin.commit(**teams)

    @rule(steps=st.lists(st.sampled_from(["request", "send", "receive", "read", "again"]), min_size=1, max_size=12))
    def step(self, steps: list[str]) -> None:
        for name in steps:
            getattr(self.stream, name)()

    @rule()
    def catch_up(self) -> None:
        """Nothing goes wrong for a while."""
        self.stream.run()

    @rule(exports=st.sampled_from([(TEAMS,), (OTHERS,), (OTHERS, TEAMS), ()]))
    def offer(self, exports: tuple[Exported, ...]) -> None:
        """Withdraw exports, and restore them."""
        self.exports = exports
        self.stream.sender.offer(exports)

    @rule()
    def fail_source(self) -> None:
        """The subscription to the exports ends with an error."""
        self.stream.sender.interrupt(self.stream.feed, self.stream.time + 1)

    @rule(seconds=st.sampled_from([0.5, 2.0, 70.0]))
    def wait(self, seconds: float) -> None:
        self.stream.time += seconds

    @rule()
    def progress(self) -> None:
        if self.stream.source is not None and self.stream.source.is_current:
            self.stream.progress()

    @rule(commits=st.integers(0, 2))
    def crash_while_storing(self, commits: int) -> None:
        self.stream.receive(commits)
        self.stream = self.connect()

    @rule()
    def cut(self) -> None:
        self.stream = self.connect()

    @rule()
    def compact(self) -> None:
        self.compacted = self.origin.revision
        self.stream.compacted = self.compacted

    @rule(refuses=st.booleans())
    def judge(self, refuses: bool) -> None:
        self.refuses = refuses

    @precondition(lambda self: self.origin.revision > 2 and self.origin.store_id == "origin")
    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        """Put back an older copy of the origin's file. An operator accepts it at once, or never."""
        self.origin.roll_back(data.draw(st.integers(1, self.origin.revision - 1)))
        self.compacted = min(self.compacted, self.origin.revision)
        self.accepted = self.origin.session if data.draw(st.booleans()) else ""
        if self.accepted:
            self.versions = {}
        self.stream = self.connect()

    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        """Restore a backup of the origin, which is another store with the resources of the first."""
        state = (
            self.origin.states[data.draw(st.integers(1, 2)) if self.stores == 1 else self.origin.revision]
            if self.origin.states.get(2) is not None
            else self.origin.now
        )
        self.stores += 1
        restored = Origin(f"restored{self.stores}")
        restored.revision = self.stores << 48
        restored.states[restored.revision] = dict(state)
        self.origin, self.compacted, self.versions = restored, 0, {}
        self.stream = self.connect()

    @invariant()
    def copies_are_never_older(self) -> None:
        if self.stream.receiver.copying is Copying.CURRENT and self.stream.copies._override is False:
            for name, (_, version, _) in self.store.copies.items():
                assert int(version) >= self.versions.get(name, 0) or self.stores > 1
        if self.stores == 1 and not self.accepted:
            for name, (_, version, _) in self.store.copies.items():
                known = self.versions.get(name, 0)
                assert int(version) >= known, f"{name} went from {known} back to {version}"
                self.versions[name] = int(version)

    @invariant()
    def no_commit_is_torn(self) -> None:
        receiver = self.stream.receiver
        at = receiver.position
        if receiver.copying is not Copying.CURRENT or at is None or receiver.refused or self.stream.copies.stale:
            return
        if at.store_id == self.origin.store_id and self.origin.knows(at) and not self.stream.copies._seen:
            exported = TEAMS in (receiver.exports or ())
            state = self.origin.states[at.revision] if exported else {}
            there = {name: each[::2] for name, each in originals(state).items()}
            here = {name: each[::2] for name, each in self.store.copies.items()}
            assert here == there, f"at {at.revision}"

    def teardown(self) -> None:
        """Without further faults, the copies become equal to the originals."""
        self.offer((TEAMS,))
        if self.stream.receiver.copying is Copying.ROLLED_BACK or self.origin.session not in ("s1", self.accepted):
            self.accepted = self.origin.session
            self.stream = self.connect()
        self.refuses = False
        self.stream.later()
        # What no message can hold is not copied until it becomes smaller.
        huge = [name for name, (_, _, data) in originals(self.origin.now).items() if data == HUGE]
        assert {id.name for id in self.stream.receiver.refused} == set(huge)
        self.origin.commit(**dict.fromkeys(huge, "1"))
        self.stream.later()
        self.stream.later()
        here = {name: each[::2] for name, each in self.store.copies.items()}
        assert here == {name: each[::2] for name, each in originals(self.origin.now).items()}
        assert self.stream.receiver.refused == {}


TestPeerStream = PeerStream.TestCase
