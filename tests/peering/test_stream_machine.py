"""A peer stream under cuts, crashes, changed exports and versions, refusals, lost history and restores.

The copies are never older, torn, lost or left behind.
"""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headway.peering import PeerLimits
from headway.peering.stream import Copying, Exported
from headway.resource import Key, TypeName, pb
from tests.peering.stream_kit import OTHERS, TEAM, TEAM2, TEAMS, TEAMS2, Importing, Origin, Stream, originals, typed

NAMES = st.sampled_from(["ada", "ben", "cyd", "dan"])
HUGE = "x" * 900
"""Content that does not fit into a message."""

COMMITS = st.dictionaries(NAMES, st.sampled_from(["1", "2", "bad", HUGE, None]), min_size=1)
BOTH = (TEAMS, TEAMS2)
OFFERS: list[tuple[Exported, ...]] = [BOTH, (TEAMS,), (TEAMS2,), (OTHERS,), (OTHERS, *BOTH), ()]
EXPORTS = st.sampled_from(OFFERS)
STEPS = st.lists(st.sampled_from(["request", "send", "receive", "read", "again"]), min_size=1, max_size=12)
SHARES = st.integers(0, 28)
"""The number of steps of a stream on which everything goes on in turn."""


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
        # The original's uid of each copy that must not be lost, by name; None while something may be.
        self.safe: dict[str, str] | None = {}
        self.accepted = ""
        self.exports: tuple[Exported, ...] = BOTH
        self.unknown: Exported | None = None
        self.stream = self.connect()

    def connect(self) -> Stream:
        """Open another stream. Messages on the way are lost."""
        return Stream(
            self.origin,
            self.store,
            limits=PeerLimits(batch=2, window=5, resource_size=1000, subscriptions=1000),
            exports=self.exports,
            check=self.check,
            unknown=lambda each: "not registered" if each == self.unknown else None,
            accepted=self.accepted,
            compacted=self.compacted,
        )

    def check(self, resource: pb.Resource) -> str | None:
        """Refuse bad content."""
        return "bad" if self.refuses and resource.data is not None and resource.data.value == b"bad" else None

    @rule(teams=COMMITS, type=st.sampled_from([None, TEAM, TEAM2]))
    def commit(self, teams: dict[str, str | None], type: TypeName | None) -> None:
        """Store and delete resources, and move them to another version of their kind."""
        self.origin.commit(type, **teams)

    @rule(steps=STEPS)
    def step(self, steps: list[str]) -> None:
        for name in steps:
            getattr(self.stream, name)()

    @rule()
    def catch_up(self) -> None:
        """Nothing goes wrong for a while."""
        self.stream.run()

    @rule()
    def settle(self) -> None:
        """Nothing goes wrong until nothing is due any longer: the copies are equal to the exported originals."""
        self.stream.later()
        self.stream.later()
        self.no_copy_is_lost()
        receiver = self.stream.receiver
        if self.needs_operator or receiver.problems:
            return
        wanted = self.exported(self.origin.now, self.exports)
        refused = {id.name for id in receiver.refused}
        assert receiver.copying is Copying.CURRENT
        huge = {name for name, (_, data) in wanted.items() if data == HUGE}
        # What was copied before it would be refused is not sent again.
        assert huge <= refused <= huge | {name for name, (_, data) in wanted.items() if self.refuses and data == "bad"}
        here = {name: each[::2] for name, each in self.store.copies.items()}
        assert here.keys() <= wanted.keys()
        for name in wanted.keys() - refused:
            assert here.get(name) == wanted[name]
        if {*BOTH} <= {*self.exports}:
            self.safe = {name: uid for name, (uid, _, _) in self.store.copies.items()}

    @rule(exports=EXPORTS)
    def offer(self, exports: tuple[Exported, ...]) -> None:
        """Withdraw exports, and restore them."""
        if not {*BOTH} <= {*exports}:
            self.safe = None
        self.exports = exports
        self.stream.sender.offer(exports)

    def go_on(self, steps: int) -> None:
        """Let each part of the stream go on in turn, for some steps."""
        self.step((["send", "receive", "request", "read"] * 7)[:steps])

    @rule(exports=EXPORTS, steps=SHARES, teams=COMMITS)
    def withdraw_and_restore(self, exports: tuple[Exported, ...], steps: int, teams: dict[str, str | None]) -> None:
        """Withdraw exports of a stream that is current, soon restore them, and change an original."""
        before = self.exports
        self.catch_up()
        self.offer(exports)
        self.go_on(steps)
        self.offer(before)
        self.origin.commit(**teams)
        self.settle()

    @rule(exports=EXPORTS, before=SHARES, after=SHARES)
    def change_exports_while_connecting(self, exports: tuple[Exported, ...], before: int, after: int) -> None:
        self.cut()
        self.go_on(before)
        self.offer(exports)
        self.go_on(after)
        self.settle()

    @rule(teams=COMMITS, type=st.sampled_from([TEAM, TEAM2]), steps=SHARES)
    def commit_amid_a_snapshot(self, teams: dict[str, str | None], type: TypeName, steps: int) -> None:
        self.compact()
        self.cut()
        self.go_on(steps)
        self.origin.commit(type, **teams)
        self.settle()

    @rule(names=st.sets(NAMES, min_size=1), type=st.sampled_from([TEAM, TEAM2]), data=st.sampled_from(["bad", HUGE]))
    def move_to_what_is_refused(self, names: set[str], type: TypeName, data: str) -> None:
        """Move resources that are copied to another version, which is refused."""
        self.settle()
        self.refuses = True
        self.origin.commit(type, **dict.fromkeys(sorted(names), data))
        self.catch_up()

    @rule(name=NAMES, steps=STEPS, fails=st.booleans())
    def refuse_and_admit(self, name: str, steps: list[str], *, fails: bool) -> None:
        """Refuse a resource, and admit it when it is due again."""
        self.refuses = True
        self.origin.commit(**{name: "bad"})
        self.catch_up()
        self.refuses = False
        self.wait(70.0)
        self.step(steps)
        if fails:
            self.fail_source()
        self.settle()

    @rule(export=st.sampled_from([None, TEAMS, TEAMS2]))
    def declare(self, export: Exported | None) -> None:
        """Another importing program refuses an export as a whole, or none."""
        self.unknown = export
        self.cut()

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
        self.safe = None
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
        self.origin, self.compacted, self.versions, self.safe = restored, 0, {}, None
        self.stream = self.connect()

    @invariant()
    def copies_are_never_older(self) -> None:
        if self.stream.receiver.copying is Copying.CURRENT and not self.stream.copies.outdated:
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
        if receiver.problems or self.stream.copies.spared:
            return
        if at.store_id == self.origin.store_id and self.origin.knows(at) and not self.stream.copies._seen:
            there = self.exported(self.origin.states[at.revision], receiver.exports or ())
            here = {name: each[::2] for name, each in self.store.copies.items()}
            assert here == there, f"at {at.revision}"

    @invariant()
    def no_copy_is_lost(self) -> None:
        """A copy stays while its original lives and both versions are exported, whatever is refused."""
        if self.safe is None:
            return
        living = {uid for uid, _, _ in originals(self.origin.now).values()}
        here = {name: uid for name, (uid, _, _) in self.store.copies.items()}
        self.safe = {name: uid for name, uid in self.safe.items() if uid in living}
        assert self.safe.items() <= here.items()
        self.safe = {name: uid for name, uid in here.items() if uid in living}

    @property
    def needs_operator(self) -> bool:
        """True if the origin was rolled back, and nobody has accepted that."""
        return self.origin.session not in ("s1", self.accepted)

    def exported(self, state: dict[Key, pb.Resource], exports: Collection[Exported]) -> dict[str, tuple[str, str]]:
        """Return the uid and the content of the exported originals, by name."""
        types = {each.type for each in exports}
        chosen = {key: each for key, each in state.items() if typed(each) in types}
        return {name: (uid, data) for name, (uid, _, data) in originals(chosen).items()}

    def teardown(self) -> None:
        """Without further faults, the copies become equal to the originals."""
        self.offer(BOTH)
        self.unknown = None
        if self.needs_operator:
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


@pytest.mark.parametrize("exports", OFFERS, ids=range(len(OFFERS)))
def test_exports_are_withdrawn_and_restored_at_each_step(exports: tuple[Exported, ...]) -> None:
    """Random examples seldom restore them in the few steps in which it matters."""
    for steps in range(29):
        it = PeerStream()
        it.commit({"ada": "1", "ben": "1"}, None)
        it.withdraw_and_restore(exports, steps, {"ada": "2"})
        it.teardown()
