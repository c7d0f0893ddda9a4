"""The queue of a sharded controller: what is closed, collecting and open, and who holds it."""

from __future__ import annotations

from headway.controller._request import Reason
from headway.controller._shard_queue import OneShard, ShardQueue
from headway.queue import WorkQueue
from headway.resource import Key

REASON = Reason("changed")


def shard(key: Key) -> int:
    return int(key[2][0])


def key(name: str) -> Key:
    return ("default", "default", name)


def taken(queue: ShardQueue) -> str:
    """The next key's name; empty: there is none."""
    found = queue.take_nowait()
    return "" if found is None else found.key[2]


async def test_what_comes_while_a_shard_collects_is_handed_out_when_it_opens() -> None:
    """And what comes for a closed one never is."""
    queue = ShardQueue(WorkQueue(), shard)
    queue.add(key("1-early"), REASON)
    queue.collect(1)
    queue.add(key("1-collected"), REASON)
    queue.add(key("2-other"), REASON)
    assert taken(queue) == ""
    queue.open_shard(1)
    queue.add_all([key("1-later"), key("2-other")], REASON)
    assert [taken(queue) for _ in range(3)] == ["1-collected", "1-later", ""]


async def test_nothing_of_a_closed_shard_is_left() -> None:
    """Neither what is ready, nor what rests, nor what is in hand and fails."""
    queue = ShardQueue(WorkQueue(), shard)
    queue.open_shard(1)
    for name in ("1-fails", "1-in-hand", "1-ready"):
        queue.add(key(name), REASON)
    assert [taken(queue), taken(queue)] == ["1-fails", "1-in-hand"]
    queue.failed(key("1-fails"), REASON)
    assert queue.owes(1)
    queue.close_shard(1)
    assert taken(queue) == ""
    assert queue.failed(key("1-in-hand"), REASON) == 0.0
    assert taken(queue) == ""
    assert queue.is_idle()


async def test_it_is_held_until_the_last_of_its_holders_lets_go() -> None:
    """One shard's unknown write is not settled by another one's settling."""
    queue = ShardQueue(WorkQueue(), shard)
    queue.open_shard(1)
    first, second = OneShard(queue, 1, shard), OneShard(queue, 2, shard)
    first.hold()
    second.hold()
    first.add(key("1-a"), REASON)
    first.add(key("2-not-its"), REASON)
    second.release()
    assert taken(queue) == ""
    first.release()
    assert [taken(queue), taken(queue)] == ["1-a", ""]
