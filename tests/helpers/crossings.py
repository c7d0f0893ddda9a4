"""Rules for a run machine: a reply crosses a reply, a snapshot or a fence, and a change a reconcile or a bookmark."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from headway.testing import Fault
from tests.helpers.machine_parts import MachineParts, kinds, members, names, thens
from tests.helpers.stream_beginnings import Behind


class Crossings(MachineParts):
    """A mixin with these rules, for the controller of a `NotedPools`."""

    @precondition(lambda self: self._is_running())
    @rule(name=names, member=members, stored=st.sampled_from(["nothing", "old", "gone"]), then=thens)
    def answer_before_a_snapshot(self, name: str, member: str, stored: str, then: Any) -> None:
        """Show the controller its own write, and then a snapshot of the moment before the write.

        At that moment the summary does not exist, or is older, or exists and is about to be deleted.
        """
        self._settle([("pool", name, ""), ("no member", "", "m1"), ("no member", "", "m2"), ("no member", "", "m3")])
        if stored != "nothing":
            self._settle([("member", name, member)])
        summaries = self._streams(2)
        summaries.hold()
        self.pools.blind = stored != "gone"
        self._change([("no pool" if stored == "gone" else "member", name, "m4" if stored == "old" else member)])
        self.run_until_blocked()
        self.pools.enqueue(name)
        self._pass(0.3)
        written = [commit.revision for commit in self.store.commits if commit.kind == self.pools.summary.kind]
        if written:
            self.channel.begin(self.pools.summary, Behind(written[-1] - 1, then))
        summaries.drop()
        self._look(0.3)
        self._change([("no member", "", "m4")])

    @precondition(lambda self: self._is_running())
    @rule(name=names)
    def answer_in_reverse(self, name: str) -> None:
        """Show the controller the reply to its second write of a pool, and then the one to its first write."""
        self._settle([("pool", name, "")])
        pools = self._streams(0)
        pools.hold()
        self.pools.told = self.written
        self.channel.statuses(Fault.SLOW, Fault.NONE)
        self.pools.enqueue(name)
        self._look(0.5)
        self.channel.answer_slow()
        self._look(0.1)
        pools.release()
        self._look(0.1)
        self.pools.told = 0

    @precondition(lambda self: self._is_running())
    @rule(kind=st.sampled_from([0, 1, 2]), fault=st.sampled_from([Fault.LOST, Fault.LATE]))
    def lose_two(self, kind: int, fault: Fault) -> None:
        """Lose the outcome of a write, and of another one under the fence that resolves the first.

        Until the caches have reached that fence, no key may be reconciled.
        """
        self._settle([("pool", "a", ""), ("pool", "b", "")])
        self.pools.told = self.written
        self.pools.pauses = {"b": 1.0}
        self.channel.statuses(fault, fault)
        for name in ("a", "b"):
            self.pools.enqueue(name)
        self._pass(0.0)
        self._streams(kind).hold()
        self._look(1.5)
        self.pools.enqueue("c")
        self._streams(kind).release()
        self._look(0.1)
        self.pools.told, self.pools.pauses = 0, {}

    @precondition(lambda self: self._is_running())
    @rule(name=names, member=members, seconds=st.sampled_from([0.0, 0.3]), converges=st.booleans())
    def change_during_a_reconcile(self, name: str, member: str, seconds: float, converges: bool) -> None:
        """Change what a reconcile has just read and written."""
        self.pools.final_pause = 1.0
        self._change([("pool", name, ""), ("member", name, member)])
        self._pass(seconds)
        self._change([("no member", "", member)])
        self._pass(0.3)
        self.pools.final_pause = 0.0
        if converges:
            self.converge()

    @precondition(lambda self: self._is_running())
    @rule(member=members, seconds=st.sampled_from([0.0, 0.5]), converges=st.booleans())
    def end_during_a_reconcile(self, member: str, seconds: float, converges: bool) -> None:
        """End the run while it reconciles a pool that does not exist. Nothing leads the next run there."""
        self._settle([("no pool", "c", ""), ("member", "c", member)])
        self.pools.pause = 2.0
        self._change([("member", "a", member)])
        self._pass(seconds)
        self.pools.fail_source()
        self.pools.pause = 0.0
        self._pass(0.3)
        if converges:
            self.converge()

    @rule(kind=kinds, name=names, member=members, seconds=st.sampled_from([0.0, 1.0]))
    def lie(self, kind: int, name: str, member: str, seconds: float) -> None:
        """Claim to be complete up to a revision, and deliver a creation at that revision afterwards."""
        gone, there = (("no pool", "pool"), ("no member", "member"), ("no summary", "pool"))[kind]
        self._change([(gone, name, member)])
        self.run_until_blocked()
        self._streams(kind).false_bookmarks += 1
        self._change([(there, name, member)])
        self._pass(seconds)

    # --- parts of rules ---

    def _settle(self, changes: list[tuple[str, str, str]]) -> None:
        """Make changes, and let the controller act on them unless a fault prevents that."""
        self._change(changes)
        self._pass(2.0)

    def _look(self, seconds: float) -> None:
        """Let time pass, and compare the cache with the store before and after."""
        self.run_until_blocked()
        self.nothing_is_broken()
        self._pass(seconds)
        self.nothing_is_broken()
