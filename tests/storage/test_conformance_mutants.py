"""Each check of the conformance suite fails on at least one broken store."""

import random

import pytest
from trio.testing import MockClock

from headway.testing import BACKEND_CHECKS, BackendCheck, StoreUnderTest, claim_of, verdicts
from tests.storage import broken_commits, broken_fences, broken_reads, broken_restarts, broken_watches
from tests.storage.kept_memory import Broken, KeptMemories, KeptMemory

BROKEN: Broken = {}
for module in (broken_commits, broken_reads, broken_watches, broken_fences, broken_restarts):
    assert not BROKEN.keys() & module.BROKEN.keys()
    BROKEN.update(module.BROKEN)


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        pytest.param(broken, check, id=f"{broken.__name__}-{claim_of(check)[0]}")
        for broken, checks in BROKEN.items()
        for check in checks
    ],
)
async def test_check_fails_on_broken_store(
    broken: type[KeptMemory], check: BackendCheck, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check for the broken promise fails with a sentence."""
    # Trio runs the tasks of a batch in random order. Here the order is the same each time.
    monkeypatch.setattr("trio._core._run._r", random.Random(1))
    memories = KeptMemories(broken)
    [said] = await verdicts(StoreUnderTest(memories.open, restore=memories.restore), [check])

    assert said.failure, f"{said.claim} holds of {broken.__name__}"
    assert " (in /" not in said.failure, f"a crash is no verdict: {said.failure}"
    assert autojump_clock.current_time() < 40


def test_every_check_fails_on_some_broken_store() -> None:
    """A check that fails on no store would verify nothing."""
    found = {check for checks in BROKEN.values() for check in checks}

    assert [claim_of(check)[0] for check in BACKEND_CHECKS if check not in found] == []
