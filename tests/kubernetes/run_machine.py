"""A Hypothesis machine of a controller's runs on a real cluster, in real time and under faults.

`tests/helpers/run_machine.py` is the same on Headway's stores, in virtual time. The witness is the same: it checks the
contract in each mapper and reconcile. Here it compares with the content of etcd.
"""

from __future__ import annotations

import shutil
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import trio
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headway.errors import StoreRolledBack
from headway.events import RunEnded, StreamOpened
from headway.kubernetes import _http, _watch
from headway.run import _ownership
from tests.helpers.contract import Witness
from tests.helpers.kube_server import KubeServer
from tests.kubernetes.cluster_history import ClusterHistory
from tests.kubernetes.etcd_record import EtcdRecord
from tests.kubernetes.faulty_api import Streams
from tests.kubernetes.kube_pools import KubePools, Users
from tests.kubernetes.kube_processes import Process, World

PATIENCE = 120.0
"""The seconds after the last fault within which a controller must have recovered."""

_SILENCE = 4.0
_OF_BARRIER = 0.3
_OF_CHECKPOINTS = 1.0

names = st.sampled_from(["a", "b", "c"])
members = st.sampled_from(["m1", "m2", "m3"])
kinds = st.sampled_from(["pools", "members", "summaries"])
operations = st.sampled_from(
    [
        *("pool", "no pool", "new pool", "held pool", "freed pool", "member", "member", "no member", "new member"),
        *("no summary", "spoilt summary", "labeled summary", "summary without owner"),
    ]
)
changes = st.lists(st.tuples(operations, names, members), max_size=3)
beginnings = st.lists(st.sampled_from(["lost", "gone", "broken"]), max_size=2)
seconds = st.sampled_from([0.0, 0.05, 0.3, 0.6])
Wanted = list[tuple[str, str, str]]


class KubeRunMachine(RuleBasedStateMachine):
    """The runs of a controller on a cluster, under random writes of users and faults. A witness checks them.

    Attributes:
        world: the servers. Set it on a subclass.
        heavy: the number of faults of the servers themselves in an example. Each takes seconds, and a restore counts
            twice.
    """

    world: World
    heavy = 1

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[Process] = []
        if self.world.failure is not None:
            raise self.world.failure
        self.world.log.clear()
        self._before = _http.SILENCE, _watch._PATIENCE, _watch.SMALL, _watch._MOST_LISTED, _ownership.RECORD_INTERVAL
        _http.SILENCE, _watch._PATIENCE, _ownership.RECORD_INTERVAL = _SILENCE, _OF_BARRIER, _OF_CHECKPOINTS

    @initialize(concurrency=st.integers(1, 3), scoped=st.booleans(), told=st.booleans(), large=st.booleans())
    def open(self, concurrency: int, scoped: bool, told: bool, large: bool) -> None:
        """Begin with two members, one of a pool that exists and one of a missing pool.

        Args:
            large: the types count as large, so that barriers are second watches.
        """
        world = self.world
        if large:
            _watch.SMALL = _watch._MOST_LISTED = 1
        self.note("open", concurrency, "scoped" if scoped else "", "told" if told else "", "large" if large else "")
        self.namespace = world.servers[1].new_namespace()
        self.client = self.enter(world.servers[1])
        self.users = Users(self.client, scoped=scoped, record=lambda fact: self.history.add(fact))
        self.history = ClusterHistory("", 0)
        self.users.clear()
        first = KubePools(concurrency=concurrency, scoped=scoped)
        self.record = EtcdRecord(world.servers[0].etcd, first.plurals)
        witnesses: list[Witness] = []
        self.history = self._history_from(self.record.position.revision)
        for pools in (first, KubePools(concurrency=concurrency, scoped=scoped)):
            pools.told = int(told)
            process = Process(world, self.namespace, pools, self.record, witnesses, lambda fact: self.history.add(fact))
            self.processes.append(process)
            witnesses.append(process.witness)
        self.written, self.scoped, self.left = 0, scoped, self.heavy
        self.backup: tuple[Path, int] | None = None
        self._change([("pool", "a", ""), ("member", "a", "m1"), ("member", "b", "m2")])
        world.call(self.processes[0].open, "one")

    def _history_from(self, revision: int) -> ClusterHistory:
        found = self.client.get("/api/v1/namespaces/kube-system").raise_for_status().json()
        return ClusterHistory(found["metadata"]["uid"], revision)

    def enter(self, server: KubeServer) -> Any:
        self._opened = server.client()
        return self._opened.__enter__()

    def note(self, *what: object) -> None:
        """Add a line to the log."""
        self.world.log.append(f"{time.monotonic() % 1000:.1f} " + " ".join(map(str, what)))

    # --- users and time ---

    @rule(changes=changes, after=seconds)
    def change(self, changes: Wanted, after: float) -> None:
        self._change(changes)
        self._pass(after)

    def _change(self, changes: Wanted) -> None:
        for change in changes:
            self.written += 1
            self.note("change", self.written, *change)
            self.users.make(self.written, *change)

    @rule(after=seconds)
    def pass_time(self, after: float) -> None:
        self._pass(after)

    def _pass(self, after: float) -> None:
        self.world.call(trio.sleep, after)

    # --- the controller's own code ---

    @rule(pause=st.sampled_from([0.0, 0.02, 0.5]), blind=st.booleans())
    def be_slow(self, pause: float, blind: bool) -> None:
        for each in self.processes:
            each.pools.pause, each.pools.blind = pause, blind

    @rule()
    def fail_source(self) -> None:
        if (process := self.running) is not None:
            self.note("fail source")
            self._at_once(process.pools.fail_source)

    # --- streams ---

    @rule(kind=kinds, how=st.sampled_from(["lost", "gone", "over"]), begins=beginnings, changes=changes, after=seconds)
    def cut_off(self, kind: str, how: str, begins: Sequence[str], changes: Wanted, after: float) -> None:
        """End the watches of a type, and change objects before the next ones, which begin with faults."""
        self.note("cut off", kind, how, begins)
        self._of_streams(kind, lambda each: each.end(how, begins))
        self._change(changes)
        self._pass(after)

    @rule(how=st.sampled_from(["lost", "gone"]), changes=changes, refused=st.integers(0, 3), after=seconds)
    def cut_all(self, how: str, changes: Wanted, refused: int, after: float) -> None:
        """Cut off every stream at once, and refuse them for some time."""
        self.note("cut all", how, refused)
        for kind in ("pools", "members", "summaries"):
            self._of_streams(kind, lambda each: each.end(how, ["lost"] * refused))
        self._change(changes)
        self._pass(after)

    @rule(
        kind=kinds,
        name=names,
        member=members,
        changes=changes,
        before=seconds,
        after=st.sampled_from(["", "release", "lost", "gone"]),
    )
    def lag(self, kind: str, name: str, member: str, changes: Wanted, before: float, after: str) -> None:
        """Hold back a type's events while it changes, and then the other types."""
        self.note("hold", kind, "then", after)
        self._of_streams(kind, lambda each: each.hold())
        first = {"pools": "pool", "members": "member", "summaries": "spoilt summary"}
        self._change([(first[kind], name, member), *((first[each], name, member) for each in first if each != kind)])
        self._change(changes)
        self._pass(before)
        self._look()
        if after:
            self._of_streams(kind, lambda each: each.set(delay=0.0) if after == "release" else each.end(after))

    @rule(name=names, member=members, kind=kinds)
    def miss(self, name: str, member: str, kind: str) -> None:
        """Delete an object and make it again while the watches of its type are held."""
        self._change([("pool", name, ""), ("member", name, member)])
        self._pass(0.5)
        self.note("miss", kind)
        self._of_streams(kind, lambda each: each.hold())
        again = {"pools": "new pool", "members": "new member", "summaries": "no summary"}[kind]
        self._change([(again, name, member)])
        self._of_streams(kind, lambda each: each.end("gone"))

    @rule(kind=kinds, delay=st.sampled_from([0.0, 0.05, 0.3]))
    def be_late(self, kind: str, delay: float) -> None:
        """Delay each event of a type."""
        self.note("delay", kind, delay)
        self._of_streams(kind, lambda each: each.set(delay=delay))

    @rule(kind=kinds)
    def release(self, kind: str) -> None:
        self.note("release", kind)
        self._of_streams(kind, lambda each: each.set(delay=0.0))

    def _of_streams(self, kind: str, function: Callable[[Streams], object]) -> None:
        self._at_once(lambda: [function(each.api.streams(kind)) for each in self.processes if each.api is not None])

    # --- calls ---

    @rule(kind=st.sampled_from(["pools", "pools", "members", "summaries"]), member=members, changes=changes)
    def overtake(self, kind: str, member: str, changes: Wanted) -> None:
        """Hold a watch, make a pool and delete it, and wait until another watch is ahead of the held one."""
        self.note("overtake", kind)
        process, name = self.running, f"t{self.written}"
        started, opened = (process.witness.started, len(process.channel.opened)) if process is not None else (0, 0)
        self._of_streams(kind, lambda each: each.hold())
        self._change([("pool", name, ""), ("pool", name, ""), ("no pool", name, "")])
        # What waits for the held type asks for a barrier.
        self._change([("new member", "a", member), ("no member", "a", member), *changes])
        self._pass(1.5)
        self._look()
        self._of_streams(kind, lambda each: each.set(delay=0.0))

        def was_seen() -> bool:
            if process is None or process is not self.running or process.witness.started != started:
                return True
            snapshot = any(not resumed for _, resumed in process.channel.opened[opened:])
            return snapshot or any(each.name == name for each in process.witness.reconciles)

        self._until(was_seen, f"C6: {name} was created and deleted, and not reconciled")

    @rule(
        faults=st.lists(st.sampled_from(["", "failed", "lost", "late", "late", "slow"]), min_size=1, max_size=3),
        leases=st.booleans(),
        changes=changes,
        name=names,
        member=members,
        after=seconds,
        anew=st.booleans(),
        arrives=st.booleans(),
    )
    def harm_writes(
        self,
        faults: list[str],
        leases: bool,
        changes: Wanted,
        name: str,
        member: str,
        after: float,
        anew: bool,
        arrives: bool,
    ) -> None:
        """Let the next writes fail or be unknown, and make some necessary. The late ones may arrive after that."""
        self.note("faults of writes", faults, leases)
        for each in self.processes:
            if each.api is not None:
                (each.api.leases if leases else each.api.writes).extend(faults)
        self._change([*changes, ("member", name, member), ("spoilt summary", name, "")])
        self._change([("new pool" if anew else "pool", name, "")])
        self._pass(after)
        if arrives:
            self._pass(0.6)
            self.let_late_calls_arrive()

    @rule(count=st.integers(1, 4))
    def harm_reads(self, count: int) -> None:
        self.note("faults of reads", count)
        for each in self.processes:
            if each.api is not None:
                each.api.reads = count

    @rule()
    def let_late_calls_arrive(self) -> None:
        """A write that was resolved is refused, unless it is a creation."""
        self.note("late calls arrive")
        for each in self.processes:
            if each.api is None:
                continue
            api, raised = each.api, each.channel.raised
            for late, error in self.world.call(api.arrive, api.servers[1]):
                self.note("arrived", late.method, late.path, error)
                resolved = late.raised < raised and "/leases" not in late.path and late.method != "POST"
                assert error is not None or not resolved, f"C5: {late} was stored after it was resolved"

    @rule(up=st.sampled_from([[0], [1], [0, 1]]))
    def balance(self, up: list[int]) -> None:
        """Let calls and new watches go to another server, or to both in turns."""
        self.note("balance", up)
        for each in self.processes:
            if each.api is not None:
                each.api.up = up

    # --- servers ---

    @precondition(lambda self: self.left > 0)
    @rule(changes=changes, away=seconds)
    def kill_server(self, changes: Wanted, away: float) -> None:
        """Kill the first server, go on with the other one, and start it again."""
        self.left -= 1
        self.note("kill server")
        first = self.world.servers[0]
        first.kill()
        self._change(changes)
        self._pass(away)
        first.start_ready()

    @precondition(lambda self: self.left > 0)
    @rule(changes=changes, away=st.sampled_from([0.3, 2.0, 6.0]))
    def freeze_server(self, changes: Wanted, away: float) -> None:
        """Freeze the first server while users go on at the other one."""
        self.left -= 1
        self.note("freeze server", away)
        first = self.world.servers[0]
        first.pause()
        try:
            self._change(changes)
            self._pass(away)
            self._look()
        finally:
            first.resume()

    @rule()
    def compact(self) -> None:
        """Compact etcd under the watches."""
        self.note("compact")
        self._change([("pool", "c", "")])
        self.world.call(self._caught_up)
        self.world.servers[0].compact()

    async def _caught_up(self) -> None:
        self.record.catch_up()

    @precondition(lambda self: self.left > 1)
    @rule(changes=changes)
    def restore(self, changes: Wanted) -> None:
        """Put etcd back to a backup from before these changes. No run goes on before an operator accepts it."""
        self.left -= 2
        self._free_of_faults()
        self.converge()
        process = self.running
        assert process is not None
        self.note("back up")
        copy = self.world.folder / f"copy-{uuid.uuid4().hex}"
        self.world.call(self._caught_up)
        at = self.record.position.revision
        self.world.servers[0].save_store(copy)
        # Servers write much when they start. A restored cluster is found only while it is below the old revision.
        self.users.write_others(200)
        self._change([*changes, ("pool", "b", "")])
        self.converge()
        self.note("restore", at)
        began = len(process.witness.events)

        def put_back() -> None:
            self.record.catch_up()
            self.record.frozen = True
            self._judge()
            # Later facts belong to the history that is lost.
            self.history = ClusterHistory("", 0)
            for each in self.processes:
                each.witness.put_back()
                each.witness.restored_to = at

        self._at_once(put_back)
        first, second = self.world.servers
        second.kill()
        first.restore_store(copy)
        second.start_ready()
        shutil.rmtree(copy)

        def has_gone_back() -> bool:
            ends = [each for each in process.witness.events[began:] if isinstance(each, RunEnded)]
            return any(isinstance(each.error, StoreRolledBack) for each in ends)

        self._until(has_gone_back, "C2: a store that was put back was not noticed")

        history = self._history_from(at)

        def accept() -> None:
            self.record.put_back(at)
            self.history = history
            for each in self.processes:
                each.channel.forget()
                each.witness.resume()
            assert process.engine is not None
            assert process.engine.accept_store()

        self._at_once(accept)
        self._until(lambda: process.witness.lost is None, "no run began on the store that was put back", 90.0)
        self.converge()

    # --- processes ---

    @rule(
        crashes=st.booleans(),
        same=st.booleans(),
        changes=changes,
        begins=beginnings,
        away=seconds,
    )
    def restart(self, crashes: bool, same: bool, changes: Wanted, begins: Sequence[str], away: float) -> None:
        """End the process that runs the controller and start it again, with changes in between."""
        number = 0 if self.processes[0].engine is not None else 1
        process = self.processes[number]
        self.note("restart", number, "crashes" if crashes else "", "same" if same else "", begins)
        self._end(process, crashes)
        self._change(changes)
        self._pass(away)
        name = ("one", "two")[number]
        self.world.call(process.open, name if same else f"{name}-{self.written}")
        for kind in ("pools", "members", "summaries"):
            self._of_streams(kind, lambda each: each.beginnings.extend(begins))

    @precondition(lambda self: self.left > 0)
    @rule(member=members)
    def hide(self, member: str) -> None:
        """Hold a watch, make a pool and delete it, and kill the process after its next checkpoint."""
        self.left -= 1
        self.note("hide")
        name = f"h{self.written}"
        self._of_streams("pools", lambda each: each.hold())
        self._change([("pool", name, ""), ("no pool", name, "")])
        # What waits for the held type asks for a barrier.
        self._change([("new member", "a", member), ("no member", "a", member)])
        self._pass(3 * _OF_CHECKPOINTS)
        self.restart(crashes=True, same=True, changes=[], begins=[], away=0.0)

    @precondition(lambda self: any(each.engine is None for each in self.processes))
    @rule()
    def begin_another(self) -> None:
        """Start another process beside the first."""
        number = 0 if self.processes[0].engine is None else 1
        self.note("begin another", number)
        self.world.call(self.processes[number].open, f"{('one', 'two')[number]}-{self.written}")

    @precondition(lambda self: all(each.engine is not None for each in self.processes))
    @rule(number=st.sampled_from([0, 1]), crashes=st.booleans())
    def end_one(self, number: int, crashes: bool) -> None:
        """End one of two processes."""
        self.note("end", number, "crashes" if crashes else "")
        self._end(self.processes[number], crashes)

    def _end(self, process: Process, crashes: bool) -> None:
        async def end() -> None:
            if crashes and process.api is not None:
                process.api.die()
            await process.close()

        self.world.call(end)

    # --- checks ---

    @property
    def running(self) -> Process | None:
        """The process that runs the controller, if one does."""
        return next((each for each in self.processes if each.cache is not None), None)

    @invariant()
    def nothing_is_broken(self) -> None:
        if self.processes:
            self._look()

    def _look(self) -> None:
        def look() -> None:
            for each in self.processes:
                each.witness.check()
                if (cache := each.cache) is not None:
                    each.witness.look(cache)

        self._at_once(look)

    def _at_once(self, function: Callable[[], object]) -> None:
        async def call() -> None:
            function()

        self.world.call(call)

    def _until(self, condition: Callable[[], bool], otherwise: str, patience: float = PATIENCE) -> None:
        async def wait() -> bool:
            with trio.move_on_after(patience) as waiting:
                while not condition():  # noqa: ASYNC110  # another program changes it
                    await trio.sleep(0.05)
            return not waiting.cancelled_caught

        there = self.world.call(wait)
        assert there, otherwise

    def _free_of_faults(self) -> None:
        self.note("no more faults")

        def heal() -> None:
            for each in self.processes:
                each.pools.pause = 0.0
                if each.api is not None:
                    each.api.heal()
                if each.engine is not None:
                    # The other process may have found only now that the store was put back.
                    each.engine.accept_store()

        self._at_once(heal)
        self.let_late_calls_arrive()
        self.users.free()

    @rule()
    def converge(self) -> None:
        """End all faults, and check that the controller recovers."""
        self._free_of_faults()
        assert self.world.call(self._recovers), "C6: no process has done everything"

    async def _recovers(self) -> bool:
        with trio.move_on_after(PATIENCE):
            while True:
                if (process := self.running) is not None and process.engine is not None:
                    with trio.move_on_after(PATIENCE / 2) as waiting:
                        await process.engine.wait_idle()
                    assert not waiting.cancelled_caught, f"wait_idle does not return: {process.engine.status()}"
                    self.record.catch_up()
                    if process.settled >= self.record.commits[-1].revision:
                        self._compare(process)
                        return True
                await trio.sleep(0.05)
        return False

    def _compare(self, process: Process) -> None:
        process.witness.last_changes_were_seen()
        found, expected = self._outputs(process.pools), self._expected(process.pools)
        assert found == expected, f"the summaries are {found}, not {expected}"

    def _judge(self) -> None:
        violations = self.history.violations(self.record.commits, self.record.position.revision)
        assert not violations, "\n".join(f"{rule}: {sentence}" for rule, sentence in violations[:20])

    def _outputs(self, pools: KubePools) -> dict[str, tuple[str, list[str]]]:
        there = self.record.resources(pools.pool)
        return {
            name: (summary.owner.uid if summary.owner else "", summary.data.members)
            for name, summary in self.record.resources(pools.summary).items()
            if not self.scoped or summary.metadata.get("shown") == "yes"
            # No mapper leads to a summary that has lost its owner while no program knew its pool.
            if summary.owner is not None or name in there
        }

    def _expected(self, pools: KubePools) -> dict[str, tuple[str, list[str]]]:
        members = self.record.resources(pools.member)
        counting = {name for name, each in members.items() if not self.scoped or each.metadata.get("counts") == "yes"}
        expected: dict[str, tuple[str, list[str]]] = {}
        for name, pool in self.record.resources(pools.pool).items():
            listed = sorted(each for each in counting if members[each].data.pool == name)
            if listed and (not self.scoped or len(listed) % 2):
                expected[name] = (pool.uid, listed)
        return expected

    def teardown(self) -> None:
        # Hypothesis ends examples with a BaseException.
        failure = sys.exception()
        try:
            if not isinstance(failure, Exception) and self.processes:
                self.converge()
                self._at_once(self._judge)
        except Exception as error:
            failure = error
            raise
        finally:
            if isinstance(failure, Exception) and self.world.failure is None:
                self.world.failure = failure
                self._at_once(self._describe)
            _http.SILENCE, _watch._PATIENCE, _watch.SMALL, _watch._MOST_LISTED, _ownership.RECORD_INTERVAL = (
                self._before
            )
            for each in self.processes:
                if each.engine is not None:
                    self._end(each, crashes=False)
            if self.processes:
                self.record.close()
                self._opened.__exit__(None, None, None)
            super().teardown()

    def _describe(self) -> None:
        """Add what the processes did last to the log."""
        for each in self.processes:
            events = [event for event in each.witness.events if not isinstance(event, StreamOpened)]
            self.note("a process:", *(f"\n  {event}" for event in events[-100:]))
            self.note("its status:", each.engine and each.engine.status())
