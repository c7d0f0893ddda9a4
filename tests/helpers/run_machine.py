"""A Hypothesis machine of a whole controller's run, with every fault of streams, under virtual time.

The witness checks the contract in each mapper, reconcile and view, and checks the cache after each rule.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, nullcontext
from pathlib import Path
from typing import Any, ClassVar

import trio
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import headway
from headway import testing
from headway.resource import ResourceType
from headway.rpc import Channel
from headway.testing import Fault
from tests.helpers.chosen_endings import chosen, draws
from tests.helpers.contract import Witness
from tests.helpers.endings import ENDINGS, Endings
from tests.helpers.faulty_channel import FaultyChannel
from tests.helpers.faulty_stream import KindStreams
from tests.helpers.machine_parts import Wanted, changes, kinds, members, names, thens
from tests.helpers.noted_pools import NotedPools
from tests.helpers.pool_changes import make_change, users_of, write_first
from tests.helpers.restorable import RestorableBackend
from tests.helpers.settings import HeldClock, Setting
from tests.helpers.stream_beginnings import Again, Begins, Behind, Beyond, Compacted, Half, Unreachable
from tests.helpers.view_witness import ViewWitness

LAG_LIMIT = 30.0

begins = st.one_of(
    st.just(Unreachable()),
    st.just(Compacted()),
    st.just(Beyond()),
    st.builds(Half, st.integers(0, 3)),
    st.builds(Again, st.integers(1, 12)),
    st.builds(Behind, st.integers(0, 40), thens),
)
beginnings = st.lists(begins, max_size=3)
write_faults = st.lists(st.sampled_from(list(Fault)), min_size=1, max_size=3)
bare_faults = st.sampled_from([Fault.FAILED, Fault.LOST, Fault.LATE])


class RunMachine(Endings, RuleBasedStateMachine):
    """A run under random writes, deletions, and faults of streams, servers, stores and calls. A witness checks it."""

    network: ClassVar[bool] = False
    scoped: ClassVar[bool] = False

    @initialize(concurrency=st.integers(1, 3), begin=st.tuples(beginnings, beginnings, beginnings), draw=draws)
    def open(
        self,
        concurrency: int,
        begin: Sequence[list[Begins]] = (),
        ending: Sequence[str] = (),
        draw: int | None = None,
    ) -> None:
        """Start an engine on a store with two members, one of a pool that exists and one of a missing pool.

        Args:
            concurrency: the number of reconciles at a time.
            begin: how the first streams of each type begin.
            ending: the situations at the end, if nothing is drawn for them.
            draw: what was drawn for the situations at the end.
        """
        self.ending, self.draw = ending, draw
        self.store = RestorableBackend()
        self.channel = FaultyChannel(self.store, LAG_LIMIT)
        self.pools = NotedPools(concurrency=concurrency, scoped=self.scoped)
        self.witness = Witness(self.pools, self.channel, self.store)
        self.views = ViewWitness(self.witness, self.channel)
        self.backup = None
        self.written = 0

        async def open_engine() -> None:
            self.users = users_of(self.store, self.pools)
            await write_first(self.users, self.pools)
            for kind, of_type in enumerate(begin):
                self.channel.begin(self._type(kind), *of_type)
            await self._open()

        self.call(open_engine)
        self._change([("pool", "a", ""), ("member", "a", "m1")])

    async def _open(self) -> None:
        self.engine = await self.nursery.start(self._live)

    async def _close(self) -> None:
        self._process.cancel()
        await self._closed.wait()

    async def _live(self, task_status: trio.TaskStatus[headway.Engine]) -> None:
        self._process, self._closed = trio.CancelScope(), trio.Event()
        try:
            with self._process:
                await self._serve(task_status)
        finally:
            self._closed.set()

    async def _serve(self, task_status: trio.TaskStatus[headway.Engine]) -> None:
        async with AsyncExitStack() as stack:
            through: Callable[[Channel], Channel] = self.channel.over
            if self.network:
                through = await self._over_the_network(stack)
            opened = testing.open_engine(
                nullcontext(self.store),
                self.pools.app,
                report=self.witness.report,
                wrap_channel=through,
                timing=headway.Timing(lag_limit=LAG_LIMIT),
            )
            task_status.started(await stack.enter_async_context(opened))
            await trio.sleep_forever()

    async def _over_the_network(self, stack: AsyncExitStack) -> Callable[[Channel], Channel]:
        path = stack.enter_context(tempfile.TemporaryDirectory(prefix="headway-"))
        setting = Setting("memory", True, Path(path), HeldClock(self.clock))
        servers = [await stack.enter_async_context(setting.serving(self.store, self.pools.app)) for _ in range(2)]
        remote = await stack.enter_async_context(setting.channel(*servers))
        return lambda _: self.channel.over(remote)

    # --- users ---

    @rule(changes=changes, on=st.booleans())
    def change(self, changes: Wanted, on: bool) -> None:
        self._change(changes)
        if on:
            self.run_until_blocked()

    def _change(self, changes: Wanted) -> None:
        for change in changes:
            self.written += 1
            self.call(make_change, self.users, self.pools, self.written, *change)

    # --- time ---

    @rule(seconds=st.sampled_from([0.0, 0.02, 0.5, 2.0, 6.0, 40.0]))
    def pass_time(self, seconds: float) -> None:
        self._pass(seconds)

    def _pass(self, seconds: float) -> None:
        if seconds:
            self.sleep(seconds)
        self.run_until_blocked()

    # --- the controller's own code ---

    @rule(seconds=st.sampled_from([0.0, 0.01, 1.0]), blind=st.booleans())
    def be_slow(self, seconds: float, blind: bool) -> None:
        self.pools.pause, self.pools.blind = seconds, blind

    @precondition(lambda self: self.witness.started > 0)
    @rule()
    def fail_source(self) -> None:
        self.pools.fail_source()

    @rule(seconds=st.sampled_from([0.0, 1.0, 20.0]))
    def look_through_a_view(self, seconds: float) -> None:
        if (cache := self._cache()) is not None:
            self.nursery.start_soon(self.views.look, cache, seconds)

    # --- the network, the replicas and wrong servers ---

    @rule(kind=kinds, begin=beginnings, changes=changes, seconds=st.sampled_from([0.0, 0.3, 6.0, 40.0]))
    def cut_off(self, kind: int, begin: list[Begins], changes: Wanted, seconds: float) -> None:
        """Break a stream, and change resources before the next streams, which begin with faults."""
        self.channel.begin(self._type(kind), *begin)
        self._streams(kind).drop()
        self._change(changes)
        self._pass(seconds)

    @rule(kind=kinds, resources=st.integers(1, 3), changes=changes)
    def break_a_snapshot(self, kind: int, resources: int, changes: Wanted) -> None:
        """Break a stream and then its snapshot. A resource of the snapshot is deleted before the next one."""
        self.channel.begin(self._type(kind), Half(resources), *[Unreachable()] * 4, Compacted())
        self._streams(kind).drop()
        # Half of the snapshot has arrived by now, and the endpoint is not reachable for another moment.
        self._pass(0.3)
        stored = sorted(self.store.resources(self._type(kind)))
        self.call(self._delete_first, self._type(kind), stored[:1])
        self._change(changes)
        self._pass(2.0)

    async def _delete_first(self, type: ResourceType[Any], names: list[str]) -> None:
        for name in names:
            await self.users.delete(type.id(name))

    @rule(kind=kinds, name=names, member=members, delete=st.booleans(), back=st.sampled_from([1, 1, 2, 8]), then=thens)
    def fall_behind(self, kind: int, name: str, member: str, delete: bool, back: int, then: Any) -> None:
        """Break a stream just after a change, and answer from a replica that does not have it yet."""
        streams = self._streams(kind)
        streams.hold()
        self._change([(self._operation(kind, name, member, delete), name, member)])
        changed = self.store.position.revision
        for _ in range(10):
            if streams.delivered >= changed:
                break
            streams.let_pass()
            self.run_until_blocked()
        self.channel.begin(self._type(kind), Behind(streams.delivered - back, then))
        streams.drop()
        self._pass(0.3)

    @rule(kind=kinds, name=names, member=members, delete=st.booleans(), begin=begins)
    def miss(self, kind: int, name: str, member: str, delete: bool, begin: Begins) -> None:
        """Break a stream before a change of its type. The next stream begins with a fault."""
        self._change([("pool", name, ""), ("member", name, member)])
        self._pass(2.0)
        self.channel.begin(self._type(kind), begin)
        self._streams(kind).drop()
        self._change([(self._operation(kind, name, member, delete), name, member)])
        self._pass(0.3)

    @rule(kind=kinds, changes=changes, steps=st.integers(0, 4), after=st.sampled_from(["release", "leave", "drop"]))
    def lag(self, kind: int, changes: Wanted, steps: int, after: str) -> None:
        """Hold a stream while something changes, and let its items pass one at a time."""
        streams = self._streams(kind)
        streams.hold()
        self._change(changes)
        self._pass_one_by_one(streams, steps)
        if after == "release":
            streams.release()
        elif after == "drop":
            streams.drop()

    @rule(name=names, other=names, member=members, steps=st.integers(1, 4))
    def overtake(self, name: str, other: str, member: str, steps: int) -> None:
        """Let the controller overwrite a change that its cache does not have yet. The change arrives afterwards."""
        streams = self._streams(2)
        self.pools.blind = True
        self._change([("pool", name, ""), ("member", name, member)])
        self._pass(0.5)
        streams.hold()
        others = {"a", "b", "c"} - {name}
        self._change([("spoilt summary", each, "") for each in sorted(others)])
        self._change([("spoilt summary", name, ""), ("member", name, "m4" if other == name else "m5")])
        self.run_until_blocked()
        if self._cache() is not None:
            self.pools.enqueue(name)
        self._pass(self.pools.pause)
        self._pass_one_by_one(streams, steps)
        streams.release()

    @rule(kind=kinds, revisions=st.integers(1, 12), twice=st.booleans())
    def repeat(self, kind: int, revisions: int, twice: bool) -> None:
        """Deliver the next changes twice, or the changes of the last revisions again."""
        streams = self._streams(kind)
        if twice:
            streams.repeats += 1
        else:
            until = streams.delivered
            of = self._type(kind).kind
            streams.repeat(self.store.changes(of, until - revisions, until, self.pools.ranges[of]))

    @rule(kind=kinds)
    def release(self, kind: int) -> None:
        self._streams(kind).release()

    # --- outcomes of calls ---

    @rule(faults=write_faults)
    def harm_writes(self, faults: list[Fault]) -> None:
        self.channel.writes(*faults)

    @rule(fault=bare_faults, raises=st.booleans())
    def harm_raise_or_record(self, fault: Fault, raises: bool) -> None:
        (self.channel.raises if raises else self.channel.records)(fault)

    @rule()
    def answer_slow_calls(self) -> None:
        self.channel.answer_slow()

    @rule()
    def let_late_calls_arrive(self) -> None:
        """A write that arrives below the stored fence is refused, unless it has nothing to write."""
        raised = [
            (call.reply.fence.term, call.reply.fence.number) for call in self.channel.done if call.method == "Raise"
        ]
        before = len(self.store.commits)
        self.call(self.channel.run_late)
        for commit in self.store.commits[before:]:
            if raised and commit.fence is not None and self.witness.is_ours(commit.fence):
                assert commit.fence[2:] >= max(raised), f"C5, C8: {commit.fence} wrote after {max(raised)}"

    # --- invariants ---

    @invariant()
    def nothing_is_broken(self) -> None:
        if hasattr(self, "engine"):
            self.witness.check()
            self.channel.check()
            if (cache := self._cache()) is not None:
                self.witness.look(cache)

    def teardown(self) -> None:
        try:
            if hasattr(self, "engine") and not self.witness.broken:
                self._end_faults_and_converge()
        finally:
            super().teardown()

    def _end_faults_and_converge(self) -> None:
        self.converge()
        self._leave_a_pool()
        if self.draw is not None:
            done = self.written, self.store.position.revision, self.clock.current_time()
            self.ending = chosen(ENDINGS, 6, self.draw, *done)
        self.end_with(*self.ending)
        self.check_watches()

    @rule()
    def converge(self) -> None:
        """End all faults, and check that the engine recovers. It must leave streams that hang or lag.

        Other rules call this half of the time, because what they have made the controller forget may not matter any
        more after the next few changes.
        """
        self.pools.pause = 0.0
        self.channel.end_faults()
        self.call(self.channel.run_late)
        # Until the change that it hid has arrived, a false bookmark looks like a true one.
        self.run_until_blocked()

        async def wait_idle() -> bool:
            with trio.move_on_after(400) as patience:
                await self.engine.wait_idle()
            return not patience.cancelled_caught

        idle = self.call(wait_idle)
        self.nothing_is_broken()
        assert idle, "C6: the engine was not idle within 400 s after the last fault"
        self.witness.last_changes_were_seen()
        assert all(map(self.channel.is_honest, self.kinds())), "a false bookmark was not corrected"
        assert self._outputs() == self._expected()
        self.channel.allow_faults()

    def _leave_a_pool(self) -> None:
        """Move a member away from a pool that does not exist. Nothing but its old state leads there (C6)."""
        for moved in ([("no pool", "c", ""), ("member", "c", "m3")], [("member", "a", "m3")]):
            self._change(moved)
            self.call(self.engine.wait_idle)
            self.nothing_is_broken()
            self.witness.last_changes_were_seen()

    def _outputs(self) -> dict[str, tuple[str, list[str]]]:
        summaries = self.store.resources(self.pools.summary)
        return {
            name: (summary.owner.uid if summary.owner else "", summary.data.members)
            for name, summary in summaries.items()
        }

    def _expected(self) -> dict[str, tuple[str, list[str]]]:
        listed = sorted((member.data.pool, name) for name, member in self.store.resources(self.pools.member).items())
        expected = {
            name: (pool.uid, [*(member for of, member in listed if of == name), *self.noted(name)])
            for name, pool in self.store.resources(self.pools.pool).items()
        }
        return {name: (uid, listed) for name, (uid, listed) in expected.items() if listed}

    # --- parts of rules ---

    def _cache(self) -> headway.cache.Cache | None:
        """Return the cache of the present run, if it can be read."""
        runtime = self.pools.runtime
        return runtime.cache if runtime is not None and runtime.cache.primed else None

    def _is_running(self) -> bool:
        return self._cache() is not None

    def _pass_one_by_one(self, streams: KindStreams, count: int) -> None:
        for _ in range(count):
            streams.let_pass()
            self.run_until_blocked()
            self.nothing_is_broken()

    def _operation(self, kind: int, name: str, member: str, delete: bool) -> str:
        if kind == 2:
            return "no summary" if delete else "spoilt summary"
        there = (name, member)[kind] in self.store.resources(self._type(kind))
        return (("pool", "no pool"), ("member", "no member"))[kind][delete and there]

    def _streams(self, kind: int) -> KindStreams:
        return self.channel.streams(self._type(kind))

    def _type(self, kind: int) -> ResourceType[Any]:
        return self.pools.types[kind]


class RunOverNetworkMachine(RunMachine):
    """The same over gRPC, with two servers of one store."""

    network = True
