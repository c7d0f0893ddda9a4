"""Further runs, made only when a result is wrong, that show whether a correct program could do better.

In some, the disturbance of a fault is moved to a time when it cannot make a correct program fail:

- Another writer comes before a reconcile, not within it. The controller may overwrite whatever is lost then.
- A reconcile waits until it can read a change that it destroyed. If it destroys the change again, it owns the field.
- The store is restored when all work is done, and new processes go on. No program can know what is lost then.
- A call of the world outside is done and arrives once more. If that does harm, the API has no idempotency keys.
- The program draws other random values. What it replaces in both runs was random if it is another value in each.

The others have no faults and end later, because faults take time: a program that uses the clock may end in another
state.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import trio

from headway.resource import Key, Kind, Registry
from headway.testing.simulation import faults, oracles
from headway.testing.simulation._run import run
from headway.testing.simulation._trace import Committed, Happened, Step, named
from headway.testing.simulation.faults import Plan
from headway.testing.simulation.oracles import (
    CURRENT,
    OUTDATED,
    Allowed,
    Difference,
    Finding,
    Overwrite,
    Result,
)
from headway.testing.simulation.world import ANOTHER_WRITER, Setting, World

_DELIVERED = 1.0
"""A number of virtual seconds in which every cache receives a change."""
_HELD = 20.0
"""The number of seconds for which a reconcile waits at most for a change by another writer."""
_ENTRY = f"metadata.{ANOTHER_WRITER}"


class _Early:
    """Another writer who changes a resource before the reconcile with this number, and waits until it is delivered."""

    def __init__(self, reconcile: int, kind: Kind, key: Key) -> None:
        self._left = reconcile
        self._kind = kind
        self._key = key

    async def before_reconcile(self, world: World) -> None:
        self._left -= 1
        if not self._left and await world.overtake(self._kind, self._key):
            await world.sleep(_DELIVERED)

    async def at_the_end(self, world: World) -> None:
        pass


class _RestoredAtLast:
    """Restores the store when the scenario is over, and kills all processes."""

    def __init__(self, revision: int) -> None:
        self._revision = revision

    async def before_reconcile(self, world: World) -> None:
        pass

    async def at_the_end(self, world: World) -> None:
        for process in world.processes:
            process.kill()
        await world.restore(self._revision)


class _ReadFirst:
    """Holds the reconcile with this number until another writer has changed a resource and the cache has the change.

    Attributes:
        met: true once the cache has the change.
    """

    def __init__(self, overwrite: Overwrite, number: int) -> None:
        self._overwrite = overwrite
        self._left = number
        self.met = False

    async def before_reconcile(self, world: World) -> None:
        self._left -= 1
        if self._left:
            return
        with trio.move_on_after(_HELD):
            while not self.met:
                await world.sleep(_DELIVERED)
                self.met = any(map(self._is_it, world.trace.commits))

    def _is_it(self, change: Committed) -> bool:
        found, path = self._overwrite, self._overwrite.path
        if (change.kind, change.key, change.by) != (*found.place, found.change.by) or change.new is None:
            return False
        return found.contents_of(change.kind, change.new).get(path) == found.value

    async def at_the_end(self, world: World) -> None:
        pass


def is_kept_if_read(setting: Setting, plan: Plan, result: Result, found: Overwrite) -> bool:
    """Return True if a change that a controller has destroyed is kept when it reads the change first."""
    number = next((at for at, each in enumerate(result.trace.reconciles, 1) if each is found.step.by), 0)
    if not number:
        return False
    rival = _ReadFirst(found, number)
    other = _run(setting, plan, rival=rival)
    if other is None or not rival.met or other.findings:
        return False
    fields = other.contents.get(found.place)
    return fields is not None and fields.get(found.path) == found.value


def without_entry(result: Result) -> Result:
    """Return a result without the entry that another writer adds to the metadata of a resource.

    Removing the entry makes a new generation without any other change. So statuses of the previous generation count as
    current.
    """
    removed = {
        (each.kind, each.key)
        for each in result.trace.commits
        if each.old is not None and each.new is not None
        if ANOTHER_WRITER in each.old.metadata and ANOTHER_WRITER not in each.new.metadata
    }
    contents = {
        place: {
            path: CURRENT if place in removed and text == OUTDATED and _is_status(path) else text
            for path, text in fields.items()
            if path.replace("(metadata)", "metadata") != _ENTRY
        }
        for place, fields in result.contents.items()
    }
    return dataclasses.replace(result, contents=contents)


def _is_status(path: str) -> bool:
    return path.partition(".")[0].strip("()") == "status"


def has_lost_entry(result: Result, step: Step) -> bool:
    """Return True if another writer has added the entry just before a call, and the resource exists without it."""
    added = any(
        (each.kind, each.key) == (step.kind, step.key) and each.new is not None and ANOTHER_WRITER in each.new.metadata
        for each in result.trace.commits
    )
    return added and (step.kind, step.key) in result.contents and not _has_entry(result, step)


def _has_entry(result: Result, step: Step) -> bool:
    fields = result.contents.get((step.kind, step.key), {})
    return _ENTRY in fields or _ENTRY.replace("metadata", "(metadata)") in fields


def written_early(setting: Setting, result: Result, step: Step) -> Result | None:
    """Return a run that lets the other writer act before the reconcile that makes a call.

    Return None if that run fails. Also return None if a daemon or a source makes the call, because these may have read
    at any time before it.
    """
    number = next((at for at, each in enumerate(result.trace.reconciles, 1) if each is step.by), 0)
    if not number:
        return None
    return _run(setting, Plan(), rival=_Early(number, step.kind, step.key))


def overwritten(step: Step, result: Result, early: Result | None) -> list[Finding]:
    """Return a finding if a call destroyed what another writer had just changed, and the controller had no right to."""
    if early is None or not has_lost_entry(result, step) or not _has_entry(early, step):
        return []
    text = (
        f"{named(step.kind, step.key)} has lost metadata[{ANOTHER_WRITER!r}], which another writer added just before "
        f"call {step.number} ({step.method}) and after {step.by.controller} had read it; the entry is kept if it is "
        "added before the reconcile"
    )
    return [Finding("overwritten", text, (step.kind, step.key), (step,))]


def restored_at_last(setting: Setting, revision: int) -> Result | None:
    """Return the run whose store is restored when all work is done, or None if it fails."""
    return _run(setting, Plan(), rival=_RestoredAtLast(revision))


def lost_for_good(found: list[Difference]) -> frozenset[str]:
    """Return the declarations that allow what is lost by a restore when all work is done."""
    return frozenset(each.declared.partition(" ")[0] for each in found)


def calls_outside(result: Result) -> Counter[str]:
    """Return how often each call of the world outside was made, with its arguments."""
    return Counter(step.method for step in result.trace.steps if not step.kind[1])


def new_from_start(setting: Setting, upgraded: Result) -> Setting:
    """Return the setting that has the program of the last upgrade from the start.

    The types that only older programs have stay known, because users may write them.
    """
    older = Registry()
    for each in upgraded.types:
        older.register(each)
    return dataclasses.replace(setting, app=upgraded.upgraded_to, new_from_start=older)


def done_again(setting: Setting, plan: Plan, fault: faults.StepFault) -> Result | None:
    """Return the run that does a call and lets it arrive once more, as late as under the fault, at the same pace."""
    pace = [each for each in plan if isinstance(each, faults.SCHEDULES)]
    return _run(setting, Plan(*pace, faults.DoneAgain(fault.step, getattr(fault, "seconds", 0.0))))


def replaced(
    setting: Setting,
    plan: Plan,
    result: Result,
    rights: Sequence[Result],
    allowed: Allowed,
    constant: set[tuple[Kind, str]],
) -> list[Finding]:
    """Return a finding about a random value that a controller has replaced by another one, if there is any.

    Another run of the plan shows which values are random. Fields whose values are not are added to ``constant``.
    """
    other = (faults.Restore, faults.Replaced)
    if not len(plan) or plan.jumps or any(isinstance(each, other) for each in plan):
        return []
    for each in oracles.replaced(result, rights, allowed):
        if each.field in constant:
            continue
        again = _run(setting, plan, draw=1)
        if again is not None and each.is_random([*oracles.all_replaced(again)]):
            return [each.finding()]
        constant.add(each.field)
    return []


def _run(setting: Setting, plan: Plan, **how: Any) -> Result | None:
    try:
        return run(setting, plan, **how)
    except Exception:  # noqa: BLE001  # a scenario may raise anything when more happens than it expects
        return None


_SLOW_LOOK = 1_700_000_000
_UNHANDLED = 3
"""The number of changes of the users before a jump that the program may not have handled yet."""


class Late:
    """The runs without faults that show which values depend on the clock. They are made only when a result differs.

    Args:
        first: the first run without faults.
    """

    def __init__(self, setting: Setting, first: Result) -> None:
        self._setting = setting
        self._first = first
        self._known: dict[object, list[Result]] = {}

    def later(self, result: Result) -> list[Result]:
        """Return a run without faults that ends at the same time of the clock as ``result``."""
        more = round(result.wall[1] - self._first.wall[1])
        return self._run(Plan(), more=float(more)) if more >= 1 else []

    def jumped(self, plan: Plan, result: Result) -> list[Result]:
        """Return runs whose clock does not jump, and whose users come when the clock shows the same as in ``result``.

        In some of them, the time that a jump skips passes before the program has handled the users' last changes. Each
        of them is as long as ``result``, by the wall clock or in virtual time.
        """
        pace = [each for each in plan if isinstance(each, faults.SCHEDULES)]
        at = [wall for _, wall in result.asked_at]
        dues = [at, *self._after_jumps(plan, result, at)]
        return [
            found for due in dues for more in self._more(result, due) for found in self._run(Plan(*pace), due, more)
        ]

    def _after_jumps(self, plan: Plan, result: Result, at: list[float]) -> list[list[float]]:
        """Return the times of the changes if those that may not have been handled come after a jump forward."""
        found: list[list[float]] = []
        happened = [each for each in result.trace.entries if isinstance(each, Happened) and each.fault]
        for fault in plan.jumps:
            # In the world of a peer, its name comes before the fault.
            struck = next((each.at for each in happened if each.text.endswith(str(fault))), None)
            if struck is None or fault.seconds < 0:
                continue
            made = [wall for virtual, wall in result.asked_at if virtual <= struck]
            for first in range(max(len(made) - _UNHANDLED, 0), len(made)):
                after = [max(wall, made[-1] + fault.seconds) for wall in made[first:]]
                found.append([*at[:first], *after, *at[len(made) :]])
        return found

    def _more(self, result: Result, due: list[float]) -> set[float]:
        """Return how long a run whose users come at these times goes on after them, in seconds."""
        shift = due[-1] - self._first.asked_at[-1][1] if due and self._first.asked_at else 0.0
        longer = (result.wall[1] - self._first.wall[1], result.lived - self._first.lived)
        return {float(max(round(each - shift), 0)) for each in longer}

    @property
    def slow(self) -> Result | None:
        """A run without faults that takes seconds for each look at a clock. It shows the values that depend on it."""
        found = self._run(Plan(), look=_SLOW_LOOK)
        return found[0] if found else None

    def _run(self, plan: Plan, due: Sequence[float] = (), more: float = 0.0, **given: Any) -> list[Result]:
        key = (str(plan), tuple(round(each, 1) for each in due), more, *given.items())
        if key not in self._known:
            self._known[key] = []
            # A scenario that goes by the clock may raise anything when it is late.
            with suppress(Exception):
                result = run(self._setting, plan, due=due, more=more, **given)
                self._known[key] = [] if result.findings else [result]
        return self._known[key]
