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


async def test_what_waits_for_its_time_in_a_closed_shard_is_not_this_queues_any_more() -> None:
    queue = ShardQueue(WorkQueue(), shard)
    for number in (1, 2):
        queue.open_shard(number)
        queue.add(key(f"{number}-later"), REASON)
        queue.requeue_after(key(taken(queue)), 600, REASON)
    assert set(queue.scheduled()) == {key("1-later"), key("2-later")}
    queue.close_shard(1)
    assert set(queue.scheduled()) == {key("2-later")}


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


async def test_an_open_shard_that_collects_again_owes_what_it_owed() -> None:
    """What was ready, in hand or resting, and what comes then; it is handed out when the shard is open again."""
    queue = ShardQueue(WorkQueue(), shard)
    queue.open_shard(1)
    queue.open_shard(2)
    for name in ("1-fails", "1-in-hand", "1-ready", "2-other"):
        queue.add(key(name), REASON)
    assert [taken(queue), taken(queue)] == ["1-fails", "1-in-hand"]
    queue.failed(key("1-fails"), REASON)
    queue.collect(1)
    queue.collect(1)
    queue.add(key("1-later"), REASON)
    queue.dropped(key("1-in-hand"))
    assert [taken(queue), taken(queue)] == ["2-other", ""]
    queue.succeeded(key("2-other"))
    assert sorted(name for *_, name in queue.owed()) == ["1-fails", "1-in-hand", "1-later", "1-ready"]
    assert not queue.is_idle()
    assert queue.owes(1)
    queue.open_shard(1)
    assert sorted(taken(queue) for _ in range(5)) == ["", "1-fails", "1-in-hand", "1-later", "1-ready"]


async def test_a_closed_shard_is_owed_nothing() -> None:
    """Neither what was collected for it, nor what is in hand still: another process does it."""
    queue = ShardQueue(WorkQueue(), shard)
    queue.open_shard(1)
    queue.collect(2)
    queue.add(key("1-in-hand"), REASON)
    queue.add(key("2-collected"), REASON)
    assert taken(queue) == "1-in-hand"
    assert sorted(name for *_, name in queue.owed()) == ["1-in-hand", "2-collected"]
    queue.close_shard(1)
    queue.close_shard(2)
    assert queue.owed() == []
    queue.dropped(key("1-in-hand"))
    assert taken(queue) == ""
    assert queue.is_idle()


async def test_who_has_left_a_shard_holds_nothing_for_it() -> None:
    """A write that is lost afterwards would hold every key, and nobody is there who settles it."""
    queue = ShardQueue(WorkQueue(), shard)
    queue.open_shard(1)
    left = OneShard(queue, 1, shard)
    left.hold()
    assert left.held
    left.leave()
    left.hold()
    assert not left.held
    queue.add(key("1-a"), REASON)
    assert taken(queue) == "1-a"
