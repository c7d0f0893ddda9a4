"""A state machine that holds whole engines to the contract under every fault of the simulation.

Two processes run several controllers. After every step, `WorldJudge` checks C1 to C9 and C11. C10 has a rule of its
own, and is checked at the end of each world. The summary of the run shows the number of steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import pytest
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

import headway
from headway import field
from headway.cache import CacheReader
from headway.protobuf import decode
from headway.resource import Key, ResourceType, pb, resource_id, resource_key
from headway.sharding import member_of, shard_of
from headway.testing import simulation
from headway.testing.simulation import Finding, Reconciled, faults
from headway.testing.simulation.oracles import reads_rolled_back, twice_at_once, two_writers
from tests.helpers.chosen_endings import chosen, draws
from tests.helpers.world_endings import ENDINGS, Ending, crash_lists
from tests.helpers.world_judge import WorldJudge, judge_of

SHARDS = 5
"""With fewer, one of the two processes has the shards of all names."""
NAMES = st.sampled_from(["a", "b"])
LOGINS = st.lists(st.sampled_from(["ada", "grace", "tim"]), max_size=3, unique=True)


@headway.message
class Team:
    members: list[str] = field(1)


@headway.message
class Account:
    login: str = field(1)


@headway.message
class Tally:
    """The type of keys that no resource has."""


class AlarmRung(Exception):
    """The error that ends a run."""


ALARMS: dict[tuple[str, str], trio.Event] = {}
"""By process and controller: the event that makes its run raise `AlarmRung`."""

ENQUEUE: dict[tuple[str, str], headway.sources.Enqueue] = {}
"""By process and controller: enqueues a key in its run."""

LINGER: dict[str, float] = {}
"""By controller: the seconds for which each reconcile waits before it acts."""

STEPS: Counter[str] = Counter()
"""The number of steps that this module has run, and the number of checks of each clause."""


class Outside:
    """The world outside of the store.

    A team must have a disk as long as it exists, and none afterwards. A login must have its number of accounts.

    An abandoned call may arrive after its team was deleted and the disk removed. No reconcile follows that could undo
    it. So each call carries the uid of its team, and a removed disk is not put again.

    Attributes:
        refuses: True while no disk can be removed.
    """

    def __init__(self) -> None:
        self.refuses = False
        self._by_uid: dict[str, str] = {}
        self._removed: set[str] = set()
        self._counted: dict[str, tuple[int, int]] = {}

    @property
    def names(self) -> list[str]:
        """The team of each disk. A disk that was left behind counts beside the one of a new team of that name."""
        return sorted(self._by_uid.values())

    async def put(self, name: str, uid: str) -> None:
        if uid not in self._removed:
            self._by_uid[uid] = name

    async def remove(self, uid: str) -> None:
        if self.refuses:
            raise ConnectionError("no disk can be removed now")
        self._removed.add(uid)
        self._by_uid.pop(uid, None)

    def state(self) -> object:
        return self._by_uid, self._removed, self.counts

    @property
    def counts(self) -> dict[str, int]:
        return {login: count for login, (_, count) in self._counted.items() if count}

    async def count(self, login: str, count: int, revision: int) -> None:
        """Set the number of a login's accounts at a revision. A call that arrives late is ignored."""
        self._counted[login] = max(self._counted.get(login, (0, 0)), (revision, count))


def make(process: simulation.Process) -> headway.App:
    """Declare three controllers.

    ``accounts`` is a singleton that owns its outputs, ``disks`` is sharded and has a finalizer for the world outside,
    and ``tallies`` is sharded, and counts the outputs of ``accounts`` by an index. None of its keys is in the store.
    """
    app = headway.App("staff")
    team, account = app.type("staff", "v1", "Team", Team), app.type("staff", "v1", "Account", Account)
    tally: ResourceType[Tally] = app.type("staff", "v1", "Tally", Tally)
    judge = judge_of(process)

    def alarm(controller: str) -> dict[str, headway.sources.Source]:
        async def alarm(_: headway.Runtime, enqueue: headway.sources.Enqueue) -> None:
            rung = ALARMS[process.name, controller] = trio.Event()
            ENQUEUE[process.name, controller] = enqueue
            try:
                await rung.wait()
                raise AlarmRung
            finally:
                if ALARMS.get((process.name, controller)) is rung:
                    del ALARMS[process.name, controller]

        return {"alarm": alarm}

    @app.controller(
        manages=team,
        watches=[headway.watch(account, headway.mappers.owner())],
        concurrency=2,
        sources=alarm("accounts"),
    )
    async def accounts(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        await trio.sleep(LINGER.get("accounts", 0.0))
        found = rt.resource(request)
        if found is None or found.is_deleting:
            return
        async with rt.outputs(account, owner=found) as wanted:
            for login in found.data.members:
                await wanted.apply(f"{found.name}-{login}", Account(login=login))

    @app.controller(manages=team, placement=headway.sharded(shards=SHARDS))
    async def disks(rt: headway.Runtime, request: headway.Request[Team]) -> None:
        await trio.sleep(LINGER.get("disks", 0.0))
        found = rt.resource(request)
        if found is None:
            return
        async with rt.finalizer(found) as guarded:
            if guarded.alive:
                await process.outside.put(found.name, found.id.uid)
            elif guarded.cleaning_up:
                await process.outside.remove(found.id.uid)

    by_login = headway.indexes.by(account, "login", lambda each: each.data.login)

    def counted(each: headway.Resource[Account], cache: CacheReader) -> list[headway.ResourceId]:
        judge.mapping(each, cache, account, tally)
        return [tally.id(each.data.login)]

    @app.controller(
        manages=tally,
        watches=[headway.watch(account, counted)],
        indexes=[by_login],
        placement=headway.sharded(shards=SHARDS),
        sources=alarm("tallies"),
    )
    async def tallies(rt: headway.Runtime, request: headway.Request[Tally]) -> None:
        await trio.sleep(LINGER.get("tallies", 0.0))
        revision, login = rt.cache.revision(account), request.id.name
        await process.outside.count(login, len(rt.cache.index(by_login, login)), revision)

    return judge.over(app, process)


def key_of(resource: pb.Resource) -> list[Key]:
    return [resource_key(resource)]


def owner_of(resource: pb.Resource) -> list[Key]:
    return [] if resource.owner is None else [resource_id(resource.owner).key]


def login_of(resource: pb.Resource) -> list[Key]:
    assert resource.data is not None
    return [("default", "default", decode(Account, resource.data.value).login)]


TEAM, ACCOUNT, TALLY = (("staff", kind) for kind in ("Team", "Account", "Tally"))
OWES = {
    "accounts": {TEAM: key_of, ACCOUNT: owner_of},
    "disks": {TEAM: key_of},
    "tallies": {TALLY: key_of, ACCOUNT: login_of},
}
"""By controller and kind: a function that returns the keys to reconcile after a change."""


async def all_is_as_wanted(world: simulation.World) -> None:
    """Check that all accounts, disks and counts follow from the teams."""
    teams = {each.name: set(each.data.members) for each in await world.client.list(world.type("Team"))}
    accounts = {each.name for each in await world.client.list(world.type("Account"))}
    assert accounts == {f"{team}-{login}" for team, logins in teams.items() for login in logins}
    logins = [login for logins in teams.values() for login in logins]
    outside: Any = world.outside
    assert outside.counts == {login: logins.count(login) for login in logins}
    assert outside.names == sorted(teams)


class WorldMachine(simulation.Machine):
    """Two processes compete for every lease. Hypothesis draws the users' writes and the faults."""

    app = staticmethod(make)
    processes = 2
    outside: ClassVar[Callable[[], Any]] = Outside
    holds = (all_is_as_wanted,)

    def make_world(self) -> simulation.World:
        world = super().make_world()
        judge_of(world.processes[0]).begin(world)
        return world

    def __init__(self) -> None:
        super().__init__()
        self._endings: list[Ending] = []
        self._draw: int | None = None
        self._crashes: Sequence[tuple[int, int] | None] = ()
        self._seen = 0

    @initialize(draw=draws, crashes=crash_lists)
    def open_the_world(
        self,
        endings: Sequence[Ending] = (),
        draw: int | None = None,
        crashes: Sequence[tuple[int, int] | None] = (),
    ) -> None:
        """Open the world with some work that is half done.

        Args:
            endings: the situations at the end, if nothing is drawn for them.
            draw: what was drawn for the situations at the end.
            crashes: the processes that are killed in these situations.
        """
        self._endings, self._draw, self._crashes = list(endings), draw, crashes
        super().open_the_world()
        self.write("a", ["ada", "grace"])
        self.sleep(0.03)

    @property
    def judge(self) -> WorldJudge:
        return judge_of(self.world.processes[0])

    @rule(name=NAMES, members=LOGINS)
    def write(self, name: str, members: list[str]) -> None:
        async def apply() -> None:
            team: ResourceType[Any] = self.world.type("Team")
            wanted = team.new(name, Team(members=members))
            try:
                stored = await self.world.client.apply(wanted)
            except headway.errors.InvalidArgument:
                # The team is being deleted, so it can no longer be changed.
                return
            self.judge.acknowledged[TEAM, stored.id.key] = int(stored.version)
            # Both objects belong to the caller (C9): changes of them must not show anywhere.
            wanted.data.members.append("scribbled")
            stored.data.members.append("scribbled")

        self.call(apply)

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        self.call(self.world.client.delete, self.world.type("Team").id(name))

    @rule(at=st.integers(0, 1), controller=st.sampled_from(["accounts", "tallies"]))
    def end_a_run(self, at: int, controller: str = "accounts") -> None:
        """C10: one controller's crash restarts that controller alone."""
        self.run_until_blocked()
        process = self.world.processes[at]
        alarm, name = ALARMS.get((process.name, controller)), f"staff/{controller}"
        if not process.life or alarm is None or process.link.paused:
            # A paused process does not finish its calls, and a run ends only after all of its calls.
            return
        life, controllers = process.life, process.engine.controllers
        before = {name: each.run for name, each in controllers.items()}
        assert before[name] is not None
        struck = len(self.world.struck)
        alarm.set()
        self.run_until_blocked()
        if len(self.world.struck) != struck:
            # A crash that was due at a checkpoint has happened first.
            return
        assert process.life == life, "C10: a controller's crash has ended its process"
        after = {name: each.run for name, each in controllers.items()}
        assert after.pop(name) is not before.pop(name), "C10: a controller goes on after its crash"
        assert after == before, "C10: a controller's crash has ended the run of another"
        STEPS["C10"] += 1

    @invariant()
    def the_contract_holds(self) -> None:
        if hasattr(self, "world"):
            trace = self.world.trace
            found = [*reads_rolled_back(trace), *two_writers(trace.commits), *twice_at_once(trace)]
            assert not found, found
            self.judge.check()
            STEPS["steps"] += 1

    def count_again(self, at: int, login: str) -> None:
        """Let a process count the accounts of a login, if that is one of its keys."""
        process = self.world.processes[at]
        if process.life and (process.name, "tallies") in ALARMS:
            ENQUEUE[process.name, "tallies"](self.world.type("Tally").id(login))

    def counted(self) -> set[str]:
        """Return the logins that have been counted since the last call."""
        done = [each for each in self.world.trace.entries[self._seen :] if isinstance(each, Reconciled)]
        self._seen = len(self.world.trace.entries)
        return {each.began.key[2] for each in done if (each.began.controller, each.result) == ("tallies", "done")}

    def linger(self, **seconds: float) -> None:
        """Let each reconcile of these controllers wait before it acts, and those of others not."""
        LINGER.clear()
        LINGER.update(seconds)

    def settle(self) -> None:
        """Wait until everything is done, and check the contract."""
        self.call(self.world.wait_idle)
        self.the_contract_holds()

    def _check_end(self) -> None:
        # A fault that the rules have left must not strike while a process is alone.
        self.world.injector.heal()
        self.world.release()
        self.settle()
        if self._draw is not None:
            names = chosen(ENDINGS, len(self._crashes), self._draw, len(self.world.trace.entries))
            self._endings = list(zip(names, self._crashes, strict=True))
        for ending, crash in self._endings:
            if crash is not None:
                self.world.crash(crash[0], checkpoints=crash[1])
            ENDINGS[ending](self)
            self.settle()
        super()._check_end()

    async def _converge(self, findings: list[Finding]) -> None:
        await super()._converge(findings)
        self.judge.every_last_change_was_seen(OWES)
        with trio.move_on_after(120) as patience:
            await self.world.stop_processes()
        assert not patience.cancelled_caught, "C10: an engine has not ended within two minutes"
        assert all(not process.life for process in self.world.processes)
        STEPS["C10"] += 1
        STEPS.update(self.judge.looked)

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            ALARMS.clear()
            ENQUEUE.clear()
            LINGER.clear()
        STEPS["worlds"] += 1


def test_each_process_has_a_shard_with_a_team_and_a_login() -> None:
    """Otherwise no shard with a key would ever move in a world without crashes."""
    for names in (("a", "b"), ("ada", "grace", "tim")):
        shards = [shard_of(("default", "default", name), SHARDS) for name in names]
        assert {member_of(shard, ["p1", "p2"]) for shard in shards} == {"p1", "p2"}


def test_a_call_outside_that_arrives_after_the_cleanup_changes_nothing() -> None:
    """The call is the last event of the world, so it would leave a disk without a team for ever (seed 120009)."""
    machine = WorldMachine()
    machine.open_the_world()
    machine.sleep(20.0)
    begun = len(machine.world.trace.steps)
    # The write of the finalizer is answered a little later. The disk is put at the very end.
    machine.world.injector.next_call(lambda number: faults.AnswerLate(number, 0.5), faults.CommitLast)
    machine.write("b", [])
    machine.sleep(5.0)
    outcomes = [step.outcome for step in machine.world.trace.steps[begun:]]
    assert outcomes == ["done", "on its way: the caller has timed out", "done"]
    machine.delete("b")
    machine.sleep(20.0)
    machine.the_contract_holds()
    machine.teardown()


@pytest.fixture(autouse=True)
def _say_how_many(record_property: Callable[[str, object], None]) -> Iterator[None]:
    """Record the number of steps for the summary of the run."""
    STEPS.clear()
    yield
    record_property("steps without a violation", dict(STEPS))


# Hypothesis shrinks a failure for up to five minutes.
TestWorld = pytest.mark.timeout(400)(WorldMachine.TestCase)
# An example of this machine takes about a hundred times as much work as an example of another.
BOUND: Any = settings.default
TestWorld.settings = settings(
    BOUND, max_examples=max(min(8, BOUND.max_examples // 2), BOUND.max_examples // 10), stateful_step_count=20
)


@pytest.mark.wide
def test_a_run_of_a_paused_process_does_not_end_before_it_goes_on() -> None:
    """A call is still in flight. The machine must not report this as a controller that was not restarted."""
    for _ in range(8):
        machine = WorldMachine()
        try:
            machine.open_the_world()
            machine.end_a_run(at=0)
            machine.harm_the_next_call(fault=faults.Pause)
            machine.run_until_blocked()
            machine.end_a_run(at=1)
            machine.the_contract_holds()
        finally:
            machine.teardown()
