"""Mutants of pauses: of when a process knows them, and of what they stop."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_PAUSES = "pauses/test_pauses.py"

PAUSE_MUTANTS = (
    Mutant(
        "a run reconciles before it knows the pauses",
        "run/_run.py",
        "                await self._gate.wait_known(self._stall_limit)\n",
        "",
        _PAUSES,
    ),
    Mutant(
        "a pause does not stop the queue",
        "run/_run.py",
        "            queue.hold(self._gate)\n",
        "            pass\n",
        _PAUSES,
    ),
    Mutant(
        "a release ends a pause",
        "queue/_waiting.py",
        "        self._holders.discard(holder)\n",
        "        self._holders.clear()\n",
        "queue/test_waiting_stopped.py",
    ),
    Mutant(
        "daemons go on through a pause",
        "controller/_daemons.py",
        "                        task.scope.cancel()\n                await",
        "                        pass\n                await",
        _PAUSES,
    ),
    Mutant(
        "wait_idle waits for a paused controller",
        "run/_supervisor.py",
        "            if run.is_blocked:\n",
        "            if False:\n",
        _PAUSES,
    ),
    Mutant(
        "a worker needs a rule to see pauses",
        "access/_policy.py",
        'return type == PAUSE.name and verb in GROUPS["view"] and bool(self.policies)',
        "return False",
        _PAUSES,
    ),
)
