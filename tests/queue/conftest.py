"""A queue under test, and workers for it."""

import pytest

from headway.queue import WaitingQueue
from tests.queue.workers import Looks, Workers


@pytest.fixture
def machine() -> Looks:
    """Return the queue inside."""
    return Looks()


@pytest.fixture
def queue(machine: Looks) -> WaitingQueue[str, str]:
    """Return the queue under test; it backs off for 1 s after a first failure."""
    return WaitingQueue(machine)


@pytest.fixture
def workers(queue: WaitingQueue[str, str]) -> Workers:
    """Return workers at the queue, none of them started."""
    return Workers(queue)
