"""`explore`: a scenario under every fault that can matter, one after the other."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypedDict

from typing_extensions import Unpack

from headway.controller import App
from headway.errors import DeclarationError
from headway.resource import Registry
from headway.testing.simulation._always import Always
from headway.testing.simulation._explored import Explored
from headway.testing.simulation._faults import Fault, Plan, Restore
from headway.testing.simulation._oracles import Finding, Result, compared, differing
from headway.testing.simulation._plans import pairs as pairs_of
from headway.testing.simulation._plans import single_faults
from headway.testing.simulation._run import Invariant, Scenario, Setting, run
from headway.testing.simulation._story import replay_line, told
from headway.testing.simulation._world import MakeApp

_REFERENCES = 3
"""Runs without faults, each with another order of tasks."""


class Refuted(AssertionError):
    """A run was found wrong. Its text is the story.

    Attributes:
        plan: the faults.
        findings: what is wrong.
        result: the run.
    """

    def __init__(self, plan: Plan, findings: Sequence[Finding], result: Result) -> None:
        super().__init__(told(plan, result, findings))
        self.plan = plan
        self.findings = tuple(findings)
        self.result = result


class ExploreSettings(TypedDict, total=False):
    """The settings of `explore`, as `explored` takes them."""

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
    """Run a scenario without faults, and then again under every fault that can matter; raise `Refuted` by the first run
    that is wrong.

    Every run has a store, a server and processes of its own, under virtual time, and ends by letting everything heal.
    Then it must have converged; stay quiet; write nothing after a new start; have ended as without faults, with no more
    creations and deletions of any resource; and hold the contract: nothing read goes back, one writer a term, one
    reconcile a key at a time, no orphans, no key that triggers itself, and an end within its bound.

    Args:
        app: the program, or a function that makes it anew for each life of a process: what a process keeps in its
            memory is lost with it. It is given the `Process`.
        scenario: what users do: ``async def scenario(world)``, with ``world.client`` and ``world.wait_idle()``.
        processes: how many run the program.
        outside: makes the world outside, for each run: an object whose async methods reconcilers reach by
            ``process.outside``, as steps. Its ``state()``, or else its attributes, must be in the end as without
            faults.
        holds: are called with the world in the end of each run, and raise AssertionError for what is wrong.
        always: are called with what is `Stored` after each commit, and raise AssertionError for what must never be. Not
            where the store is restored.
        pairs: how many plans of two faults to try besides.
        seconds: real ones, after which no other run is begun. What was not tried is in what is returned.
        quiet: virtual seconds after which nothing may have been written; None where controllers write by the clock.
        plan: run this one alone, as a story's last line has it. So does the environment's HEADWAY_PLAN.

        own_services: every process has the store open itself, as engines on one etcd have, and is served by its own
            program: for a store on which several programs work, as in a rolling upgrade. The client is served by the
            program of the first process's first life.

    Raises DeclarationError inside a Trio run, for a plan that can't be read, and for a scenario in which nothing can
    go wrong, because no controller does anything. What a scenario raises comes out, with the plan in a note.
    """
    __tracebackhide__ = True  # pytest shows what calls this, and the story
    began = time.monotonic()
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
    references = [_reference(setting, seed) for seed in range(_REFERENCES)]
    patient = _patient(setting)
    first = references[0]
    most = 20 * len(first.trace.reconciles) + 20 * len(first.trace.steps) + 500
    only = plan if plan is not None else os.environ.get("HEADWAY_PLAN")
    left_out: dict[str, list[Fault]] = {}
    if only is not None:
        plans = [Plan.parse(only)]
    else:
        singles, left_out = single_faults(first.trace, {place[0] for place in first.end} | _kinds(first))
        plans = [*(Plan(fault) for fault in singles), *pairs_of(singles, pairs)]
        if not first.trace.steps:
            raise DeclarationError(
                "the scenario makes no controller do anything, so nothing can go wrong: let it write what they manage"
            )
    spoilt: dict[str, str] = {}
    runs: list[Plan] = []
    struck: list[Fault] = []
    unmet: list[Plan] = []
    steps = sum(len(each.trace.steps) for each in references)
    for each in plans:
        if time.monotonic() - began > seconds:
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
        if findings:
            raise Refuted(each, findings, result)
    if only is not None and unmet:
        text = f"not all of the plan {only!r} struck: the run didn't come so far, so that it shows little"
        warnings.warn(text, stacklevel=2)
    took = time.monotonic() - began
    return Explored(
        tuple(plans),
        tuple(runs),
        tuple(struck),
        tuple(unmet),
        left_out,
        tuple(differing(references)),
        spoilt,
        steps,
        took,
    )


def explored(app: App | MakeApp, **settings: Unpack[ExploreSettings]) -> Callable[[Scenario], Callable[[], None]]:
    """``@simulation.explored(app)`` over an async scenario makes a test function of it. Settings as of `explore`.

    The test prints what was tried (``pytest -rP`` shows it), and warns when there was no time for all of it.
    """

    def make(scenario: Scenario) -> Callable[[], None]:
        def test() -> None:
            __tracebackhide__ = True
            tried = explore(app, scenario, **settings)
            sys.stdout.write(f"{tried}\n")
            left = len(tried.plans) - len(tried.runs) - len(tried.spoilt)
            if left:
                text = f"no time for {left} of {len(tried.plans)} plans: give more seconds=, or a shorter scenario"
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
    """Run several scenarios without faults, and raise `Refuted` when they don't end alike, or one is wrong by itself.

    For ways that should lead to the same: what was wanted in between must leave no trace.
    """
    settings = [Setting(app=app, scenario=scenario, outside=outside, quiet=quiet) for scenario in scenarios]
    first, *others = settings
    references = [_reference(first, seed) for seed in range(_REFERENCES)]
    for setting in others:
        other = _reference(setting, 0)
        findings = compared(other, references, counts=False)
        if findings:
            raise Refuted(Plan(), findings, other)


def _kinds(result: Result) -> set[tuple[str, str]]:
    reserved = {type.kind for type in Registry()}
    return {each.kind for each in result.trace.commits} - reserved


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
    """A run without faults whose users wait, if that is a way in which the scenario can go well."""
    try:
        result = run(setting, Plan(), patient=True)
    except Exception:  # noqa: BLE001  # a scenario may go by the clock, and raise anything when that is late
        return []
    return [] if result.findings else [result]


def _spoilt(plan: Plan, error: BaseException, spoilt: dict[str, str]) -> None:
    """A scenario may well fail when its store is taken back in time; by any other fault it must not."""
    __tracebackhide__ = True
    noted = _noted(plan, error)
    if not any(isinstance(fault, Restore) for fault in plan):
        raise noted from None
    spoilt[str(plan)] = f"{type(noted).__name__}: {noted}"


def _noted(plan: Plan, error: BaseException) -> BaseException:
    """What a scenario has raised, out of the nurseries around it, with what it was raised under."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if not isinstance(error, DeclarationError):
        error.add_note(f"in a simulation under: {plan}\nagain: {replay_line(plan)}")
    return error
