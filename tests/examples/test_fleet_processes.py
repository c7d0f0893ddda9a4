"""The end, the adoption and the stop of the fleet's processes, with real processes and locks and a real kill -9."""

import os
import signal
from dataclasses import replace

import pytest
import trio
import trio.testing

from examples.fleet import locks
from examples.fleet.processes import (
    AlreadyRuns,
    State,
    find,
    stop,
    wait_exit,
)
from tests.examples.fleet_kit import PATIENCE, SLEEP, Fleet, kill, line_of, wait_ended

# --- Ends -----------------------------------------------------------------


async def test_killed_process_frees_its_lock_and_ends_the_wait(fleet: Fleet) -> None:
    """After kill -9, wait_exit returns the signal, no zombie is left, and the instance can start again."""
    process = await fleet.spawn()
    os.kill(process.pid, signal.SIGKILL)
    with trio.fail_after(PATIENCE):
        assert await wait_exit(process) == -signal.SIGKILL
    assert await find(fleet.folder) == {}
    assert not fleet.has_children()
    assert process.pid != (await fleet.spawn()).pid


# --- Adoption -------------------------------------------------------------


async def test_process_of_a_killed_engine_is_adopted(fleet: Fleet) -> None:
    """The process is found, not started again, waited for and stopped."""
    engine = fleet.start_engine("one", *SLEEP)
    started, pid = await line_of(engine)
    engine.kill()
    engine.wait()
    adopted = (await find(fleet.folder))["one"]
    assert ("started", int(pid), 7) == (started, adopted.pid, adopted.port)
    with pytest.raises(AlreadyRuns) as refused:
        await fleet.spawn()
    assert adopted == refused.value.process
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait_exit, adopted)
        await stop(adopted, grace=PATIENCE)
    assert await find(fleet.folder) == {}


async def test_engine_killed_during_a_spawn_loses_no_process(fleet: Fleet) -> None:
    """The next spawn starts the process or reports the running one. There is exactly one."""
    engine = fleet.start_engine("one", *SLEEP)
    with trio.fail_after(PATIENCE):
        while not fleet.folder.exists():  # created right before the launcher is started
            await trio.lowlevel.checkpoint()
    engine.kill()
    engine.wait()
    try:
        process = await fleet.spawn()
    except AlreadyRuns as error:
        process = error.process
    assert [process.identity] == [found.identity for found in (await find(fleet.folder)).values()]


# --- Stopping -------------------------------------------------------------


async def test_stop_kills_a_process_that_ignores_sigterm_with_its_children(fleet: Fleet) -> None:
    """Both end after the grace period."""
    process = await fleet.spawn_script("trap '' TERM; sleep 1000 & echo $! > $FIFO; wait")
    child = int(await fleet.read_fifo())
    with trio.fail_after(PATIENCE):
        await stop(process, grace=0.1)
    await wait_ended(process.pid)
    await wait_ended(child)
    assert await find(fleet.folder) == {}


async def test_remnant_is_reported_and_can_be_stopped(fleet: Fleet) -> None:
    """A child in another session holds the lock of a killed process. Nothing starts until it is stopped."""
    process = await fleet.spawn_script("setsid sleep 1000 & echo $! > $FIFO; exec sleep 1000")
    child = int(await fleet.read_fifo())
    kill(process)
    unreaped = locks.read(fleet.folder, "one")
    remnant = (await find(fleet.folder))["one"]
    assert unreaped == remnant
    assert (State.REMNANT, process.pid) == (remnant.state, remnant.pid)
    with pytest.raises(AlreadyRuns, match="remnant"):
        await fleet.spawn()
    with trio.fail_after(PATIENCE / 2):  # SIGTERM is enough: nothing has to be killed
        await stop(remnant, grace=PATIENCE)
    await wait_ended(child)
    assert await find(fleet.folder) == {}


async def test_stop_affects_neither_a_reused_pid_nor_a_later_run(fleet: Fleet) -> None:
    """Stopping a run that is over does nothing."""
    process = await fleet.spawn()
    with trio.fail_after(PATIENCE):
        await stop(replace(process, start_time=process.start_time - 1), grace=0)
    assert {"one": process} == await find(fleet.folder)
