"""How long the faults of an exploration last. Pure."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

from headway.errors import DeclarationError
from headway.resource import did_you_mean
from headway.testing.simulation import faults
from headway.testing.simulation.faults import Fault, Plan

_LONGEST = 900.0
"""The longest fault, in seconds: work that is owed has half an hour after it, also with the default back-off."""
_LONGEST_JUMP = 366 * 86_400.0


def _lasts(fault: type[Fault]) -> bool:
    return fault not in (faults.Spaced, faults.DoneAgain) and "seconds" in {of.name for of in dataclasses.fields(fault)}


LASTING = {fault.name: fault for fault in faults.FAULTS if _lasts(fault)}
"""The faults that have a duration, by name."""


def checked_durations(given: Mapping[str, float]) -> Mapping[str, float]:
    """Return the seconds of faults by name. Raises DeclarationError if a fault has none, or cannot last so long."""
    for name, seconds in given.items():
        if name not in LASTING:
            hint = did_you_mean(name, LASTING)
            raise DeclarationError(f"durations: no fault {name!r} lasts{hint}: expected {', '.join(LASTING)}")
        most = _LONGEST_JUMP if LASTING[name] in faults.JUMPS else _LONGEST
        if not 0 < seconds <= most:
            raise DeclarationError(f"durations[{name!r}] must be above 0 and at most {most:.0f} seconds, not {seconds}")
    return dict(given)


def lasting(plans: Iterable[Plan], durations: Mapping[str, float]) -> list[Plan]:
    """Return the plans with these durations, without those that have become equal. A jump keeps its direction."""
    if not durations:
        return list(plans)
    made = (Plan(*(_lasting(fault, durations) for fault in plan), seed=plan.seed) for plan in plans)
    return list(dict.fromkeys(made))


def _lasting(fault: Fault, durations: Mapping[str, float]) -> Fault:
    if isinstance(fault, faults.AtPeer):
        return dataclasses.replace(fault, fault=_lasting(fault.fault, durations))
    usual = getattr(fault, "seconds", 0.0)
    # A commit that is late by no time arrives before the caller's next attempt.
    if fault.name not in durations or not usual:
        return fault
    changed: dict[str, Any] = {"seconds": math.copysign(durations[fault.name], usual)}
    return dataclasses.replace(fault, **changed)
