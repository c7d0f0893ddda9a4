"""What a run machine does at the end of an example: situations that its rules meet too rarely, one after another.

Each of them follows whatever the rules of the example have done, and ends with a controller that has recovered.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from headway.testing import Fault
from tests.helpers.adding_watches import AddingWatches
from tests.helpers.crossings import Crossings
from tests.helpers.putting_back import PuttingBack
from tests.helpers.restarting import Restarting
from tests.helpers.stream_beginnings import Begins, Unreachable


class Endings(AddingWatches, Crossings, PuttingBack, Restarting):
    """A mixin with these situations, for the controller of a `NotedPools`."""

    def end_with(self, *endings: str) -> None:
        """Come to these situations. Check after each of them that the controller recovers."""
        for ending in endings:
            ENDINGS[ending](self)
            self.converge()

    def _deleted_while_primed(self, *kinds: int) -> None:
        """A pool is deleted while these types are primed. The others are primed by then."""
        late: list[Begins] = [Unreachable()] * 4
        begin = tuple(late if kind in kinds else [] for kind in range(3))
        self.restart(crashes=False, gone="meanwhile", down=[], begin=begin, meanwhile=[], seconds=40.0)

    def _primed_at_two_cuts(self) -> None:
        """Pools are primed before a change of pools and members, and members after it. The stream of pools lags."""
        begin: tuple[list[Begins], ...] = ([], [Unreachable()] * 4, [])
        self.restart(crashes=False, gone="", down=[], begin=begin, meanwhile=[], seconds=0.0)
        self._streams(0).hold()
        self._change([("pool", "b", ""), ("member", "b", "m2")])
        self._pass(6.0)
        self._streams(0).release()

    def _deleted_and_not_done(self) -> None:
        """The process ends in the middle of the reconcile after a deletion."""
        self.restart(crashes=False, gone="unfinished", down=[], begin=([], [], []), meanwhile=[], seconds=2.0)

    def _lost(self, *, new_id: bool) -> None:
        """The store loses the pool that only the old state of a member leads to."""
        self.lose(lost=[], leave=True, changes=[], new_id=new_id)

    def _begins_on_a_lost_history(self) -> None:
        """The run ends before its streams show that the store was put back. Its next fence is the first call."""
        self._change([("pool", "a", "")])
        self._pass(2.0)
        self.back_up()
        self._change([("pool", "b", "")] * 12)
        self._pass(2.0)
        self.restore(new_id=False, changes=[], away=7, ends=True, writes=False)

    def _records_a_lost_history(self) -> None:
        """The run goes on and has a checkpoint still to record, which is above a deletion of the new store."""
        self._change([("pool", "c", "")])
        self._pass(2.0)
        self.back_up()
        self.channel.records(*[Fault.FAILED] * 99)
        self._change([("pool", "b", "")] * 9)
        self._pass(0.5)
        changes = [("no pool", "c", ""), *[("pool", "b", "")] * 12]
        self.restore(new_id=True, changes=changes, away=7, heals=True)

    def _watch_is_added(self, held: int | None) -> None:
        """A run adds a watch, and has still to do a key, or a change that waits for another type or in a feed."""
        if self.pools.watching:
            self.restart(crashes=False, gone="", down=[], begin=([], [], []), meanwhile=[], seconds=2.0)
        self.watch_notes(held=held, leave=True, begin=[], seconds=6.0)


ENDINGS: dict[str, Callable[[Endings], None]] = {
    "a pool is deleted while pools are primed": lambda it: it._deleted_while_primed(0),
    "a pool is deleted while members are primed": lambda it: it._deleted_while_primed(1, 2),
    "members are primed later than pools": lambda it: it._primed_at_two_cuts(),
    "the process ends before it has acted on a deletion": lambda it: it._deleted_and_not_done(),
    "the store is replaced by its backup": lambda it: it._lost(new_id=True),
    "the store is rolled back": lambda it: it._lost(new_id=False),
    "a run begins after the store was rolled back": lambda it: it._begins_on_a_lost_history(),
    "a run ends after the store was replaced": lambda it: it._records_a_lost_history(),
    "a watch is added while a key is pending": lambda it: it._watch_is_added(None),
    "a watch is added while a change waits for pools": lambda it: it._watch_is_added(0),
    "a watch is added while a change of members waits": lambda it: it._watch_is_added(1),
    "a run ends during a reconcile": lambda it: it.end_during_a_reconcile("m1", 0.5, False),
    "a snapshot lacks what a reply has shown": lambda it: it.answer_before_a_snapshot("a", "m1", "nothing", "is slow"),
    "a snapshot has what a reply has deleted": lambda it: it.answer_before_a_snapshot("a", "m1", "gone", "is slow"),
    "two writes lose their outcomes": lambda it: it.lose_two(1, Fault.LOST),
    "a bookmark is false": lambda it: it.lie(0, "a", "m1", 1.0),
}
endings = st.permutations(sorted(ENDINGS)).map(lambda order: order[:5])
