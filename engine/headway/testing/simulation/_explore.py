"""`explore`: runs a scenario under every fault that can matter, one after the other."""

from __future__ import annotations

import dataclasses
import inspect
import os
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise, zip_longest
from typing import Any, TypedDict

from typing_extensions import Unpack

from headway.base import Count, Endless, Positive, async_problem, check_keywords, check_options, checked, repr_text
from headway.controller import App
from headway.errors import DeclarationError
from headway.resource import RESERVED_GROUPS, Kind, did_you_mean
from headway.testing.simulation._measure import Measure
from headway.testing.simulation._reference import Refuted, noted, reference
from headway.testing.simulation._run import run
from headway.testing.simulation._trace import is_spread, reconciled_by
from headway.testing.simulation.faults import (
    FAULTS,
    ChangeDuring,
    ChangeInTick,
    CrashAfter,
    DoneAgain,
    Fault,
    HandOver,
    Hurried,
    Interim,
    Merged,
    Plan,
    Relay,
    Replaced,
    Restore,
    TickDuring,
)
from headway.testing.simulation.oracles import Always, Finding, Result
from headway.testing.simulation.plans import (
    LeftOut,
    Refutation,
    after_a_crash,
    at_another_pace,
    calls_before_a_change,
    changes_in_ticks,
    changes_of_several,
    checked_durations,
    does_by_the_clock,
    handovers,
    in_fair_turns,
    interims,
    lasting,
    merges,
    peer_faults,
    simplest,
    single_faults,
    slow_calls,
    ticks_during_calls,
)
from headway.testing.simulation.plans import pairs as pairs_of
from headway.testing.simulation.stories import Explored, located
from headway.testing.simulation.world import Beside, Invariant, MakeApp, Peer, Scenario, Setting

_SALTS = ("", "a", "b", "c", "d", "e", "f", "g")
"""The ends of processes' names to try, until each process has keys."""


_PACE = 0.1
"""The seconds between two updates, so that the terminal does not take longer than the runs."""


class Progress:
    """Shows how many runs are done, while the block is open and standard error is a terminal: with ``pytest -s``."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._next = 0.0
        # A test runner replaces sys.stderr.
        stream = sys.__stderr__
        shows = stream is not None and stream.isatty() and os.environ.get("TERM") not in ("dumb", None)
        self._stream = stream if shows else None

    def __enter__(self) -> Progress:
        return self

    def show(self, done: int, plan: object) -> None:
        """Show that as many runs are done, and which plan is next."""
        if self._stream is not None and time.monotonic() >= self._next:
            self._next = time.monotonic() + _PACE
            # Without a wrap, one return goes back to the beginning of the line.
            width = os.get_terminal_size(self._stream.fileno()).columns - 1
            self._stream.write(f"\r\x1b[K{f'{done} of {self._total} runs, now {plan}'[:width]}")
            self._stream.flush()

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


class ExploreSettings(TypedDict, total=False):
    """The settings of `explore` that `explored` takes as keywords."""

    processes: int
    outside: Callable[[], Any] | None
    holds: Iterable[Invariant]
    always: Iterable[Always]
    beside: Iterable[Beside]
    pairs: int
    seconds: float
    quiet: float | None
    plan: str | None
    may_differ: Iterable[str]
    without: Iterable[str]
    durations: Mapping[str, float]
    own_services: bool
    peers: Mapping[str, Peer]
    require_complete: bool


@checked(
    holds="holds=[check]",
    always="always=[check]",
    beside="beside=[proxy]",
    pairs="pairs=100",
    may_differ="may_differ=['Account.login']",
    without="without=['restore']",
    durations="durations={'outage': 300.0}",
    peers="peers={'west': simulation.Peer(app=app)}",
)
def explore(
    app: App | MakeApp,
    scenario: Scenario,
    *,
    processes: Positive = 1,
    outside: Callable[[], Any] | None = None,
    holds: Iterable[Invariant] = (),
    always: Iterable[Always] = (),
    beside: Iterable[Beside] = (),
    pairs: Count = 0,
    seconds: Endless = 60.0,
    quiet: float | None = 120.0,
    plan: str | None = None,
    may_differ: Iterable[str] = (),
    without: Iterable[str] = (),
    durations: Mapping[str, float] | None = None,
    own_services: bool = False,
    peers: Mapping[str, Peer] | None = None,
    require_complete: bool = False,
) -> Explored:
    """Run a scenario without faults in several schedules, then once under every fault that can matter.

    Every run has its own store, server and processes, under virtual time. When the scenario is over, all faults heal.
    Then these must hold:

    - The run converges, and nothing is written after that.
    - A restart of the processes causes no writes.
    - The end state is the same in every schedule without faults, and with them. No resource was created or deleted more
      often.
    - No reader sees an older state than before.
    - Each term has one writer.
    - At most one reconcile per key runs at a time.
    - No resource is orphaned.
    - No key triggers itself.
    - The processes shut down in time.

    Args:
        app: the program, or a function that builds it. The function is called with the `Process` at the start of each
            of its lives: whatever a process keeps in memory is lost with it.
        scenario: what users do: ``async def scenario(world)``, with ``world.client`` and ``world.wait_idle()``.
        processes: the number of processes that run the program. With 2, another process also takes over the lead.
        outside: a function that makes the outside world for each run: an object whose async methods reconcilers call,
            as steps, by ``process.outside``. Its ``state()``, or else its attributes, must end up as they do without
            faults.
        holds: functions that are called with the world when each run has recovered, before the quiet time. They raise
            AssertionError for what is wrong.
        always: functions that are called with the `Stored` resources after each commit and raise AssertionError for
            what must never be. They are not called in runs that restore the store from a backup.
        beside: async functions of the program that run beside its controllers, such as one that serves from a cache.
            Each is called with the `Process` in each of its lives, and canceled with it.
        pairs: the number of plans with two faults to try as well.
        seconds: a limit of the process's CPU time in seconds. No run starts after it; the report lists what was not
            tried.
        quiet: virtual seconds during which nothing may be written once the run has converged. None for controllers that
            write by the clock without an end.
        plan: run only this plan, as the last line of a failure shows it. The environment variable HEADWAY_PLAN does the
            same.
        may_differ: what may end differently from run to run, such as ``"Account.login"``, ``"order(Account.port)"`` or
            ``"outside.mails"``. The guide lists the forms. Everything else is compared.
        without: the names of the faults and schedules to leave out, such as ``"restore"``.
        durations: the seconds that faults last, by name, such as ``{"outage": 300, "clock_jump": 7200}``. Use it if the
            program's own times, such as a time-to-live, are longer than the faults.
        own_services: if true, every process opens the store itself, as engines on one etcd do, and its own program
            serves it. Use it for a store that several programs share, as in a rolling upgrade. The client is served by
            the program of the first process's first life.
        peers: other engines by name, each with a store and a program of its own, which peerings connect with this one.
        require_complete: if true, it is an error that ``seconds`` have passed before everything was tried.

    Raises:
        AssertionError: with ``require_complete``, and with what was not tried and how long it takes.
        Refuted: for the first run that is wrong, or for a simpler plan that is wrong in the same way. Up to twelve
            further runs look for one.
        DeclarationError: if called inside a Trio run, if the plan cannot be parsed, or if the scenario makes no
            controller do anything, so that nothing can go wrong.

    An exception of the scenario propagates, with the plan in a note.
    """
    __tracebackhide__ = True  # so that pytest shows the caller and the story
    began = time.process_time()
    setting = Setting(
        app=app,
        scenario=scenario,
        processes=processes,
        outside=outside,
        holds=tuple(holds),
        always=tuple(always),
        beside=tuple(beside),
        quiet=quiet,
        own_services=own_services,
        peers=peers or {},
    )
    left = _left_out(without)
    lengths = checked_durations(durations if durations is not None else {})
    only = plan if plan is not None else os.environ.get("HEADWAY_PLAN")
    setting = _spread(setting)
    measure = Measure(setting, may_differ=tuple(may_differ), paces=only is None, without=left)
    setting, first = measure.setting, measure.first
    most = 20 * len(first.trace.reconciles) + 20 * len(first.trace.steps) + 500
    plans, left_out = _plans(measure, pairs, processes, left) if only is None else ([Plan.parse(only)], {})
    if only is None:
        plans = lasting(plans, lengths)
    spoilt: dict[str, str] = {}
    runs: list[Plan] = []
    struck: list[Fault] = []
    unmet: list[Plan] = []
    steps = sum(len(each.trace.steps) for each in measure.references)

    def try_plan(plan: Plan) -> tuple[Result, list[Finding]] | None:
        try:
            result = run(setting, plan, most_steps=most)
        except Exception:  # noqa: BLE001  # a scenario may raise anything
            return None
        return measure.judged_at_last(plan, result)

    with Progress(len(plans)) as progress:
        for each in plans:
            if time.process_time() - began > seconds:
                break
            progress.show(len(runs), each)
            try:
                result = run(setting, each, most_steps=most)
            except Exception as error:  # noqa: BLE001  # a scenario may raise anything
                _spoilt(each, error, spoilt)
                continue
            steps += len(result.trace.steps)
            struck += result.struck
            if not set(result.struck) >= set(each):
                unmet.append(each)
            result, findings = measure.judged_at_last(each, result)
            if findings:
                refuted: Refutation = (each, result, findings)
                # A plan that was asked for is shown as it is.
                if only is None:
                    refuted = simplest(refuted, plans, runs, try_plan)
                raise Refuted(refuted[0], located(refuted[2], refuted[1], measure.references), refuted[1])
            runs.append(each)
    if only is None and len(runs) == len(plans):
        measure.check_names()
    if only is not None and unmet:
        text = f"the run ended before every fault of the plan {only!r} struck, so it shows little"
        warnings.warn(text, stacklevel=2)
    explored = Explored(
        plans=tuple(plans),
        runs=tuple(runs),
        struck=tuple(struck),
        unmet=tuple(unmet),
        left_out=left_out,
        reconciled=reconciled_by(first.trace) if processes > 1 else {},
        differing=measure.differing(),
        spoilt=spoilt,
        steps=steps,
        seconds=time.process_time() - began,
        without=left,
        not_asked=tuple(measure.not_asked),
    )
    if require_complete and explored.shortfall:
        raise AssertionError(f"nothing was found wrong, but {explored.shortfall}")
    return explored


@check_options(ExploreSettings.__annotations__)
def explored(app: App | MakeApp, **settings: Unpack[ExploreSettings]) -> Callable[[Scenario], Callable[[], None]]:
    """Turn an async scenario into a test function: ``@simulation.explored(app)``. Takes the settings of `explore`.

    The test prints what was tried (``pytest -rP`` shows it), and warns if the time ran out before all of it was tried.
    """

    form = "the form is @simulation.explored(app), before `async def scenario(world)`"
    if not isinstance(app, App) and inspect.iscoroutinefunction(app):
        raise DeclarationError(f"explored requires an app, or a function that makes one, not {repr_text(app)}: {form}")

    def make(scenario: Scenario) -> Callable[[], None]:
        if problem := async_problem(scenario, 1, "the world"):
            raise DeclarationError(f"the scenario {problem}: {form}")

        def test() -> None:
            __tracebackhide__ = True
            tried = explore(app, scenario, **settings)
            sys.stdout.write(f"{tried}\n")
            if tried.shortfall:
                warnings.warn(tried.shortfall, stacklevel=2)

        # Not functools.wraps: a test framework would take the scenario's parameter for a fixture's name.
        test.__name__, test.__qualname__ = scenario.__name__, scenario.__qualname__
        test.__module__, test.__doc__ = scenario.__module__, scenario.__doc__
        return test

    return make


@check_keywords
def same_end(
    app: App | MakeApp,
    *scenarios: Scenario,
    outside: Callable[[], Any] | None = None,
    quiet: float | None = 120.0,
) -> None:
    """Run several scenarios without faults, and check that they lead to the same end state.

    Use it for different ways to the same result: intermediate states must leave no trace.

    Raises:
        Refuted: if the end states differ, or a scenario is wrong by itself.
    """
    settings = [Setting(app=app, scenario=scenario, outside=outside, quiet=quiet) for scenario in scenarios]
    first, *others = settings
    measure = Measure(first, paces=False)
    for setting in others:
        other = reference(setting, Plan())
        findings = measure.compared(other, counts=False)
        if findings:
            raise Refuted(Plan(), findings, other)


def _plans(
    measure: Measure, pairs: int, processes: int, without: Sequence[str]
) -> tuple[list[Plan], dict[str, list[Fault]]]:
    """Return the plans to try, and the faults that are left out, by reason."""
    first = measure.first
    # Users may undo what they have done before a controller begins, unless they pause.
    results = [first, *(result for _, result in measure.paces)]
    if not any(each.trace.steps for each in results):
        if called := {each.controller for result in results for each in result.trace.reconciles}:
            raise DeclarationError(
                f"controller {', '.join(sorted(called))}: its reconciler is called, but calls neither the store nor "
                "the world outside, so no fault can strike: await each call, as in `await rt.client.apply(...)`, and "
                "let the scenario write resources for which there is something to do"
            )
        raise DeclarationError(
            "the scenario gives no controller anything to do: let it write resources that they manage"
        )
    kinds = {place[0] for place in first.end} | {
        each.kind for each in first.trace.commits if each.kind[0] not in RESERVED_GROUPS
    }
    singles, left_out = single_faults(first.trace, kinds, processes)
    pruned: LeftOut = defaultdict(list, left_out)
    if first.peers:
        of_peerings = peer_faults(first, pruned, shared=measure.setting.engines > 1)
        singles = [each for pair in zip_longest(of_peerings, singles) for each in pair if each is not None]
    singles = [each for each in singles if each.name not in without]
    schedules = [*slow_calls(first, pruned), *_changes_during(measure, kinds, pruned, without)]
    slower = [Plan(each) for each in schedules if each.name not in without]
    paced = [
        each
        for pace, result in measure.paces
        for each in at_another_pace(pace, result.trace, first.trace, kinds, processes, _pauses(result))
        if all(fault.name not in without for fault in each)
    ]
    by_the_clock: list[Plan] = []
    if does_by_the_clock(first):
        by_the_clock += [] if TickDuring.name in without else ticks_during_calls(measure.settled)
        by_the_clock += [] if ChangeInTick.name in without else changes_in_ticks(len(first.asked))
    leading: list[Plan] = []
    if processes > 1 and HandOver.name not in without:
        leading += [Plan(Relay())] if Relay.name not in without and len(first.asked) > 1 else []
        leading += [] if Interim.name in without else interims(len(first.asked))
        leading += handovers(first.trace)
    crossed: list[Plan] = []
    for step in changes_of_several(first.trace) if CrashAfter.name not in without else ():
        # A scenario may raise anything after a crash. It does so again when that crash is tried.
        with suppress(Exception):
            crossed += after_a_crash(step, run(measure.setting, Plan(CrashAfter(step.number))).trace, without)
    found = [*map(Plan, singles), *leading, *by_the_clock, *slower, *paced, *crossed]
    plans = in_fair_turns(found, first.trace, measure.settled.trace)
    skipped = {why: of for why, of in measure.skipped.items() if any(each.name != Hurried.name for each in of)}
    return [*plans, *pairs_of(singles, pairs)], {**pruned, **skipped}


def _pauses(result: Result) -> list[float]:
    """Return the seconds between the changes of users."""
    return [following - at for (at, _), (following, _) in pairwise(result.asked_at)]


def _spread(setting: Setting) -> Setting:
    """Return the setting with names of processes that give each of them keys of sharded controllers."""
    if setting.processes > 1:
        for salt in _SALTS:
            setting = dataclasses.replace(setting, salt=salt)
            if is_spread(reference(setting, Plan()).trace, setting.processes):
                break
    return setting


def _changes_during(measure: Measure, kinds: set[Kind], left_out: LeftOut, without: Sequence[str]) -> list[Fault]:
    """Return the plans that let users change something before the work on their last change is done."""
    found: list[Fault] = []
    if len(measure.first.asked) > 1:
        during = calls_before_a_change(measure.settled)
        found = [each for pair in zip_longest(merges(measure.first.trace, kinds), during) for each in pair if each]
    found = [each for each in found if each.name not in without]
    why = measure.hurried() if found and Hurried.name not in without else ""
    if why:
        left_out[why] += found
    return [] if why else found


def _left_out(without: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the faults to leave out, without repetitions.

    Raises:
        DeclarationError: if there is no such fault.
    """
    known = [each.name for each in FAULTS if each is not DoneAgain]
    names = tuple(dict.fromkeys(without))
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise DeclarationError(f"without={name!r}: no such fault{hint}: expected {', '.join(known)}")
    return names


def _spoilt(plan: Plan, error: BaseException, spoilt: dict[str, str]) -> None:
    """Note that a plan made the scenario itself fail.

    A scenario may fail if its store is restored from a backup, or if users must go on before work is done. After any
    other fault its exception is raised.
    """
    __tracebackhide__ = True
    error = noted(plan, error)
    if not any(isinstance(fault, Restore | Replaced | ChangeDuring | Hurried | Merged) for fault in plan):
        raise error from None
    spoilt[str(plan)] = f"{type(error).__name__}: {error}"
