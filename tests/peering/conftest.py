"""The origin and the store that most tests of the sender and the receiver start from."""

from __future__ import annotations

import pytest

from tests.peering.stream_kit import Importing, Origin


@pytest.fixture
def origin() -> Origin:
    """Return an origin with five teams."""
    origin = Origin()
    origin.commit(ada="1", ben="1")
    origin.commit(cyd="1", dan="1", eve="1")
    return origin


@pytest.fixture
def store() -> Importing:
    """Return an empty store."""
    return Importing()
