"""A run without faults, which must be right by itself, and the error for one that is not."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from headway.base import ASYNCIO, is_from_asyncio
from headway.errors import DeclarationError
from headway.testing.simulation._run import run
from headway.testing.simulation.faults import Plan
from headway.testing.simulation.oracles import Finding, Result
from headway.testing.simulation.stories import replay_line, told
from headway.testing.simulation.world import Setting


class Refuted(AssertionError):
    """A failed run. The message is the story of what happened in it.

    If the environment variable HEADWAY_STORY names a file or a folder, the story is written there as an HTML page, too.

    Attributes:
        plan: the faults of the run.
        findings: what is wrong with it.
        result: the run's result.
    """

    def __init__(self, plan: Plan, findings: Sequence[Finding], result: Result) -> None:
        super().__init__(told(plan, result, findings))
        self.plan = plan
        self.findings = tuple(findings)
        self.result = result


def long_enough(setting: Setting, plan: Plan) -> tuple[Setting, Result]:
    """Return a run that must be right by itself, with its setting.

    A program that is not quiet yet, because it waits for a time of its own, gets that time.
    """
    __tracebackhide__ = True
    try:
        result = run(setting, plan)
        if result.findings and result.waits and not setting.long:
            long = dataclasses.replace(setting, long=True)
            if not (later := run(long, plan)).findings:
                return long, later
    except Exception as error:  # noqa: BLE001  # a scenario may raise anything
        raise noted(plan, error) from None
    if result.findings:
        raise Refuted(plan, result.findings, result)
    return setting, result


def reference(setting: Setting, plan: Plan) -> Result:
    """Return a run that must be right by itself."""
    __tracebackhide__ = True
    return long_enough(setting, plan)[1]


def patient(setting: Setting) -> list[Result]:
    """Return a run without faults whose users wait before each change, or nothing if the scenario fails that way."""
    try:
        result = run(setting, Plan(), patient=True)
    except Exception:  # noqa: BLE001  # a scenario that goes by the clock may raise anything when it runs late
        return []
    return [] if result.findings else [result]


def noted(plan: Plan, error: BaseException) -> BaseException:
    """Return the scenario's exception without the groups around it, and with notes about the plan and asyncio."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if is_from_asyncio(error):
        error.add_note(ASYNCIO)
    if not isinstance(error, DeclarationError):
        error.add_note(f"in a simulation under: {plan}\nagain: {replay_line(plan)}")
    return error
