"""The queue of a sharded controller: its closed, collecting and open shards."""

from __future__ import annotations

from itertools import count

import pytest
import trio

from headway.queue import WorkQueue
from headway.reconcile import Reason
from headway.resource import Key
from headway.sharding import OneShard, ShardQueue

REASON = Reason("changed")


def shard(key: Key) -> int:
    return int(key[2][0])


def key(name: str) -> Key:
    return ("default", "default", name)


def dequeued(queue: ShardQueue) -> str:
    """Return the name of the next key, or "" if no key is ready."""
    found = queue.dequeue_nowait()
    return "" if found is None else found.key[2]


async def test_keys_of_a_collecting_shard_are_handed_out_when_it_opens() -> None:
    """Keys of a closed shard are never handed out."""
    queue = ShardQueue(WorkQueue(), shard)
    queue.add(key("1-early"), REASON)
    queue.collect(1)
    queue.add(key("1-collected"), REASON)
    queue.add(key("2-other"), REASON)
    assert dequeued(queue) == ""
    queue.open_shard(1)
    queue.add_all([key("1-later"), key("2-other")], REASON)
    assert [dequeued(queue) for _ in range(3)] == ["1-collected", "1-later", ""]


async def test_closing_a_shard_removes_all_its_keys() -> None:
    """This holds for ready keys, for keys that back off, and for a key that fails while it is being reconciled."""
    queue = ShardQueue(WorkQueue(), shard)
    queue.open_shard(1)
    for name in ("1-fails", "1-in-hand", "1-ready"):
        queue.add(key(name), REASON)
    assert [dequeued(queue), dequeued(queue)] == ["1-fails", "1-in-hand"]
    queue.failed(key("1-fails"), REASON)
    assert not queue.is_shard_idle(1)
    queue.close_shard(1)
    assert dequeued(queue) == ""
    assert queue.failed(key("1-in-hand"), REASON) == 0.0
    assert dequeued(queue) == ""
    assert queue.is_idle()


async def test_closing_a_shard_removes_its_scheduled_keys() -> None:
    queue = ShardQueue(WorkQueue(), shard)
    for number in (1, 2):
        queue.open_shard(number)
        queue.add(key(f"{number}-later"), REASON)
        queue.requeue_after(key(dequeued(queue)), 600, REASON)
    assert set(queue.scheduled()) == {key("1-later"), key("2-later")}
    queue.close_shard(1)
    assert set(queue.scheduled()) == {key("2-later")}


async def test_view_of_a_shard_adds_only_its_keys() -> None:
    queue = ShardQueue(WorkQueue(), shard)
    queue.open_shard(1)
    queue.open_shard(2)
    one = OneShard(queue, 1, shard)
    one.add(key("1-a"), REASON)
    one.add(key("2-not-its"), REASON)
    assert [dequeued(queue), dequeued(queue)] == ["1-a", ""]


async def test_open_shard_that_collects_again_keeps_its_pending_keys() -> None:
    """The keys were ready, in progress or backing off.

    They are handed out with later keys when the shard opens again.
    """
    queue = ShardQueue(WorkQueue(), shard)
    queue.open_shard(1)
    queue.open_shard(2)
    for name in ("1-fails", "1-in-hand", "1-ready", "2-other"):
        queue.add(key(name), REASON)
    assert [dequeued(queue), dequeued(queue)] == ["1-fails", "1-in-hand"]
    queue.failed(key("1-fails"), REASON)
    queue.collect(1)
    queue.collect(1)
    queue.add(key("1-later"), REASON)
    queue.dropped(key("1-in-hand"))
    assert [dequeued(queue), dequeued(queue)] == ["2-other", ""]
    queue.succeeded(key("2-other"))
    assert sorted(name for *_, name in queue.owed()) == ["1-fails", "1-in-hand", "1-later", "1-ready"]
    assert not queue.is_idle()
    assert not queue.is_shard_idle(1)
    queue.open_shard(1)
    assert sorted(dequeued(queue) for _ in range(5)) == ["", "1-fails", "1-in-hand", "1-later", "1-ready"]


async def test_open_shard_that_collects_again_keeps_its_scheduled_keys() -> None:
    """They become pending, and are handed out when the shard opens again, without waiting for their time."""
    queue = ShardQueue(WorkQueue(), shard)
    for number in (1, 2):
        queue.open_shard(number)
        queue.add(key(f"{number}-later"), REASON)
        queue.requeue_after(key(dequeued(queue)), 600, REASON)
    queue.collect(1)
    assert queue.owed() == [key("1-later")]
    assert set(queue.scheduled()) == {key("2-later")}
    assert dequeued(queue) == ""
    queue.open_shard(1)
    assert [dequeued(queue), dequeued(queue)] == ["1-later", ""]


def test_key_that_becomes_due_while_its_shard_collects_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock is a second later than the one before."""
    clock = count()
    monkeypatch.setattr(trio, "current_time", lambda: float(next(clock)))
    for delay in range(10):
        queue = ShardQueue(WorkQueue(), shard)
        queue.open_shard(1)
        queue.add(key("1-later"), REASON)
        queue.requeue_after(key(dequeued(queue)), delay, REASON)
        queue.collect(1)
        assert queue.owed() == [key("1-later")], delay
