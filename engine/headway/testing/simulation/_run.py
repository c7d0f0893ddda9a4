"""A run of a scenario under one plan, from an empty store to its end."""

from __future__ import annotations

import dataclasses
import gc
import linecache
import math
import random
import warnings
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TextIO

import trio

from headway import events
from headway.base import chance, error_text, function_text, stack_text, where_of
from headway.errors import DeclarationError
from headway.resource import RESERVED_GROUPS, Kind, pb
from headway.testing.simulation import oracles
from headway.testing.simulation._trace import OVER, Trace
from headway.testing.simulation.faults import HOME, AtPeer, PeerRestored, PeerRolledBack, Plan, Restore
from headway.testing.simulation.oracles import (
    Finding,
    Result,
    always_held,
    check_answer,
    contents,
    late_writes,
    viewed,
)
from headway.testing.simulation.world import (
    LOOK,
    PROCESS,
    GivenUp,
    Injector,
    Rival,
    Setting,
    World,
    longest_wait,
    outside_state,
    own_clocks,
)

_STEPS_ALLOWED = 2000
_STORE_GOES_BACK = (Restore, PeerRestored, PeerRolledBack)
_ROUNDS = 5
"""How often a program may do something at a time of its own, and wait again, before it should be quiet."""
_NEW_OBJECTS = 50_000
"""The number of new objects after which the garbage collector looks at them."""
_NOTHING_WAITS = 10.0
"""The seconds of the quiet time if no function of the program waits for a time: what Headway does by itself shows."""
_PATIENCE = 6 * 3600.0
"""The seconds of virtual time that a scenario may wait for something that is not a time."""
_TASK_STEPS = 1_000_000
"""The number of task steps allowed while no virtual time passes. It takes tens of real seconds to use up."""


def run(
    setting: Setting,
    plan: Plan,
    *,
    most_steps: int = _STEPS_ALLOWED,
    patient: bool = False,
    draw: int = 0,
    rival: Rival | None = None,
    look: int = LOOK,
    more: float = 0.0,
    due: Sequence[float] = (),
) -> Result:
    """Run the scenario, heal all faults, and check that it converges, stays quiet and survives a restart.

    If ``patient``, each change by the scenario waits until all work is done. Another value of ``draw`` gives the
    program other random numbers in the same schedule. ``rival`` is another writer. A look at a clock takes ``look``
    nanoseconds. After the scenario, users do nothing for another ``more`` seconds. If ``due`` has times of the wall
    clock, users make their changes then.
    """
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        pass
    else:
        raise DeclarationError("a simulation is a Trio run of its own: call it from a function that isn't async")
    findings: list[Finding] = []
    forgotten: list[str] = []

    def forgets(text: str) -> None:
        process = PROCESS.get()
        if process is None:
            forgotten.append(text)
        else:
            findings.append(Finding("await", f"{process.name} forgets an await: {text}"))

    with _deterministic(plan.seed, draw), _rarely_collected(), own_clocks(*setting.owners), unawaited(forgets):
        world = World(setting, plan, most_steps=most_steps, patient=patient, rival=rival, look=look, due=due)
        run_it = partial(_live, world, setting, findings, rival, more)
        watching = [_Spinning(world.injector), _Endless(world.injector)]
        try:
            trio.run(run_it, clock=world.clock, instruments=watching)
        except Exception as error:
            if forgotten:
                # What was not done may be missing now.
                raise _forgotten(forgotten[0]) from error
            raise
    if forgotten:
        raise _forgotten(forgotten[0])
    return judged(world, setting, findings)


def _forgotten(text: str) -> DeclarationError:
    return DeclarationError(f"the scenario, or a function that it calls, forgets an await: {text}")


def judged(world: World, setting: Setting, findings: list[Finding]) -> Result:
    """Return the result of a run that has ended. Adds to ``findings`` what its trace shows."""
    findings[:0] = oracles.fights(world.trace)
    for each in world.everyone:
        if each.injector.gave_up and not any(found.oracle == "converges" for found in findings):
            findings.append(_of(each, Finding("converges", each.injector.gave_up)))
    if not any(isinstance(fault, _STORE_GOES_BACK) for fault in world.struck):
        findings += always_held(world.trace, world.types, setting.always)
    peers = {side: _result(each, oracles.fights(each.trace)) for side, each in world.peers.items()}
    findings += [_of(world.peers[side], found) for side, result in peers.items() for found in result.findings]
    return dataclasses.replace(_result(world, findings), peers=peers, messages=tuple(world.network.sent))


def _of(world: World, finding: Finding) -> Finding:
    """Return a finding that says which side it is about. Only the program's own is named by place and entries."""
    return finding if world.side == HOME else Finding(finding.oracle, f"{world.side}: {finding.text}")


async def _live(world: World, setting: Setting, findings: list[Finding], rival: Rival | None, more: float) -> None:
    try:
        async with world.opened():
            await _phases(world, setting, findings, rival, more)
    except* GivenUp as group:
        findings.append(Finding("converges", str(_first(group))))


async def _phases(world: World, setting: Setting, findings: list[Finding], rival: Rival | None, more: float) -> None:
    waited: object = setting.scenario(world)
    if not isinstance(waited, Awaitable):
        raise DeclarationError(
            f"the scenario {function_text(setting.scenario)} must be an async function (`async def`)"
        )
    task = trio.lowlevel.current_task()
    world.injector.scenario = task, len(task.child_nurseries)
    await waited
    world.injector.scenario = None
    world.pace.end()
    if more:
        await world.wait_idle()
        await world.sleep(more)
    # Work that the scenario started and did not wait for is part of it.
    await world.wait_idle()
    if rival is not None:
        await rival.at_the_end(world)
        await world.wait_idle()
    await end(world, setting, findings)


async def end(world: World, setting: Setting, findings: list[Finding]) -> None:
    """End the scenario: heal all faults and add what is wrong afterwards to ``findings``.

    Raises:
        GivenUp: if the world does not become idle.
    """
    for each in world.everyone:
        each.injector.note(f"{OVER}; no more faults")
        each.injector.heal()
        each.release()
    world.network.heal()
    await world.wait_idle()
    await world.catch_up()
    world.waits = longest_wait(world.processes)
    after = "after the scenario"
    if setting.long:
        after = await _let_timers_end(world, setting.quiet or 0.0)
    await _hold_invariants(world, setting, findings)
    writes, outside = _writes(world), outside_state(world.outside)
    if setting.quiet is not None:
        due = world.scheduled()
        await world.sleep(_quiet_time(world, setting, setting.quiet))
        await world.wait_idle()
        _none_since(world, writes, findings, "quiet", f"in {setting.quiet:.0f} s {after}", due)
        writes = _writes(world)
    due = world.scheduled()
    # Without a quiet period, keys may have a reason to wait, so they are not checked.
    waiting = due if setting.quiet is not None else set()
    for each in world.everyone:
        for process in each.processes:
            process.kill()
    await world.wait_idle()
    # A controller that writes by the clock may write after a restart, too. But it creates and deletes nothing again.
    by_the_clock = setting.quiet is None
    _none_since(world, writes, findings, "again", "after a restart", due, changes=not by_the_clock)
    if not by_the_clock:
        for each in world.everyone:
            findings += [_of(each, found) for found in oracles.stuck_deletions(each.store.now, each.trace.commits)]
    findings += world.findings()
    findings += oracles.left_in_the_queue(waiting, world.scheduled(), world.store.now)
    if not by_the_clock and (now := outside_state(world.outside)) != outside:
        was, is_now = oracles.shown(outside), oracles.shown(now)
        findings.append(Finding("again", f"the outside world was {was}; after a restart it is {is_now}"))
    before = trio.current_time()
    for each in world.everyone:
        await each.stop_processes()
    took = trio.current_time() - before
    if took > 10:
        findings.append(Finding("shutdown", f"the processes took {took:.0f} s to end"))


def _quiet_time(world: World, setting: Setting, quiet: float) -> float:
    """Return the seconds of the quiet time. They are few if no function of the program waits for a time.

    A function that runs beside the controllers may fail, and its process then waits for its next life.
    """
    wait = longest_wait(world.processes)
    if not wait and not setting.peers and not setting.beside:
        return min(quiet, _NOTHING_WAITS)
    return max(quiet, wait) if setting.long else quiet


async def _let_timers_end(world: World, quiet: float) -> str:
    """Let the program do what it waits for by its own clock. Returns the time when it should be quiet.

    A wait that has ended may lead to another one, so this ends when nothing was done, but also after some rounds.
    """
    began = trio.current_time()
    for _ in range(_ROUNDS):
        wait = longest_wait(world.processes)
        before = len(_of_controllers(world)), outside_state(world.outside)
        await world.sleep(max(quiet, wait + 1))
        await world.wait_idle()
        if (len(_of_controllers(world)), outside_state(world.outside)) == before:
            break
    return f"from {trio.current_time() - began:.0f} s after the scenario on"


def _first(group: BaseExceptionGroup[GivenUp]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _hold_invariants(world: World, setting: Setting, findings: list[Finding]) -> None:
    for invariant in setting.holds:
        try:
            answer: object = invariant(world)
            check_answer(await answer if isinstance(answer, Awaitable) else answer)
        except AssertionError as error:
            findings.append(
                Finding(
                    getattr(invariant, "__name__", "invariant"),
                    error_text(error) or f"doesn't hold, at {where_of(error)}",
                )
            )


def _of_controllers(world: World) -> list[Any]:
    return [each for each in world.trace.commits if each.by]


def _writes(world: World) -> list[int]:
    """Return the number of writes by the controllers of each side."""
    return [len(_of_controllers(each)) for each in world.everyone]


def _none_since(
    world: World,
    counts: Sequence[int],
    findings: list[Finding],
    oracle: str,
    when: str,
    due: set[oracles.Scheduled],
    *,
    changes: bool = True,
) -> None:
    """Check that controllers have written nothing since a number of writes, or at least created and deleted nothing."""
    for each, count in zip(world.everyone, counts, strict=True):
        late = [write for write in _of_controllers(each)[count:] if changes or write.what != "changed"]
        if late:
            findings.append(_of(each, late_writes(oracle, when, late, each.trace, due)))


def _result(world: World, findings: list[Finding]) -> Result:
    trace, store = world.trace, world.store
    types = {type.kind: type for type in world.types if type.kind[0] not in RESERVED_GROUPS}
    # Shown as the latest declared version, whichever version is stored.
    seen = {place: viewed(place[0], each, world.types) for place, each in store.now.items() if place[0] in types}
    stored = {place: each.message() for place, each in seen.items()}
    end = {place: oracles.described(stored[place], each.data) for place, each in seen.items()}
    triggered = {
        f"{event.controller} {event.id.name}": event
        for event in trace.events
        # Without writes it only requeues itself at once. That may be a large work, and if it has no end, that is found.
        if isinstance(event, events.SelfTriggered) and event.writes
    }
    findings += [_self_trigger(key, event, trace) for key, event in sorted(triggered.items())]
    # Kubernetes cannot refuse every late write of an earlier leader.
    writers = [] if trace.on_cluster else oracles.two_writers(trace.commits)
    findings += oracles.reads_rolled_back(trace) + writers + oracles.twice_at_once(trace)
    findings += oracles.orphans(stored)

    def contents_of(kind: Kind, resource: pb.Resource) -> oracles.Contents:
        view = viewed(kind, resource, world.types)
        return contents(view.message(), view.data)

    return Result(
        trace,
        end,
        oracles.counted(trace.commits, set(types)),
        outside_state(world.outside),
        tuple(findings),
        (*world.struck, *(AtPeer(each.side, fault) for each in world.peers.values() for fault in each.struck)),
        {place: contents(stored[place], each.data) for place, each in seen.items()},
        tuple(world.pace.asked),
        contents_of,
        tuple(types.values()),
        world.clocks.span,
        world.waits,
        world.upgraded_to,
        asked_at=tuple(world.pace.asked_at),
        lived=world.clock.current_time(),
    )


def _self_trigger(key: str, event: events.SelfTriggered, trace: Trace) -> Finding:
    revisions = {write.revision for write in event.writes}
    entries = tuple(each for each in trace.commits if each.revision in revisions)
    text = f"{key} triggers itself by what it writes: {', '.join(map(str, event.writes))}"
    return Finding("self-trigger", text, (event.id.type.unversioned, event.id.key), entries)


class _Endless(trio.abc.Instrument):
    """An instrument that ends a run whose scenario waits for something that never comes, such as a condition.

    Time would pass without an end, because leases are renewed. The program may do something much later, so the scenario
    gets some hours. It looks after a number of steps, so that it adds no task, which would change the order of others.
    """

    def __init__(self, injector: Injector) -> None:
        self._injector = injector
        self._steps = 0
        # The scenario's task, since it was last seen to run, and when that was.
        self._task: trio.lowlevel.Task | None = None
        self._since = 0.0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._steps += 1
        if task is self._task:
            self._task = None
        if self._steps % 1000 or self._injector.scenario is None:
            return
        now = self._injector.clock.current_time()
        task, around = self._injector.scenario
        if self._task is None:
            self._task, self._since = task, now
        elif now - self._since > _PATIENCE and _waits_for_no_time(task, around):
            where = stack_text(task.iter_await_frames())
            text = f"the scenario waits for something that has not come in {_PATIENCE / 3600:.0f} hours"
            self._injector.give_up(f"{text}:\n{where}".rstrip())


def _waits_for_no_time(task: trio.lowlevel.Task, around: int = 0) -> bool:
    """Return True if neither a task nor those that it has started, except in its first nurseries, wait for a time."""
    # Trio has no public way to ask another task for its deadline.
    return math.isinf(task._cancel_status.effective_deadline()) and all(
        _waits_for_no_time(each) for nursery in task.child_nurseries[around:] for each in nursery.child_tasks
    )


class _Spinning(trio.abc.Instrument):
    """An instrument that ends a run whose tasks keep running while no virtual time passes.

    It counts steps instead of measuring time, so that a slow machine makes no difference.
    """

    def __init__(self, injector: Injector) -> None:
        self._injector = injector
        self._at = 0.0
        self._tasks = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002  # Trio's name
        self._tasks += 1
        if self._tasks % 1000 == 0 and self._at != (now := self._injector.clock.current_time()):
            self._at, self._tasks = now, 0
        if self._tasks > _TASK_STEPS:
            self._tasks = 0
            self._injector.give_up(f"tasks have run {_TASK_STEPS} steps while no time passed, and there is no end")


@contextmanager
def _rarely_collected() -> Iterator[None]:
    """Let Python's garbage collector look at more new objects at a time. A run makes many, and soon ends."""
    before = gc.get_threshold()
    if 0 < before[0] < _NEW_OBJECTS:
        gc.set_threshold(_NEW_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def _deterministic(seed: int, draw: int = 0) -> Iterator[None]:
    """Seed Trio's scheduler, the engine's delays and `random` while the block runs. A draw changes the last alone."""
    runner: Any = trio._core._run  # what Trio's own Hypothesis plugin does
    before, state, chosen = runner._ALLOW_DETERMINISTIC_SCHEDULING, random.getstate(), runner._r.getstate()
    source, chance.source = chance.source, random.Random(seed)
    runner._ALLOW_DETERMINISTIC_SCHEDULING = True
    random.seed(f"{seed}/{draw}" if draw else seed)
    runner._r.seed(seed)
    try:
        yield
    finally:
        runner._ALLOW_DETERMINISTIC_SCHEDULING = before
        random.setstate(state)
        runner._r.setstate(chosen)
        chance.source = source


_MISTAKE = r"coroutine '.*' was never awaited|an async block was never entered"


@contextmanager
def unawaited(found: Callable[[str], None]) -> Iterator[None]:
    """While the block runs, call ``found`` with the name and the line of each such call instead of warning."""
    with warnings.catch_warnings():
        # Also where warnings are errors: one that is raised while an object is dropped reaches nobody.
        warnings.filterwarnings("always", _MISTAKE, RuntimeWarning)
        before = warnings.showwarning

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            text = str(message).partition("\n")[0]
            if category is RuntimeWarning and ("was never awaited" in text or "was never entered" in text):
                source = linecache.getline(filename, lineno).strip()
                found(f"{text}, at {filename}:{lineno}{source and f': {source}'}")
            else:
                before(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        yield
