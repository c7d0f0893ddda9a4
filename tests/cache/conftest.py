"""The state of a type store that most of its tests start from."""

from __future__ import annotations

import pytest

from headway.cache import TypeStore
from tests.helpers.resources import chunk, end, stored


@pytest.fixture
def store() -> TypeStore:
    """Return a type store primed at revision 10 with ada at 5 and grace at 6."""
    store = TypeStore()
    store.feed(chunk(stored("ada", 5), stored("grace", 6)))
    store.feed(end(10))
    return store
