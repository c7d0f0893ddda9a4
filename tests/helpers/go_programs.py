"""The third-party Go clients and checkers that `make go-programs` builds for the tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

BUILT = Path(__file__).parents[2] / ".venv/go"
NO_GO = "no Go programs: install Go and run `make go-programs`"


def need_go_program(name: str) -> Path:
    """Return the path of a built program. Without it, skip the test, or fail it if HEADWAY_NEEDS_GO is set."""
    path = BUILT / name
    if path.exists():
        return path
    if os.environ.get("HEADWAY_NEEDS_GO"):
        pytest.fail(f"{name}: {NO_GO}", pytrace=False)
    pytest.skip(f"{name}: {NO_GO}")
