"""Engines on PostgreSQL keep every rule of a history while servers and engines are killed, frozen and cut off."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio

from tests.helpers.fault_fleet import Fleet, sentences
from tests.helpers.fault_program import owes
from tests.helpers.postgres_faults import PostgresFaults
from tests.helpers.postgres_pair import postgres_pair

SECONDS = float(os.environ.get("HEADWAY_FAULT_SECONDS", "30"))
SEED = int(os.environ.get("HEADWAY_FAULT_SEED", "1"))

pytestmark = pytest.mark.postgres


@pytest.mark.timeout(SECONDS + 240)
async def test_engines_keep_every_rule_on_a_server_with_faults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No acknowledged write is lost, no cache goes back, no two hold a term, and every key ends reconciled."""
    async with postgres_pair(tmp_path, synchronous=True) as pair:
        fleet = Fleet(pair.url, tmp_path, SEED)
        plan: list[PostgresFaults] = []

        async def faults(nursery: trio.Nursery) -> None:
            plan.append(PostgresFaults(pair, fleet.engines, nursery, SEED))
            await plan[0].run(SECONDS)

        began, ended_well = trio.current_time(), False
        try:
            await fleet.run(faults)
            ended_well = True
        finally:
            # After a failed run, some keys may still have to be reconciled.
            violations = fleet.history.violations(owes() if ended_well else None)
            answers = fleet.answers()
            took = trio.current_time() - began
            with capsys.disabled():
                print(f"\nseed {SEED}, {took:.0f} s, {len(plan[0].log) if plan else 0} faults")
                print(f"writes {dict(answers)}, {len(fleet.history.facts)} facts, {len(violations)} violations")
                if violations or not ended_well:
                    print(f"in this order: {'; '.join(plan[0].log if plan else ())}\n{sentences(violations)}")
    assert not violations
    # A run without writes or faults would prove nothing.
    assert answers["acknowledged"] > 2 * SECONDS
    assert len(plan[0].log) > SECONDS / 15
