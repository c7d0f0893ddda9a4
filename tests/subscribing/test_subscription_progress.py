"""`Client.subscribe` while its stream is interrupted, and while its reader is slow."""

from __future__ import annotations

import trio
import trio.testing

from headway.subscription import NewSnapshot, SnapshotComplete, SnapshotPart
from tests.subscribing.test_subscribe import FIRST, TEAM, Step, at, commit, delete, lost, said, scripted, upsert


async def test_problem_is_visible_while_the_stream_is_interrupted(autojump_clock: trio.testing.MockClock) -> None:
    assert autojump_clock is not None
    _, client = scripted([*FIRST, lost()])
    async with client.subscribe([TEAM]) as batches:
        await anext(batches)
        assert batches.position == at(5)
        with trio.move_on_after(0.01):
            await anext(batches)
        assert batches.problem == "UNAVAILABLE: lost"


async def test_problem_stays_until_the_snapshot_of_the_next_stream_is_complete(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Until then, the reader has the old state, at the old position."""
    assert autojump_clock is not None
    complete = trio.Event()
    again = [
        NewSnapshot("the history is gone"),
        SnapshotPart([upsert("new", "", 7)]),
        complete.wait,
        SnapshotComplete(at(9)),
    ]
    _, client = scripted([*FIRST, lost()], [*again, commit(10, delete("new", 10))])
    async with client.subscribe([TEAM]) as batches:
        await anext(batches)
        with trio.move_on_after(5):
            await anext(batches)
        assert (batches.problem, batches.position) == ("UNAVAILABLE: lost", at(5))
        complete.set()
        batch = await anext(batches)
        assert (batch.snapshot, said(batch)) == (True, ["Team new="])
        assert (batches.problem, batches.position) == (None, at(9))


async def test_slow_reader_stops_the_stream() -> None:
    """Nothing is gathered for it."""
    pulled = 0

    async def pull() -> None:
        nonlocal pulled
        pulled += 1

    steps: list[Step] = [*FIRST]
    for number in range(6, 30):
        steps += [pull, commit(number, delete("x", number))]
    _, client = scripted(steps)
    async with client.subscribe([TEAM]) as batches:
        await anext(batches)
        await trio.testing.wait_all_tasks_blocked()
        assert pulled == 1
        await anext(batches)
        await trio.testing.wait_all_tasks_blocked()
        assert pulled == 2
