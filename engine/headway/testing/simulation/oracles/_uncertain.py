"""Steps that were entered again with an unknown outcome, and whose block has ignored that. Pure.

Repeating an effect is right if it changes nothing, so these findings only explain what is wrong otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator

from headway.testing.simulation._trace import Reconcile, Step, Trace, Uncertain, named
from headway.testing.simulation.oracles._oracles import Finding


def ignored_steps(trace: Trace) -> list[Finding]:
    """Return a finding for each step whose block repeats its call without key or look, or takes it for done."""
    found: dict[str, Finding] = {}
    for each in trace.uncertain:
        text, calls = _ignored(trace, each)
        if text:
            place = each.of.type.unversioned, each.of.key
            step = f"the step {each.step} of {named(*place)}"
            found.setdefault(
                step, Finding("step", f"{step} was uncertain, and {each.by.controller} {text}", place, calls)
            )
    return list(found.values())


def _ignored(trace: Trace, entered: Uncertain) -> tuple[str, tuple[Step, ...]]:
    """Return what a block does wrong, with its calls; an empty text if it does nothing wrong."""
    calls = list(_calls(trace, entered))
    if not calls:
        return "", ()
    first = calls[0]
    if first.kind[1]:
        text = (
            "takes it for done without a call: its effect may not have happened. Ask the outside, or repeat the effect"
        )
        return f"{text} with step.key", (first,)
    before = [each for each in trace.steps[: entered.steps] if _is_by(each, entered.by) and _name(each) == _name(first)]
    if not before or entered.key in first.method:
        return "", ()
    text = f"repeats {first.method.removeprefix('call ')} without step.key and without a look: it may have happened"
    return f"{text}. Pass step.key, or ask the outside first if step.uncertain", (before[-1], first)


def _calls(trace: Trace, entered: Uncertain) -> Iterator[Step]:
    """Yield the calls of a block: those outside, and at last the one that stores its result."""
    for each in trace.steps[entered.steps :]:
        if each.by is not entered.by:
            continue
        if not each.kind[1]:
            yield each
        elif each.method.startswith("write the status"):
            yield each
            return


def _is_by(step: Step, other: Reconcile) -> bool:
    return not step.kind[1] and (step.by.controller, step.by.key) == (other.controller, other.key)


def _name(step: Step) -> str:
    return step.method.partition("(")[0]
