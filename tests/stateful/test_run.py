"""A state machine that runs a whole engine in virtual time, with a scripted channel before its memory store."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import trio
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import headway
from headway.resource import ResourceType
from headway.testing import Fault, LiveRun, ScriptedChannel
from tests.helpers.contract import Witness
from tests.helpers.pools import Member, Pool, PoolsApp, Summary
from tests.helpers.truth import RecordingBackend

names = st.sampled_from(["a", "b", "c"])
members = st.sampled_from(["m1", "m2", "m3"])
kinds = st.sampled_from([0, 1, 2])
write_faults = st.lists(st.sampled_from(list(Fault)), min_size=1, max_size=3)
stream_harms = st.sampled_from(["hold", "stall", "drop", "old snapshot", "duplicate", "false bookmark"])
bare_faults = st.sampled_from([Fault.FAILED, Fault.LOST, Fault.LATE])


class RunMachine(LiveRun, RuleBasedStateMachine):
    """Hypothesis writes, deletes, drops streams, serves old snapshots and loses replies. A witness checks all reads."""

    engine: headway.Engine

    @initialize(concurrency=st.integers(1, 3))
    def open(self, concurrency: int) -> None:
        self.store = RecordingBackend()
        self.channel = ScriptedChannel()
        self.pools = PoolsApp(concurrency=concurrency)
        self.witness = Witness(self.pools, self.channel, self.store)

        async def open_engine() -> None:
            self.engine = await self.nursery.start(self._live)

        self.call(open_engine)
        self.write_pool("a", "x")
        self.write_member("m1", "a")

    async def _live(self, task_status: trio.TaskStatus[headway.Engine]) -> None:
        async with AsyncExitStack() as stack:
            opened = headway.open_engine(
                self.store, self.pools.app, report=self.witness.report, wrap_channel=self.channel.over
            )
            task_status.started(await stack.enter_async_context(opened))
            await trio.sleep_forever()

    # --- what users do ---

    @rule(name=names, note=st.sampled_from(["x", "y"]))
    def write_pool(self, name: str, note: str) -> None:
        self.call(self.engine.client.apply, self.pools.pool.new(name, Pool(note=note)))

    @rule(name=names)
    def delete_pool(self, name: str) -> None:
        self.call(self.engine.client.delete, self.pools.pool.id(name))

    @rule(name=members, pool=st.one_of(names, st.just("")))
    def write_member(self, name: str, pool: str) -> None:
        self.call(self.engine.client.apply, self.pools.member.new(name, Member(pool=pool)))

    @rule(name=members)
    def delete_member(self, name: str) -> None:
        self.call(self.engine.client.delete, self.pools.member.id(name))

    @rule(name=names)
    def delete_summary(self, name: str) -> None:
        self.call(self.engine.client.delete, self.pools.summary.id(name))

    @rule(name=names)
    def spoil_summary(self, name: str) -> None:
        async def spoil() -> None:
            there = await self.engine.client.get(self.pools.summary, name)
            if there is not None:
                there.data = Summary(members=["spoilt"])
                try:
                    await self.engine.client.write(there)
                except headway.Conflict:
                    return

        self.call(spoil)

    # --- what time does ---

    @rule()
    def run_on(self) -> None:
        self.run_until_blocked()

    @rule(seconds=st.sampled_from([0.02, 0.5, 2.0, 6.0, 40.0]))
    def pass_time(self, seconds: float) -> None:
        self.sleep(seconds)

    @rule(seconds=st.sampled_from([0.0, 0.01, 1.0]))
    def be_slow(self, seconds: float) -> None:
        self.pools.pause = seconds

    # --- what the network and the replicas do ---

    @rule(kind=kinds, harm=stream_harms, back=st.integers(0, 12))
    def harm_stream(self, kind: int, harm: str, back: int) -> None:
        type, channel = self._type(kind), self.channel
        if harm == "old snapshot":
            channel.refuse_resume(type)
            channel.old_snapshot(type, max(0, self.store.position.revision - back))
            channel.drop(type)
        else:
            {
                "hold": channel.hold,
                "stall": channel.stall,
                "drop": channel.drop,
                "duplicate": channel.duplicate,
                "false bookmark": channel.false_bookmark,
            }[harm](type)

    @rule(kind=kinds)
    def release_stream(self, kind: int) -> None:
        self.channel.release(self._type(kind))

    @rule()
    def answer_slow_calls(self) -> None:
        self.channel.answer_slow()

    @rule(kind=kinds, count=st.integers(1, 2))
    def let_pass(self, kind: int, count: int) -> None:
        self.channel.let_pass(self._type(kind), count)
        self.run_until_blocked()

    @rule()
    def release_all_streams(self) -> None:
        for type in self.pools.types:
            self.channel.release(type)
        self.run_until_blocked()

    @rule(faults=write_faults)
    def harm_writes(self, faults: list[Fault]) -> None:
        self.channel.writes(*faults)

    @rule(fault=bare_faults, raises=st.booleans())
    def harm_raise_or_record(self, fault: Fault, raises: bool) -> None:
        (self.channel.raises if raises else self.channel.records)(fault)

    @rule()
    def let_late_calls_arrive(self) -> None:
        """Let late calls arrive. A write below the stored fence is refused, unless it would change nothing."""
        raised = [
            (call.reply.fence.term, call.reply.fence.number) for call in self.channel.done if call.method == "Raise"
        ]
        before = len(self.store.commits)
        self.call(self.channel.run_late)
        for commit in self.store.commits[before:]:
            if commit.fence is not None and self.witness.is_ours(commit.fence):
                assert commit.fence[2:] >= max(raised), f"C5, C8: {commit.fence} wrote after {max(raised)}"

    # --- what the controller's own code does ---

    @precondition(lambda self: self.witness.started > 0)
    @rule()
    def fail_source(self) -> None:
        self.pools.fail_source()

    # --- what must hold ---

    @invariant()
    def nothing_is_broken(self) -> None:
        if hasattr(self, "witness"):
            self.witness.check()

    def teardown(self) -> None:
        try:
            if hasattr(self, "engine") and not self.witness.broken:
                self._heal_and_converge()
        finally:
            super().teardown()

    def _heal_and_converge(self) -> None:
        self.pools.pause = 0.0
        self.channel.heal()
        self.call(self.channel.run_late)
        # A false bookmark looks like a true one until the change that it hid arrives.
        self.run_until_blocked()

        async def settle() -> None:
            with trio.fail_after(400):
                await self.engine.wait_idle()

        self.call(settle)
        self.witness.check()
        self.witness.last_changes_were_seen()
        assert self._outputs() == self._demanded()

    def _outputs(self) -> dict[str, tuple[str, list[str]]]:
        summaries = self.store.resources(self.pools.summary)
        return {
            name: (summary.owner.uid if summary.owner else "", summary.data.members)
            for name, summary in summaries.items()
        }

    def _demanded(self) -> dict[str, tuple[str, list[str]]]:
        listed = sorted((member.data.pool, name) for name, member in self.store.resources(self.pools.member).items())
        demanded = {
            name: (pool.uid, [member for of, member in listed if of == name])
            for name, pool in self.store.resources(self.pools.pool).items()
        }
        return {name: (uid, listed) for name, (uid, listed) in demanded.items() if listed}

    def _type(self, kind: int) -> ResourceType[Any]:
        return self.pools.types[kind]


def test_a_state_that_was_over_before_the_first_run_began_is_nobodys() -> None:
    """No reconcile is expected for a state that was replaced before the run began.

    The resumed stream delivers both changes at once, after the starting revision and before the run (seed 121001).
    """
    machine = RunMachine()
    machine.open(concurrency=2)
    machine.let_pass(kind=1, count=1)
    machine.harm_stream(kind=1, harm="drop", back=0)
    machine.write_member("m2", "b")
    machine.pass_time(6.0)
    machine.write_member("m2", "c")
    assert not machine.witness.began
    machine.teardown()
    changed = [commit.revision for commit in machine.store.commits if commit.key[2] == "m2"]
    assert machine.witness.began < changed[-1]
    assert {seen.name for seen in machine.witness.reconciles} >= {"a", "c"}


TestRun = RunMachine.TestCase
