"""What a run machine does at the end of an example: situations that its rules meet too rarely, one after another.

Each of them follows whatever the rules of the example have done, and ends with a controller that has recovered.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import repeat

import headway
from headway import Condition
from headway.errors import HeadwayError, PermanentFailure
from headway.pauses import pause_controller, resume_controller
from headway.testing import Fault
from tests.helpers.adding_watches import AddingWatches
from tests.helpers.crossings import Crossings
from tests.helpers.pools import Pool, Summary
from tests.helpers.putting_back import PuttingBack
from tests.helpers.restarting import Restarting
from tests.helpers.stream_beginnings import Begins, Behind, Beyond, Half, Unreachable


class Endings(AddingWatches, Crossings, PuttingBack, Restarting):
    """A mixin with these situations, for the controller of a `NotedPools`."""

    def end_with(self, *endings: str) -> None:
        """Come to these situations. Check after each of them that the controller recovers."""
        for ending in endings:
            ENDINGS[ending](self)
            self.converge()

    def _deleted_while_primed(self, *kinds: int) -> None:
        """A pool is deleted while these types are primed, when the first snapshot has broken off.

        The others are primed by then.
        """
        self._settle([("pool", name, "") for name in ("a", "b")])
        late: list[Begins] = [Half(3), *[Unreachable()] * 4]
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
        self._lose_much(ends=True)

    def _lose_much(self, **how: bool) -> None:
        self._change([("pool", "a", "")])
        self._pass(2.0)
        self.back_up()
        self._change([("pool", "b", "")] * 12)
        self._pass(2.0)
        self.restore(new_id=False, changes=[], away=7, writes=False, **how)

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

    def _held_or_failed(self) -> None:
        self._unknown_for_long()
        self._unknown_while_a_fence_is_raised()
        self._unknown_while_paused()
        self._fails_for_good_during_a_change()
        self._changes_before_it_is_due()

    def _ends_while_work_waits(self) -> None:
        self._ends_while_keys_wait()
        self._ends_before_it_is_primed()

    def _without_a_commit(self) -> None:
        self._resumes_beyond_a_deletion()
        self._one_commit_below_the_history()
        self._one_commit_below_the_cache()
        self._summary_is_replaced()

    def _fails_for_good_during_a_change(self) -> None:
        """A pool changes while its reconcile goes on, which raises a `PermanentFailure` afterwards."""
        self.pools.failures["a"], self.pools.pauses["a"] = iter([PermanentFailure("never")]), 10.0
        self.pools.enqueue("a")
        self._pass(0.0)
        self._change([("pool", "a", "")])
        self._pass(0.3)
        self.pools.enqueue("a")
        self._pass(10.0)
        self.pools.failures, self.pools.pauses = {}, {}
        self._see_last_changes()

    def _changes_before_it_is_due(self) -> None:
        """A pool changes while its reconcile goes on, which asks for another one in ten minutes."""
        self.pools.requeues["a"], self.pools.pauses["a"] = 600.0, 10.0
        self.pools.enqueue("a")
        self._pass(0.5)
        self._change([("pool", "a", "")])
        self._see_last_changes()
        self.pools.requeues, self.pools.pauses = {}, {}

    def _see_last_changes(self) -> None:
        """Check that the keys of the last changes have been reconciled after some time, if the controller runs.

        A stream may hang or lag before that.
        """
        self._look(60.0)
        if self._is_running():
            self.witness.last_changes_were_seen()

    def _begins_with_a_lost_write(self) -> None:
        """A run's first function loses the answer to its write. The replicas are just below the fence after that."""
        self._end_process()
        self.pools.replace(self.pools.reconcile, self._write_first)
        self.channel.statuses(Fault.LOST)
        self.call(self._open)
        self._look(0.5)
        self._end_process()
        self.pools.replace(self.pools.reconcile)
        self.call(self._open)

    async def _write_first(self, rt: headway.Runtime) -> None:
        for pool in (await rt.client.list(self.pools.pool))[:1]:
            await self._tell(rt, pool)
        for type in self.pools.at_first:
            self.channel.begin(type, Behind(self.store.position.revision, "is slow"))

    def _mapper_fails(self) -> None:
        """The mapper fails for two changes of a member, which leaves two missing pools, and returns strays."""
        self._settle([("no pool", "c", ""), ("no pool", "b", ""), ("member", "a", "m3")])
        self._pass(6.0)
        self.pools.mapping_failures = repeat(ValueError("not now"))
        for pool in ("c", "b", "a"):
            self._change([("member", pool, "m3")])
            self._pass(0.3)
        self.pools.mapping_failures = iter(())
        self._see_last_changes()
        self.pools.stray = [7]
        self._change([("pool", "a", ""), ("member", "b", "m3")])
        self._see_last_changes()
        self.pools.stray = []

    def _ends_while_keys_wait(self) -> None:
        """The run ends while a key backs off and one is scheduled. Nothing stored leads the next run to them."""
        self.pools.failures["d"], self.pools.requeues["e"] = repeat(ValueError("not now")), 5.0
        for name in ("d", "e"):
            self.pools.enqueue(name)
        self._pass(2.0)
        self.pools.failures, self.pools.requeues, before = {}, {}, len(self.witness.reconciles)
        self.pools.fail_source()
        self._pass(60.0)
        forgotten = {"d", "e"} - {seen.name for seen in self.witness.reconciles[before:]}
        assert not forgotten, f"C6: {sorted(forgotten)} were pending when the run ended, and were forgotten"

    def _ends_before_it_is_primed(self) -> None:
        """A member leaves a missing pool between two runs, and the next run fails before it has seen that."""
        self._settle([("no pool", "c", ""), ("member", "c", "m3")])
        self._pass(6.0)
        self.channel.raises(Fault.FAILED)
        self.pools.fail_source()
        self.run_until_blocked()
        self._change([("member", "a", "m3")])
        self._pass(6.0)

    def _crashes_after_a_false_bookmark(self) -> None:
        """A false bookmark hides a deletion, no stream can be opened to correct that, and the process crashes."""
        self._change([("pool", "c", ""), *[("member", "a", each) for each in ("m1", "m2", "m3")]])
        self._open_streams_again()
        self.channel.begin(self.pools.pool, *[Unreachable()] * 9)
        self._streams(0).false_bookmarks += 1
        self._change([("no pool", "c", "")])
        self._pass(12.0)
        self.restart(crashes=True, gone="", down=[], begin=([], [], []), meanwhile=[], seconds=2.0)

    def _resumes_beyond_a_deletion(self) -> None:
        """A stream breaks before a deletion, and a wrong server resumes after it."""
        self._settle([("pool", "a", ""), ("member", "a", "m1")])
        self._open_streams_again()
        self._streams(1).hold()
        self._change([("no member", "", "m1")])
        self.channel.begin(self.pools.member, Beyond())
        self._streams(1).drop()
        self._look(6.0)

    def _one_commit_below_the_history(self) -> None:
        """A stream breaks, and the store has dropped exactly one commit that it has not delivered."""
        self._change([("pool", "a", ""), ("member", "a", "m1")])
        self._open_streams_again()
        self._streams(1).hold()
        self.pools.pause = 1.0
        self._change([("no member", "", "m1"), ("pool", "a", "")])
        self.compact()
        self._streams(1).drop()
        self._look(0.5)
        self.pools.pause = 0.0
        self._look(6.0)

    def _one_commit_below_the_cache(self) -> None:
        """A stream begins with the snapshot of a replica that lacks only a deletion."""
        self._settle([("member", "a", "m1")])
        self.fall_behind(kind=1, name="a", member="m1", delete=True, back=1, then="catches up")
        self._look(2.0)

    def _unknown_for_long(self) -> None:
        """The fence cannot be raised for a moment. A second write is lost, and a user pauses and resumes."""
        self._settle([("pool", "a", ""), ("pool", "b", "")])
        self.channel.statuses(Fault.LOST, Fault.LOST)
        self.channel.raises(*[Fault.FAILED] * 4)
        for _ in range(2):
            self.nursery.start_soon(self._write_a_status)
            self._pass(0.01)
        for change in (pause_controller, resume_controller):
            self.call(change, self.users, "test/pools")
            self.run_until_blocked()
        self.pools.enqueue("b")
        self._look(1.5)

    def _unknown_while_a_fence_is_raised(self) -> None:
        """A second write is lost after the fence that resolves the first was raised, and before its answer comes."""
        self._settle([("pool", "a", ""), ("pool", "b", "")])
        self.channel.statuses(Fault.LOST, Fault.LOST)
        self.channel.raises(Fault.SLOW)
        for _ in range(2):
            self.written += 1
            self.nursery.start_soon(self._write_a_status)
            self._pass(0.01)
        self.channel.answer_slow()
        self._change([("pool", "b", "")])
        self._see_last_changes()

    def _unknown_while_paused(self) -> None:
        """The outcome of a write becomes known while the controller is paused, and keys wait."""
        self._settle([("pool", "a", ""), ("pool", "b", "")])
        self.channel.statuses(Fault.LOST)
        self.channel.raises(*[Fault.FAILED] * 2)
        self.nursery.start_soon(self._write_a_status)
        self._pass(0.01)
        self.call(pause_controller, self.users, "test/pools")
        self._pass(0.01)
        before = len(self.witness.reconciles)
        for name in ("a", "b"):
            self.pools.enqueue(name)
        self._pass(6.0)
        assert len(self.witness.reconciles) == before, "a paused controller has reconciled"
        self.call(resume_controller, self.users, "test/pools")

    async def _write_a_status(self) -> None:
        runtime = self.pools.runtime
        pool = None if runtime is None else runtime.cache.get(self.pools.pool, "a")
        if runtime is not None and pool is not None:
            await self._tell(runtime, pool)

    async def _tell(self, rt: headway.Runtime, pool: headway.Resource[Pool]) -> None:
        with suppress(HeadwayError):
            await rt.client.write_status(pool, "told", [Condition(type="Told", message=str(self.written))])

    def _lost_history_is_compacted(self) -> None:
        """The store passes what it has lost, and the first stream that can be opened begins with a snapshot."""
        self._lose_much(ends=False, compacted=True)

    def _meets_the_lost_history(self) -> None:
        """The next fence is raised at the last revision that the store has lost."""
        self._lose_much(ends=True, meets=True)

    def _summary_is_replaced(self) -> None:
        """The controller deletes a summary, in place of which a user has written another one."""
        self._settle([("pool", "a", ""), ("member", "a", "m1")])
        self._streams(2).hold()
        self.call(self._replace_summary)
        self._change([("no pool", "a", "")])
        self.run_until_blocked()
        self.pools.enqueue("a")
        self._pass(0.5)
        self._streams(2).release()
        self._look(2.0)
        # If the controller did not have the first one yet, nothing leads it to this one, which has no owner.
        self._change([("no summary", "a", "")])

    async def _replace_summary(self) -> None:
        metadata = {"shown": "yes"} if self.pools.scoped else {}
        await self.users.delete(self.pools.summary.id("a"))
        await self.users.apply(self.pools.summary.new("a", Summary(members=["by a user"]), metadata=metadata))

    def _open_streams_again(self) -> None:
        """Break all streams, because one may hang, and wait for the next ones to catch up."""
        for type in self.kinds():
            self.channel.streams(type).drop()
        self._pass(6.0)


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
    "a run ends while work waits": lambda it: it._ends_while_work_waits(),
    "the process crashes after a false bookmark": lambda it: it._crashes_after_a_false_bookmark(),
    "keys wait for the outcome of a write or fail for good": lambda it: it._held_or_failed(),
    "a stream does not have a commit": lambda it: it._without_a_commit(),
    "a lost history is compacted": lambda it: it._lost_history_is_compacted(),
    "a run begins with a lost write": lambda it: it._begins_with_a_lost_write(),
    "a mapper fails": lambda it: it._mapper_fails(),
    "a fence is raised at a lost revision": lambda it: it._meets_the_lost_history(),
}
