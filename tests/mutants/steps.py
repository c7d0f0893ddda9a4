"""Mutants of steps: of what is stored before and after an effect, of whom the store refuses, and of what is accused."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_STEPS = "steps/test_steps.py"
_CONTRACT = "steps/test_contract_of_steps.py"
_ACCUSED = "simulation/test_uncertain_steps.py"

STEP_MUTANTS = (
    Mutant(
        "an uncertain step is entered without asking the store",
        "steps/_step.py",
        "            await self._write(ConditionState.UNKNOWN, BEGUN, self._key)\n",
        "            if not self._uncertain:\n"
        "                await self._write(ConditionState.UNKNOWN, BEGUN, self._key)\n",
        _CONTRACT,
    ),
    Mutant(
        "a step begins without its intention",
        "steps/_step.py",
        "            await self._write(ConditionState.UNKNOWN, BEGUN, self._key)\n",
        "            pass\n",
        "steps/test_killed.py",
    ),
    Mutant(
        "a step that has raised is done",
        "steps/_step.py",
        "        if error is None and self._outcome is None:\n",
        "        if self._outcome is None:\n",
        _STEPS,
    ),
    Mutant(
        "a step that has raised has not begun",
        "steps/_step.py",
        "        if error is None and self._outcome is None:\n",
        "        if error is not None and self._outcome is None:\n"
        '            self._outcome = ConditionState.FALSE, FAILED, ""\n'
        "        elif error is None and self._outcome is None:\n",
        _STEPS,
    ),
    Mutant(
        "a result is not stored if the block raises later",
        "steps/_step.py",
        "        if self._outcome is None:\n            return\n",
        "        if self._outcome is None or error is not None:\n            return\n",
        _STEPS,
    ),
    Mutant(
        "two tasks write the records of a resource at once",
        "steps/_step.py",
        "async with self._run.turns.at((self._resource.id, self._status_key)):",
        "if True:",
        _STEPS,
    ),
    Mutant(
        "a step of another resource is recorded there",
        "steps/_step.py",
        "    if own != (resource.type.kind, resource.id.key):\n",
        "    if own is None:\n",
        _STEPS,
    ),
    Mutant(
        "a block that sets the result of a done step is retried",
        "steps/_step.py",
        "        return PermanentFailure(wrong)\n",
        "        self._run.wrong.clear()\n        return InvalidArgument(wrong)  # type: ignore[return-value]\n",
        _CONTRACT,
    ),
    Mutant(
        "a result is not stored if the block is canceled",
        "steps/_step.py",
        "            with trio.move_on_after(_LAST, shield=True), ",
        "            with trio.move_on_after(_LAST), ",
        _CONTRACT,
    ),
    Mutant(
        "a block that does not ask is entered again",
        "steps/_step.py",
        "        if wrong := self._run.wrong.get(self._name):\n",
        '        if wrong := "":\n',
        _STEPS,
    ),
    Mutant(
        "two tasks enter a step at once",
        "steps/_step.py",
        "self._record)) in self._run.open:",
        "self._record)) is None:",
        _STEPS,
    ),
    Mutant(
        "a step of a resource outside the cache is forgotten within the run",
        "steps/_step.py",
        "            self._statuses.note(written, self._status_key)\n",
        "            assert written\n",
        _STEPS,
    ),
    Mutant(
        "the key of a step is the same for each incarnation",
        "steps/_record.py",
        "_digest((id.uid, status_key, record))",
        "_digest((id.name, status_key, record))",
        _STEPS,
    ),
    Mutant(
        "an uncertain step is forgotten for a new one",
        "steps/_record.py",
        "    ended = [each for each in same if each.state != ConditionState.UNKNOWN]\n",
        "    ended = same\n",
        _STEPS,
    ),
    Mutant(
        "inputs that are begun again stay the oldest",
        "steps/_record.py",
        "        if reason != BEGUN:\n",
        "        if reason:\n",
        _STEPS,
    ),
    Mutant(
        "a full status has no room for other inputs",
        "steps/_record.py",
        "    if ended and (len(same) >= KEPT_INPUTS or len(records) >= MOST_STEPS):\n",
        "    if ended and len(same) >= KEPT_INPUTS:\n",
        _STEPS,
    ),
    Mutant(
        "a step that passes its key is accused",
        "testing/simulation/oracles/_uncertain.py",
        "    if not before or entered.key in first.method:\n",
        "    if not before:\n",
        _ACCUSED,
    ),
    Mutant(
        "a step that is ignored is not accused",
        "testing/simulation/oracles/_uncertain.py",
        "    if not before or entered.key in first.method:\n",
        "    if before or entered.key in first.method:\n",
        _ACCUSED,
    ),
    Mutant(
        "the steps of a resource belong to a generation",
        "testing/simulation/oracles/_oracles.py",
        "    return key.endswith(SUFFIX) or status",
        "    return status",
        _ACCUSED,
    ),
)
