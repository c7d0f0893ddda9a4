"""Marks for the tests with a real Envoy: `make test-envoy` or ``pytest -m envoy`` runs them."""

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "envoy" not in config.getoption("markexpr"):
        left_out = [item for item in items if item.get_closest_marker("envoy")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
