"""Marks for the tests that need three etcd members: `make test-cluster` or ``pytest -m cluster`` runs them."""

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "cluster" not in config.getoption("markexpr"):
        left_out = [item for item in items if item.get_closest_marker("cluster")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
