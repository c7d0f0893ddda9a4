"""The runs without faults. All other runs are compared with them. Each has another schedule.

A difference between two runs of the same schedule comes from randomness in the program. A difference between two
schedules is a race, unless the scenario declares that it may differ.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence

from headway.resource import Kind
from headway.testing.simulation import _outside_api as api
from headway.testing.simulation import _twins as twins
from headway.testing.simulation import faults, oracles
from headway.testing.simulation._reference import Refuted, long_enough, patient, reference
from headway.testing.simulation._run import run
from headway.testing.simulation._trace import Committed, Step
from headway.testing.simulation._twins import Late
from headway.testing.simulation.faults import Plan
from headway.testing.simulation.oracles import (
    Allowed,
    Difference,
    Finding,
    Result,
    compared,
    differences,
    without_slots,
)
from headway.testing.simulation.stories import located
from headway.testing.simulation.world import DELETED, Setting

_SEEDS = 3
"""The number of runs without faults in which users are as fast as the scenario, each with another order of tasks."""
_BEFORE_A_RESTART = 0.5
"""A number of seconds less than a killed process takes to begin again."""
_SAID = 4
"""The number of differences that a refutation lists."""
_ONLY_TIMING = (*faults.SCHEDULES, faults.ChangeInTick, faults.TickDuring)
"""The faults under which every call is done once and answered, and no process dies."""
_DO_NOT_WAIT = (faults.ChangeDuring, faults.Merged, faults.Hurried)
"""The schedules and faults under which users change something before the work on their last change is done."""
_AT_ANY_PACE = frozenset(("again", "orphans", "deletion", "self-trigger", "fight"))
"""The oracles that hold however fast users are, even if the end depends on that."""


class Measure:
    """The runs without faults of one exploration.

    Attributes:
        setting: the setting of all further runs.
        first: the run of the scenario as it is written.
        references: the right results.
        paces: the runs with faster or slower users, with their paces.
        settled: the run whose users wait after each change; the same as ``first`` if users make only one change.
        skipped: the schedules that show nothing, by reason.
        not_asked: the plans under which no program can be right, because the world outside has no keys.

    Args:
        may_differ: what may differ, as the scenario declares it.
        paces: whether users also have another pace than the scenario's.
        without: the names of the schedules and faults that are left out.
    """

    def __init__(
        self, setting: Setting, *, may_differ: Sequence[str] = (), paces: bool = True, without: Sequence[str] = ()
    ) -> None:
        __tracebackhide__ = True
        self._allowed = Allowed(frozenset(may_differ))
        self._twin: Result | None = None
        # The fields that controllers overwrite even if they have read another writer's change: they own them.
        self._owned: set[tuple[str, Kind, str]] = set()
        # The fields whose values are replaced under a fault, and are not random.
        self._constant: set[tuple[Kind, str]] = set()
        # The first run again, until the program has done what it waits for by its own clock, if that is known.
        self._long: list[Result] = []
        self.skipped: dict[str, list[faults.Fault]] = {}
        self.paces: list[tuple[Sequence[faults.Fault], Result]] = []
        self.not_asked: list[str] = []
        # The plans under which a change by users is lost, because a finalizer has kept what they had deleted.
        self._deleted: list[str] = []
        # What was not compared under restores, because one when all work is done changes it as well, with the plans.
        self._lost: dict[str, list[str]] = {}
        # What depends on whether users wait: it is not compared if they don't.
        self._by_pace = frozenset[str]()
        plans = [Plan(seed=seed) for seed in range(_SEEDS)]
        self.setting, self.first = long_enough(setting, plans[0])
        setting, self.settled = self.setting, self.first
        self.references = [self.first, *(reference(setting, plan) for plan in plans[1:])]
        oracles.check_declared(may_differ, self.first.types, self.first.outside)
        self._patient = patient(setting)
        self._late = Late(setting, self.first)
        self._seen = {(each.kind, each.key) for of in self.references for each in of.trace.commits}
        for plan, result in zip(plans, self.references, strict=True):
            self._check_timing(plan, result)
        if paces and len(self.first.asked) > 1:
            for pace in (faults.Spaced(), faults.Settled()):
                if pace.name not in without:
                    self._try_pace(pace)
        if paces and faults.NewFromStart.name not in without:
            self._check_upgrade()

    def _check_upgrade(self) -> None:
        """Check that the end after an upgrade is as if the new program had run from the start."""
        __tracebackhide__ = True
        if self.first.upgraded_to is None:
            return
        try:
            always_new = run(twins.new_from_start(self.setting, self.first), Plan())
        except Exception as error:  # noqa: BLE001  # the scenario may rely on what only the old program does
            self.skipped[f"the scenario raises {type(error).__name__} then"] = [faults.NewFromStart()]
            return
        if always_new.findings:
            self.skipped[f"otherwise {always_new.findings[0].oracle} does not hold"] = [faults.NewFromStart()]
            return
        if differences(self.first, [always_new], self._allowed):
            self._find_random()
            found = differences(self.first, [always_new], self._allowed, slow=self._late.slow)
            if found:
                findings = [_upgrade_finding(each) for each in found[:_SAID]]
                raise Refuted(Plan(), located(findings, self.first, [self.first]), self.first)
        self._patient.append(always_new)

    def _try_pace(self, pace: faults.Fault) -> None:
        __tracebackhide__ = True
        plan = Plan(pace)
        try:
            result = run(self.setting, plan)
        except Exception as error:  # noqa: BLE001  # a scenario that goes by the clock may raise anything
            self.skipped[f"the scenario raises {type(error).__name__} then"] = [pace]
            return
        result, findings = self._at_last(plan, result, lambda _, of: list(of.findings))
        if findings:
            raise Refuted(plan, findings, result)
        if self._asks_otherwise(plan, result):
            return
        self._check_timing(plan, result)
        self.references.append(result)
        self.paces.append(((pace,), result))
        if isinstance(pace, faults.Settled):
            self.settled = result

    def hurried(self) -> str:
        """Return why a run means nothing if its users don't wait for idleness, or an empty text."""
        plan = Plan(faults.Hurried())
        try:
            result = run(self.setting, plan)
        except Exception as error:  # noqa: BLE001  # a scenario may rely on the result of its wait
            return f"the scenario must wait: otherwise it raises {type(error).__name__}"
        if self._asks_otherwise(plan, result):
            return "the scenario must wait: otherwise users ask for something else"
        wrong = [each for each in result.findings if self._is_wrong_at_any_pace(each)]
        if wrong:
            raise Refuted(plan, located(wrong, result, self.references), result)
        if result.findings:
            return f"the scenario must wait: otherwise {result.findings[0].oracle} does not hold"
        # If users change no resource twice, a program cannot have acted on a state in between.
        twice = len({" ".join(what.split(" ")[1:3]) for _, what in result.asked}) < len(result.asked)
        if twice and not self._find_what_depends_on_the_pace(plan, result):
            # A fault that delays the program lets users be as fast.
            return "the end is another one if users don't wait at all"
        self._try_hurried_and_spaced()
        return ""

    def _find_what_depends_on_the_pace(self, plan: Plan, result: Result) -> bool:
        """Note what ends differently if users don't wait. Return False if nothing would be left to compare outside."""
        # A difference can hide others until it is allowed.
        while found := {each.declared for each in self._differences(plan, result, self.references)}:
            if oracles.OUTSIDE in found or found <= self._by_pace:
                self._by_pace = frozenset()
                return False
            self._by_pace |= found
        return True

    def _allowed_under(self, plan: Plan) -> Allowed:
        """Return what may differ under a plan: more than otherwise if its users don't wait."""
        if not self._depends_on_the_pace(plan):
            return self._allowed
        return dataclasses.replace(self._allowed, declared=self._allowed.declared | self._by_pace)

    def _depends_on_the_pace(self, plan: Plan) -> bool:
        return bool(self._by_pace) and any(isinstance(each, _DO_NOT_WAIT) for each in plan)

    def _is_wrong_at_any_pace(self, finding: Finding) -> bool:
        """Return True if a finding is the program's fault, however fast users are.

        If a check of ``always`` fails at a change by users, it is not: they may break the rule by not waiting.
        """
        if finding.oracle in _AT_ANY_PACE:
            return True
        always = {oracles.name_of(each) for each in self.setting.always}
        return finding.oracle in always and not any(
            isinstance(each, Committed) and not each.by for each in finding.entries
        )

    def _try_hurried_and_spaced(self) -> None:
        """Try the paces of users who pause, but don't wait until work is done, for the runs with faults.

        The shorter pause ends before a process that was killed is back.
        """
        for pace in ((faults.Hurried(), faults.Spaced()), (faults.Hurried(), faults.Spaced(_BEFORE_A_RESTART))):
            try:
                result = run(self.setting, Plan(*pace))
            except Exception:  # noqa: BLE001  # a scenario may rely on the result of its wait
                continue
            same = [what for _, what in result.asked] == [what for _, what in self.first.asked]
            if same and not result.findings and not self.timing(Plan(*pace), result):
                self.paces.append((pace, result))

    def _asks_otherwise(self, plan: Plan, result: Result) -> bool:
        """Return True, and note it, if users have asked for something else than in the first run."""
        if [what for _, what in result.asked] == [what for _, what in self.first.asked]:
            return False
        self.skipped["users ask for something else then"] = [*plan]
        return True

    def _check_timing(self, plan: Plan, result: Result) -> None:
        __tracebackhide__ = True
        result, findings = self._at_last(plan, result, self._timing_of_a_reference)
        if findings:
            raise Refuted(plan, located(findings, result, [self.first]), result)

    def _timing_of_a_reference(self, plan: Plan, result: Result) -> list[Finding]:
        return [*self._overwritten(plan, result), *self.timing(plan, result, [self.first, *self._long])]

    def _at_last(
        self, plan: Plan, result: Result, judge: Callable[[Plan, Result], list[Finding]]
    ) -> tuple[Result, list[Finding]]:
        """Judge a run. If it is wrong while the program still waits for a time, let that time pass and judge again."""
        findings = judge(plan, result)
        if not findings or not result.waits or self.setting.long:
            return result, findings
        long = dataclasses.replace(self.setting, long=True)
        try:
            if not self._long:
                self._long = [run(long, Plan())]
                self.references += [each for each in self._long if not each.findings]
            result = run(long, plan)
        except Exception:  # noqa: BLE001  # a scenario that goes by the clock may raise anything
            return result, findings
        return result, judge(plan, result)

    def judged_at_last(self, plan: Plan, result: Result) -> tuple[Result, list[Finding]]:
        """Judge a run, or else a longer run, where the program has done what it waits for by its own clock."""
        return self._at_last(plan, result, self.judged)

    def timing(self, plan: Plan, result: Result, rights: Sequence[Result] = ()) -> list[Finding]:
        """Return what has ended differently in a run without faults, with the lines that declare it."""
        self._seen |= {(each.kind, each.key) for each in result.trace.commits}
        found = self._differences(plan, result, rights or self.references)
        return [_timing_finding(each, plan) for each in found[:_SAID]]

    def _differences(self, plan: Plan, result: Result, rights: Sequence[Result]) -> list[Difference]:
        if not differences(result, rights, self._allowed_under(plan)):
            return []
        # Only now, because most programs have nothing random.
        rights = [*rights, self.twin]
        allowed = self._allowed_under(plan)
        if not differences(result, rights, allowed):
            return []
        return differences(result, rights, allowed, self._late.later(result), self._late.slow)

    def _find_random(self) -> None:
        """Let a second run show what is random, if that is not known yet."""
        assert self.twin is not None

    @property
    def twin(self) -> Result:
        """A second run with the schedule of the first one. The program draws other random values."""
        if self._twin is None:
            self._twin = run(self.setting, Plan(), draw=1)
            random = oracles.random_parts(self.first, self._twin)
            self._allowed = dataclasses.replace(random, declared=self._allowed.declared)
        return self._twin

    def judged(self, plan: Plan, result: Result) -> list[Finding]:
        """Return what is wrong with a run, by itself and compared with the right ones."""
        found = self._found(plan, result)
        # A step that was ignored is no mistake by itself, but the reason for one.
        ends = any(each.oracle in ("end state", "outside") for each in found)
        return [*oracles.ignored_steps(result.trace), *found] if ends else found

    def _found(self, plan: Plan, result: Result) -> list[Finding]:
        if faults.changes_the_end(plan):
            return list(result.findings)
        if len(plan) and self._changes_what_is_deleted(result):
            self._deleted.append(str(plan))
            return list(result.findings)
        found = [*self._overwritten(plan, result), *self._judged(plan, result)]
        if not self._depends_on_the_pace(plan):
            found += self._momentary(plan, result)
        return found or self._disagreements(plan, result) or self._replaced(plan, result)

    def _disagreements(self, plan: Plan, result: Result) -> list[Finding]:
        """Return findings about random values that stand in two places, if any value of the program is random."""
        if self._twin is None or any(isinstance(each, faults.Restore | faults.CommitLast) for each in plan):
            return []
        paces = [of for _, of in self.paces]
        return oracles.disagreements(result, [self.first, self._twin, *self.references, *paces], self._allowed)

    def _replaced(self, plan: Plan, result: Result) -> list[Finding]:
        """Return a finding about a random value that a controller has replaced, although its resource lived."""
        rights = [*self.references, *self._patient, *(of for _, of in self.paces)]
        return twins.replaced(self.setting, plan, result, rights, self._allowed_under(plan), self._constant)

    def _momentary(self, plan: Plan, result: Result) -> list[Finding]:
        """Return findings about what was wrong for a moment, and that the program has corrected since."""
        if not len(plan) or plan.jumps or any(isinstance(each, faults.Restore) for each in plan):
            return []
        paces = [of for _, of in self.paces]
        if oracles.unsteady(result, self.references):
            return oracles.unsteady(result, [*self.references, *self._patient, *paces, self.twin])
        # If nothing but the timing is to blame.
        only_timing = all(isinstance(each, _ONLY_TIMING) for each in plan)
        if not only_timing or not oracles.made_again(result, self.references, self._allowed):
            return []
        return oracles.made_again(result, [*self.references, *self._patient, *paces, self.twin], self._allowed)

    def _changes_what_is_deleted(self, result: Result) -> bool:
        """Return True if users have changed a resource that is being deleted, and did not do so in the first run."""
        lost = {what for _, what in result.asked if what.endswith(DELETED)}
        return not lost <= {what for _, what in self.first.asked}

    def _overwritten(self, plan: Plan, result: Result) -> list[Finding]:
        """Return findings about changes that controllers destroyed without having read them, and would have kept."""
        if any(isinstance(each, faults.Restore) for each in plan):
            return []
        for each in oracles.overwrites(result):
            if each.owner in self._owned:
                continue
            if twins.is_kept_if_read(self.setting, plan, result, each):
                return [each.finding()]
            self._owned.add(each.owner)
        return []

    def _judged(self, plan: Plan, result: Result) -> list[Finding]:
        if len(plan) and all(isinstance(each, faults.SCHEDULES) for each in plan):
            return [*result.findings, *self.timing(plan, result)]
        if len(plan) and all(isinstance(each, faults.NewRun) for each in plan):
            return [*result.findings, *self._punctual(result)]
        counts = not any(isinstance(each, faults.Restore) for each in plan) and not self._depends_on_the_pace(plan)
        allowed = self._allowed_under(plan)
        raced = [step for each in plan for step in _struck(result, each) if isinstance(each, faults.LostRace)]
        judged = twins.without_entry(result) if raced else result
        findings = self._compared(judged, self.references, counts=counts, allowed=allowed)
        # A second fault, such as a restore, may have undone the other writer's change.
        lost = [step for step in raced if len(plan) == 1 and twins.has_lost_entry(result, step)]
        if not findings and not lost and not result.findings:
            return []
        rights, allowed = [*self.references, self.twin], self._allowed_under(plan)
        for step in raced:
            early = twins.written_early(self.setting, result, step)
            rights += [early, twins.without_entry(early)] if early is not None else []
            if step in lost and (destroyed := twins.overwritten(step, result, early)):
                return [*result.findings, *destroyed]
        compare = self._compared if result.findings else self._compared_late
        found = [*result.findings, *compare(judged, rights, counts=counts, allowed=allowed)]
        return [] if found and self._is_excused(plan, result, counts=counts) else found

    def _is_excused(self, plan: Plan, result: Result, *, counts: bool) -> bool:
        """Return True if no right program can end otherwise under this plan."""
        rights, allowed = [*self.references, self.twin], self._allowed_under(plan)
        lost = frozenset[str]()
        for each in plan:
            if isinstance(each, faults.Restore):
                late = twins.restored_at_last(self.setting, each.revision)
                if late is not None:
                    lost |= twins.lost_for_good(differences(late, rights, allowed, slow=self._late.slow))
                if any(each.startswith(oracles.OUTSIDE) for each in lost) and self._repeats_without_need(
                    result, rights
                ):
                    return False
                allowed = dataclasses.replace(allowed, declared=allowed.declared | lost)
            elif isinstance(each, faults.CommitLate | faults.CommitLast) and self._is_repeated(plan, each, result):
                self.not_asked.append(str(each))
                return True
        if result.findings:
            return False
        if plan.jumps:
            excused = self._agrees_after_a_jump(plan, result, rights, allowed)
        else:
            excused = not self._compared_late(result, rights, counts=counts, allowed=allowed)
        if excused and lost and str(plan) not in (plans := self._lost.setdefault(", ".join(sorted(lost)), [])):
            plans.append(str(plan))
        return excused

    def _agrees_after_a_jump(self, plan: Plan, result: Result, rights: list[Result], allowed: Allowed) -> bool:
        """Return True if a run whose clock has jumped ends as a run does where that time passes or has not come yet.

        Things for a time that the clock has skipped may be missing or late, and those for a time that it shows twice
        may be made twice.
        """
        rights = [*rights, *self._patient, *self._late.later(result)]
        twice = any(each.seconds < 0 for each in plan.jumps)
        for more in ([], self._late.jumped(plan, result)):
            rights += more
            for judged in ((result, rights), without_slots(result, rights, twice=twice)):
                # What time has ended may be created again in the same time.
                if not compared(*judged, counts=not twice, allowed=allowed, slow=self._late.slow):
                    return True
        return False

    def _is_repeated(self, plan: Plan, fault: faults.StepFault, result: Result) -> bool:
        """Return True if a call of the world outside that arrives late would be carried out even if it was repeated."""
        steps = [step for step in _struck(result, fault) if not step.kind[1]]
        if not steps or getattr(fault, "seconds", 1.0) == 0.0 or not self._no_keys(steps[0], result):
            return False
        again = twins.done_again(self.setting, plan, fault)
        if again is None or again.findings:
            return True
        return bool(self._compared_late(again, [*self.references, self.twin], counts=True))

    def _no_keys(self, step: Step, result: Result) -> bool:
        outside = self.setting.outside
        return outside is not None and api.has_no_keys(outside(), step, result.trace.steps)

    def _repeats_without_need(self, result: Result, rights: Sequence[Result]) -> bool:
        """Return True if there is more outside because of a repeated call, and the API has a better call or a look."""
        outside = self.setting.outside
        if outside is None or not oracles.has_more_outside(result, rights):
            return False
        most = Counter[str]()
        for each in rights:
            most |= twins.calls_outside(each)
        repeated = twins.calls_outside(result) - most
        calls = {step.method: step for step in result.trace.steps if step.method in repeated}
        return any(not self._no_keys(step, result) or api.can_be_looked_at(outside(), step) for step in calls.values())

    def compared(self, result: Result, *, counts: bool) -> list[Finding]:
        """Return what has ended differently than in every run without faults, apart from what may differ."""
        if not self._compared(result, self.references, counts=counts):
            return []
        return self._compared_late(result, [*self.references, self.twin], counts=counts)

    def _compared(
        self, result: Result, rights: Sequence[Result], *, counts: bool, allowed: Allowed | None = None
    ) -> list[Finding]:
        return compared(result, rights, self._patient, counts=counts, allowed=allowed or self._allowed)

    def _compared_late(
        self, result: Result, rights: Sequence[Result], *, counts: bool, allowed: Allowed | None = None
    ) -> list[Finding]:
        """Compare a run also with what a correct program does when more time passes."""
        allowed = allowed or self._allowed
        found = self._compared(result, rights, counts=counts, allowed=allowed)
        if not found:
            return []
        patient = [*self._patient, *self._late.later(result)]
        return compared(result, rights, patient, counts=counts, allowed=allowed, slow=self._late.slow)

    def _punctual(self, result: Result) -> list[Finding]:
        """Compare a run whose faults delay no change of the users. It may not end as it does when they come late."""
        if not compared(result, self.references, counts=True, allowed=self._allowed):
            return []
        rights, later = [*self.references, self.twin], self._late.later(result)
        return compared(result, rights, later, counts=True, allowed=self._allowed, slow=self._late.slow)

    def check_names(self) -> None:
        """Check that each resource that is declared by its name existed in a run without faults."""
        oracles.check_names(self._allowed.declared, self._seen)

    def differing(self) -> tuple[str, ...]:
        """Return sentences about what is not compared: what differs without faults, and the ends under some plans."""
        lost = [f"{each}, because users change a resource that is being deleted" for each in self._deleted]
        if self._by_pace:
            lost.append(f"{', '.join(sorted(self._by_pace))} if users don't wait, because that differs without faults")
        lost += [
            f"{what} under {', '.join(plans)}, because a restore when all work is done changes that as well"
            for what, plans in self._lost.items()
        ]
        return (*oracles.differing([*self.references, *([self._twin] if self._twin else [])], self._allowed), *lost)


def _struck(result: Result, fault: faults.Fault) -> list[Step]:
    """Return the step that a fault has struck."""
    if not isinstance(fault, faults.StepFault) or fault not in result.struck:
        return []
    return [each for each in result.trace.steps if each.number == fault.step]


def _timing_finding(each: Difference, plan: Plan) -> Finding:
    oracle = "outside" if each.declared.startswith("outside") else "end state"
    said = (
        f"{each.what.removesuffix(' is')} differs with timing alone: {each.got} with {plan}; {each.right} with none\n"
        f'    if either is right: may_differ=["{each.declared}"]'
    )
    return Finding(oracle, said, each.place)


def _upgrade_finding(each: Difference) -> Finding:
    oracle = "outside" if each.declared.startswith("outside") else "end state"
    said = (
        f"{each.what} {each.got} after the upgrade; if the new program runs from the start: {each.right}\n"
        f'    if that is right: may_differ=["{each.declared}"], or without=["{faults.NewFromStart.name}"]'
    )
    return Finding(oracle, said, each.place)
