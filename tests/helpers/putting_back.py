"""Rules for a run machine: an operator compacts the store, backs it up, and puts it back to the backup."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.helpers.machine_parts import MachineParts, Wanted, changes
from tests.helpers.pool_changes import make_change
from tests.helpers.stream_beginnings import Compacted, Unreachable


class PuttingBack(MachineParts):
    """A mixin with these rules, for the controller of a `NotedPools`."""

    @rule()
    def compact(self) -> None:
        """Drop the history of the store, so that a stream that is cut off cannot be resumed."""
        self._at_once(self.store.compact)

    @rule()
    def back_up(self) -> None:
        self.backup = self.store.back_up()

    @precondition(lambda self: self.backup is not None)
    @rule(
        new_id=st.booleans(),
        changes=changes,
        away=st.sampled_from([0, 3, 7]),
        ends=st.booleans(),
        converges=st.booleans(),
    )
    def restore(
        self,
        new_id: bool,
        changes: Wanted,
        away: int = 0,
        ends: bool = False,
        converges: bool = False,
        writes: bool = True,
        heals: bool = False,
        compacted: bool = False,
        meets: bool = False,
    ) -> None:
        """Put the store back to a backup. Without a new id, no run begins until an operator accepts it.

        Until the streams find out, the run goes on with what it has cached. They are unreachable ``away`` times before
        that. The run may end in the meantime. If it ``writes`` before, the reply shows that its history is lost. All
        other faults end with the restoration if it ``heals``. If the history is ``compacted``, the streams begin with
        snapshots. If the run that follows ``meets`` the lost history, its fence takes the last revision of that.
        """
        # Every call ends, and every open watch waits for the next commit.
        self.channel.end_calls()
        self._pass(0.1)
        if self.backup is None or not self._is_running() or self._delivered() <= self.backup.revision:
            # Nothing has been delivered that the store would lose.
            return
        backup, self.backup, lost = self.backup, None, self._delivered()
        for type in self.kinds():
            self.channel.begin(type, *[Unreachable()] * away, *[Compacted()] * compacted)

        def put_back() -> None:
            # A reconcile may write at this very moment. What the witness knows of the store is what it loses.
            self.witness.put_back()
            self.witness.restored_to = backup.revision
            if new_id:
                self.witness.resume()
            self.store.restore(backup, new_id=new_id)
            self.channel.forget()

        self._at_once(put_back)
        if heals:
            self.channel.heal()
        self._change(changes)

        async def pass_the_others() -> None:
            while self.store.position.revision < lost - 1:
                self.written += 1
                await make_change(self.users, self.pools, self.written, "pool", "a", "")

        self.channel.before_raise = pass_the_others if meets else None
        if away and self._is_running():
            if writes:
                self._reconcile_all()
            if ends:
                self.pools.fail_source()
                self._pass(0.3)
            # Users go on, and the store passes every revision that it has lost, before the streams show what it is.
            self._change([("pool", "a", "")] * (lost - self.store.position.revision + 1))
        # Within this time, every stream has been opened again, or a position has been read instead.
        self._pass(60.0)
        if not new_id:
            reconciled = len(self.witness.reconciles)
            self._change([("pool", "a", ""), ("pool", "b", ""), ("pool", "c", "")])
            self._pass(60.0)
            assert len(self.witness.reconciles) == reconciled, "C2: a run went on with a store that was rolled back"
            assert not self._is_running(), "C2: the cache of a store that was rolled back can be read"
            self.witness.check()
            self.witness.resume()
            assert self.engine.accept_store(), "a store that was rolled back was not noticed"
            self.channel.forget_delivered()
        self._pass(60.0)
        if converges:
            self.converge()

    @precondition(lambda self: self._is_running())
    @rule(
        lost=changes,
        leave=st.booleans(),
        new_id=st.booleans(),
        changes=changes,
        away=st.sampled_from([0, 3, 7]),
        ends=st.booleans(),
        converges=st.booleans(),
    )
    def lose(self, lost: Wanted, leave: bool, changes: Wanted, **how: Any) -> None:
        """Put the store back to just before these changes and many more, which the controller has acted on.

        It has not mapped the last one if that moves a member away from a pool that does not exist. Nothing else leads
        to that pool in the present history. Otherwise, a pool without members is deleted in the present history.
        """
        first = "no pool" if leave else "pool"
        self._change([(first, "c", ""), *[("member", "a", each) for each in ("m1", "m2", "m3")]])
        self._pass(6.0)
        if not leave:
            changes = [*changes, ("no pool", "c", "")]
        self.back_up()
        self._change([*lost, *[("pool", "b", "")] * 12])
        self._pass(2.0)
        if leave:
            self._change([("member", "c", "m3")])
            self._pass(2.0)
            self._streams(0).hold()
            self._change([("member", "a", "m3")])
            self._pass(0.0)
            self.nothing_is_broken()
        self.restore(changes=changes, **how)

    def _reconcile_all(self) -> None:
        """Let the run that goes on write what it computes from the history that the store has lost."""
        blind, self.pools.blind = self.pools.blind, True
        for name in ("a", "b", "c"):
            self.pools.enqueue(name)
        self._pass(0.05)
        self.pools.blind = blind

    def _delivered(self) -> int:
        return max(self.channel.streams(type).delivered for type in self.kinds())

    def _at_once(self, function: Callable[[], None]) -> None:
        async def call() -> None:
            function()

        self.call(call)
