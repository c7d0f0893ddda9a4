"""`explore`: runs a scenario under every fault that can matter, one after the other."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypedDict

from typing_extensions import Unpack

from headway.controller import App
from headway.errors import DeclarationError
from headway.testing.simulation._always import RESERVED_KINDS, Always
from headway.testing.simulation._compared import compared, differing
from headway.testing.simulation._late import Late
from headway.testing.simulation._oracles import Finding, Result
from headway.testing.simulation._plans import handovers, single_faults
from headway.testing.simulation._plans import pairs as pairs_of
from headway.testing.simulation._report import Explored, replay_line, story
from headway.testing.simulation._run import run
from headway.testing.simulation._spread import SALTS, is_spread, reconciled_by
from headway.testing.simulation._world import Invariant, MakeApp, Scenario, Setting
from headway.testing.simulation.faults import Fault, Plan, Restore

_REFERENCES = 3
"""The number of runs without faults, each with a different order of tasks."""


class Refuted(AssertionError):
    """A failed run. The message is the story of what happened in it.

    Attributes:
        plan: the faults of the run.
        findings: what is wrong with it.
        result: the run's result.
    """

    def __init__(self, plan: Plan, findings: Sequence[Finding], result: Result) -> None:
        super().__init__(story(plan, result, findings))
        self.plan = plan
        self.findings = tuple(findings)
        self.result = result


class ExploreSettings(TypedDict, total=False):
    """The settings of `explore` that `explored` takes as keywords."""

    processes: int
    outside: Callable[[], Any] | None
    holds: Iterable[Invariant]
    always: Iterable[Always]
    pairs: int
    seconds: float
    quiet: float | None
    plan: str | None


def explore(
    app: App | MakeApp,
    scenario: Scenario,
    *,
    processes: int = 1,
    outside: Callable[[], Any] | None = None,
    holds: Iterable[Invariant] = (),
    always: Iterable[Always] = (),
    pairs: int = 0,
    seconds: float = 60.0,
    quiet: float | None = 120.0,
    plan: str | None = None,
    own_services: bool = False,
) -> Explored:
    """Run a scenario without faults, then once under every fault that can matter.

    Every run has its own store, server and processes, under virtual time. When the scenario is over, all faults heal.
    Then these must hold:

    - The run converges, and nothing is written after that.
    - A restart of the processes causes no writes.
    - The end state is the same as without faults, and no resource was created or deleted more often.
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
        processes: the number of processes that run the program.
        outside: a function that makes the outside world for each run: an object whose async methods reconcilers call,
            as steps, by ``process.outside``. Its ``state()``, or else its attributes, must end up as they do without
            faults.
        holds: functions that are called with the world at the end of each run and raise AssertionError for what is
            wrong.
        always: functions that are called with the `Stored` resources after each commit and raise AssertionError for
            what must never be. They are not called in runs that restore the store from a backup.
        pairs: the number of plans with two faults to try as well.
        seconds: a limit of the process's CPU time in seconds. No run starts after it; the report lists what was not
            tried.
        quiet: virtual seconds during which nothing may be written once the run has converged. None for controllers that
            write by the clock.
        plan: run only this plan, as the last line of a failure shows it. The environment variable HEADWAY_PLAN does the
            same.
        own_services: if true, every process opens the store itself, as engines on one etcd do, and its own program
            serves it. Use it for a store that several programs share, as in a rolling upgrade. The client is served by
            the program of the first process's first life.

    Raises:
        Refuted: for the first run that is wrong.
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
        quiet=quiet,
        own_services=own_services,
    )
    setting, first = _spread(setting)
    references = [first, *(_reference(setting, seed) for seed in range(1, _REFERENCES))]
    patient = _patient(setting)
    late = Late(setting, first)
    most = 20 * len(first.trace.reconciles) + 20 * len(first.trace.steps) + 500
    only = plan if plan is not None else os.environ.get("HEADWAY_PLAN")
    plans, left_out = _plans(first, pairs, processes) if only is None else ([Plan.parse(only)], {})
    spoilt: dict[str, str] = {}
    runs: list[Plan] = []
    struck: list[Fault] = []
    unmet: list[Plan] = []
    steps = sum(len(each.trace.steps) for each in references)
    for each in plans:
        if time.process_time() - began > seconds:
            break
        try:
            result = run(setting, each, most_steps=most)
        except Exception as error:  # noqa: BLE001  # a scenario may raise anything
            _spoilt(each, error, spoilt)
            continue
        steps += len(result.trace.steps)
        struck += result.struck
        runs.append(each)
        if not set(result.struck) >= set(each):
            unmet.append(each)
        restored = any(isinstance(fault, Restore) for fault in each)
        findings = [*result.findings, *compared(result, references, patient, counts=not restored)]
        if findings and not result.findings:
            rights = [*patient, *late.later(result)]
            findings = compared(result, references, rights, counts=not restored, slow=late.slow)
        if findings:
            raise Refuted(each, findings, result)
    if only is not None and unmet:
        text = f"the run ended before every fault of the plan {only!r} struck, so it shows little"
        warnings.warn(text, stacklevel=2)
    return Explored(
        plans=tuple(plans),
        runs=tuple(runs),
        struck=tuple(struck),
        unmet=tuple(unmet),
        left_out=left_out,
        reconciled=reconciled_by(first.trace) if processes > 1 else {},
        differing=tuple(differing(references)),
        spoilt=spoilt,
        steps=steps,
        seconds=time.process_time() - began,
    )


def explored(app: App | MakeApp, **settings: Unpack[ExploreSettings]) -> Callable[[Scenario], Callable[[], None]]:
    """Turn an async scenario into a test function: ``@simulation.explored(app)``. Takes the settings of `explore`.

    The test prints what was tried (``pytest -rP`` shows it), and warns if the time ran out before all of it was tried.
    """

    def make(scenario: Scenario) -> Callable[[], None]:
        def test() -> None:
            __tracebackhide__ = True
            tried = explore(app, scenario, **settings)
            sys.stdout.write(f"{tried}\n")
            left = len(tried.plans) - len(tried.runs) - len(tried.spoilt)
            if left:
                text = f"no time for {left} of {len(tried.plans)} plans: raise seconds=, or shorten the scenario"
                warnings.warn(text, stacklevel=2)

        # Not functools.wraps: a test framework would take the scenario's parameter for a fixture's name.
        test.__name__, test.__qualname__ = scenario.__name__, scenario.__qualname__
        test.__module__, test.__doc__ = scenario.__module__, scenario.__doc__
        return test

    return make


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
    references = [_reference(first, seed) for seed in range(_REFERENCES)]
    for setting in others:
        other = _reference(setting, 0)
        findings = compared(other, references, counts=False)
        if findings:
            raise Refuted(Plan(), findings, other)


def _plans(first: Result, pairs: int, processes: int) -> tuple[list[Plan], dict[str, list[Fault]]]:
    """Return the plans to try, and the faults that are left out, by reason. ``first`` is a run without faults."""
    if not first.trace.steps:
        raise DeclarationError(
            "the scenario gives no controller anything to do: let it write resources that they manage"
        )
    kinds = {place[0] for place in first.end} | {each.kind for each in first.trace.commits} - RESERVED_KINDS
    singles, left_out = single_faults(first.trace, kinds, processes)
    back = handovers(first.trace) if processes > 1 else []
    # After the first of each kind of fault, so that they are tried when the time is short.
    kinds_of_faults = len({fault.name for fault in singles})
    alone = [Plan(fault) for fault in singles]
    return [*alone[:kinds_of_faults], *back, *alone[kinds_of_faults:], *pairs_of(singles, pairs)], left_out


def _spread(setting: Setting) -> tuple[Setting, Result]:
    """Return the setting with names of processes by which each of them has keys, and the first run without faults."""
    first = _reference(setting, 0)
    if setting.processes > 1:
        for salt in SALTS[1:]:
            if is_spread(first.trace, setting.processes):
                break
            setting = dataclasses.replace(setting, salt=salt)
            first = _reference(setting, 0)
    return setting, first


def _reference(setting: Setting, seed: int) -> Result:
    __tracebackhide__ = True
    plan = Plan(seed=seed)
    try:
        result = run(setting, plan)
    except Exception as error:  # noqa: BLE001  # a scenario may raise anything
        raise _noted(plan, error) from None
    if result.findings:
        raise Refuted(plan, result.findings, result)
    return result


def _patient(setting: Setting) -> list[Result]:
    """Return a run without faults whose users wait before each change, or nothing if the scenario fails that way."""
    try:
        result = run(setting, Plan(), patient=True)
    except Exception:  # noqa: BLE001  # a scenario that goes by the clock may raise anything when it runs late
        return []
    return [] if result.findings else [result]


def _spoilt(plan: Plan, error: BaseException, spoilt: dict[str, str]) -> None:
    """Note that a plan made the scenario itself fail.

    A scenario may fail if its store is restored from a backup. After any other fault its exception is raised.
    """
    __tracebackhide__ = True
    noted = _noted(plan, error)
    if not any(isinstance(fault, Restore) for fault in plan):
        raise noted from None
    spoilt[str(plan)] = f"{type(noted).__name__}: {noted}"


def _noted(plan: Plan, error: BaseException) -> BaseException:
    """Return the scenario's exception without the groups around it, and with a note about the plan."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if not isinstance(error, DeclarationError):
        error.add_note(f"in a simulation under: {plan}\nagain: {replay_line(plan)}")
    return error
