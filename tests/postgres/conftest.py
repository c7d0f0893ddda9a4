"""Marks for the tests with faults of a real PostgreSQL: `make test-postgres` or ``pytest -m postgres`` runs them."""

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "postgres" not in config.getoption("markexpr"):
        left_out = [item for item in items if item.get_closest_marker("postgres")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
