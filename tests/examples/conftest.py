"""The fixtures of the examples' tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.examples.fleet_kit import Fleet


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    fleet = Fleet(tmp_path)
    yield fleet
    await fleet.close()
