"""Rules for a run machine: the process ends and another one begins on the same store, and its users never stop."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from headway.testing import Fault
from tests.helpers.machine_parts import MachineParts, Wanted, changes
from tests.helpers.stream_beginnings import Begins, Behind, Unreachable

# A type may be primed long after the others.
behind: st.SearchStrategy[Begins] = st.builds(Behind, st.integers(0, 40), st.sampled_from(["hangs", "stands still"]))
away: st.SearchStrategy[Begins] = st.just(Unreachable())
begins = st.one_of(st.lists(away, max_size=4), st.lists(behind, max_size=1))


class Restarting(MachineParts):
    """A mixin with these rules, for the controller of a `NotedPools`."""

    restarts = 0

    @precondition(lambda self: self.witness.lost is None)
    @rule(
        crashes=st.booleans(),
        gone=st.sampled_from(["", "unfinished", "down", "meanwhile", "meanwhile"]),
        down=changes,
        begin=st.tuples(begins, begins, begins),
        meanwhile=changes,
        seconds=st.sampled_from([0.0, 2.0, 40.0]),
        converges=st.booleans(),
    )
    def restart(
        self,
        crashes: bool,
        gone: str,
        down: Wanted,
        begin: tuple[list[Begins], ...],
        meanwhile: Wanted,
        seconds: float,
        converges: bool = False,
    ) -> None:
        """End the engine and open another one, with changes in between and while its caches are primed.

        A process that crashes does not record its last checkpoint. A pool without members is deleted just before the
        process ends, or later. Nothing but the store's history shows that to the next one.
        """
        if gone:
            self._change([("pool", "c", ""), *[("member", "a", each) for each in ("m1", "m2", "m3")]])
            self._pass(6.0)
        deleted = [("no pool", "c", "")]
        if gone == "unfinished":
            self.pools.pause = 3.0
            self._change(deleted)
            self._pass(0.3)
        if crashes:
            self.channel.records(*[Fault.FAILED] * 3)
        self._end_process()
        self._change(deleted if gone == "down" else down)
        for type, begins in zip(self.pools.at_first, begin, strict=True):
            self.channel.begin(type, *begins)
        self.call(self._open)
        # By now, the fence is raised.
        self._pass(0.01)
        self._change(deleted if gone == "meanwhile" else meanwhile)
        self._pass(seconds)
        if converges:
            self.converge()

    def _end_process(self) -> None:
        self.call(self._close)
        self.pools.pause = 0.0
        self.restarts += 1
        self.pools.runtime, self.pools.watching = None, False
        self.witness.end_process()
        self.channel.end_process()
