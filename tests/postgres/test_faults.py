"""Engines on PostgreSQL keep every rule of a history while servers and engines are killed, frozen and cut off."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.helpers.fault_fleet import Fleet
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
        await fleet.judge(lambda nursery: PostgresFaults(pair, fleet.engines, nursery, SEED), SECONDS, capsys)
