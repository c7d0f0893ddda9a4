"""Mutants of the fetches of notifications: polls and blocking queries."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_UPDATES = "notify/test_updates.py"
_FETCHES = "notify/test_fetches.py"
_HARMFUL = "notify/test_harmful_fetches.py"

FETCH_MUTANTS = (
    Mutant(
        "a fetch outlives its last handle",
        "notify/_fetches.py",
        "        self._scope.cancel()\n",
        "",
        _FETCHES,
    ),
    Mutant(
        "a shared fetch is not shared",
        "notify/_fetches.py",
        "answer = self._answers.get(key)",
        "answer = self._answers.get(key) and None",
        _FETCHES,
    ),
    Mutant(
        "a value that was known counts as new",
        "notify/_handle.py",
        "self.hit = answer.values > 0 and answer.suffices(self)",
        "self.hit = False",
        _UPDATES,
    ),
    Mutant(
        "a handle accepts a value that is too old for it",
        "notify/_fetches.py",
        "return handle.max_age is None or self.age <= handle.max_age",
        "return True",
        _FETCHES,
    ),
    Mutant(
        "a handle that wants a newer value never gets an equal one",
        "notify/_fetches.py",
        "                if not handle.answered:\n",
        "                if False:\n",
        _FETCHES,
    ),
    Mutant(
        "a poll without an age is accepted",
        "notify/_updates.py",
        "max_age: Delay, correlation_id",
        "max_age: Any = None, correlation_id",
        _FETCHES,
    ),
    Mutant(
        "a poll whose value is always too old lets no other task run",
        "notify/_fetches.py",
        "        await trio.lowlevel.checkpoint()\n        jitter",
        "        jitter",
        _HARMFUL,
    ),
    Mutant(
        "the failure of a canceled fetch ends the cache",
        "notify/_fetches.py",
        "raise others from None",
        "raise",
        _HARMFUL,
    ),
    Mutant(
        "the first value of a poll's handle waits for the jitter",
        "notify/_fetches.py",
        "while all(handle.answered for handle in self.handles):",
        "while True:",
        _FETCHES,
    ),
    Mutant(
        "equal messages count as a change",
        "notify/_fetches.py",
        "return equal(old, new)",
        "return old is new",
        _FETCHES,
    ),
    Mutant(
        "an index that has not grown is delivered",
        "notify/_fetches.py",
        "grown = first or index > self._index or",
        "grown = first or index >= self._index or",
        _FETCHES,
    ),
    Mutant(
        "a failing fetch is retried without a delay",
        "notify/_fetches.py",
        "return delay * (1 + chance.random())",
        "return 0.0",
        _FETCHES,
    ),
    Mutant(
        "a repeated error is not delivered",
        "notify/_handle.py",
        "        self.error, self.failures = error, failures\n        for handle in self.handles:\n",
        "        repeated, self.error, self.failures = error and self.error, error, failures\n"
        "        for handle in () if repeated else self.handles:\n",
        _FETCHES,
    ),
)
