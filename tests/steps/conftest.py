"""The stores and transports that the contract is tested with."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from trio.testing import MockClock

from tests.helpers.settings import SETTINGS, HeldClock, Setting


@pytest.fixture(params=SETTINGS)
def setting(
    request: pytest.FixtureRequest, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Setting]:
    """Return each combination of store and transport."""
    held = HeldClock(autojump_clock)
    held.watch_threads(monkeypatch)
    with tempfile.TemporaryDirectory(prefix="headway-") as path:
        store, network = request.param
        made = Setting(store, network, Path(path), held)
        yield made
    assert made.unexpected == []
